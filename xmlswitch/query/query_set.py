"""A subscription of many queries: what a router asks its parents for, as one value.

A packet passes when one of the queries matches it. What makes one set another is a *difference*: the queries that come,
and the digests of those that go, in parts that fit into a datagram each. `changed` gives the same set, and the same
bytes, at both ends.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from xmlswitch.errors import MalformedQuery, QueryTooExpensiveError
from xmlswitch.query.algebra import Fuel, covers, names_of
from xmlswitch.query.interest import MemberLimits
from xmlswitch.query.member_wire import (
    DIGEST_BYTES,
    MemberSize,
    Row,
    decode_members_untrusted,
    digest_of,
    encode_members,
    encode_rows,
    split,
)
from xmlswitch.query.query import Query

if TYPE_CHECKING:
    from xmlswitch.match.engine import XPathIndex

LIMITS = MemberLimits()
_FIRST_BYTE = 0x93  # a msgpack array of three; a single query is one of four
_COVERS_FUEL = 20_000
_MAX_CANDIDATES = 64  # members that are asked whether they cover one other
_MAX_DIFFERENCE_BYTES = 2 * LIMITS.max_bytes
_WEIGHT_OF_MEMBER = 200  # bytes, of a query that another set has too


def is_query_set(data: bytes) -> bool:
    """Whether these bytes are meant to be a set, and not one query."""
    return data[:1] == bytes([_FIRST_BYTE])


class QuerySet:
    """Immutable. Equal sets have equal bytes."""

    def __init__(self, queries: Iterable[Query], *, like: QuerySet | None = None) -> None:
        """`like`: a set that differs little. What was found out about it need not be found out again."""
        self.queries = frozenset(queries)
        self._shared = 0
        if like is not None:
            self._follow(like)

    def _follow(self, like: QuerySet) -> None:
        new, gone = self.queries - like.queries, like.queries - self.queries
        self._shared = len(self.queries) - len(new)
        if len(new) + len(gone) > len(self.queries) // 4:
            return  # sorting all of them is as fast
        rows = like._rows.copy()
        for query in gone:
            del rows[bisect_left(rows, split(query))]
        for query in new:
            insort(rows, split(query))
        self._rows = rows
        if "_digests" in like.__dict__:
            self._digests = like._digests.copy()
            for query in gone:
                del self._digests[digest_of(query)]
            self._digests.update((digest_of(query), query) for query in new)

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def weight(self) -> int:
        """About how many bytes it takes in memory, for caches."""
        own = len(self.queries) - self._shared
        heaviest = max((query.weight for query in itertools.islice(self.queries, 16)), default=0)
        return _WEIGHT_OF_MEMBER * len(self.queries) + own * heaviest

    @cached_property
    def text(self) -> str:
        """For people: one query that says the same, but for prefixes of namespaces."""
        return " or ".join(sorted(query.canonical for query in self.queries)) or "false()"

    @cached_property
    def _rows(self) -> list[Row]:
        return sorted(map(split, self.queries))

    @cached_property
    def _digests(self) -> dict[bytes, Query]:
        return {digest_of(query): query for query in self.queries}

    # --- what it says ---

    def passes(self, packet: bytes) -> bool:
        """As `Query.passes`, of any of them."""
        if len(self.queries) == 1:
            return next(iter(self.queries)).passes(packet)
        return bool(self._index.match(packet, 1))

    @cached_property
    def _index(self) -> XPathIndex:
        from xmlswitch.match.engine import XPathIndex

        index = XPathIndex()
        for query in self.queries:
            index.add(query, 0)
        return index

    def covers(self, other: QuerySet) -> bool:
        """If true, every packet that passes `other` passes this. False may also mean: not known."""
        missing = other.queries - self.queries
        fuel = Fuel(_COVERS_FUEL)
        return all(self._covers_one(query, fuel) for query in missing)

    def _covers_one(self, query: Query, fuel: Fuel) -> bool:
        if fuel.left < 0:
            return False
        if any(covers(held, query, fuel=fuel) for held in self._candidates(query)):
            return True
        parts = query._parts()
        return len(parts) > 1 and all(part in self.queries or self._covers_one(part, fuel) for part in parts)

    def _candidates(self, query: Query) -> Iterable[Query]:
        """Members that may cover a query: they have no name that it lacks."""
        own = names_of(query)
        found = dict.fromkeys(self._by_name.get(None, ()))
        for name in sorted(own - {None}, key=lambda name: len(self._by_name.get(name, ()))):
            found.update(dict.fromkeys(held for held in self._by_name.get(name, ()) if names_of(held) <= own))
            if len(found) >= _MAX_CANDIDATES:
                break
        return itertools.islice(found, _MAX_CANDIDATES)

    @cached_property
    def _by_name(self) -> dict[object, list[Query]]:
        found: dict[object, list[Query]] = {}
        for query in self.queries:
            for name in names_of(query):
                found.setdefault(name, []).append(query)
        return found

    # --- the wire ---

    def encode(self) -> bytes:
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        return encode_rows(self._rows)

    @classmethod
    def decode_untrusted(cls, data: bytes, limits: MemberLimits = LIMITS) -> QuerySet:
        """What `encode` wrote; `MalformedQuery` for any other bytes, `QueryError` for a query that we refuse."""
        found = decode_members_untrusted(data, max_members=limits.max_members, max_bytes=limits.max_bytes)
        result = cls(found)
        if result.encode() != data:
            raise MalformedQuery("a set of queries has one order, and no query twice")
        return result

    def difference_to(self, new: QuerySet, *, most: int = _MAX_DIFFERENCE_BYTES) -> list[bytes]:
        """What makes this set the new one, in parts of about `most` bytes.

        A part is `[set of what comes, [digest of what goes, ...]]`.
        """
        parts: list[tuple[list[Query], list[bytes]]] = [([], [])]
        size, left = MemberSize(), most
        for query in sorted(new.queries - self.queries, key=split):
            size.add(query)
            if size.bytes > most and parts[-1][0]:
                parts.append(([], []))
                size = MemberSize()
                size.add(query)
            parts[-1][0].append(query)
        left = most - size.bytes
        for digest in sorted(digest_of(query) for query in self.queries - new.queries):
            left -= DIGEST_BYTES + 2
            if left < 0:
                parts.append(([], []))
                left = most - DIGEST_BYTES - 2
            parts[-1][1].append(digest)
        return [bytes(msgpack.packb([encode_members(come), gone])) for come, gone in parts]

    def changed(self, parts: Iterable[Difference], limits: MemberLimits = LIMITS) -> QuerySet:
        """This set after a difference; `MalformedQuery` when that is one from another set."""
        lost: set[Query] = set()
        added: set[Query] = set()
        for part in parts:
            for digest in part.gone:
                if digest not in self._digests:
                    raise MalformedQuery("a difference from another set")
                lost.add(self._digests[digest])
            added.update(part.come)
        kept = self.queries - lost
        result = QuerySet(kept | added, like=self)
        if len(result) > limits.max_members or len(result.encode()) > limits.max_bytes:
            raise QueryTooExpensiveError(f"{len(result)} queries of {len(result.encode())} bytes")
        return result


class Difference(NamedTuple):
    """A part of what makes one set another, read."""

    come: tuple[Query, ...]
    gone: tuple[bytes, ...]


def read_difference_untrusted(part: bytes, limits: MemberLimits = LIMITS) -> Difference:
    """`MalformedQuery` for anything else, `QueryError` for a query that we refuse."""
    if len(part) > _MAX_DIFFERENCE_BYTES:
        raise MalformedQuery(f"a difference of {len(part)} bytes")
    try:
        come, gone = msgpack.unpackb(part, max_array_len=limits.max_members)
        if not isinstance(come, bytes) or not all(type(each) is bytes and len(each) == DIGEST_BYTES for each in gone):
            raise MalformedQuery("a difference is a set and digests")
    except MalformedQuery:
        raise
    except Exception as error:  # a stranger must not find the one value that we did not think of
        raise MalformedQuery(f"not a difference: {type(error).__name__}") from None
    added = decode_members_untrusted(come, max_members=limits.max_members, max_bytes=limits.max_bytes)
    return Difference(tuple(added), tuple(gone))
