"""What every placement that chooses among known candidates does alike; a subclass says which candidate it prefers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from peer.mesh.placement.eviction import child_to_move
from peer.mesh.placement.moves import Ask, AskChildren, Drop, Evict, Replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import Join, PeerId, RefuseReason
    from peer.mesh.placement.neighbourhood import CandidateView, Neighbourhood, ParentView


class ChoosingPlacement(ABC):
    """Asks the preferred candidate, moves towards the roots, gives up the farthest parent."""

    @abstractmethod
    def pick(self, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random) -> CandidateView | None:
        """The preferred one of these, or None if there is none."""

    def wanted(self, around: Neighbourhood, rng: Random) -> Ask | None:
        candidate = self.pick(_resilient(around.candidates or around.silent_candidates, around), around, rng)
        return Ask(candidate.peer_id) if candidate is not None else None

    def better(self, around: Neighbourhood, rng: Random) -> Replace | None:
        farthest = _farthest(around.sound_parents)
        most = farthest.hops - around.config.replace_gain
        nearer = [c for c in _resilient(around.candidates, around) if c.hops <= most]
        candidate = self.pick(nearer, around, rng)
        if candidate is None or candidate.free <= 0:
            return None
        return Replace(farthest.link, candidate.peer_id)

    def surplus(self, around: Neighbourhood) -> Drop | None:
        for parent in around.parents:
            if parent.is_leaving or not (parent.is_fed or parent.is_suspect):
                return Drop(parent.link)
        sound = around.sound_parents
        if len(sound) <= around.config.parents_wanted:
            return None  # the rest are suspects: silence decides about them
        return Drop(_farthest(sound).link)

    def room(self, around: Neighbourhood, join: Join, address: HostPort) -> Evict | None:
        child = child_to_move(around, join, address)
        return Evict(child.link, join.peer_id) if child is not None else None

    def after_refusal(self, peer: PeerId, reason: RefuseReason) -> AskChildren | None:
        return None


def _resilient(candidates: Sequence[CandidateView], around: Neighbourhood) -> Sequence[CandidateView]:
    config = around.config
    if not config.requires_resilient_parents:
        return candidates
    return [c for c in candidates if c.resilience is None or c.resilience >= config.parents_wanted]


def _farthest(parents: Sequence[ParentView]) -> ParentView:
    """By hops; the youngest among equals."""
    return max(parents, key=lambda p: (p.hops, p.since, p.link))
