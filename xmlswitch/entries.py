"""One conjunction in the index: its atoms bound to paths and columns, who wants it, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from xmlswitch.atoms import Conjunction, Test

if TYPE_CHECKING:
    from xmlswitch.columns import Anchor, ColumnEntry
    from xmlswitch.paths import Group, PathEntry
    from xmlswitch.query import Query

# What a conjunction is equal by: its atoms, and the query when the atoms alone don't decide.
EntryKey = tuple[Conjunction, "Query | None"]


class Literal:
    """A bound atom: a path that is (not) there, or a column of which some value passes (no value passes) a test."""

    __slots__ = ("column", "path", "positive", "predicate", "test")

    def __init__(self, path: PathEntry, column: ColumnEntry | None, test: Test | None, positive: bool) -> None:
        self.path = path
        self.column = column
        self.test = test
        self.positive = positive
        self.predicate: Callable[[str], bool] | None = test.predicate if test else None

    def holds(self, values: Mapping[ColumnEntry, Sequence[str]], present: Callable[[PathEntry], bool]) -> bool:
        column, predicate = self.column, self.predicate
        if column is None or predicate is None:
            return present(self.path) == self.positive
        found = values.get(column)
        if found is None:
            found = (column.absent,) if column.column.first else ()
        for value in found:
            if predicate(value):
                return self.positive
        return not self.positive


class Entry:
    __slots__ = (
        "anchor",
        "group",
        "key",
        "links",
        "literals",
        "owners",
        "query",
        "required",
        "slot",
        "spilled",
        "unique",
    )

    def __init__(
        self,
        key: EntryKey,
        literals: Sequence[Literal],
        unique: Sequence[PathEntry],
        required: frozenset[PathEntry],
    ) -> None:
        self.key = key
        self.query = key[1]
        self.literals = literals
        self.unique = unique
        self.required = required  # the paths that a document must have
        self.owners: dict[int, int] = {}  # link slot -> how many of its queries need this
        self.links = 0  # the owners as a mask
        self.slot = -1
        self.anchor: Anchor | None = None
        self.group: Group | None = None
        self.spilled: list[Anchor] = []

    @property
    def is_structural(self) -> bool:
        """Whether having the required paths is all it takes."""
        return all(literal.column is None and literal.positive for literal in self.literals)

    @property
    def always_verified(self) -> bool:
        return self.key[0].verify

    def holds(self, values: Mapping[ColumnEntry, Sequence[str]], present: Callable[[PathEntry], bool]) -> bool:
        """All positive literals, and the negative ones where they are to be trusted (see `Index`)."""
        return all(literal.holds(values, present) for literal in self.literals)

    def may_hold(self, values: Mapping[ColumnEntry, Sequence[str]], present: Callable[[PathEntry], bool]) -> bool:
        """The positive literals alone: what is necessary even where paths are not unique."""
        return all(literal.holds(values, present) for literal in self.literals if literal.positive)
