"""What the mesh asks about queries, answered by the XML switch: the only place where dcp's tokens meet XPath.

A token on the wire is an encoded canonical query; the empty one is everything. Payloads are envelopes, which
`peer.envelope` opens; they are passed on untouched.

A packet that is not XML matches no query: peers that asked for everything get it, others do not. It is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dcp import EVERYTHING, PayloadRefused
from peer.envelope import Envelope
from xmlswitch import MalformedDocument, MalformedQuery, Query, QueryError, Switch, covers, disjoin
from xmlswitch.caches import ByteCache

# Of queries kept at hand, as they are in memory: strangers may fill this, and must not fill the memory.
MAX_REMEMBERED_BYTES = 8 << 20

NOTHING = Query.parse("false()")
OWN = "own"
"""The client's link in the switch, in slot 0; a child's slot is one more than dcp's number for it."""


def token_of(query: Query | None) -> bytes:
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
        self._watched: Query | None = None
        self._decoded: ByteCache[bytes, Query] = ByteCache(MAX_REMEMBERED_BYTES)

    @property
    def seconds_per_packet(self) -> float:
        """What matching a packet for all children takes on average; 0 without a clock."""
        return self.route_seconds / self.routed if self.routed else 0.0

    def query_of(self, token: bytes) -> Query:
        """The query behind a token that was checked before; QueryError or MalformedQuery otherwise."""
        known = self._decoded.get(token)
        if known is None:
            known = Query.parse("true()") if token == EVERYTHING else Query.decode_untrusted(token)
            self._decoded.put(token, known, len(token) + known.weight)
        return known

    def watch(self, query: Query | None) -> None:
        """Match the own client's query together with the children's, so that each packet is parsed once.

        Not a query of XPath 2.0 and later: the switch of the children knows only what goes over the wire.
        """
        if self._watched is not None:
            self.switch.remove_link(OWN)
        self._watched = None
        if query is not None and query.travels and not query.matches_everything:
            self.switch.add_link(OWN, slot=0)
            self.switch.subscribe(OWN, query)
            self._watched = query

    def check(self, query: bytes) -> str | None:
        try:
            self.query_of(query)
        except (QueryError, MalformedQuery) as error:
            return str(error)
        return None

    def matches(self, query: bytes, payload: bytes) -> bool:
        if query == EVERYTHING:
            return True
        try:
            return self.query_of(query).passes(self.envelope.look_untrusted(payload))
        except (MalformedDocument, PayloadRefused):
            self.unreadable += 1
            return False

    def covers(self, outer: bytes, inner: bytes) -> bool:
        if outer in (EVERYTHING, inner):
            return True
        return inner != EVERYTHING and covers(self.query_of(outer), self.query_of(inner))

    def covers_untrusted(self, outer: bytes, inner: bytes) -> bool:
        """The same for tokens that nobody has checked: what is not a query covers nothing."""
        try:
            return self.covers(outer, inner)
        except (QueryError, MalformedQuery):
            return False

    def union(self, tokens: Iterable[bytes]) -> bytes:
        """The least query we know of that covers them all."""
        wanted = set(tokens)
        if EVERYTHING in wanted:
            return EVERYTHING
        queries = [self.query_of(token) for token in sorted(wanted)]
        return token_of(disjoin(queries)) if queries else token_of(NOTHING)

    def open_slot(self, slot: int, query: bytes) -> None:
        self.switch.add_link(slot, slot=slot + 1)
        self.switch.subscribe(slot, self.query_of(query))

    def close_slot(self, slot: int) -> None:
        self.switch.remove_link(slot)

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
            return self.switch.match_mask(self.envelope.look_untrusted(payload)) >> 1
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
        try:
            mask = switch.match_mask(opened.content)
        except MalformedDocument:
            self.unreadable += 1
            mask = 0
        if watched is not None and switch.cut_off(OWN) == cut_off:  # else it was not looked at, and the client must
            opened.query, opened.matches = watched, bool(mask & 1)
        return mask >> 1
