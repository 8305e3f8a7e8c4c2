"""Takes the snapshots that a placement decides on, out of the tables of the mesh machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from peer.mesh.messages import About
from peer.mesh.placement.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peer.mesh.candidates import CandidateCache
    from peer.mesh.children import ChildTable
    from peer.mesh.disputes import DisputeMemory
    from peer.mesh.events import LinkId
    from peer.mesh.parents import ParentTable, PendingJoin
    from peer.mesh.placement.neighbourhood import LinkQuality
    from peer.mesh.state import MeshState


class LinkObserver(Protocol):
    """What the owner knows about links and the machine does not; asked when something is decided, never per packet."""

    def heard_at(self, link: LinkId) -> float | None:
        """When anything valid last came on the link, or None if nothing did."""

    def wanted(self) -> bytes | None:
        """What the client here asks for, as it goes to parents; None when there is no client."""

    def about(self) -> About:
        """What people may know about this peer."""

    def qualities(self, now: float) -> Mapping[LinkId, LinkQuality]:
        """What was measured on the links."""

    def measures(self) -> Mapping[str, float]:
        """What this peer measured of itself, by the names of the metrics in goals."""

    @property
    def has_client(self) -> bool:
        """Whether packets are handed to a client here."""


class NoObserver:
    """For a machine whose owner knows nothing more, as in simulations of the mesh alone."""

    def heard_at(self, link: LinkId) -> float | None:
        return None

    def wanted(self) -> bytes | None:
        return None

    def about(self) -> About:
        return About(stream="")

    def qualities(self, now: float) -> Mapping[LinkId, LinkQuality]:
        return {}

    def measures(self) -> Mapping[str, float]:
        return {}

    @property
    def has_client(self) -> bool:
        return False


class Surroundings:
    """Applies the level rules: a candidate that they forbid is not in the neighbourhood."""

    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        candidates: CandidateCache,
        pending: Mapping[LinkId, PendingJoin],
        *,
        disputes: DisputeMemory,
        observer: LinkObserver,
        coverage: Callable[[bytes], float],
    ) -> None:
        self._own, self._parents, self._children = own, parents, children
        self._candidates, self._pending = candidates, pending
        self._disputes = disputes
        self._observer, self._coverage = observer, coverage

    def at(self, now: float) -> Neighbourhood:
        own, observer = self._own, self._observer
        below = own.rules.ceiling(own.level, has_children=bool(self._children))
        busy = self._parents.peer_ids() | {j.peer_id for j in self._pending.values()} | self._children.peer_ids()
        return Neighbourhood(
            now=now,
            config=own.config,
            level=own.level,
            hops=0 if own.is_root else self._parents.hops(),
            parents=tuple(self._parents.links.values()),
            children=tuple(self._children.links.values()),
            candidates=self._candidates.eligible(now, below=below, exclude=busy),
            silent_candidates=self._candidates.last_resort(now, below=below, exclude=busy),
            placed=self._candidates.placed(now),
            roots=self._candidates.roots(now),
            disputed=self._disputes.recent(now),
            pending=tuple(join.address for join in self._pending.values()),
            coverage=self._coverage,
            qualities=lambda: observer.qualities(now),
            measures=observer.measures,
            own=own.peer_id,
            has_client=observer.has_client or own.config.capacity == 0,
        )
