"""Noticing that the stream goes on somewhere, but not for us: heads advance, and nobody's claims do.

A parent that reports a rising head and says nothing about what lies below it (a black hole) costs no packet as long as
another one speaks. When none does, the owner hears of it, once for each such time.
"""

from __future__ import annotations

from collections.abc import Iterable

from dcp.authority import Authority
from dcp.config import Config
from dcp.parent import Parent


class StarvationWatch:
    def __init__(self, config: Config, authority: Authority | None) -> None:
        self.episodes = 0
        self._config = config
        self._authority = authority
        self._claimed = 0
        self._claimed_at: float | None = None
        """When claims last reached farther than before, or as far as the heads; None before the first look."""
        self._head_then = 0
        self._is_reported = False

    def look(self, claimed: int, parents: Iterable[Parent], *, has_room: bool, now: float) -> tuple[int, float] | None:
        """The head, and since when nobody's claims advance, if that is to be reported now.

        `claimed` is how far the farthest claim or hole goes that was believed; without `has_room` parents were asked to
        send nothing.
        """
        head = self._authority.head() if self._authority is not None else None
        if head is None:
            head = max((parent.highest or 0 for parent in parents if parent.up), default=0)
        if self._claimed_at is None or claimed > self._claimed or claimed >= head or not has_room:
            self._claimed, self._claimed_at, self._head_then = claimed, now, head
            self._is_reported = False
            return None
        if self._is_reported or head <= self._head_then or now - self._claimed_at < self._config.starved_after:
            return None
        self._is_reported = True
        self.episodes += 1
        return head, self._claimed_at
