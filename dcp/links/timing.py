"""When to ask, to ask again and to show a sign of life: learned from the link, or fixed at the paper's values.

One object for each stream, chosen once (`timing_of`). It holds no state: what was measured is given in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from dcp.config import Config
from dcp.links.link import Link
from dcp.links.rtt import Pace, ReorderWindow, RoundTrip


class Timing(Protocol):
    @property
    def slow_nack_interval(self) -> float:
        """How long nothing may come before we ask although nothing shows a loss."""

    def reorder_delay(self, reordering: ReorderWindow, fastest_rtt: Callable[[], float]) -> float:
        """How long a missing packet may still come by itself."""

    def answer_time(self, links: Iterable[Link], nacks: int, now: float) -> float:
        """How long to wait for the answer to the nth NACK for the same position."""

    def keep_alive_delay(self, rtt: RoundTrip, pace: Pace, sent: int) -> float:
        """From the last packet, or the last of `sent` keep-alives since, to the next keep-alive."""


class LearnedTiming:
    """Section 6.6 of the paper."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.slow_nack_interval = max(config.slow_nack_interval, 1.5 * config.keep_alive_interval)

    def reorder_delay(self, reordering: ReorderWindow, fastest_rtt: Callable[[], float]) -> float:
        return reordering.window(cap=max(fastest_rtt(), self._config.min_reorder_window))

    def answer_time(self, links: Iterable[Link], nacks: int, now: float) -> float:
        """It backs off without limit only while nobody is heard."""
        config = self._config
        links = list(links)
        rto = min((link.rtt.timeout(config.min_rto, config.max_rto) for link in links), default=config.initial_rtt)
        longest = config.max_rto
        if any(now - link.heard_at < 2 * config.keep_alive_interval for link in links):
            # The path works, it only loses much: waiting longer helps nobody, and a NACK is small.
            longest = max(rto, min(4 * rto, config.keep_alive_interval))
        return min(rto * config.nack_backoff ** min(nacks - 1, 20), longest)

    def keep_alive_delay(self, rtt: RoundTrip, pace: Pace, sent: int) -> float:
        """Soon after a packet, since only a later claim shows the loss of the last one; then doubled each time."""
        config = self._config
        first = max(config.min_keep_alive_interval, rtt.smoothed)
        if pace.interval is not None:
            first = max(config.min_keep_alive_interval, min(first, 2 * pace.interval))
        return min(first * 2.0 ** min(sent, 16), config.keep_alive_interval)


class FixedTiming:
    """Section 5.1.3 of the paper, for comparison."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.slow_nack_interval = config.slow_nack_interval

    def reorder_delay(self, reordering: ReorderWindow, fastest_rtt: Callable[[], float]) -> float:
        return self._config.reorder_window

    def answer_time(self, links: Iterable[Link], nacks: int, now: float) -> float:
        return self._config.slow_nack_interval

    def keep_alive_delay(self, rtt: RoundTrip, pace: Pace, sent: int) -> float:
        return self._config.keep_alive_interval


def timing_of(config: Config) -> Timing:
    return LearnedTiming(config) if config.adaptive else FixedTiming(config)
