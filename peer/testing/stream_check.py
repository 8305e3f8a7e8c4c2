"""Promise 1 as a check: what a client is handed is exactly the packets that its query matches, in order, once each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from dcp import EVERYTHING, Gap, Packet, Started
from peer.items import Content
from peer.queries import token_of


class StreamBroken(AssertionError):
    """A client was handed something that is not the stream."""


class Truth:
    """Every packet that the feed ever had, with its content."""

    def __init__(self, matches: Callable[[bytes, bytes], bool], *, before: int = 0) -> None:
        """`before`: the position from which the feed begins, to bring a run close to where ANs wrap."""
        self._matches = matches
        self._before = before
        self._ans: list[int] = []
        self._payloads: dict[int, bytes] = {}
        self._answers: dict[tuple[bytes, bytes], bool] = {}

    def add(self, an: int, payload: bytes) -> None:
        self._ans.append(an)
        self._payloads[an] = payload

    @property
    def last(self) -> int:
        return self._ans[-1] if self._ans else self._before

    @property
    def first(self) -> int | None:
        """The first packet's AN; None while there was none."""
        return self._ans[0] if self._ans else None

    def payload(self, an: int) -> bytes | None:
        return self._payloads.get(an)

    def wants(self, query: bytes, an: int) -> bool:
        payload = self._payloads[an]
        key = (query, payload)
        if key not in self._answers:
            self._answers[key] = query == EVERYTHING or self._matches(query, payload)
        return self._answers[key]

    def wanted_between(self, query: bytes, after: int, until: int) -> int | None:
        """The first packet in (after, until] that the query matches."""
        ans = self._ans
        for index in range(bisect_right(ans, after), len(ans)):
            an = ans[index]
            if an > until:
                break
            if self.wants(query, an):
                return an
        return None


class StreamCheck:
    """Follows one client, event by event."""

    def __init__(self, name: str, truth: Truth, query: bytes) -> None:
        self.name = name
        self.query = query
        self.position: int | None = None
        self.packets = 0
        self.gaps: list[Gap] = []
        self._truth = truth

    def take(self, event: Content) -> None:
        if isinstance(event, Started):
            self.position = event.position
            return
        if self.position is None:
            raise StreamBroken(f"{self.name}: {event} before the start")
        if isinstance(event, Packet):
            self._packet(event)
        elif isinstance(event, Gap):
            if event.after < self.position or event.until <= event.after or event.until > self._truth.last:
                raise StreamBroken(f"{self.name}: {event} at {self.position}, the feed is at {self._truth.last}")
            self._nothing_skipped(event.after, event)
            self.gaps.append(event)
            self.position = event.until
        else:
            if event.position < self.position:
                raise StreamBroken(f"{self.name}: {event} at {self.position}")
            self._nothing_skipped(event.position, event)
            self.position = event.position
            self.query = token_of(event.query)

    def _packet(self, packet: Packet) -> None:
        assert self.position is not None
        if packet.an <= self.position:
            raise StreamBroken(f"{self.name}: packet {packet.an} again or out of order, at {self.position}")
        if self._truth.payload(packet.an) != packet.payload:
            raise StreamBroken(f"{self.name}: packet {packet.an} is not the feed's")
        if not self._truth.wants(self.query, packet.an):
            raise StreamBroken(f"{self.name}: packet {packet.an} was not asked for")
        self._nothing_skipped(packet.an - 1, packet)
        self.packets += 1
        self.position = packet.an

    def _nothing_skipped(self, until: int, event: object) -> None:
        assert self.position is not None
        skipped = self._truth.wanted_between(self.query, self.position, until)
        if skipped is not None:
            raise StreamBroken(f"{self.name}: packet {skipped} skipped in silence by {event}")

    def missing_at_end(self) -> int | None:
        """The first packet that should be here by now and is not."""
        if self.position is None:
            return self._truth.first
        return self._truth.wanted_between(self.query, self.position, self._truth.last)
