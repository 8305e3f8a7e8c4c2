"""Where a receiver begins: the smallest of what its senders propose (rule L4).

One sender that proposes a start far ahead must not make us skip what the others have. So with several openings under
way the smallest proposal is taken, once all have answered, or `oldest_window` after the first. "Oldest" always waits
for the window: a sender that is asked a moment later may have more. In a signed stream a proposal beyond the signed
head is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dcp.config import Config
from dcp.handshake import Start
from dcp.parent import Parent
from dcp.serial import MAX_POSITION


class StartChoice:
    def __init__(
        self,
        mode: Start,
        position: int | None,
        config: Config,
        signed_limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        if (mode is Start.POSITION) != (position is not None):
            raise ValueError("position and Start.POSITION need each other")
        if position is not None and not 0 <= position <= MAX_POSITION:
            raise ValueError(f"position must be in 0..2**63-1, got {position}")
        self.mode = mode
        self.position = position
        """Given by the application: no sender is asked."""
        self.is_again = False
        """It is not the first start: the numbering has begun again."""
        self.due_at: float | None = None
        """When the window for further proposals closes."""
        self._config = config
        self._signed_limit = signed_limit

    def again(self) -> None:
        """Start over, at the oldest that there is."""
        self.mode, self.position, self.is_again, self.due_at = Start.OLDEST, None, True, None

    def proposed(self, parents: Iterable[Parent], now: float) -> int | None:
        """A sender has proposed a start, or has answered without one: where to begin, if that is decided now."""
        parents = list(parents)
        if all(parent.start is None for parent in parents):
            return None
        if self.due_at is None:
            self.due_at = now + self._config.oldest_window
        if self.mode is Start.NEW and all(parent.up for parent in parents):
            return self._smallest(parents)
        return None

    def due(self, parents: Iterable[Parent], now: float) -> int | None:
        """The window has closed, or not yet: where to begin."""
        if self.due_at is None or now < self.due_at:
            return None
        return self._smallest(parents)

    def _smallest(self, parents: Iterable[Parent]) -> int | None:
        self.due_at = None
        starts = [parent.start for parent in parents if parent.up and parent.start is not None]
        limit = self._signed_limit()
        return min((start for start in starts if limit is None or start <= limit), default=None)
