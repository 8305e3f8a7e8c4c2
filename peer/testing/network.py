"""A heap of future events, and a network that loses, delays, reorders, duplicates and parts.

Nothing here knows the mesh. One `random.Random` drives everything, so a seed repeats a run exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any


class VirtualClock:
    """Calls in the order of their times; equal times in the order they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        if when < self.now:
            when = self.now
        heapq.heappush(self._heap, (when, self._count, call, arguments))

    def after(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, call, *arguments)

    def run(self, until: float) -> None:
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, call, arguments = pop(heap)
            self.events += 1
            call(*arguments)
        self.now = until


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """How bad the network is. The defaults are a decent LAN; `hostile()` is for campaigns."""

    loss: float = 0.0
    delay: tuple[float, float] = (0.002, 0.020)
    slow_share: float = 0.0
    """Share of datagrams that take `slow_delay` and so arrive after later ones."""
    slow_delay: tuple[float, float] = (0.1, 2.5)
    duplicate: float = 0.0
    duplicate_delay: tuple[float, float] = (0.0, 8.0)

    @classmethod
    def hostile(cls, loss: float = 0.15) -> NetworkModel:
        return cls(loss=loss, delay=(0.005, 0.05), slow_share=0.15, duplicate=0.03)


class SimNetwork:
    """Carries opaque datagrams between numbered ends."""

    def __init__(self, clock: VirtualClock, model: NetworkModel, rng: Random) -> None:
        self._clock = clock
        self._random = rng.random
        self.model = model
        self.deliver: Callable[[int, int, tuple[Any, ...]], None] = lambda source, target, datagram: None
        self.cut: set[tuple[int, int]] = set()
        self.sent = 0
        self.lost = 0

    def send(self, source: int, target: int, datagram: tuple[Any, ...]) -> None:
        model, chance = self.model, self._random
        self.sent += 1
        if (model.loss and chance() < model.loss) or (self.cut and (source, target) in self.cut):
            self.lost += 1
            return
        low, high = model.slow_delay if model.slow_share and chance() < model.slow_share else model.delay
        at = self._clock.now + low + (high - low) * chance()
        self._clock.at(at, self.deliver, source, target, datagram)
        if model.duplicate and chance() < model.duplicate:
            low, high = model.duplicate_delay
            self._clock.at(at + low + (high - low) * chance(), self.deliver, source, target, datagram)
