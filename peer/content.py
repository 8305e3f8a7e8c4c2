"""What the client here is handed: exactly the packets that its own query matches, out of what the parents send.

Parents may send more. The network carries XPath 1.0 only, and a parent that would need too long for a packet passes it
on unmatched (docs/xmlswitch.md, "Queries"); a router receives what its children want as well. So the
client's own query is applied here, once more and exactly. An XPath 2.0 to 3.1 query is applied nowhere else: parents
are asked for a necessary condition of it (`Query.need`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from dcp import Gap, Omitted, Packet, PayloadRefused
from dcp.events import QuerySwitched as ParentsSwitched
from dcp.receiver import Receiver
from peer.items import Content, QuerySwitched
from peer.queries import XPathPolicy, token_of
from peer.standing import StandingQuery
from xmlswitch import MalformedDocument, Switch

# Queries that were asked for and have not taken effect yet. A program that changes its query faster than parents can
# follow skips the ones between.
MAX_WANTED = 64
MAX_EARLIER = 8
"""Queries that held before and are remembered for late packets, which come within seconds."""


class Subscription:
    """The client's query in force, the one that it wants next, and the stream as it is to see it."""

    def __init__(
        self, receiver: Receiver, policy: XPathPolicy, query: StandingQuery | None, *, is_router: bool
    ) -> None:
        """A router asks its parents for what its children want too: its own switch of query is decided here."""
        self.query = query
        """In force for what is handed over next."""
        self.not_matching = 0
        """Packets that came and were not handed over: this query does not match them."""
        self.bytes = 0
        """Of the packets that were handed over."""
        self.unreadable = 0
        """Packets whose envelope could not be opened: handed over as gaps."""
        self.keeps: Callable[[int, bytes], None] | None = None
        """Called with each packet that is handed over, in its envelope, and its AN."""
        self._receiver = receiver
        self._policy = policy
        self._is_router = is_router
        self._wanted: OrderedDict[bytes, StandingQuery | None] = OrderedDict()
        self._position: int | None = None
        self._switch: Switch[Any] | None = None
        self._earlier: deque[tuple[int, Switch[Any] | None]] = deque(maxlen=MAX_EARLIER)
        self._use(query)

    @property
    def token(self) -> bytes:
        """What parents are asked for on behalf of the query in force."""
        return token_of(self.query)

    @property
    def tokens(self) -> list[bytes]:
        """The same, and what the queries that were asked for since need."""
        return [self.token, *self._wanted]

    def want(self, query: StandingQuery | None) -> None:
        """The client wants another query. The caller sees to it that parents are asked for its token."""
        token = token_of(query)
        if self._is_router:
            self._wanted.clear()  # a router goes straight to the newest
        self._wanted[token] = query
        self._wanted.move_to_end(token)
        if len(self._wanted) > MAX_WANTED:
            self._wanted.popitem(last=False)

    def next(self) -> Content | None:
        """The next packet, with its envelope opened, gap, start or query switch for the client."""
        receiver = self._receiver
        while True:
            if self._wanted and (switched := self._switch_here()) is not None:
                return switched
            event = receiver.next_event()
            if event is None:
                return None
            if isinstance(event, Packet):
                if self._position is not None and event.an <= self._position:
                    switch = self._switch_at(event.an)  # in the order of arrival, one may belong before a switch
                else:
                    self._position, switch = event.an, self._switch
                item = self._opened(event, switch)
                if item is None:
                    self.not_matching += 1
                    continue
                return item
            if isinstance(event, Omitted):
                late = self._opened(Packet(*event), self._switch_at(event.an))
                if isinstance(late, Packet):
                    return Omitted(*late)
                self.not_matching += late is None
                continue  # one that can't be opened is counted: behind the position there is no place for a gap
            if isinstance(event, Gap):
                self._position = max(event.until, self._position or 0)
            elif isinstance(event, ParentsSwitched):
                self._position = max(event.position, self._position or 0)
                if self._is_router or not self._switch_with(event.query):
                    continue  # what parents send is another thing than what the client wants
                return QuerySwitched(event.position, self.query)
            else:
                self._position = event.position
            return event

    def _switch_with(self, token: bytes) -> bool:
        """The client of a leaf sees its query switch where the parents switched."""
        if token not in self._wanted:
            return False
        query = self._wanted[token]
        while self._wanted and next(iter(self._wanted)) != token:
            self._wanted.popitem(last=False)  # skipped by the receiver
        del self._wanted[token]
        self._use(query)
        return True

    def _switch_here(self) -> QuerySwitched | None:
        """Switch as soon as what comes from the parents covers the new query and nothing older is waiting."""
        receiver = self._receiver
        if self._position is None:
            return None
        token, query = next(reversed(self._wanted.items()))
        if self._is_router:
            # What still lies in the queue may have come under an older, narrower query: switch behind it.
            if not receiver.is_drained and not self._policy.covers(self.token, token):
                return None
            if not self._policy.covers(receiver.query, token):
                return None
        elif not (receiver.is_drained and receiver.change.target == receiver.query == token == self.token):
            return None  # the parents' switch says where; without one, everything that came is under this token
        self._wanted.clear()
        self._use(query)
        return QuerySwitched(self._position, query)

    def _use(self, query: StandingQuery | None) -> None:
        if self._position is not None:
            self._earlier.append((self._position, self._switch))
        self.query = query
        self._switch = self._policy.switch_of(query)
        if self._is_router:
            self._policy.watch(query)

    def _switch_at(self, an: int) -> Switch[Any] | None:
        """The query that holds at an AN, which may be behind us."""
        return next((switch for until, switch in self._earlier if an <= until), self._switch)

    def _opened(self, packet: Packet, switch: Switch[Any] | None) -> Packet | Gap | None:
        """The packet with its content; a gap if the envelope can't be opened; None if the query does not match."""
        try:
            opened = self._policy.envelope.take_untrusted(packet.payload)
        except PayloadRefused:
            self.unreadable += 1
            return Gap(packet.an - 1, packet.an)
        if switch is not None:
            if switch is self._switch and opened.query is not None and opened.query is self.query:
                matches = opened.matches  # it was matched together with the children's queries
            else:
                try:
                    matches = switch.match_mask(opened.content) != 0
                except MalformedDocument:
                    self._policy.unreadable += 1
                    matches = False
            if not matches:
                return None
        self.bytes += len(packet.payload)
        if self.keeps is not None:
            self.keeps(packet.an, packet.payload)
        return Packet(packet.an, opened.content)
