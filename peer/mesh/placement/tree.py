"""Placement by a reference tree: everybody's parents follow from the list of ids (`peer.mesh.reftree`, docs/tree.md).

A missing parent is urgent, the exact one is not: what is known of the chain of expected parents is asked first, then
anybody (`scored`); the exact place is sought at leisure, make before break. Routers are listed by place in the
directory. A peer that does not answer counts as gone, so its heir finds itself in its place: each review probes the
peer whose death would move us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from peer.mesh.levels import LevelRules
from peer.mesh.messages import MAX_LEVEL, UNPLACED, PeerId, RefuseReason
from peer.mesh.placement.choosing import disputed_parent
from peer.mesh.placement.moves import Ask, AskChildren, Drop, Evict, Replace, Trade, Vacate
from peer.mesh.placement.scored import ScoredPlacement
from peer.mesh.reftree import Holders, Path, ReferenceTree, candidates_for, crown_of

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.config import MeshConfig
    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import Join
    from peer.mesh.placement.neighbourhood import CandidateView, Neighbourhood, ParentView

LEVELS_PER_RANK = 1_024
MAX_KEYS = 48
"""Places to look up at once: of two chains as deep as a mesh of a million peers has."""


class TreeLevels(LevelRules):
    """A level says the rank, unless the parents are above that: so whoever is expected above us has a lower level."""

    rank: int | None = None

    def place(self, reported: Iterable[int], rng: Random) -> int:
        return min(max(self.floor, max(reported, default=0) + 1), MAX_LEVEL)

    def lowered(self, level: int, reported: Iterable[int], rng: Random) -> int | None:
        target = self.place(reported, rng)
        return target if target < level else None

    @property
    def floor(self) -> int:
        """The level of our rank."""
        return 0 if self.rank is None else LEVELS_PER_RANK * (self.rank + 1)


class TreePlacement(ScoredPlacement):
    """`place(peer id)` is where a peer lies. A leaf computes its place, and holds none. The stream's owner may change
    the degree while the mesh runs: it is asked for again at every look."""

    def __init__(
        self,
        own: PeerId,
        place: Callable[[PeerId], int],
        *,
        degree: Callable[[], int] = lambda: 3,
        is_leaf: bool = False,
    ) -> None:
        self._own, self._place, self._is_leaf = own, place, is_leaf
        self._degree = degree
        self._tree = ReferenceTree(degree() - 1)
        self._levels = TreeLevels()
        self._holders = Holders(self._tree)

    def rules(self, config: MeshConfig) -> LevelRules:
        return self._levels

    # --- where we belong ----------------------------------------------------------------------------------------------

    def _look(self, around: Neighbourhood) -> tuple[Holders, dict[int, PeerId], Path]:
        """Who holds what, as far as we know; who is where; and our own node."""
        peers = {self._place(candidate.peer_id): candidate.peer_id for candidate in around.placed}
        own = self._place(self._own)
        if not self._is_leaf:
            peers[own] = self._own
        if (arity := self._degree() - 1) != self._tree.arity:
            self._tree = ReferenceTree(arity)
            self._holders = Holders(self._tree)
        holders = self._holders
        for place in holders.nodes.keys() - peers.keys():
            holders.remove(place)
        for place in peers.keys() - holders.nodes.keys():
            holders.add(place)
        node = holders.node_of_leaf(own) if self._is_leaf else holders.nodes[own]
        self._levels.rank = len(node)
        return holders, peers, node

    def _targets(self, around: Neighbourhood) -> list[PeerId]:
        """The parents to have: of each chain the first that has us or may be asked; roots where there is none."""
        holders, peers, node = self._look(around)
        wanted = around.config.parents_wanted
        parents = {parent.peer_id for parent in around.sound_parents}
        reach = [*around.candidates, *self._out_of_reach(around)]
        possible = parents | {c.peer_id for c in reach if c.free > 0 or (around.children and c.free_for_repair > 0)}
        # A child of the tree has a right to its slot, full or not (`room`).
        by_right = parents | {c.peer_id for c in reach}
        targets: list[PeerId] = []
        slots = sum(root.capacity * 3 // 4 for root in around.roots)
        if len(node) > crown_of(slots, wanted, self._tree.arity):
            for number in range(wanted):
                for place in candidates_for(holders, node, number, wanted):
                    if peers[place] in (possible if number else by_right) and peers[place] not in targets:
                        targets.append(peers[place])
                        break
        roots = sorted(around.roots, key=lambda root: root.peer_id)
        for number in range(len(roots)):
            root = roots[(sum(node) + number) % len(roots)].peer_id
            if len(targets) < wanted and root in possible and root not in targets:
                targets.append(root)
        return targets

    def _out_of_reach(self, around: Neighbourhood) -> list[CandidateView]:
        """Those that only our level keeps us from asking: it is too low for our place, and with children it can't rise
        (R4). Whoever has a level too high for its own place will fall by itself."""
        if not around.children or around.level >= self._levels.floor:
            return []
        return [candidate for candidate in around.placed if candidate.level >= around.level]

    def keys(self, around: Neighbourhood) -> tuple[int, ...]:
        """The places next to which the directory is asked: ours, and those of the nodes above."""
        holders, _, node = self._look(around)
        keys = dict.fromkeys([self._place(self._own)])
        for number in range(around.config.parents_wanted):
            for path in holders.paths_above(node, number):
                keys[self._tree.key(self._tree.span(path))] = None
        return tuple(keys)[:MAX_KEYS]

    def probe(self, around: Neighbourhood) -> PeerId | None:
        """The next lower place: if its peer is dead, its keys are ours."""
        holders, peers, _ = self._look(around)
        below = [place for place in holders.places if place < self._place(self._own)]
        return peers[below[-1]] if below else None

    # --- moves --------------------------------------------------------------------------------------------------------

    def wanted(self, around: Neighbourhood, rng: Random) -> Ask | None:
        askable = {candidate.peer_id for candidate in around.candidates if candidate.peer_id not in around.disputed}
        for target in self._targets(around):
            if target in askable:
                return Ask(target)
        return super().wanted(around, rng)

    def better(self, around: Neighbourhood, rng: Random) -> Replace | Vacate | Trade | None:
        if disputed_parent(around.parents) is not None:
            return super().better(around, rng)
        targets = self._targets(around)
        wrong = [parent for parent in around.sound_parents if parent.peer_id not in targets]
        held = {parent.peer_id for parent in around.sound_parents}
        missing = [peer for peer in targets if peer not in held]
        if not wrong or not missing:
            return None
        askable = {candidate.peer_id for candidate in around.candidates if candidate.peer_id not in around.disputed}
        for target in missing:
            if target in askable:
                return Replace(_youngest(wrong).link, target)
        is_in_the_way = any(candidate.peer_id in missing for candidate in self._out_of_reach(around))
        return Vacate() if is_in_the_way else None

    def surplus(self, around: Neighbourhood) -> Drop | None:
        for parent in around.parents:
            if parent.is_leaving or not (parent.is_fed or parent.is_suspect):
                return Drop(parent.link)
        targets = self._targets(around)
        wrong = [parent for parent in around.sound_parents if parent.peer_id not in targets]
        if wrong and len(around.sound_parents) > around.config.parents_wanted:
            return Drop((disputed_parent(wrong) or _youngest(wrong)).link)
        return super().surplus(around)

    def room(self, around: Neighbourhood, join: Join, address: HostPort) -> Evict | None:
        """A child of the tree has a right to its slot: one that came by a mask, or from outside the tree, gives way."""
        holders, _, _ = self._look(around)
        own, theirs = self._place(self._own), self._place(join.peer_id)
        if theirs in holders.nodes and holders.parent(theirs) == own:
            for child in sorted(around.children, key=lambda child: child.link, reverse=True):
                place = self._place(child.peer_id)
                if place not in holders.nodes or holders.parent(place) != own:
                    return Evict(child.link, join.peer_id)
        return super().room(around, join, address)

    def after_refusal(self, peer: PeerId, reason: RefuseReason) -> AskChildren | None:
        return None

    def pick(self, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random) -> CandidateView | None:
        """Nobody who is expected above us has room: the scored choice, above us in the tree if possible."""
        self._look(around)
        floor = around.level if around.level != UNPLACED else self._levels.place((), rng)
        above = [candidate for candidate in candidates if candidate.level < floor]
        return super().pick(above or candidates, around, rng)


def _youngest(parents: Sequence[ParentView]) -> ParentView:
    return max(parents, key=lambda parent: (parent.since, parent.link))
