"""Promise 1 as a check: what a client is handed is exactly the packets that its query matches, in order, once each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from dcp.events import Gap, Omitted, Packet, Started
from dcp.queries import EVERYTHING


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

    def wanted_between(self, query: bytes, after: int, until: int) -> Iterator[int]:
        """The packets in (after, until] that the query matches."""
        ans = self._ans
        for index in range(bisect_right(ans, after), len(ans)):
            an = ans[index]
            if an > until:
                return
            if self.wants(query, an):
                yield an


class StreamCheck:
    """Follows one client, event by event; raises `StreamBroken` at the first that is not the stream."""

    def __init__(
        self, name: str, truth: Truth, query: bytes, *, token: Callable[[Any], bytes] = lambda query: query
    ) -> None:
        """`token` gives the query of a switch as bytes, where the client is handed something else."""
        self.name = name
        self.query = query
        self.position: int | None = None
        self.packets = 0
        self.gaps: list[Gap] = []
        self._truth = truth
        self._token = token

    def take(self, event: Any) -> None:
        """The next thing that the client was handed: dcp's `Content`, or what stands for it in a layer above."""
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
            self._pass_to(event.after, event)
            self.gaps.append(event)
            self.position = event.until
        elif isinstance(event, Omitted):
            self._omitted(event)
        else:
            if event.position < self.position:
                raise StreamBroken(f"{self.name}: {event} at {self.position}")
            self._pass_to(event.position, event)
            self.position = event.position
            self.query = self._token(event.query)

    def _packet(self, packet: Packet) -> None:
        assert self.position is not None
        if packet.an <= self.position:
            raise StreamBroken(f"{self.name}: packet {packet.an} again or out of order, at {self.position}")
        self._check_payload(packet)
        if not self._truth.wants(self.query, packet.an):
            raise StreamBroken(f"{self.name}: packet {packet.an} was not asked for")
        self._pass_to(packet.an - 1, packet)
        self.packets += 1
        self.position = packet.an

    def _check_payload(self, packet: Packet | Omitted) -> None:
        if self._truth.payload(packet.an) != packet.payload:
            raise StreamBroken(f"{self.name}: packet {packet.an} is not the feed's")

    def _pass_to(self, until: int, event: object) -> None:
        """The client was handed something that lies beyond `until`, so nothing up to it may be missing."""
        assert self.position is not None
        skipped = next(self._truth.wanted_between(self.query, self.position, until), None)
        if skipped is not None:
            raise StreamBroken(f"{self.name}: packet {skipped} skipped in silence by {event}")

    def _omitted(self, late: Omitted) -> None:
        raise StreamBroken(f"{self.name}: {late.an} was omitted by a parent, and nobody lies here")

    def missing_at_end(self) -> int | None:
        """The first packet that should be here by now and is not."""
        if self.position is None:
            return self._truth.first
        return next(self._truth.wanted_between(self.query, self.position, self._truth.last), None)


class LateStreamCheck(StreamCheck):
    """The same where parents may lie: what was passed over is owed, and may still come as `Omitted`, once."""

    def __init__(
        self, name: str, truth: Truth, query: bytes, *, token: Callable[[Any], bytes] = lambda query: query
    ) -> None:
        super().__init__(name, truth, query, token=token)
        self._owed: set[int] = set()
        self._ahead: list[tuple[bytes, int, int]] = []
        """Stretches that were passed before the feed had come so far, with the query in force there."""
        self.late = 0
        self._paid: set[int] = set()
        """Handed over as omitted, and beyond what was handed over in order so far."""

    @property
    def owed(self) -> set[int]:
        """Passed over in silence, and not handed over since."""
        passed, self._ahead = self._ahead, []
        for query, after, until in passed:
            self._pass(query, after, until)
        return self._owed

    def _pass(self, query: bytes, after: int, until: int) -> None:
        self._owed.update(self._truth.wanted_between(query, after, until))
        if until > self._truth.last:
            self._ahead.append((query, max(after, self._truth.last), until))

    def _pass_to(self, until: int, event: object) -> None:
        assert self.position is not None
        self._pass(self.query, self.position, until)
        self._owed -= self._paid
        self._paid = {an for an in self._paid if an > until}

    def _packet(self, packet: Packet) -> None:
        if packet.an in self._paid:
            raise StreamBroken(f"{self.name}: packet {packet.an} came before, as omitted")
        super()._packet(packet)

    def _omitted(self, late: Omitted) -> None:
        """A client that filters may be handed one as omitted of which it was handed nothing beyond."""
        assert self.position is not None
        self._check_payload(late)
        if late.an in self.owed:
            self._owed.discard(late.an)
        elif late.an > self.position and late.an not in self._paid and self._truth.wants(self.query, late.an):
            self._paid.add(late.an)
        else:
            raise StreamBroken(f"{self.name}: packet {late.an} again as omitted, or not asked for")
        self.late += 1

    def has_come_late(self, an: int) -> bool:
        return an in self._paid
