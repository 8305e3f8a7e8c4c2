"""What was sent again a moment ago: it is on its way, and is not sent a third time for the same request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dcp.control import Range

# Sent again to one child each second even if it got nothing new: the tail of a stream that has paused.
REPAIR_BYTES_PER_SECOND = 64 << 10
# Sent again for each byte that was sent: at half loss each way every byte goes out twice on average.
REPAIRS_FOR_LIVE = 2
# What a child may save up: twice the largest window, so that all of it may be lost, and its repair too.
MAX_REPAIR_CREDIT = 8 << 20


class RecentRepairs:
    """Stretches with the time at which they were sent again; bounded, the oldest forgotten first."""

    __slots__ = ("_most", "_ranges")

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranges: deque[tuple[float, int, int]] = deque()

    def add(self, wanted: Range, now: float) -> None:
        if len(self._ranges) >= self._most:
            self._ranges.popleft()
        self._ranges.append((now, *wanted))

    def without_recent(self, wanted: Iterable[Range], since: float) -> list[Range]:
        """`wanted`, in order and apart, less what was sent again after `since`."""
        ranges = self._ranges
        while ranges and ranges[0][0] <= since:
            ranges.popleft()
        return _subtracted(merged(wanted), merged((start, end) for _, start, end in ranges))

    def clear(self) -> None:
        self._ranges.clear()

    def __len__(self) -> int:
        return len(self._ranges)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """In order, and no two of them touching."""
    out: list[Range] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _subtracted(wanted: list[Range], taken: list[Range]) -> list[Range]:
    out: list[Range] = []
    index = 0
    for start, end in wanted:
        at = start
        while index < len(taken) and taken[index][1] <= at:
            index += 1
        following = index
        while following < len(taken) and taken[following][0] < end:
            first, until = taken[following]
            if first > at:
                out.append((at, first))
            at = max(at, until)
            following += 1
        if at < end:
            out.append((at, end))
    return out


class RepairBudget:
    """How many bytes may be sent again to one child: whatever it asks for, and however often.

    Each byte sent for the first time earns two, which is enough for half of everything lost in both directions; beside
    that a little comes in every second, for the last packets before a pause. A packet that is larger than what is left
    still goes out, and the debt is paid before the next.
    """

    __slots__ = ("_at", "_credit", "refused")

    def __init__(self) -> None:
        self._credit = float(REPAIR_BYTES_PER_SECOND)
        self._at: float | None = None
        self.refused = 0
        """Requests that were passed over. The child asks again."""

    def earn(self, live_bytes: int) -> None:
        self._credit = min(self._credit + REPAIRS_FOR_LIVE * live_bytes, MAX_REPAIR_CREDIT)

    def spend(self, size: int) -> None:
        self._credit -= size

    def allows(self, now: float) -> bool:
        if self._at is not None and self._credit < REPAIR_BYTES_PER_SECOND:
            earned = (now - self._at) * REPAIR_BYTES_PER_SECOND
            self._credit = min(self._credit + earned, REPAIR_BYTES_PER_SECOND)
        self._at = now
        return self._credit > 0
