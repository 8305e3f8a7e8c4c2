"""Locks for decisions that peers take on their own (rule O9): definition 5 of the paper, held at the peers themselves.

A move touches its peer, the parent it leaves, the one it goes to, and for an exchange the child that makes room. Each
of them grants one lock at a time. A lock expires by itself, so a peer that dies with it blocks nobody for long.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

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


class LockTable:
    """The locks of many peers, for a simulation of them."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, Lock] = {}

    def grant(self, peers: Iterable[Hashable], holder: Hashable, now: float) -> bool:
        """All or none."""
        locks = [self._locks.setdefault(peer, Lock()) for peer in peers]
        if not all(lock.is_free(holder, now) for lock in locks):
            return False
        return all(lock.grant(holder, now) for lock in locks)

    def release(self, peers: Iterable[Hashable], holder: Hashable) -> None:
        for peer in peers:
            if peer in self._locks:
                self._locks[peer].release(holder)
