"""Up to 2,048 conjunctions, decided together: one integer of slots for each path and each column that they ask for.

A conjunction's bit in these integers is its *slot*. Paths that are missing (or unwanted and there) rule slots out, then
the values of columns; what nothing rules out holds. Slots that were given up stay out of `bits` and are used again when
the block is made anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable
from math import isfinite
from typing import TYPE_CHECKING

from xmlswitch.atoms import Test
from xmlswitch.entries import Bound, Entry, Needs
from xmlswitch.hits import Hits
from xmlswitch.ladders import Ladder

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.paths import PathEntry

# What was read of a document so far, and how to read more: one node's look, or several's.
Looks = dict["ColumnEntry", "Look | list[Look]"]
Read = Callable[["ColumnEntry"], "Look | list[Look]"]
_Op = tuple["ColumnEntry", "list[float] | None", list[int], tuple[Hits, ...], "Table"]
MAX_SLOTS = 2048
_MIN_DEAD = 64
_FEW = 16  # set bits that are found by taking one after the other
_NO_ROWS: list[int] = []
_RELATIONAL = frozenset({"n<", "n<=", "n>", "n>="})


class Table:
    """Tests of a block's slots on one column."""

    __slots__ = ("hits", "ladder", "positive", "slots")

    def __init__(self) -> None:
        self.slots = 0  # with a test
        self.positive = 0  # with a test that some node must pass
        self.ladder: Ladder | None = None
        self.hits: tuple[Hits, ...] = ()

    def add(self, slot: int, test: Test, positive: bool) -> None:
        self.slots |= 1 << slot
        if positive:
            self.positive |= 1 << slot
        if test.op in _RELATIONAL and isfinite(float(test.operand)):
            self.ladder = self.ladder or Ladder()
            self.ladder.add(slot, test.op, float(test.operand), positive)
            return
        negation = test.op in ("!=", "n!=")
        unless = positive != negation
        for hits in self.hits:
            if hits.unless == unless and hits.every == negation and not hits.all >> slot & 1:
                break
        else:
            hits = Hits(unless, negation)
            self.hits += (hits,)
        hits.add(slot, test)

    def settle(self) -> None:
        if self.ladder is not None:
            self.ladder.settle()

    def many(self, looks: list[Look], negative: bool = True) -> int:
        """The slots that several nodes rule out, or none; by negative tests too, or only by positive ones."""
        if not looks:
            return self.positive
        violated = 0
        if self.ladder is not None:
            violated |= self.ladder.many([number for _, number, _ in looks], negative)
        for hits in self.hits:
            if negative or hits.unless != hits.every:  # `=` and the like, and `!=`, each by its own sign
                violated |= hits.many(looks)
        return violated


class Block:
    """`version` changes with what is in it. Masks may name slots that were given up; `bits` does not."""

    __slots__ = (
        "_absent",
        "_by_link",
        "_owners",
        "_required",
        "_unique",
        "_verify",
        "_whole",
        "bits",
        "dead",
        "entries",
        "ops",
        "tables",
        "version",
    )

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        self.bits = 0
        self.dead = 0
        self.version = 0
        self._required: dict[PathEntry, int] = {}
        self._absent: dict[PathEntry, int] = {}
        self._unique: dict[PathEntry, int] = {}
        self._verify = 0
        self.tables: dict[ColumnEntry, Table] = {}
        self.ops: tuple[_Op, ...] | None = None  # what `tables` come to, worked out after a change
        self._whole: tuple[int, ...] | None = None
        self._by_link: dict[int, int] | None = None
        self._owners: list[int | dict[int, int] | None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= MAX_SLOTS

    @property
    def is_sparse(self) -> bool:
        """Whether making it anew gives back much."""
        return self.dead >= max(_MIN_DEAD, len(self.entries) // 4)

    def add(self, entry: Entry, needs: Needs, tests: Iterable[Bound]) -> None:
        slot = len(self.entries)
        bit = 1 << slot
        self.entries.append(entry)
        entry.slot = slot
        entry.place = self
        self.bits |= bit
        for path in needs.required:
            self._required[path] = self._required.get(path, 0) | bit
        for path in needs.absent:
            self._absent[path] = self._absent.get(path, 0) | bit
        for path in needs.unique:
            self._unique[path] = self._unique.get(path, 0) | bit
        if needs.verify:
            self._verify |= bit
        for column, test, positive in tests:
            table = self.tables.get(column)
            if table is None:
                table = self.tables[column] = Table()
            table.add(slot, test, positive)
        self.ops = None
        self.version += 1
        self.links_changed()

    def remove(self, entry: Entry) -> None:
        self.entries[entry.slot] = None
        self.bits &= ~(1 << entry.slot)
        self.dead += 1
        self.version += 1
        self.links_changed()

    def take_all(self) -> list[Entry]:
        """Empty it, for its entries to be added anew."""
        left = [entry for entry in self.entries if entry is not None]
        self.entries.clear()
        for held in (self.tables, self._required, self._absent, self._unique):
            held.clear()
        self.ops = None
        self.bits = self.dead = self._verify = 0
        self.version += 1
        self.links_changed()
        return left

    def links_changed(self) -> None:
        self._whole = self._owners = self._by_link = None

    # --- documents ---

    def allowed(self, present: Container[PathEntry], plural: Container[PathEntry]) -> tuple[int, int]:
        """The slots that a document's structure allows: those that are sure, and those that are only possible."""
        missing = 0
        for path, bits in self._required.items():
            if path not in present:
                missing |= bits
        left = self.bits & ~missing
        if not left:
            return 0, 0
        unsure = self._verify
        for path, bits in self._unique.items():
            if path in plural:
                unsure |= bits
        sure = left & ~unsure
        for path, bits in self._absent.items():
            if path in present:
                sure &= ~bits
        return sure, left & unsure

    def compiled(self) -> tuple[_Op, ...]:
        for table in self.tables.values():
            table.settle()
        self.ops = tuple(
            (
                column,
                table.ladder.keys if table.ladder else None,
                table.ladder.rows if table.ladder else _NO_ROWS,
                table.hits,
                table,
            )
            for column, table in self.tables.items()
        )
        return self.ops

    def possible(self, slots: int, looks: Looks, read: Read) -> int:
        """Of these slots, those no positive test rules out: negative ones prove nothing where paths branch."""
        if self.ops is None:
            self.compiled()
        for column, table in self.tables.items():
            if table.slots & slots:
                look = looks.get(column)
                if look is None:
                    look = read(column)
                slots &= ~table.many([look] if isinstance(look, tuple) else look, negative=False)
        return slots

    def settle(self, slots: int, answer: Answer) -> None:
        """Tell the answer the links of these slots."""
        if slots == self.bits:
            if self._whole is None:
                found = {link for entry in self.entries if entry is not None for link in entry.links}
                self._whole = tuple(found)
            answer.all_of(self._whole)
            return
        if answer.is_short and slots.bit_count() > _FEW:
            if self._by_link is None:
                self._by_link = {}
                for entry in self.entries:
                    if entry is not None:
                        for link in entry.links:
                            self._by_link[link] = self._by_link.get(link, 0) | 1 << entry.slot
            left = answer.left
            answer.all_of([link for link, bits in self._by_link.items() if left >> link & 1 and slots & bits])
            return
        owners = self._owners
        if owners is None:
            owners = self._owners = [None if entry is None else entry.owners for entry in self.entries]
        links: list[int] = []
        for slot in slots_of(slots):
            owner = owners[slot]
            if type(owner) is int:
                links.append(owner)
            elif owner:
                links += owner  # type: ignore[arg-type]
        answer.all_of(links)


def run(blocks: Iterable[tuple[Block, int]], looks: Looks, read: Read, answer: Answer) -> None:
    """Decide slots that the structure allows."""
    for block, slots in blocks:
        if block.tables:
            slots = left(block, slots, looks, read)
        if slots:
            block.settle(slots, answer)
            if answer.done:
                return


def left(block: Block, slots: int, looks: Looks, read: Read) -> int:
    """Of these slots, those that no value rules out. Written flat: this is where a packet's time goes."""
    for column, keys, rows, hits, table in block.ops if block.ops is not None else block.compiled():
        if not table.slots & slots:
            continue
        look = looks.get(column)
        if look is None:
            look = read(column)
        if type(look) is not tuple:
            slots &= ~table.many(look)  # type: ignore[arg-type]
            continue
        if keys is not None:
            number = look[1]
            if number == number:
                slots &= ~rows[bisect_right(keys, number)]
            elif table.ladder is not None:
                slots &= ~table.ladder.on_nan
        for hit in hits:
            known = hit.known.get(look[0])
            slots &= ~(hit.one(look) if known is None else known)
    return slots


def slots_of(bits: int) -> list[int]:
    """The set bits."""
    found: list[int] = []
    if bits.bit_count() > _FEW:
        text = bin(bits)[:1:-1]
        at = text.find("1")
        while at >= 0:
            found.append(at)
            at = text.find("1", at + 1)
        return found
    while bits:  # from the top: the integer gets shorter as it goes
        at = bits.bit_length() - 1
        found.append(at)
        bits ^= 1 << at
    return found
