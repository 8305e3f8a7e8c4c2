"""What every placement that chooses among known candidates does alike; a subclass says which candidate it prefers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from dcp.admission import network_of
from peer.mesh.levels import LevelRules
from peer.mesh.placement.eviction import child_to_move
from peer.mesh.placement.moves import Ask, AskChildren, Drop, Evict, Replace, Trade, Vacate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from peer.mesh.config import MeshConfig
    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import Join, PeerId, RefuseReason
    from peer.mesh.placement.neighbourhood import CandidateView, Neighbourhood, ParentView


class ChoosingPlacement(ABC):
    """Asks the preferred candidate, moves towards the roots, gives up the farthest parent."""

    @abstractmethod
    def pick(self, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random) -> CandidateView | None:
        """The preferred one of these, or None if there is none."""

    def wanted(self, around: Neighbourhood, rng: Random) -> Ask | None:
        candidates = _resilient(around.candidates or around.silent_candidates, around)
        candidates = _undisputed(candidates, around) or candidates
        candidate = self.pick(_elsewhere(candidates, around) or candidates, around, rng)
        return Ask(candidate.peer_id) if candidate is not None else None

    def better(self, around: Neighbourhood, rng: Random) -> Replace | Vacate | Trade | None:
        candidates = _undisputed(_resilient(around.candidates, around), around)
        disputed = disputed_parent(around.parents)
        if disputed is not None:
            return self._move(disputed, _elsewhere(candidates, around) or candidates, around, rng)
        twin = _twin(around.sound_parents)
        if twin is not None and (move := self._move(twin, _elsewhere(candidates, around), around, rng)) is not None:
            return move
        farthest = _farthest(around.sound_parents)
        most = farthest.hops - around.config.replace_gain
        return self._move(farthest, [c for c in candidates if c.hops <= most], around, rng)

    def _move(
        self, parent: ParentView, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random
    ) -> Replace | None:
        candidate = self.pick(candidates, around, rng)
        if candidate is None or candidate.free <= 0:
            return None
        return Replace(parent.link, candidate.peer_id)

    def surplus(self, around: Neighbourhood) -> Drop | None:
        for parent in around.parents:
            if parent.is_leaving or not (parent.is_fed or parent.is_suspect):
                return Drop(parent.link)
        sound = around.sound_parents
        if len(sound) <= around.config.parents_wanted:
            return None  # the rest are suspects: silence decides about them
        return Drop((disputed_parent(sound) or _twin(sound) or _farthest(sound)).link)

    def room(self, around: Neighbourhood, join: Join, address: HostPort) -> Evict | None:
        if join.is_optional:
            return None  # it has its parents: nobody goes for its sake
        child = child_to_move(around, join, address)
        return Evict(child.link, join.peer_id) if child is not None else None

    def rules(self, config: MeshConfig) -> LevelRules:
        return LevelRules(config.level_step)

    def keys(self, around: Neighbourhood) -> tuple[int, ...]:
        return ()

    def probe(self, around: Neighbourhood) -> PeerId | None:
        return None

    def after_refusal(self, peer: PeerId, reason: RefuseReason) -> AskChildren | None:
        return None


def _resilient(candidates: Sequence[CandidateView], around: Neighbourhood) -> Sequence[CandidateView]:
    config = around.config
    if not config.requires_resilient_parents:
        return candidates
    return [c for c in candidates if c.resilience is None or c.resilience >= config.parents_wanted]


def _undisputed(candidates: Sequence[CandidateView], around: Neighbourhood) -> list[CandidateView]:
    return [candidate for candidate in candidates if candidate.peer_id not in around.disputed]


def disputed_parent(parents: Sequence[ParentView]) -> ParentView | None:
    """The parent to replace first of those whose word was disputed: the one that has been here longest."""
    return min((p for p in parents if p.dispute is not None), key=lambda p: (p.since, p.link), default=None)


def _elsewhere(candidates: Sequence[CandidateView], around: Neighbourhood) -> list[CandidateView]:
    """Those on hosts where no parent is, nor may soon be.

    One host can take many names, and every one may look like the best of parents. So it gets a second place here only
    if no other host offers one.
    """
    taken = {network_of(parent.address[0]) for parent in around.parents}
    taken.update(network_of(address[0]) for address in around.pending)
    return [candidate for candidate in candidates if network_of(candidate.host) not in taken]


def _twin(parents: Sequence[ParentView]) -> ParentView | None:
    """The youngest parent whose host has an older one here; None if every parent has a host of its own."""
    seen: set[bytes] = set()
    twin = None
    for parent in sorted(parents, key=lambda p: (p.since, p.link)):
        host = network_of(parent.address[0])
        if host in seen:
            twin = parent
        seen.add(host)
    return twin


def _farthest(parents: Sequence[ParentView]) -> ParentView:
    """By hops; the youngest among equals."""
    return max(parents, key=lambda p: (p.hops, p.since, p.link))
