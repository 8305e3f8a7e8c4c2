"""What is missing at the receiver's position: since when, whether it was asked for, and when to ask (again).

The clock starts when something is known to be missing and stops when the position moves on. Whether a gap closed by
itself or only after a NACK is what the reordering window learns from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from dcp.claims import Packets
from dcp.config import Config
from dcp.control import Range
from dcp.links.rtt import ReorderWindow
from dcp.links.timing import Timing

# Stretches remembered as asked for. Beyond that only the count of recovered packets suffers.
MAX_ASKED = 1024


class LossWatch:
    def __init__(self, config: Config, timing: Timing, fastest_rtt: Callable[[], float]) -> None:
        self.missing_since: float | None = None
        """Since when something is known to be missing at the present position."""
        self.nack_at: float | None = None
        """When the next NACK for it is due."""
        self.nacked_at = -1e9
        """When the last one went out, for whatever position."""
        self._nacks_here = 0
        self._asked_for: list[Range] = []
        self.patience = 0.0
        """How long a repair that comes by itself may take, before a missing packet is asked for."""
        self._mended: set[int] = set()
        self._is_mending = False
        self._timing = timing
        self._fastest_rtt = fastest_rtt
        self._reordering = ReorderWindow(config.reorder_window, config.min_reorder_window)

    def watch(self, is_missing: bool, now: float) -> None:
        """Start or stop the clock."""
        if not is_missing:
            self.missing_since = self.nack_at = None
        elif self.missing_since is None:
            self.missing_since = now
            self.nack_at = now + self.delay() + self.patience

    def delay(self) -> float:
        """How long a missing packet may still come by itself."""
        return self._timing.reorder_delay(self._reordering, self._fastest_rtt)

    def asked(self, ranges: Iterable[Range], now: float) -> int:
        """A NACK goes out for these stretches; how many that makes at this position."""
        self.nacked_at = now
        self._nacks_here += 1
        asked = self._asked_for
        for start, end in ranges:
            # Remembered until the position has passed it: a packet that came may still wait in the buffer.
            start = max(start, asked[-1][1] if asked else 0)
            if start < end and len(asked) < MAX_ASKED:
                asked.append((start, end))
        return self._nacks_here

    def recovered(self, packets: Packets) -> int:
        """How many of these came in a stretch that was asked for: no first copy brought them."""
        asked, mended = self._asked_for, self._mended
        if not asked and not mended:
            return 0
        count = 0
        for an, _ in packets:
            if an in mended:
                count += 1
                continue
            index = bisect_left(asked, an, key=_end_of)
            count += index < len(asked) and asked[index][0] < an
        return count

    def advanced(self, position: int, now: float) -> None:
        """The position rose: learn from how the gap closed, and start over."""
        if self._mended:
            self._mended = {an for an in self._mended if an > position}
        if self.missing_since is not None and not self._is_mending:
            if self._nacks_here == 0 or now - self.nacked_at < 0.5 * self._fastest_rtt():
                self._reordering.sample(now - self.missing_since)  # too soon for an answer to a NACK: it was only late
            else:
                self._reordering.quiet()
        self.given_up()
        if self._asked_for:
            self._asked_for = [stretch for stretch in self._asked_for if stretch[1] > position]

    def mending(self, packets: Packets) -> None:
        """These were computed from repairs: no first copy brought them, and how late they are says nothing."""
        if len(self._mended) < MAX_ASKED:
            self._mended.update(an for an, _ in packets)
        self._is_mending = True

    def mended(self) -> None:
        self._is_mending = False

    def given_up(self) -> None:
        """What was missing is a gap now: nothing is learned from that."""
        self.missing_since = self.nack_at = None
        self._nacks_here = 0


def _end_of(stretch: Range) -> int:
    return stretch[1]
