"""One conjunction in the index: its atoms bound to paths and columns, who wants it, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xmlswitch.atoms import Conjunction, Test

if TYPE_CHECKING:
    from xmlswitch.columns import Anchor, ColumnEntry
    from xmlswitch.paths import Group, PathEntry
    from xmlswitch.query import Query
    from xmlswitch.values import Values

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


class Entry:
    __slots__ = (
        "always_verified",
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
        self.always_verified = key[0].verify
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

    def holds(self, values: Values[Any], counts: Mapping[PathEntry, int], unsure: bool) -> bool:
        """Whether all literals hold; of an `unsure` entry only the positive ones, the negative prove nothing there."""
        for literal in self.literals:
            positive = literal.positive
            if unsure and not positive:
                continue
            column, predicate = literal.column, literal.predicate
            if column is None or predicate is None:
                if (literal.path in counts) != positive:
                    return False
                continue
            for value in values.of(column):
                if predicate(value):
                    if not positive:
                        return False
                    break
            else:
                if positive:
                    return False
        return True
