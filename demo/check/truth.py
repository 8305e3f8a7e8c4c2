"""What the feed said and which of it was published, and so what every client must have been handed. Pure.

Made from the feed itself, not from what peers say about packets: peers only say which numbers they published.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any

from asdi.flights import Packet
from demo.run.feed import FeedPlan
from xmlswitch import Query, parse_document
from xmlswitch.errors import EvaluationCutOff

MAX_REMEMBERED = 65_536
"""As many as a peer's log has: who is further behind is handed a gap anyway."""
MAX_DOCUMENTS = 4_096
"""Parsed ones kept at hand."""


class Fact:
    """One packet of the feed."""

    __slots__ = ("an", "crc", "due_at", "is_published", "payload", "root")

    def __init__(self, packet: Packet, due_at: float) -> None:
        self.an = packet.an
        self.payload = packet.payload
        self.crc = zlib.crc32(packet.payload)
        self.due_at = due_at
        self.is_published = False
        self.root: Any = None

    def matches(self, query: Query) -> bool:
        """By evaluation of this one query, without the switch's index: the peers are checked against it."""
        try:
            return query.matches_everything or query.holds(self.document())
        except EvaluationCutOff:
            return True  # as the clients decide

    def document(self) -> Any:
        if self.root is None:
            self.root = parse_document(self.payload)
        return self.root


class Truth:
    """Facts in the order of their numbers, which are dense."""

    def __init__(self, plan: FeedPlan, packets: Iterator[Packet]) -> None:
        self._plan = plan
        self._packets = packets
        self._facts: deque[Fact] = deque()
        self._ahead = next(packets)
        self.first_an = self._ahead.an
        self.published = 0
        """How many packets at least one root has published."""

    def make_until(self, moment: float) -> None:
        """Have every packet ready that is due by then."""
        while (due_at := self._plan.due_at(self._ahead.time)) <= moment:
            self._facts.append(Fact(self._ahead, due_at))
            self._ahead = next(self._packets)
            if len(self._facts) > MAX_DOCUMENTS:
                self._facts[-MAX_DOCUMENTS].root = None  # parsed again if needed
        while len(self._facts) > MAX_REMEMBERED:
            self._facts.popleft()

    def forget_before(self, an: int) -> None:
        while len(self._facts) > MAX_DOCUMENTS and self._facts[0].an < an:
            self._facts.popleft()

    def __getitem__(self, an: int) -> Fact | None:
        if not self._facts:
            return None
        index = an - self._facts[0].an
        return self._facts[index] if 0 <= index < len(self._facts) else None

    def publish(self, first: int, last: int) -> list[Fact]:
        """Record what a root published; return what no root had published before."""
        new = []
        for an in range(first, last + 1):
            fact = self[an]
            if fact is not None and not fact.is_published:
                fact.is_published = True
                self.published += 1
                new.append(fact)
        return new

    def published_after(self, position: int) -> Iterator[Fact]:
        start = bisect_right(self._facts, position, key=lambda fact: fact.an)
        return (self._facts[i] for i in range(start, len(self._facts)) if self._facts[i].is_published)

    def recent(self, count: int, *, before: float) -> list[Fact]:
        """The last published ones that were due before a moment, the newest last."""
        found: list[Fact] = []
        for fact in reversed(self._facts):
            if fact.is_published and fact.due_at <= before:
                found.append(fact)
                if len(found) >= count:
                    break
        return found[::-1]
