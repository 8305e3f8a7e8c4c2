"""The built-in feed on the wall clock: every root says the same thing at the same moment, whenever it was started.

By default what the feed says at a moment of the day is sent at that moment. With a speed, or a rate, feed and wall
clock run apart, and an anchor fixed for everybody keeps the roots together: they must be started with the same flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from asdi import parse, to_xml
from asdi.flights import MAX_COPIES, Feed
from peer.errors import FeedError
from peer.feeds.sequencer import Numbered

ANCHOR: Final = 1_767_225_600
"""2026-01-01 00:00 UTC: where feed time and wall time are the same at any speed."""
MAX_SPEED: Final = 600.0
MAX_RATE: Final = 10_000.0
_LATEST: Final = 2_000_000 * 86_400
"""The feed's calendar goes no further."""


class DemoFeed:
    """A speed (feed seconds a second) or a rate (packets a second): a fixed rate has no rush hours."""

    def __init__(self, *, copies: int = 1, speed: float | None = None, rate: float | None = None) -> None:
        if not 1 <= copies <= MAX_COPIES:
            raise FeedError(f"demo:COPIES is 1 to {MAX_COPIES}, not {copies}")
        if speed is not None and rate is not None:
            raise FeedError("the demo feed takes a rate or a speed, not both")
        if speed is not None and not 0 < speed <= MAX_SPEED:
            raise FeedError(f"the demo feed's speed is above 0 and up to {MAX_SPEED:g}, not {speed:g}")
        if rate is not None and not 0 < rate <= MAX_RATE:
            raise FeedError(f"the demo feed's rate is above 0 and up to {MAX_RATE:g} packets a second, not {rate:g}")
        self._feed = Feed(copies=copies)
        self._speed = speed or 1.0
        self._rate = rate

    def send_at(self, packet: Numbered) -> float:
        """The Unix time at which every root sends this packet."""
        if self._rate is not None:
            return ANCHOR + packet.an / self._rate
        assert packet.time is not None
        return ANCHOR + (packet.time - ANCHOR) / self._speed

    def packets(self, now: float) -> Iterator[Numbered]:
        """Everything that is due after this Unix time, forever. Starting takes a moment: not for the event loop."""
        if self._rate is not None:
            first_an = int((now - ANCHOR) * self._rate) + 1
            if first_an < 1:
                raise FeedError("the clock of this host is before 2026: the demo feed can't be aligned to it")
            start = self._second_of(first_an)
        else:
            first_an = 0
            start = max(0, int(ANCHOR + (now - ANCHOR) * self._speed) + 1)
        if start > _LATEST:
            raise FeedError("the demo feed has no calendar that far ahead: lower the rate or the speed")
        for an, time, text in self._feed.lines(start):
            if an >= first_an:
                yield Numbered(an, to_xml(parse(text)), True, float(time), text.encode("ascii"))

    def _second_of(self, an: int) -> int:
        """The last second whose first message is not above this AN."""
        low, high = 0, _LATEST
        while high - low > 1:
            middle = (low + high) // 2
            if self._feed.first_an(middle) <= an:
                low = middle
            else:
                high = middle
        return low
