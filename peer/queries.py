"""What the mesh asks about queries, answered by the XML switch: the only place where dcp's tokens meet XPath.

A token on the wire is an encoded canonical query, or a set of them (`xmlswitch.QuerySet`); the empty one is everything.
Payloads are envelopes, which `peer.envelope` opens; they are passed on untouched.

A packet that is not XML matches no query: peers that asked for everything get it, others do not. It is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dcp import EVERYTHING, PayloadRefused
from peer.envelope import Envelope
from xmlswitch import (
    MalformedDocument,
    MalformedQuery,
    MemberSlots,
    Query,
    QueryError,
    QuerySet,
    Selectivity,
    Switch,
    is_query_set,
)
from xmlswitch.caches import ByteCache
from xmlswitch.query.query_set import Difference, read_difference_untrusted

if TYPE_CHECKING:
    from peer.standing import StandingQuery

# Of queries kept at hand, as they are in memory: strangers may fill this, and must not fill the memory.
MAX_REMEMBERED_BYTES = 8 << 20
# The same for sets. One of the largest weighs nearly as much; those that are in use are kept besides.
MAX_REMEMBERED_SET_BYTES = 24 << 20
# Sets that this router made of others' queries, which it therefore covers: the last ones asked for.
MAX_WIDER = 8
# A set up to this long is sent whole; the parts of a longer one, which may turn out a little larger.
MAX_WHOLE_BYTES = 1_000
PART_BYTES = 1_000
# Packets between two from which it is learned how selective queries are.
SAMPLED_EVERY = 64

NOTHING = Query.parse("false()")
EVERYTHING_QUERY = Query.parse("true()")
OWN = "own"
"""The client's link in the switch, in slot 0; a child's slot is one more than dcp's number for it."""


def token_of(query: StandingQuery | None) -> bytes:
    """The form in which dcp carries a query; None and everything are the empty token.

    Of an XPath 2.0 to 3.1 query it is what the query needs, in XPath 1.0: the network knows no other.
    """
    if query is not None:
        query = query.need()
    return EVERYTHING if query is None or query.matches_everything else query.encode()


class XPathPolicy:
    """`dcp.QueryPolicy` for XPath over XML packets."""

    def __init__(self, envelope: Envelope | None = None, *, clock: Callable[[], float] | None = None) -> None:
        """With a clock it measures what routing costs; this file is pure and has none of its own."""
        self.switch: Switch[Query] = Switch(clock=clock)
        self.unreadable = 0
        """Packets that could not be looked into: a broken envelope, or not XML."""
        self.routed = 0
        self.route_seconds = 0.0
        self.clock = clock
        self.envelope = envelope or Envelope()
        self._watched: StandingQuery | None = None
        self.nothing: bytes | None = token_of(NOTHING)
        self.selectivity: Selectivity | None = None
        """Of a dynamic router: what it learns from packets, for what it asks its parents for."""
        self._slots = MemberSlots(self.switch, first=1)
        self._decoded: ByteCache[bytes, QuerySet] = ByteCache(MAX_REMEMBERED_BYTES)
        self._sets: ByteCache[bytes, QuerySet] = ByteCache(MAX_REMEMBERED_SET_BYTES)
        self._in_use: dict[int, tuple[bytes, QuerySet]] = {}  # by slot: these must be at hand, whatever they weigh
        self._wider: OrderedDict[bytes, frozenset[bytes]] = OrderedDict()
        self._until_sample = SAMPLED_EVERY

    @property
    def seconds_per_packet(self) -> float:
        """What matching a packet for all children takes on average; 0 without a clock."""
        return self.route_seconds / self.routed if self.routed else 0.0

    def set_of(self, token: bytes) -> QuerySet:
        """The queries behind a token that was checked before; QueryError or MalformedQuery otherwise."""
        known = (self._sets if is_query_set(token) else self._decoded).get(token)
        if known is None:
            known = next((queries for held, queries in self._in_use.values() if held == token), None)
        if known is None:
            if token == EVERYTHING:
                known = QuerySet([EVERYTHING_QUERY])
            elif is_query_set(token):
                known = QuerySet.decode_untrusted(token)
            else:
                known = QuerySet([Query.decode_untrusted(token)])
            self._remember(token, known)
        return known

    def _remember(self, token: bytes, queries: QuerySet) -> None:
        cache = self._sets if is_query_set(token) else self._decoded
        cache.put(token, queries, len(token) + queries.weight)

    def token_of_set(self, found: QuerySet) -> bytes:
        """One query has the token that it has alone."""
        if len(found) < 2:
            return token_of(next(iter(found.queries), NOTHING))
        if EVERYTHING_QUERY in found.queries:
            return EVERYTHING
        self._remember(found.encode(), found)
        return found.encode()

    def text_of(self, token: bytes) -> str:
        """What a token says, for people."""
        return self.set_of(token).text

    def watch(self, query: StandingQuery | None) -> None:
        """Match the own client's query together with the children's, so that each packet is parsed once.

        Not a query of XPath 2.0 and later: the switch of the children knows only what goes over the wire.
        """
        if self._watched is not None:
            self.switch.remove_link(OWN)
        self._watched = None
        if isinstance(query, Query) and query.travels and not query.matches_everything:
            self.switch.add_link(OWN, slot=0)
            self.switch.subscribe(OWN, query)
            self._watched = query

    def switch_of(self, query: StandingQuery | None) -> Switch[Any] | None:
        """The query alone in a switch that cuts nothing off; None for everything."""
        if not isinstance(query, Query) or query.matches_everything:
            return None
        switch: Switch[Query] = Switch(exact=True)
        switch.add_link(0, slot=0)
        switch.subscribe(0, query)
        return switch

    def check(self, query: bytes) -> str | None:
        try:
            self.set_of(query)
        except (QueryError, MalformedQuery) as error:
            return str(error)
        return None

    def matches(self, query: bytes, payload: bytes) -> bool:
        if query == EVERYTHING:
            return True
        try:
            return self.set_of(query).passes(self.envelope.look_untrusted(payload))
        except (MalformedDocument, PayloadRefused):
            self.unreadable += 1
            return False

    def covers(self, outer: bytes, inner: bytes) -> bool:
        if outer in (EVERYTHING, inner):
            return True
        if inner in self._wider.get(outer, ()):
            return True
        return inner != EVERYTHING and self.set_of(outer).covers(self.set_of(inner))

    def covers_untrusted(self, outer: bytes, inner: bytes) -> bool:
        """The same for tokens that nobody has checked: what is not a query covers nothing."""
        try:
            return self.covers(outer, inner)
        except (QueryError, MalformedQuery):
            return False

    def remember_wider(self, outer: bytes, inner: Iterable[bytes]) -> None:
        """`outer` was made to cover these: `covers` need not find that out, and perhaps can't."""
        self._wider[outer] = self._wider.pop(outer, frozenset()).union(inner)
        while len(self._wider) > MAX_WIDER:
            self._wider.popitem(last=False)

    # --- a long query crosses a link in parts ---

    def parts(self, old: bytes | None, new: bytes) -> list[bytes] | None:
        if not is_query_set(new):
            return None
        parts = self._base(old).difference_to(self.set_of(new), most=PART_BYTES)
        is_worth_it = len(new) > MAX_WHOLE_BYTES or sum(map(len, parts)) < len(new) // 2
        return parts if is_worth_it else None

    def read_part(self, part: bytes) -> Difference | None:
        try:
            return read_difference_untrusted(part)
        except (QueryError, MalformedQuery):
            return None

    def joined(self, old: bytes | None, parts: list[Difference]) -> bytes | None:
        try:
            found = self._base(old).changed(parts)
        except (QueryError, MalformedQuery):
            return None
        return self.token_of_set(found)

    def _base(self, old: bytes | None) -> QuerySet:
        return QuerySet([]) if old is None else self.set_of(old)

    def open_slot(self, slot: int, query: bytes) -> None:
        queries = self.set_of(query)
        self._slots.open(slot, queries)
        self._in_use[slot] = query, queries

    def close_slot(self, slot: int) -> None:
        self._in_use.pop(slot, None)
        if slot in self._slots:
            self._slots.close(slot)

    def cut_off(self, slot: int) -> int:
        """Packets that passed to the child in a slot unmatched, because its queries would have taken too long."""
        return self._slots.cut_off(slot)

    def route(self, payload: bytes) -> int:
        clock = self.clock
        if clock is None:
            return self._route(payload)
        began = clock()
        mask = self._route(payload)
        self.route_seconds += clock() - began
        self.routed += 1
        return mask

    def _route(self, payload: bytes) -> int:
        if self.envelope.remembers:
            return self._route_remembering(payload)
        try:
            content = self.envelope.look_untrusted(payload)
            if self.selectivity is not None:
                self._sample(content)
            return self._slots.spread(self.switch.match_mask(content))
        except (MalformedDocument, PayloadRefused):
            self.unreadable += 1
            return 0

    def _route_remembering(self, payload: bytes) -> int:
        """The same at a router with a client of its own, which takes the packet later."""
        try:
            opened = self.envelope.open_untrusted(payload)
        except PayloadRefused:
            self.unreadable += 1
            return 0
        switch, watched = self.switch, self._watched
        cut_off = switch.cut_off(OWN) if watched is not None else 0
        if self.selectivity is not None:
            self._sample(opened.content)
        try:
            mask = switch.match_mask(opened.content)
        except MalformedDocument:
            self.unreadable += 1
            mask = 0
        if watched is not None and switch.cut_off(OWN) == cut_off:  # else it was not looked at, and the client must
            opened.query, opened.matches = watched, bool(mask & 1)
        return self._slots.spread(mask)

    def _sample(self, content: bytes) -> None:
        self._until_sample -= 1
        if self._until_sample <= 0 and self.selectivity is not None:
            self._until_sample = SAMPLED_EVERY
            self.selectivity.observe(content)
