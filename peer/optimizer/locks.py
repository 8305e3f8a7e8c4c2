"""The locks of many peers (`peer.mesh.lock`), for a simulation of them.

A move touches its peer, the parent it leaves, the one it goes to, and for an exchange the child that makes room.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from peer.mesh.lock import Lock


class LockTable:
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
