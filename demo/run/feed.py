"""When each packet of the built-in feed is due in a demo: a busy day that begins when the demo begins.

Every root and the checker make the same packets from the same three numbers, each for itself: nobody hands them round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from asdi.flights import MAX_COPIES, Feed, Packet

FIRST_SECOND: Final = 1_767_225_600 + 14 * 3600
"""2026-01-01 14:00 UTC, morning on the east coast: at six times the speed of life the next hour is all rush hours."""
MAX_SPEED: Final = 120.0


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """`began`: the monotonic moment (the same clock for every process of a machine) at which the feed's day begins."""

    began: float
    copies: int = 5
    speed: float = 6.0

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= MAX_COPIES:
            raise ValueError(f"copies must be in 1..{MAX_COPIES}, got {self.copies}")
        if not (math.isfinite(self.speed) and 0 < self.speed <= MAX_SPEED):
            raise ValueError(f"speed must be above 0 and at most {MAX_SPEED:g}, got {self.speed:g}")

    def due_at(self, feed_second: int) -> float:
        """The monotonic moment at which what the feed says in this second is due."""
        return self.began + (feed_second - FIRST_SECOND) / self.speed

    def second_at(self, now: float) -> float:
        """The feed's own time at a monotonic moment."""
        return FIRST_SECOND + (now - self.began) * self.speed

    def packets_after(self, now: float) -> Iterator[Packet]:
        """Yield all packets due after `now`, endlessly. Takes a moment to start."""
        first = max(FIRST_SECOND, math.floor(self.second_at(now)) + 1)
        return Feed(copies=self.copies).packets(first)

    def as_json(self) -> dict[str, Any]:
        return {"began": self.began, "copies": self.copies, "speed": self.speed}


def warm_up() -> None:
    """Read the table of flights and count its messages: done once, before the peers are forked."""
    Feed().first_an(FIRST_SECOND)
