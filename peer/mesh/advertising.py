"""When the record in the directory is published, renewed or withdrawn. Soon after a change, but not too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.events import PublishRecord, WithdrawRecord
from peer.mesh.membership import Membership
from peer.mesh.timers import Timer

if TYPE_CHECKING:
    from peer.mesh.messages import State
    from peer.mesh.state import MeshState

SERVING = frozenset({Membership.ROOT, Membership.STEADY, Membership.DEGRADED})
SILENT = frozenset({Membership.IDLE, Membership.LEAVING, Membership.LEFT})


class Advertising:
    """Only peers with room are listed, and roots always: the walk finds their children through them."""

    def __init__(self, own: MeshState) -> None:
        self._own = own
        self._published_at = float("-inf")
        self._is_published = False

    def touch(self, now: float) -> None:
        """Something that the record says has changed."""
        own = self._own
        if own.config.capacity and own.state not in SILENT:
            own.timers.set_earlier(Timer.PUBLISH, max(now, self._published_at + own.config.publish_patience))

    def publish(self, status: State, *, free: int, free_for_repair: int, now: float) -> None:
        own = self._own
        if not own.is_root and (own.state not in SERVING or not status.is_rooted or free_for_repair == 0):
            self.withdraw()
            return
        self._is_published = True
        self._published_at = now
        own.effects.append(
            PublishRecord(
                own.level,
                status.hops,
                status.resilience,
                status.children,
                status.capacity,
                free,
                free_for_repair,
                status.parents_held,
                status.parents_wanted,
                own.is_root,
            )
        )
        own.timers.set(Timer.PUBLISH, now + own.jittered(own.config.publish_interval))

    def withdraw(self) -> None:
        if self._is_published:
            self._is_published = False
            self._own.effects.append(WithdrawRecord())
