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
        self.predicate: Callable[[str], bool] | None = None  # made when first asked for: most are never


class Entry:
    __slots__ = (
        "again",
        "always_verified",
        "anchor",
        "group",
        "key",
        "links",
        "literals",
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
        self.links = 0  # the links whose queries need this, as a mask
        self.again: dict[int, int] | None = None  # link -> how many more of its queries need this
        self.slot = -1
        self.anchor: Anchor | None = None
        self.group: Group | None = None
        self.spilled: Sequence[Anchor] = ()

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
            column, test = literal.column, literal.test
            if column is None or test is None:
                if (literal.path in counts) != positive:
                    return False
                continue
            predicate = literal.predicate
            if predicate is None:
                predicate = literal.predicate = test.predicate
            for value in values.of(column):
                if predicate(value):
                    if not positive:
                        return False
                    break
            else:
                if positive:
                    return False
        return True
