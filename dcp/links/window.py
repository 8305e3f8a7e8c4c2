"""How much may be under way to one child, and how fast history may go.

Loss on a mesh link is as often noise as congestion, and the live stream is slow beside the link. So the window never
falls below `min_window`: above that it grows with acknowledgments and shrinks on loss, at most once per round trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dcp.config import Config
from dcp.control import Range


class SendWindow:
    """Bytes and packets sent but not yet acknowledged, against what the path and the receiver can take."""

    __slots__ = ("_config", "_flight", "_reduced_at", "_threshold", "bytes", "packets", "room", "size")

    def __init__(self, config: Config, room: int) -> None:
        self._config = config
        self.size = config.initial_window
        self.room = room
        """Packets that the receiver said it can take."""
        self.bytes = 0
        self.packets = 0
        self._flight: deque[tuple[int, int, int]] = deque()
        self._threshold = config.max_window
        self._reduced_at = -1e9

    @property
    def is_open(self) -> bool:
        return self.bytes < self.size and self.packets < self.room

    def sent(self, an: int, size: int, packets: int) -> None:
        self._flight.append((an, size, packets))
        self.bytes += size
        self.packets += packets

    def acknowledged(self, position: int) -> None:
        flight = self._flight
        freed = 0
        while flight and flight[0][0] <= position:
            _, size, packets = flight.popleft()
            freed += size
            self.packets -= packets
        self.bytes -= freed
        if freed:
            # Doubling per round trip up to where loss began, then about one datagram per round trip.
            grow = freed if self.size < self._threshold else max(1, 1_400 * freed // self.size)
            self.size = min(self.size + grow, self._config.max_window)

    def heard_of(self, until: int, missing: Sequence[Range]) -> None:
        """Up to `until` the child has everything but `missing`: the rest is no longer under way.

        Without this, one lost packet holds all that was sent after it in the window, and at a heavy loss the live
        stream would wait for repairs that do not need its room.
        """
        kept: deque[tuple[int, int, int]] = deque()
        ranges = iter(sorted(missing))
        start, end = next(ranges, (until, until))
        for entry in self._flight:
            an, size, packets = entry
            while an > end and end < until:
                start, end = next(ranges, (until, until))
            if an > until or start < an <= end:
                kept.append(entry)
            else:
                self.bytes -= size
                self.packets -= packets
        self._flight = kept

    def lost(self, now: float, rtt: float) -> None:
        if now - self._reduced_at < rtt:
            return
        self._reduced_at = now
        self.size = max(int(self.size * 0.7), self._config.min_window)
        self._threshold = self.size

    def reset(self) -> None:
        """The child was repositioned: what was sent before no longer counts as under way."""
        self._flight.clear()
        self.bytes = 0
        self.packets = 0


class Pacer:
    """A token bucket: tokens are bytes."""

    __slots__ = ("_at", "_tokens", "burst")

    def __init__(self, burst: int) -> None:
        self.burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def allows(self, now: float, rate: float) -> bool:
        if self._at is not None:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * rate)
        self._at = now
        return self._tokens > 0

    def spent(self, size: int) -> None:
        self._tokens -= size

    def ready_at(self, now: float, rate: float) -> float:
        """The same answer however often it is asked: the time counts from when the tokens did."""
        return (now if self._at is None else self._at) + max(0.0, 1 - self._tokens) / rate
