"""What a direction of a network does to datagrams, as numbers; randomness is used here and nowhere else."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Datagram = Any
"""Bytes. Simulations of machines above a stand-in for dcp exchange tuples: those can be neither damaged nor rated."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """One direction between two addresses. Times in seconds, rates in bytes per second, the rest probabilities."""

    delay: float = 0.01
    jitter: float = 0.0
    """Uniform, on top of the delay. More than the spacing of packets reorders them."""
    loss: float = 0.0
    burst_enter: float = 0.0
    """Chance, per datagram, to fall into a burst in which everything is lost (Gilbert and Elliott's model)."""
    burst_leave: float = 0.25
    reorder: float = 0.0
    """Chance that a datagram is held back by up to `reorder_delay`."""
    reorder_delay: float = 0.03
    duplicate: float = 0.0
    duplicate_delay: float = 0.0
    """A second copy comes up to this much later, on top of its own travel."""
    corrupt: float = 0.0
    """Chance that one byte arrives changed."""
    rate: float | None = None
    """Bytes per second; what does not fit waits in a queue of at most `queue_bytes`, then is dropped."""
    queue_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        for name in ("loss", "burst_enter", "burst_leave", "reorder", "duplicate", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, got {getattr(self, name)!r}")


class Path:
    """The state of one direction: its burst, and when its queue runs empty."""

    __slots__ = ("_in_burst", "_rng", "_sent_until", "conditions", "dropped", "passed")

    def __init__(self, conditions: Conditions, rng: random.Random) -> None:
        self.conditions = conditions
        self._rng = rng
        self._in_burst = False
        self._sent_until = 0.0
        self.passed = 0
        self.dropped = 0

    def carry(self, data: Datagram, now: float) -> list[tuple[float, Datagram]]:
        """When, and as what, the datagram arrives: nothing, once, or twice."""
        c, rng = self.conditions, self._rng
        if self._in_burst:
            self._in_burst = rng.random() >= c.burst_leave
        elif c.burst_enter and rng.random() < c.burst_enter:
            self._in_burst = True
        if self._in_burst or (c.loss and rng.random() < c.loss):
            self.dropped += 1
            return []
        start = now
        if c.rate is not None:
            start = max(now, self._sent_until)
            if (start - now) * c.rate > c.queue_bytes:
                self.dropped += 1
                return []
            start += (len(data) + 28) / c.rate
            self._sent_until = start
        self.passed += 1
        is_twice = c.duplicate and rng.random() < c.duplicate
        arrivals = [(start + self._travel(), self._damaged(data))]
        if is_twice:
            late = rng.random() * c.duplicate_delay if c.duplicate_delay else 0.0
            arrivals.append((start + late + self._travel(), self._damaged(data)))
        return arrivals

    def _travel(self) -> float:
        c, rng = self.conditions, self._rng
        travel = c.delay
        if c.jitter:
            travel += rng.random() * c.jitter
        if c.reorder and rng.random() < c.reorder:
            travel += rng.random() * c.reorder_delay
        return travel

    def _damaged(self, data: Datagram) -> Datagram:
        c, rng = self.conditions, self._rng
        if not (c.corrupt and data and rng.random() < c.corrupt):
            return data
        at = rng.randrange(len(data))
        return data[:at] + bytes((data[at] ^ (1 << rng.randrange(8)),)) + data[at + 1 :]
