"""A lock at one peer: whoever changes several peers at once asks each of them first (definition 5 of the XPORT paper).

Each peer grants one lock at a time. A lock expires by itself, so a peer that dies with it blocks nobody for long.
"""

from __future__ import annotations

from collections.abc import Hashable

LOCK_SECONDS = 2.0


class Lock:
    """One peer's own: to whom it is granted, and until when."""

    __slots__ = ("holder", "until")

    def __init__(self) -> None:
        self.holder: Hashable = None
        self.until = float("-inf")

    def is_free(self, holder: Hashable, now: float) -> bool:
        return now >= self.until or self.holder == holder

    def grant(self, holder: Hashable, now: float) -> bool:
        """To the first that asks; the holder may ask again, which does not prolong it."""
        if now >= self.until:
            self.holder, self.until = holder, now + LOCK_SECONDS
        return self.holder == holder

    def release(self, holder: Hashable) -> None:
        if self.holder == holder:
            self.until = float("-inf")
