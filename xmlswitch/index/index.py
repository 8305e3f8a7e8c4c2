"""The index: conjunctions of many queries, each kept where only documents that have what it asks for come by.

A conjunction that wants one path and nothing else is kept at the path. Any other waits in a *bucket*: under a value
that it asks for (the bucket with the fewest in it), or at the rarest of its paths. Adding and removing touches that
bucket and the conjunction's own paths and columns, however many others stand.

Where a conjunction is only necessary in a document (a branching path has several nodes; a part can't be indexed) the
query itself is evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from xmlswitch.index.answers import mask_of
from xmlswitch.index.automaton import Automaton
from xmlswitch.index.buckets import Bucket
from xmlswitch.index.budget import Work
from xmlswitch.index.columns import ANCHORS, ColumnEntry
from xmlswitch.index.conjunctions import Bound, Entry, EntryKey, Home, Needs
from xmlswitch.index.frames import Frames
from xmlswitch.index.path_table import PathTable
from xmlswitch.index.paths import Journal, PathEntry
from xmlswitch.index.scopes import Term
from xmlswitch.index.waypoints import Waypoints
from xmlswitch.query.atoms import Column, Conjunction, Test
from xmlswitch.query.twigs import columns_of

if TYPE_CHECKING:
    from xmlswitch.index.indexed import IndexedQuery
    from xmlswitch.limits import IndexLimits

S = TypeVar("S")
# A literal that is held: its path, its column and test, whether it is positive, and whether it needs the path.
_Literal = tuple[PathEntry, ColumnEntry | None, Test | None, bool, bool]

_NONE: frozenset[PathEntry] = frozenset()
_NOT_OF_NOTHING = frozenset({"n=", "n<", "n<=", "n>", "n>="})  # the empty string is not a number
_MAX_INTERNED = 10_000
_MAX_MOVED = 1000  # queries per packet: each takes about a tenth of a millisecond


class Index:
    """`add` and `remove` the conjunctions of links' queries. Matching is in `matching`."""

    def __init__(self, limits: IndexLimits) -> None:
        self.limits = limits
        self.work = Work(limits.max_look_bytes, self._forget_looks)
        self.automaton = Automaton(limits.max_states, limits.max_transition_bytes)
        self.journal = Journal()
        self.version = 0  # changes when a walk over the same document would find other things:
        self.layout = 0  # must look at other values, or count other paths
        self.paths_changed = 0  # sees a path that is new, or misses one
        self.shelves = 0  # changes when path's buckets hold other blocks, or other columns have anchors
        self.entries: dict[EntryKey, Entry] = {}
        self.frames = Frames(limits, self._walks_changed, self.work)
        self.waypoints = Waypoints(self, self.frames)
        self.always = Bucket(self._shelves_changed)  # of conjunctions that require no path
        self.paths = PathTable(self.automaton, self._paths_changed)
        self._interned: dict[Needs, Needs] = {}
        self._structures: dict[Hashable, Any] = {}
        self._structures_at = -1
        self._branching: set[PathEntry] = set()  # paths where queries branch that the index holds
        self._framed: dict[IndexedQuery, list[Term]] = {}  # queries that frames decide

    # --- conjunctions come and go ---

    def add(self, query: IndexedQuery, link: int) -> None:
        terms = self._framed.get(query)
        if terms is None and self._meets_plural_paths(query) and query.twigs:
            self._to_frames(query)  # with those links that hold it already
            terms = self._framed.setdefault(query, [])
        for conjunction in query.plan.conjunctions:
            if terms is not None and (conjunction.unique or conjunction.verify):
                continue
            key = _key(conjunction, query)
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = Entry(*key)
                entry.take(link)
                self._place(entry)
            else:
                entry.take(link)
                if entry.bucket is not None:
                    entry.bucket.links_changed(entry)
            if entry.bucket is None:
                self.journal.note(self._plain_path(entry.conjunction), link, True)
        if terms is not None:
            terms[:] = [self.frames.add(twig, link) for twig in query.twigs or ()]

    def remove(self, query: IndexedQuery, link: int) -> None:
        terms = self._framed.get(query)
        for conjunction in query.plan.conjunctions:
            if terms is not None and (conjunction.unique or conjunction.verify):
                continue
            key = _key(conjunction, query)
            entry = self.entries[key]
            entry.drop(link)
            if entry.bucket is None:
                self.journal.note(self._plain_path(entry.conjunction), link, False)
            if entry.owners is None:
                del self.entries[key]
                self._displace(entry)
            elif entry.bucket is not None:
                entry.bucket.links_changed(entry)
        if terms is not None:
            for term in terms:
                self.frames.remove(term, link)
            if not any(term.owners is not None for term in terms):
                del self._framed[query]
        if not self.entries:
            self._interned.clear()

    # --- queries that branch where documents do ---

    def _meets_plural_paths(self, query: IndexedQuery) -> bool:
        """Whether the query branches where documents had several nodes, or are likely to."""
        return any(
            any(deep for deep, _ in linear.steps) or ((path := self.paths.get(linear)) is not None and path.is_plural)
            for conjunction in query.plan.conjunctions
            for linear in conjunction.unique
        )

    def to_frames(self, plural: set[PathEntry]) -> None:
        """A document had several nodes on these paths: decide queries that branch there node by node from now on.

        Some at a time: until its turn comes a query is evaluated where the index can't decide it.
        """
        left = _MAX_MOVED
        for path in self._branching & plural:
            path.is_plural = True
            for query in list(itertools.islice(path.branching or (), left)):
                self._to_frames(query)
                left -= 1
            if not left:
                return

    def _to_frames(self, query: IndexedQuery) -> None:
        keys = [(c, query) for c in query.plan.conjunctions if c.unique or c.verify]
        held = [entry for key in keys if (entry := self.entries.get(key)) is not None]
        for linear in {linear for conjunction, _ in keys for linear in conjunction.unique}:
            path = self.paths.get(linear)
            if path is not None:
                self._branches_no_more(path, query)
        twigs = query.twigs
        if not twigs or not held:
            return
        links = {link: None for entry in held for link in entry.links}
        self._framed[query] = [self.frames.add(twig, link) for link in links for twig in twigs][: len(twigs)]
        for key in keys:
            entry = self.entries.pop(key, None)
            if entry is not None:
                self._displace(entry)

    def _branches_no_more(self, path: PathEntry, query: IndexedQuery) -> None:
        if path.branching is not None:
            path.branching.pop(query, None)
            if not path.branching:
                self._branching.discard(path)

    def links_asking_for(self, columns: set[Column]) -> tuple[int, list[ColumnEntry]]:
        """The links with a query that asks for one of these columns, and the columns that only such links ask for."""
        held = [
            ({a.column for a, _ in e.conjunction.literals if a.column}, set(e.links)) for e in self.entries.values()
        ]
        for query, terms in self._framed.items():
            asked = set[Column]().union(*map(columns_of, query.twigs or ()))
            held.append((asked, {link for term in terms for link in term.links}))
        links = set[int]().union(*(owners for asked, owners in held if not asked.isdisjoint(columns)))
        others = set[Column]().union(*(asked for asked, owners in held if not owners <= links))
        own = set[Column]().union(*(asked for asked, _ in held)) - others
        tables = (self.paths, self.frames.paths)
        return mask_of(links), [
            c for paths in tables for path in paths for c in path.columns.values() if c.column in own
        ]

    def _plain_path(self, conjunction: Conjunction) -> PathEntry:
        ((atom, _),) = conjunction.literals
        return self.paths[atom.path]

    def _place(self, entry: Entry) -> None:
        conjunction = entry.conjunction
        if _is_plain(conjunction):
            ((atom, _),) = conjunction.literals
            self.paths.hold(atom.path).plain = entry
            return
        anchor: tuple[ColumnEntry, Test] | None = None
        best: Bucket | None = None
        rarest: PathEntry | None = None
        literals: list[_Literal] = []
        for atom, positive in conjunction.literals:
            path = self.paths.hold(atom.path)
            self._watch(path)
            test = atom.test
            column = None if atom.column is None else self._hold_column(path, atom.column)
            if column is not None:
                column.searches += test is not None and test.op == "contains"
            needs_path = positive and _needs_path(column, test)
            literals.append((path, column, test, positive, needs_path))
            if not needs_path:
                continue
            if rarest is None or path.order < rarest.order:
                rarest = path
            if column is None or test is None or test.op not in ANCHORS or column.is_count:
                continue
            bucket = column.waiting(test)
            if bucket is None:
                if anchor is None or best is not None or len(str(test.operand)) > len(str(anchor[1].operand)):
                    anchor, best = (column, test), None
            elif anchor is None or (best is not None and bucket.size < best.size):
                anchor, best = (column, test), bucket
        for linear in conjunction.unique:
            path = self.paths.hold(linear)
            self._watch(path)
            if entry.query is not None and not conjunction.verify:
                path.branching = path.branching or {}
                path.branching[entry.query] = None
                self._branching.add(path)
        if anchor is not None:
            if best is None:
                best = anchor[0].anchor(anchor[1])
                self._sort_anchors(anchor[0].path)
        elif rarest is not None:
            if rarest.bucket is None:
                rarest.bucket = Bucket(self._shelves_changed)
            best = rarest.bucket
        else:
            best = self.always
        entry.bucket = best
        best.add(entry, *self._bound(entry, literals, anchor), self._bound_again)

    def _displace(self, entry: Entry) -> None:
        conjunction = entry.conjunction
        if entry.bucket is None:
            path = self._plain_path(conjunction)
            path.plain = None
            self.paths.release(path)
            return
        bucket = entry.bucket
        bucket.remove(entry)
        for atom, _ in conjunction.literals:
            path = self.paths[atom.path]
            if not bucket.size and path.bucket is bucket:
                path.bucket = None
            if atom.column is not None:
                column = path.columns[atom.column]
                if not bucket.size and atom.test is not None and _is_anchor(column, atom.test, bucket):
                    column.drop(atom.test)
                    self._sort_anchors(path)
                column.searches -= atom.test is not None and atom.test.op == "contains"
                self._release_column(column)
            self._unwatch(path)
            self.paths.release(path)
        for linear in conjunction.unique:
            path = self.paths[linear]
            if entry.query is not None:
                self._branches_no_more(path, entry.query)
            self._unwatch(path)
            self.paths.release(path)

    def _bound_again(self, entry: Entry) -> tuple[Needs, tuple[Bound, ...]]:
        literals: list[_Literal] = []
        anchor: tuple[ColumnEntry, Test] | None = None
        for atom, positive in entry.conjunction.literals:
            path, test = self.paths[atom.path], atom.test
            column = None if atom.column is None else path.columns[atom.column]
            needs_path = positive and _needs_path(column, test)
            literals.append((path, column, test, positive, needs_path))
            if needs_path and column is not None and test is not None and _is_anchor(column, test, entry.bucket):
                anchor = column, test
        return self._bound(entry, literals, anchor)

    def _bound(
        self, entry: Entry, literals: list[_Literal], anchor: tuple[ColumnEntry, Test] | None
    ) -> tuple[Needs, tuple[Bound, ...]]:
        """What an entry needs beyond having come to its bucket: by its anchor's value, or by its path."""
        conjunction, bucket = entry.conjunction, entry.bucket
        required: set[PathEntry] = set()
        absent: set[PathEntry] = set()
        tests: list[Bound] = []
        guard: PathEntry | None = None
        for path, column, test, positive, needs_path in literals:
            if needs_path:
                required.add(path)
                if path.bucket is bucket:
                    guard = path
            if column is None or test is None:
                if not positive:
                    absent.add(path)
            elif positive and (column, test) == anchor:
                guard = path
            else:
                tests.append(Bound(column, test, positive))
        if guard is not None:
            required.discard(guard)
        unique = _NONE
        if conjunction.unique:
            unique = frozenset([self.paths[linear] for linear in conjunction.unique])
        needs = Needs(frozenset(required), frozenset(absent), unique, conjunction.verify)
        known = self._interned.get(needs)
        if known is None:
            if len(self._interned) >= _MAX_INTERNED:
                self._interned.clear()
            known = self._interned[needs] = needs
        return known, tuple(tests)

    # --- paths and columns ---

    def _watch(self, path: PathEntry) -> None:
        path.watched += 1
        if path.watched == 1:
            self._layout_changed()

    def _unwatch(self, path: PathEntry) -> None:
        path.watched -= 1
        if not path.watched:
            self._layout_changed()

    def _hold_column(self, path: PathEntry, column: Column) -> ColumnEntry:
        entry = path.columns.get(column)
        if entry is None:
            entry = path.columns[column] = ColumnEntry(column, path, self.limits.max_value_memo, self.work)
            path.counted += entry.is_count
            self._layout_changed()
        entry.refs += 1
        return entry

    def _release_column(self, entry: ColumnEntry) -> None:
        entry.refs -= 1
        if not entry.refs:
            del entry.path.columns[entry.column]
            entry.path.counted -= entry.is_count
            self._layout_changed()

    def _forget_looks(self) -> None:
        for path in self.paths:
            for column in path.columns.values():
                column.looks.clear()
        self.frames.forget_looks()

    def _sort_anchors(self, path: PathEntry) -> None:
        anchored = tuple(column for column in path.columns.values() if column.has_anchors)
        if anchored != path.anchored:
            path.anchored = anchored
            self.shelves += 1

    def _shelves_changed(self) -> None:
        self.shelves += 1

    def _walks_changed(self) -> None:
        self.version += 1

    def _paths_changed(self) -> None:
        self.paths_changed += 1
        self.version += 1

    def _layout_changed(self) -> None:
        self.layout += 1
        self.version += 1

    def shared(self, key: Hashable, structure: S) -> S:
        """The one structure that stands for all that are equal: what is known of it is worked out once."""
        if self._structures_at != self.version or len(self._structures) >= self.limits.max_shapes:
            self._structures_at = self.version
            self._structures.clear()
        found: S = self._structures.setdefault(key, structure)
        return found


def _key(conjunction: Conjunction, query: IndexedQuery) -> EntryKey:
    return conjunction, query if conjunction.verify or conjunction.unique else None


def _is_plain(conjunction: Conjunction) -> bool:
    """Whether one path is all it takes."""
    if len(conjunction.literals) != 1 or conjunction.unique or conjunction.verify:
        return False
    ((atom, positive),) = conjunction.literals
    return positive and atom.column is None


def _needs_path(column: ColumnEntry | None, test: Test | None) -> bool:
    """As `Atom.needs_path`, from what the column knows already."""
    if column is None or test is None or not column.absent:
        return True
    absent: str = column.absent[0]  # type: ignore[assignment]
    return (not absent and test.op in _NOT_OF_NOTHING) or not test.predicate(absent)


def _is_anchor(column: ColumnEntry, test: Test, bucket: Home | None) -> bool:
    return test.op in ANCHORS and not column.is_count and column.waiting(test) is bucket and bucket is not None
