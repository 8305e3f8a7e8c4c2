"""The children a peer carries, and what is known of each. Data and arithmetic; `admission.py` and the placement decide.

A child is in the table from before its Accept is sent (R1) until the link ends, so an empty table means that nobody can
hold a link to us: that is what lets a level rise (R4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from peer.mesh.hostport import HostPort
from peer.mesh.messages import MAX_PEERS_IN_ANSWER, MAX_REFERRALS, Join, PeerAt, PeerId, Report

if TYPE_CHECKING:
    from peer.mesh.config import MeshConfig
    from peer.mesh.events import LinkId

NEVER = float("inf")


@dataclass(slots=True)
class Child:
    link: LinkId
    peer_id: PeerId
    address: HostPort
    run: int
    number: int
    query: bytes
    heard_at: float
    is_confirmed: bool = False
    """It has said something, so it holds the link; before, our Accept may have been lost."""
    report: Report | None = None

    @property
    def is_childless(self) -> bool:
        return self.report is not None and self.report.children == 0


class ChildTable:
    def __init__(self, config: MeshConfig) -> None:
        self._config = self._limited = config
        self.links: dict[LinkId, Child] = {}
        self.borrows: Callable[[Join, float], bool] = lambda join, now: False
        """Whether a join of an exchange may have a slot that is kept for repairs (`trading.py`)."""
        self.most: Callable[[], int | None] = lambda: None
        """The most children that the stream's goal allows; None: it says nothing about that."""

    def __len__(self) -> int:
        return len(self.links)

    @property
    def _sized(self) -> MeshConfig:
        """The configuration with as many slots as the goal allows; children beyond them stay."""
        most = self.most()
        capacity = self._config.capacity if most is None else max(0, min(most, self._config.capacity))
        if capacity != self._limited.capacity:
            self._limited = replace(self._config, capacity=capacity)
        return self._limited

    @property
    def free(self) -> int:
        return max(0, self._sized.capacity - self._sized.reserved_slots - len(self.links))

    @property
    def free_for_repair(self) -> int:
        return max(0, self._sized.capacity - len(self.links))

    @property
    def room_for_repair(self) -> int:
        """What a record promises to repairs: free slots, and those of childless children that have another parent.

        The goal's limit does not count: an urgent repair may go beyond it.
        """
        movable = 0
        if self._config.makes_room:
            movable = sum(c.is_childless and c.report is not None and c.report.parents > 1 for c in self.links.values())
        return max(0, self._config.capacity - len(self.links)) + movable

    def room_for(self, join: Join, now: float) -> bool:
        if self.free > 0:
            return True
        if join.is_optional:
            return self.free_for_repair > 0 and self.borrows(join, now)
        if join.is_urgent and len(self.links) < self._config.capacity - self._config.reserved_slots:
            return True
        limit = self._config if join.is_urgent else self._sized
        return join.has_children and len(self.links) < limit.capacity

    def peer_ids(self) -> set[PeerId]:
        return {c.peer_id for c in self.links.values()}

    def of(self, peer_id: PeerId, address: HostPort) -> Child | None:
        """The link this very peer already has. Only with the same address, which dcp has proved: a peer id in a hello
        is a mere claim, and must not cut another's link."""
        for child in self.links.values():
            if child.peer_id == peer_id and child.address == address:
                return child
        return None

    def add(self, link: LinkId, join: Join, address: HostPort, *, query: bytes, now: float) -> Child:
        child = Child(link, join.peer_id, address, join.run, join.number, query, heard_at=now)
        self.links[link] = child
        return child

    def hear(self, child: Child, now: float) -> None:
        child.heard_at = now
        child.is_confirmed = True

    def silent(self, now: float, heard_at: Callable[[LinkId], float | None]) -> tuple[list[Child], float]:
        """Those whose slot is free again, and when to look next."""
        gone = []
        next_at = NEVER
        for child in self.links.values():
            other = heard_at(child.link)
            if other is not None and other > child.heard_at:
                self.hear(child, other)
            limit = self._config.child_timeout if child.is_confirmed else self._config.confirm_timeout
            if now - child.heard_at >= limit:
                gone.append(child)
            else:
                next_at = min(next_at, child.heard_at + limit)
        return gone, next_at

    def excuse(self, now: float) -> None:
        """After a sleep of ours their silence was not theirs: give each time for one more report."""
        earliest = now - self._config.child_timeout + self._config.confirm_timeout
        for child in self.links.values():
            child.heard_at = max(child.heard_at, earliest)

    def referrals(self, join: Join, rng: Random) -> tuple[PeerAt, ...]:
        """Up to four children with room that are below the joiner, in random order."""
        able = [
            PeerAt(c.peer_id, c.address, c.report.level)
            for c in self.links.values()
            if c.report is not None
            and not c.report.is_leaving
            and c.report.level < join.level
            and c.peer_id != join.peer_id
            and (c.report.free_for_repair if join.has_children and not join.is_optional else c.report.free) > 0
        ]
        return tuple(rng.sample(able, min(len(able), MAX_REFERRALS)))

    def answer(self, query: bytes, covers: Callable[[bytes, bytes], bool], rng: Random) -> tuple[PeerAt, ...]:
        """Children(Q): those whose query is a subset of Q and of whom we know the level; a random few if many."""
        able = [
            PeerAt(c.peer_id, c.address, c.report.level)
            for c in self.links.values()
            if c.report is not None and covers(query, c.query)
        ]
        return tuple(rng.sample(able, min(len(able), MAX_PEERS_IN_ANSWER)))
