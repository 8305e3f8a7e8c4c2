"""A token bucket for each source, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict


class SourceLimiter:
    """Allow each source at most `rate` per second and `burst` at once.

    The longest silent source is forgotten when the table is full: its bucket would be full again soon anyway.
    """

    def __init__(self, *, rate: float, burst: float, max_sources: int) -> None:
        self._rate, self._burst, self._max_sources = rate, burst, max_sources
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # source -> (tokens, at)

    def allows(self, source: str, *, now: float, cost: float = 1.0) -> bool:
        tokens, at = self._buckets.pop(source, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        allowed = tokens >= cost
        self._buckets[source] = (tokens - cost if allowed else tokens, now)
        if len(self._buckets) > self._max_sources:
            self._buckets.popitem(last=False)
        return allowed

    def __len__(self) -> int:
        return len(self._buckets)
