"""Whether a join is accepted: one list of questions, in the order of what they cost and protect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp.admission import HostBuckets
from peer.mesh.children import Child, ChildTable
from peer.mesh.membership import Membership
from peer.mesh.messages import Address, CloseReason, Join, RefuseReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer.mesh.parents import ParentTable
    from peer.mesh.state import Standing

NOT_OPEN = frozenset({Membership.IDLE, Membership.LEAVING, Membership.LEFT})


class Admission:
    def __init__(
        self,
        standing: Standing,
        parents: ParentTable,
        children: ChildTable,
        *,
        admits: Callable[[Address], bool],
        carries: Callable[[bytes], bool],
    ) -> None:
        self._own, self._parents, self._children = standing, parents, children
        self._admits, self._carries = admits, carries
        rate = standing.config.max_joins_per_second
        self._limit = HostBuckets(rate, max(1.0, rate / 2))  # or one host could use up everybody's joins

    def why_refuse(
        self, join: Join, address: Address, *, query: bytes, rooted: bool, now: float
    ) -> RefuseReason | None:
        """The first reason that applies, or None to accept."""
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
            return RefuseReason.STALE if is_old else None
        if self._children.room_for(join) or self._to_move(join, address) is not None:
            return None
        return RefuseReason.FULL

    def to_close_first(self, join: Join, address: Address) -> tuple[Child, CloseReason] | None:
        """Whose link must go so that this accepted join has a slot: its own earlier one, or a child that can move."""
        earlier = self._children.of(join.peer_id, address)
        if earlier is not None:
            return earlier, CloseReason.REPLACED
        if self._children.room_for(join):
            return None
        movable = self._to_move(join, address)
        return None if movable is None else (movable, CloseReason.MAKE_ROOM)

    def _to_move(self, join: Join, address: Address) -> Child | None:
        """Who gives up its slot for this join: a child of a host that has more than its share, or for a repair."""
        movable = self._children.crowding(address)
        if movable is None and self._own.config.makes_room and join.has_children:
            movable = self._children.movable(join, address)
        return movable
