"""One conjunction in the index: who wants it, and where it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from xmlswitch.query.atoms import Conjunction, Test

if TYPE_CHECKING:
    from xmlswitch.index.blocks import Block
    from xmlswitch.index.buckets import Bucket
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.paths import PathEntry
    from xmlswitch.query.query import Query

# What a conjunction is equal by: its atoms, and the query when the atoms alone don't decide.
EntryKey = tuple[Conjunction, "Query | None"]


class Entry:
    """`owners`: the one link that wants it, or how often each of several does."""

    __slots__ = ("bucket", "conjunction", "owners", "place", "query", "slot")

    def __init__(self, conjunction: Conjunction, query: Query | None) -> None:
        self.conjunction = conjunction
        self.query = query
        self.owners: int | dict[int, int] | None = None
        self.bucket: Bucket | None = None  # None for a path alone, which keeps it itself
        self.place: Block | None = None  # where in the bucket, None for one of its few
        self.slot = -1

    def take(self, link: int) -> None:
        if self.owners is None:
            self.owners = link
            return
        if isinstance(self.owners, int):
            self.owners = {self.owners: 1}
        self.owners[link] = self.owners.get(link, 0) + 1

    def drop(self, link: int) -> None:
        if isinstance(self.owners, dict):
            self.owners[link] -= 1
            if not self.owners[link]:
                del self.owners[link]
            if not self.owners:
                self.owners = None
        else:
            self.owners = None

    @property
    def links(self) -> Iterable[int]:
        if self.owners is None:
            return ()
        return (self.owners,) if isinstance(self.owners, int) else self.owners


class Needs(NamedTuple):
    """What a document's structure must be: paths that are there, paths that are not.

    Sure only where each path of `unique` has one node, and never when `verify`; elsewhere `absent` proves nothing.
    """

    required: frozenset[PathEntry]
    absent: frozenset[PathEntry]
    unique: frozenset[PathEntry]
    verify: bool


class Bound(NamedTuple):
    """An atom on a value, bound to its column."""

    column: ColumnEntry
    test: Test
    positive: bool
