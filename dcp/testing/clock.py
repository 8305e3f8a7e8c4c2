"""Virtual time: calls in the order of their times, and equal times in the order in which they were planned.

Nothing depends on a scheduler, so a run repeats exactly. Simulations build on this.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MAX_STEPS = 50_000_000


class VirtualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        """Calls made so far."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call at a time; one that has passed is now."""
        self._number += 1
        heapq.heappush(self._heap, (max(self.now, when), self._number, call, arguments))

    def after(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, call, *arguments)

    def run_until(self, end: float, *, max_steps: int = MAX_STEPS) -> None:
        """Everything up to `end`. The bound on steps makes a livelock a failure instead of a hang."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end:
            self.now, _, call, arguments = pop(heap)
            self.steps += 1
            if self.steps > max_steps:
                raise RuntimeError(f"more than {max_steps} steps by {self.now:.3f} s: a livelock?")
            call(*arguments)
        self.now = end
