"""The deadlines of the mesh machine as data: absolute times in a small table, no callbacks, no sleeping."""

from __future__ import annotations

from enum import IntEnum


class Timer(IntEnum):
    """Expired timers fire in this order."""

    BEAT = 0
    """Tell the children that we live, at what level, and how fresh the root's beat is."""
    REPORT = 1
    """Tell the parents that we live and how much room we have."""
    WATCH = 2
    """Look for silent parents and children, unfed parents, answers that did not come."""
    COLD = 3
    """No parent for too long: let the children go."""
    SEEK = 4
    """Try for parents again."""
    PRUNE = 5
    """More parents than wanted, for long enough."""
    REPLACE = 6
    """Look for a better place."""
    LOOKUP = 7
    """Refresh the warm candidates."""
    PUBLISH = 8
    """Publish the record, or withdraw it."""
    LEAVE = 9
    """The grace given to the children is over."""


class TimerTable:
    """One deadline a timer at most."""

    __slots__ = ("_at", "_next")

    def __init__(self) -> None:
        self._at: dict[Timer, float] = {}
        self._next: float | None = None

    def set(self, timer: Timer, at: float) -> None:
        old = self._at.get(timer)
        self._at[timer] = at
        if self._next is None or at <= self._next:
            self._next = at
        elif old == self._next:
            self._next = min(self._at.values())

    def set_earlier(self, timer: Timer, at: float) -> None:
        """Set it, unless it is already set to an earlier time."""
        old = self._at.get(timer)
        if old is None or at < old:
            self.set(timer, at)

    def stop(self, timer: Timer) -> None:
        old = self._at.pop(timer, None)
        if old is not None and old == self._next:
            self._next = min(self._at.values(), default=None)

    def overdue_to(self, now: float) -> None:
        """Move every deadline that has passed to now."""
        for timer, at in self._at.items():
            if at < now:
                self._at[timer] = now
        self._next = min(self._at.values(), default=None)

    def clear(self) -> None:
        self._at.clear()
        self._next = None

    def at(self, timer: Timer) -> float | None:
        return self._at.get(timer)

    def next_timeout(self) -> float | None:
        return self._next

    def expired(self, now: float) -> list[Timer]:
        """Take out what is due, in the order of the enum."""
        if self._next is None or self._next > now:
            return []
        due = sorted(timer for timer, at in self._at.items() if at <= now)
        for timer in due:
            del self._at[timer]
        self._next = min(self._at.values(), default=None)
        return due
