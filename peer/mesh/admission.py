"""Whether a join is accepted: one list of questions, in the order of what they cost and protect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcp.admission import HostBuckets
from peer.mesh.children import Child, ChildTable
from peer.mesh.hostport import HostPort
from peer.mesh.membership import Membership
from peer.mesh.messages import CloseReason, Join, RefuseReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer.mesh.parents import ParentTable
    from peer.mesh.placement.moves import Placement
    from peer.mesh.state import MeshState
    from peer.mesh.surroundings import Surroundings

NOT_OPEN = frozenset({Membership.IDLE, Membership.LEAVING, Membership.LEFT})

FILL_SECONDS = 5.0
"""A peer with many slots takes joins faster: all of them can be filled in this time, by one host in twice as long."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A join is accepted, after this child's link is closed: its own earlier one, or that of a child that can move."""

    closes: Child | None = None
    reason: CloseReason = CloseReason.REPLACED


class Admission:
    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        *,
        placement: Placement,
        surroundings: Surroundings,
        admits: Callable[[HostPort], bool],
        carries: Callable[[bytes], bool],
    ) -> None:
        self._placement, self._surroundings = placement, surroundings
        self._own, self._parents, self._children = own, parents, children
        self._admits, self._carries = admits, carries
        rate = max(own.config.max_joins_per_second, own.config.capacity / FILL_SECONDS)
        self._limit = HostBuckets(rate, max(1.0, rate / 2))  # or one host could use up everybody's joins

    def judge(
        self, join: Join, address: HostPort, *, query: bytes, rooted: bool, now: float
    ) -> RefuseReason | Admitted:
        """The first reason to refuse that applies, or what has to be done to accept."""
        own = self._own
        if own.state in NOT_OPEN:
            return RefuseReason.SHUTTING_DOWN
        if not self._limit.allows(now, address[0]):
            return RefuseReason.TOO_MANY_JOINS
        if join.peer_id == own.peer_id or not self._admits(address):
            return RefuseReason.POLICY
        if not own.rules.may_parent(rooted=rooted):
            return RefuseReason.NOT_ROOTED
        if join.peer_id in self._parents.peer_ids() or not own.rules.may_accept(own.level, join.level):
            return RefuseReason.LEVEL
        if not self._carries(query):
            return RefuseReason.QUERY_NOT_CARRIED
        earlier = self._children.of(join.peer_id, address)
        if earlier is not None:
            is_old = earlier.run == join.run and join.number <= earlier.number
            return RefuseReason.STALE if is_old else Admitted(earlier, CloseReason.REPLACED)
        if self._children.room_for(join, now):
            return Admitted()
        move = self._placement.room(self._surroundings.at(now), join, address)
        evicted = None if move is None else self._children.links.get(move.child)
        return RefuseReason.FULL if evicted is None else Admitted(evicted, CloseReason.MAKE_ROOM)
