"""Timers that learn: round trip, reordering, and the stream's own pace. Arithmetic only; no clock is read here."""

from __future__ import annotations


class RoundTrip:
    """Smoothed round trip and deviation, as Jacobson has it; Karn's rule is the caller's (`sample` only what is sure).

    With clock echoes in keep-alives and acknowledgments every sample is sure; for an acknowledgment that a data packet
    asked for, only when that packet was sent once.
    """

    __slots__ = ("deviation", "samples", "smoothed")

    def __init__(self, initial: float) -> None:
        self.smoothed = initial
        self.deviation = initial / 2
        self.samples = 0

    def sample(self, rtt: float) -> None:
        if rtt < 0:
            return
        if self.samples == 0:
            self.smoothed = rtt
            self.deviation = rtt / 2
        else:
            self.deviation += 0.25 * (abs(rtt - self.smoothed) - self.deviation)
            self.smoothed += 0.125 * (rtt - self.smoothed)
        self.samples += 1

    def timeout(self, shortest: float, longest: float) -> float:
        """How long to wait for an answer before asking again."""
        return min(max(self.smoothed + 4 * self.deviation, shortest), longest)


class ReorderWindow:
    """How long after a later packet a missing one still comes by itself.

    Each gap that closed without our asking is a sample of how late "merely late" is. The window is the mean and four
    deviations of those, between the floor and what a retransmission would take (`cap`): waiting longer than that for a
    packet that may come by itself is worse than asking. A lost packet gives no sample, so loss does not widen it.
    """

    __slots__ = ("_deviation", "_mean", "floor")

    def __init__(self, initial: float, floor: float) -> None:
        # With no sample yet the window is `initial`: the mean and its deviations are set so that they add up to it.
        self._mean = initial / 2
        self._deviation = initial / 8
        self.floor = floor

    def sample(self, lateness: float) -> None:
        self._deviation += 0.25 * (abs(lateness - self._mean) - self._deviation)
        self._mean += 0.125 * (lateness - self._mean)

    def quiet(self) -> None:
        """A gap turned out to be a loss: nothing late came. Forget a little, so that the window shrinks again."""
        self._deviation *= 0.98
        self._mean *= 0.98

    def window(self, cap: float) -> float:
        return max(self.floor, min(self._mean + 4 * self._deviation, cap))


class Pace:
    """The stream's mean time between packets, as an exponential average over about 16 of them."""

    __slots__ = ("interval", "last_at")

    def __init__(self) -> None:
        self.interval: float | None = None
        self.last_at: float | None = None

    def tick(self, now: float, count: int = 1) -> None:
        if self.last_at is not None and count:
            gap = (now - self.last_at) / count
            if self.interval is None:
                self.interval = gap
            else:
                self.interval += (gap - self.interval) * min(1.0, count / 16)
        self.last_at = now
