"""ReLate and ReLate2 of a subscription: latency and loss as one number each, after the ADAMANT paper. Pure.

ReLate is the mean latency divided by the share of packets received; ReLate2 the mean latency times (percent lost + 1).
Latency needs the time of sending in the packets (`root --stamp`) and clocks that agree. Lost is every AN in a gap: with
a query that is an upper bound, since nobody knows which of them would have matched.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp import Gap, Packet
from peer.feeds.stamp import stamp_of
from peer.items import Content


class Relate:
    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the Unix time."""
        self.packets = 0
        self.lost = 0
        self.stamped = 0
        self.latency_sum = 0.0
        self._clock = clock

    def note(self, item: Content) -> None:
        """Something is handed over."""
        if isinstance(item, Packet):
            self.packets += 1
            if item.payload.endswith(b"?>") and (sent := stamp_of(item.payload)) is not None:
                self.stamped += 1
                self.latency_sum += max(0.0, self._clock() - sent)
        elif isinstance(item, Gap):
            self.lost += item.until - item.after

    @property
    def latency(self) -> float | None:
        """Seconds, the mean; None without stamps."""
        return self.latency_sum / self.stamped if self.stamped else None

    @property
    def received(self) -> float | None:
        """Share of the packets; None before the first."""
        expected = self.packets + self.lost
        return self.packets / expected if expected else None

    @property
    def relate(self) -> float | None:
        latency, received = self.latency, self.received
        return latency / received if latency is not None and received else None

    @property
    def relate2(self) -> float | None:
        latency, received = self.latency, self.received
        return latency * (100 * (1 - received) + 1) if latency is not None and received is not None else None
