"""Paths in the index, and what a walk wants to know of those that end at one place of a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xmlswitch.index.answers import mask_of
from xmlswitch.index.buckets import Bucket

if TYPE_CHECKING:
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.conjunctions import Entry
    from xmlswitch.index.indexed import IndexedQuery
    from xmlswitch.query.atoms import Column, Linear

_MAX_JOURNAL = 8192  # beyond it a cache that is so far behind is rebuilt


class PathEntry:
    """A linear path in the index."""

    __slots__ = (
        "anchored",
        "branching",
        "bucket",
        "columns",
        "counted",
        "is_plural",
        "order",
        "path",
        "plain",
        "refs",
        "serial",
        "watched",
    )

    def __init__(self, path: Linear, serial: int) -> None:
        self.path = path
        self.serial = serial
        # Rarest first, as far as the path itself tells: many names, few wildcards and descendant steps.
        loose = sum([deep + (name == "*") for deep, name in path.steps])
        self.order = 2 * loose - 3 * len(path.steps) - bool(path.tail), serial
        self.refs = 0
        self.plain: Entry | None = None  # the conjunction that wants this path and nothing else
        self.bucket: Bucket | None = None  # of conjunctions that want this path, and more
        self.watched = 0  # conjunctions that want more than this path alone
        self.counted = 0  # columns of count()
        self.branching: dict[IndexedQuery, None] | None = None  # that are sure only where this path has one node
        self.is_plural = False  # a document had several nodes here while it was branching
        self.columns: dict[Column, ColumnEntry] = {}
        self.anchored: tuple[ColumnEntry, ...] = ()  # columns with values that somebody waits for


class Journal:
    """Which links began or ceased to want a path alone, in order; caches remember how far they have read."""

    __slots__ = ("base", "changes", "end")

    def __init__(self) -> None:
        self.base = self.end = 0  # how many changes came before those that are kept, and how many came in all
        self.changes: list[tuple[PathEntry, int, bool]] = []

    def note(self, path: PathEntry, link: int, on: bool) -> None:
        if len(self.changes) >= _MAX_JOURNAL:
            self.base += len(self.changes)
            self.changes.clear()
        self.changes.append((path, link, on))
        self.end += 1


class Accept:
    """The paths that end at one place of a document, with all that a walk wants to know about them together."""

    __slots__ = ("_known", "_layout", "_read", "counted", "paths", "shelved", "valued", "watched")

    def __init__(self, paths: tuple[PathEntry, ...]) -> None:
        self.paths = dict.fromkeys(paths)
        self._layout = self._read = -1
        self._known = 0
        self.valued: tuple[PathEntry, ...] = ()
        self.watched: frozenset[PathEntry] = frozenset()
        self.counted: tuple[PathEntry, ...] = ()
        self.shelved: tuple[PathEntry, ...] = ()

    def look(self, layout: int) -> None:
        """Find out again, when the layout changed, which paths somebody may ask for: if they are there, their values.

        And at which conjunctions wait.
        """
        if self._layout != layout:
            self._layout = layout
            self.valued = tuple(path for path in self.paths if len(path.columns) > path.counted)
            self.watched = frozenset([path for path in self.paths if path.watched])
            self.counted = tuple([path for path in self.paths if path.counted])
            self.shelved = tuple([path for path in self.paths if path.bucket is not None or path.anchored])

    def links(self, journal: Journal) -> int:
        """The links that want one of the paths, whatever else a document has."""
        if self._read != journal.end:
            if self._read < journal.base:
                entries = [path.plain for path in self.paths if path.plain is not None]
                self._known = mask_of(link for entry in entries for link in entry.links)
            else:
                for path, link, on in journal.changes[self._read - journal.base :]:
                    if path in self.paths:
                        if on:
                            self._known |= 1 << link
                        elif not any(p.plain is not None and link in p.plain.links for p in self.paths):
                            self._known &= ~(1 << link)
            self._read = journal.end
        return self._known
