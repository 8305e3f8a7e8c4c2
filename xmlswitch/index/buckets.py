"""Where conjunctions wait until a document has what they all ask for: one path, or one value of a column.

The first few are checked one by one. More are put together in blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from xmlswitch.index.conjunctions import Block, Bound, ColumnKey, Entry, Needs, Values

_FEW = 2  # more cost a packet less in a block
_Check = tuple[ColumnKey, Callable[[str], bool], bool]


class Single:
    """A conjunction that is checked by itself."""

    __slots__ = ("_checks", "_tests", "entry", "is_free", "needs")

    def __init__(self, entry: Entry, needs: Needs, tests: tuple[Bound, ...]) -> None:
        self.entry = entry
        self.needs = needs
        self.is_free = not any(needs)  # any structure will do
        self._tests = tests
        self._checks: tuple[_Check, ...] | None = None if tests else ()

    def holds(self, values: Values, unsure: bool) -> bool:
        """Whether all tests hold; of an `unsure` one only the positive ones, the negative prove nothing there."""
        checks = self._checks
        if checks is None:  # most are never asked
            checks = self._checks = tuple((column, test.predicate, positive) for column, test, positive in self._tests)
        for column, predicate, positive in checks:
            if unsure and not positive:
                continue
            look = values[column]
            if isinstance(look, tuple):
                if predicate(look[0]) != positive:
                    return False
            elif any(predicate(one[0]) for one in look) != positive:
                return False
        return True


class Bucket:
    """`on_change` is called when what is in it is another set of singles and blocks."""

    __slots__ = ("_on_change", "blocks", "few", "size", "version")

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self.few: list[Single] = []
        self.blocks: list[Block] = []
        self.size = 0
        self.version = 0  # changes with what is in it

    def add(
        self,
        entry: Entry,
        needs: Needs,
        tests: tuple[Bound, ...],
        bind: Callable[[Entry], tuple[Needs, tuple[Bound, ...]]],
    ) -> None:
        """`bind` tells an entry's needs and tests again."""
        entry.bucket = self
        self.size += 1
        if not self.blocks and len(self.few) < _FEW:
            self.few.append(Single(entry, needs, tests))
            self._changed()
            return
        waiting, self.few = self.few, []
        for single in waiting:
            self._to_block(single.entry, *bind(single.entry), bind)
        self._to_block(entry, needs, tests, bind)
        if waiting:
            self._changed()

    def _to_block(
        self,
        entry: Entry,
        needs: Needs,
        tests: tuple[Bound, ...],
        bind: Callable[[Entry], tuple[Needs, tuple[Bound, ...]]],
    ) -> None:
        blocks = self.blocks
        if not blocks or blocks[-1].is_full:
            sparse = next((block for block in blocks if block.is_sparse), None)
            if sparse is not None:
                blocks.remove(sparse)
                for other in sparse.take_all():
                    sparse.add(other, *bind(other))
                blocks.append(sparse)
            else:
                blocks.append(Block())
            self._changed()
        blocks[-1].add(entry, needs, tests)
        self.version += 1

    def links_changed(self, entry: Entry) -> None:
        if entry.place is not None:
            entry.place.links_changed()
        self.version += 1

    def remove(self, entry: Entry) -> None:
        self.size -= 1
        block = entry.place
        if block is None:
            self.few = [single for single in self.few if single.entry is not entry]
            self._changed()
            return
        block.remove(entry)
        self.version += 1
        if not block.bits:
            self.blocks.remove(block)
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        if self._on_change is not None:
            self._on_change()
