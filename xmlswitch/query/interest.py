"""What a router asks its parents for: a set of queries (*members*) that says what all its children want.

Children's queries come and go; each change here says what to add and what to remove upstream, and most changes are
small: a query that an asked one covers adds nothing. Up to a number and a size the members are exact. Beyond that
the two that lose least together, by measured selectivity, become their hull (`hulls`), never straight everything.

An added member is asked for before an old one that it replaces is given up, so whoever applies changes in order never
asks for less than the children want.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple

from xmlswitch.errors import QueryError
from xmlswitch.query.algebra import Fuel, covers, names_of
from xmlswitch.query.hulls import Outline, expression, hull, may_cover, merged, outline_of, rank_of, shape_of
from xmlswitch.query.member_wire import MemberSize
from xmlswitch.query.query import Query
from xmlswitch.query.selectivity import Selectivity
from xmlswitch.query.syntax import TRUE

_COVER_FUEL = 1500  # units of about a microsecond, for one change
_MAX_CANDIDATES = 64  # that are asked whether they cover
_MAX_ORPHANS = 32  # parts that find a new place in one change
_RECONSIDERED = 8  # merges that are looked at again before one is made
_REBUILT = 64  # members of a hull that is made again when one of them goes


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """What a subscription may be. Beyond either, members are widened."""

    max_members: int = 2048
    max_bytes: int = 60_000


class Change(NamedTuple):
    """What to ask for now, and what no longer. Apply both together: in between, parents send too much at most."""

    added: tuple[Query, ...] = ()
    removed: tuple[Query, ...] = ()


class _Cluster:
    """Queries that are asked for as one: a query itself, or the hull of several."""

    __slots__ = ("asked", "is_hull", "members", "outline", "place", "share")

    def __init__(self, members: dict[Query, None], asked: Query, outline: Outline, share: float) -> None:
        self.members = members
        self.asked = asked
        self.outline = outline
        self.is_hull = len(members) > 1
        self.share = share
        self.place: tuple[tuple[object, ...], tuple[int, str], int] = (), (0, ""), 0


class Interest:
    """The queries of all children, and the members that are asked for."""

    def __init__(self, limits: MemberLimits | None = None) -> None:
        self.limits = limits or MemberLimits()
        self.selectivity = Selectivity()
        self._held: dict[Query, int] = {}  # parts of children's queries, and how often each is wanted
        self._clusters: dict[Query, _Cluster] = {}  # by what is asked
        self._home: dict[Query, Query] = {}  # of a part: what is asked for it
        self._below: dict[Query, dict[Query, None]] = {}  # of what is asked: the parts that it covers
        self._names: dict[object, dict[Query, None]] = {}  # what is asked, by the names that it needs
        self._shelves: dict[tuple[object, ...], list[tuple[tuple[int, str], int, _Cluster]]] = {}
        self._merges: list[tuple[float, int, _Cluster, _Cluster]] = []
        self._retiring: dict[Query, None] = {}  # asked for until all parts that they cover have another place
        self._serials = itertools.count()
        self._size = MemberSize()
        self._added: dict[Query, None] = {}
        self._removed: dict[Query, None] = {}

    @property
    def members(self) -> frozenset[Query]:
        """What is asked for."""
        return frozenset(self._clusters)

    @property
    def size(self) -> int:
        """About how many bytes the members take on the wire."""
        return self._size.bytes

    @property
    def covered(self) -> int:
        """Parts that cost nothing upstream, because another one covers them."""
        return sum(map(len, self._below.values()))

    @property
    def widened(self) -> int:
        """Parts that are asked for by a hull."""
        return sum(len(cluster.members) for cluster in self._clusters.values() if cluster.is_hull)

    # --- children's queries come and go ---

    def add(self, query: Query) -> Change:
        for part in _parts(query):
            self._held[part] = self._held.get(part, 0) + 1
            if self._held[part] == 1:
                self._place(part)
        return self._change()

    def remove(self, query: Query) -> Change:
        for part in _parts(query):
            if part not in self._held:
                raise KeyError(f"no query {query!r}")
            self._held[part] -= 1
            if not self._held[part]:
                del self._held[part]
                self._displace(part)
        return self._change()

    def settle(self) -> Change:
        """Go on with what a change left for later: call it while `is_settled` is false and nothing else happens."""
        return self._change()

    @property
    def is_settled(self) -> bool:
        return not self._retiring

    def _change(self) -> Change:
        left = _MAX_ORPHANS
        while self._retiring and left:
            asked = next(iter(self._retiring))
            below = self._below.get(asked, {})
            for orphan in list(itertools.islice(below, left)):
                del below[orphan]
                self._place(orphan)
                left -= 1
            if not below:
                self._below.pop(asked, None)
                del self._retiring[asked]
                self._take_out(self._clusters[asked])
        self._shrink()
        change = Change(tuple(self._added), tuple(self._removed))
        self._added, self._removed = {}, {}
        return change

    def _place(self, part: Query) -> None:
        fuel = Fuel(_COVER_FUEL)
        general = self._covering(part, fuel)
        if general is not None:
            self._home[part] = general
            self._below.setdefault(general, {})[part] = None
            return
        for special in self._covered_by(part, fuel):
            cluster = self._clusters[special]
            below = [*cluster.members, *self._below.pop(special, ())]
            self._take_out(cluster)
            for other in below:
                self._home[other] = part
                self._below.setdefault(part, {})[other] = None
        outline = merged(map(outline_of, part.plan.conjunctions))
        self._put_in({part: None}, part, outline)

    def _displace(self, part: Query) -> None:
        asked = self._home.pop(part)
        below = self._below.get(asked, {})
        if part in below:
            del below[part]
            if not below:
                del self._below[asked]
            return
        cluster = self._clusters[asked]
        del cluster.members[part]
        if cluster.is_hull and len(cluster.members) > _REBUILT:
            return  # it asks for a little too much, until it is small enough to be made again
        if len(cluster.members) + len(below) > _MAX_ORPHANS and not cluster.is_hull:
            self._retiring[asked] = None  # it goes when they all have another place
            return
        members, orphans = list(cluster.members), list(self._below.pop(asked, ()))
        self._take_out(cluster)
        if len(members) > 1:
            self._merge_all(members)
        else:
            orphans += members
        for orphan in orphans:
            self._place(orphan)

    def _merge_all(self, parts: list[Query]) -> None:
        outline = merged(outline_of(c) for part in parts for c in part.plan.conjunctions)
        self._put_in(dict.fromkeys(parts), _asking(outline, parts[0]), outline)

    # --- clusters ---

    def _put_in(self, members: dict[Query, None], asked: Query, outline: Outline) -> None:
        known = self._clusters.get(asked)
        if known is not None:  # the same hull, or a query that is one
            self._retiring.pop(asked, None)
            known.members.update(members)
            known.is_hull = known.is_hull or len(known.members) > 1
            for part in members:
                self._home[part] = asked
            return
        self.selectivity.wants([outline])
        cluster = _Cluster(members, asked, outline, self.selectivity.share(outline))
        self._clusters[asked] = cluster
        self._size.add(asked)
        for part in members:
            self._home[part] = asked
        for name in names_of(asked):
            self._names.setdefault(name, {})[asked] = None
        shape, rank = shape_of(outline), rank_of(outline)
        shelf = self._shelves.setdefault(shape, [])
        cluster.place = shape, rank, next(self._serials)
        insort(shelf, (rank, cluster.place[2], cluster))
        at = bisect_left(shelf, (rank, cluster.place[2]))
        for other in (at - 1, at + 1):
            if 0 <= other < len(shelf):
                self._offer(cluster, shelf[other][2])
        if asked in self._removed:
            del self._removed[asked]
        else:
            self._added[asked] = None

    def _take_out(self, cluster: _Cluster) -> None:
        asked = cluster.asked
        del self._clusters[asked]
        self._size.remove(asked)
        for name in names_of(asked):
            held = self._names[name]
            del held[asked]
            if not held:
                del self._names[name]
        shape, rank, serial = cluster.place
        shelf = self._shelves[shape]
        at = bisect_left(shelf, (rank, serial))
        del shelf[at]
        if not shelf:
            del self._shelves[shape]
        elif 0 < at < len(shelf):
            self._offer(shelf[at - 1][2], shelf[at][2])
        if asked in self._added:
            del self._added[asked]
        else:
            self._removed[asked] = None

    def _offer(self, one: _Cluster, other: _Cluster) -> None:
        """Two that stand side by side: what merging them would lose."""
        loss = self.selectivity.share(hull(one.outline, other.outline)) - one.share - other.share
        heapq.heappush(self._merges, (loss, next(self._serials), one, other))

    # --- too many ---

    def _shrink(self) -> None:
        while len(self._clusters) > 1 and (
            len(self._clusters) > self.limits.max_members or self._size.bytes > self.limits.max_bytes
        ):
            one, other = self._cheapest() or self._strangers()
            outline = hull(one.outline, other.outline)
            members = {**one.members, **other.members}
            asked = _asking(outline, next(iter(members)))
            below = {**self._below.pop(one.asked, {}), **self._below.pop(other.asked, {})}
            self._take_out(one)
            self._take_out(other)
            self._put_in(members, asked, outline)
            self._clusters[asked].is_hull = True
            for part in below:
                self._home[part] = asked
                self._below.setdefault(asked, {})[part] = None
        if len(self._merges) > 4 * len(self._clusters) + 64:
            self._merges = [merge for merge in self._merges if self._stands(merge[2]) and self._stands(merge[3])]
            heapq.heapify(self._merges)

    def _stands(self, cluster: _Cluster) -> bool:
        return self._clusters.get(cluster.asked) is cluster

    def _cheapest(self) -> tuple[_Cluster, _Cluster] | None:
        """Of those that seemed cheapest, the one that is now: the stream has said more since."""
        some: list[tuple[_Cluster, _Cluster]] = []
        while self._merges and len(some) < _RECONSIDERED:
            _, _, one, other = heapq.heappop(self._merges)
            if self._stands(one) and self._stands(other):
                some.append((one, other))
        for one, other in some:
            one.share, other.share = self.selectivity.share(one.outline), self.selectivity.share(other.outline)
            self._offer(one, other)
        while self._merges:
            _, _, one, other = heapq.heappop(self._merges)
            if self._stands(one) and self._stands(other):
                return one, other
        return None

    def _strangers(self) -> tuple[_Cluster, _Cluster]:
        """Nothing is alike any more: the two, of some, that share most."""
        some = list(itertools.islice(self._clusters.values(), 16))
        pairs = [(one, other) for at, one in enumerate(some) for other in some[at + 1 :]]
        return min(pairs, key=lambda pair: self.selectivity.share(hull(pair[0].outline, pair[1].outline)))

    # --- covering ---

    def _covering(self, part: Query, fuel: Fuel) -> Query | None:
        """What is asked for already and covers a part; an exact one is looked for among those with its names."""
        candidates = dict.fromkeys(itertools.islice(self._names.get(None, ()), _MAX_CANDIDATES))
        own = names_of(part)
        for name in sorted(own, key=lambda name: len(self._names.get(name, ()))):
            for asked in itertools.islice(reversed(self._names.get(name, {})), _MAX_CANDIDATES):
                if names_of(asked) <= own | {None}:
                    candidates[asked] = None
            if len(candidates) >= _MAX_CANDIDATES:
                break
        outline = merged(map(outline_of, part.plan.conjunctions))
        return next(
            (
                asked
                for asked in candidates
                if asked not in self._retiring
                and may_cover(self._clusters[asked].outline, outline)
                and covers(asked, part, fuel=fuel)
            ),
            None,
        )

    def _covered_by(self, part: Query, fuel: Fuel) -> list[Query]:
        """What is asked for and a new part covers: it has all the names of the part."""
        own = names_of(part)
        outline = merged(map(outline_of, part.plan.conjunctions))
        rarest = min(own, key=lambda name: len(self._names.get(name, ())))
        candidates = self._names.get(rarest, {}) if rarest is not None else dict.fromkeys(self._clusters)
        some = list(itertools.islice(reversed(candidates), _MAX_CANDIDATES))
        return [
            asked
            for asked in some
            if asked not in self._retiring
            and own - {None} <= names_of(asked)
            and may_cover(outline, self._clusters[asked].outline)
            and covers(part, asked, fuel=fuel)
        ]


def _parts(query: Query) -> list[Query]:
    """The alternatives of what others accept of a query."""
    needed = query.need()
    return [] if needed.matches_nothing else needed._parts()


def _asking(outline: Outline, member: Query) -> Query:
    try:
        return Query._from_expr(expression(outline), member.limits)._admitted()
    except QueryError:
        return Query._from_expr(TRUE, member.limits)
