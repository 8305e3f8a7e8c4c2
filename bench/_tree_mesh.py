"""Meshes placed by the reference tree, in virtual time with the peers' own machines: joins, deaths and exact places."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from statistics import mean
from typing import Any

from bench.mesh import run_with_progress, share
from dcp.links.link import SocketAddress
from dht.places import place_of
from peer.mesh.config import MeshConfig
from peer.mesh.events import CandidatesWanted, Event, PublishRecord, Restored, WithdrawRecord
from peer.mesh.placement.tree import TreePlacement
from peer.mesh.reftree import Holders, ReferenceTree, crown_of
from peer.testing import MeshSimulation
from peer.testing.directory import STREAM
from peer.testing.meshpeer import MeshPeer
from peer.testing.simlinks import SimLinks

PARENTS, CAPACITY = 2, 6
ROOTS, ROOT_CAPACITY = 3, 14
"""Room for a crown of 3."""
ARRIVALS = 100.0
"""A second, while the mesh grows."""
SETTLE = 120.0
CHANGE = 10.0
"""So many seconds a hundredth of the peers takes to join, and to die one by one."""
DYING = 0.3
place = partial(place_of, STREAM)


class TreeMesh(MeshSimulation):
    def __init__(self, seed: int, hosts: int) -> None:
        config = MeshConfig(parents_wanted=PARENTS, capacity=CAPACITY).for_tree()
        super().__init__(
            seed, config=config, placement=lambda peer, _: TreePlacement(peer, place), lists_places=True, walks_up=False
        )
        self.lookup_messages = 2 * math.log2(hosts)
        """Of one look-up, as many as Kademlia needs at most."""
        self.lookups: Counter[int] = Counter()
        """Look-ups of each peer: of anybody, and around places."""
        self.restored: dict[int, tuple[float, int, int]] = {}
        """Of each peer that has its parents (again), since it was noted: seconds, messages, look-ups."""
        self._noted: dict[int, tuple[float, int, int]] = {}

    def asked(self, peer: MeshPeer) -> int:
        """Messages to and from other peers of the mesh."""
        return 2 * (peer.mesh.counters["joins_sent"] + peer.mesh.counters["inquiries"])

    def join_one(self) -> None:
        peer = self.add()
        self._noted[peer.index] = (self.now, 0, 0)

    def bury(self, victim: MeshPeer) -> None:
        """It dies, and its children have to repair that."""
        for link in victim.mesh.children.links:
            child = self._other_end(victim, link, down=True)
            if child is not None:
                self._noted.setdefault(child.index, (self.now, self.asked(child), self.lookups[child.index]))
        self.crash(victim)

    def begin(self) -> float:
        self.restored.clear()
        self._noted.clear()
        return self.now

    def figures(self, of: str) -> dict[str, Any]:
        """The time that 99 % take at most, and the mean of what they send."""
        found = list(self.restored.values())
        asked = mean(asked for _, asked, _ in found) if found else 0.0
        lookups = mean(lookups for _, _, lookups in found) if found else 0.0
        return {
            f"{of}_p99_s": round(share([seconds for seconds, _, _ in found], 0.99), 3),
            f"{of}_messages": round(asked, 1),
            f"{of}_lookup_messages": round(self.lookup_messages * lookups, 1),
        }

    def _use_directory(
        self, peer: MeshPeer, links: SimLinks, effect: CandidatesWanted | PublishRecord | WithdrawRecord
    ) -> None:
        if isinstance(effect, CandidatesWanted):
            self.lookups[peer.index] += 1 + self.directory.regions(effect.places)
        super()._use_directory(peer, links, effect)

    def _note(self, address: SocketAddress, event: Event, now: float) -> None:
        super()._note(address, event, now)
        peer = self._at[address]
        if isinstance(event, Restored) and peer.index in self._noted:
            since, asked, lookups = self._noted.pop(peer.index)
            self.restored[peer.index] = (now - since, self.asked(peer) - asked, self.lookups[peer.index] - lookups)

    def exact(self) -> float:
        """The share of peers that hold the tree's own parent; of the crown: only roots."""
        by_place = {place(peer.peer_id): peer for peer in self.live()}
        roots = [peer for peer in self.peers if peer.is_alive and peer.is_root]
        names = {root.peer_id for root in roots}
        crown = crown_of(sum(root.config.capacity * 3 // 4 for root in roots), PARENTS)
        holders = Holders(ReferenceTree(2), by_place)
        exact = 0
        for at, peer in by_place.items():
            held = {parent.peer_id for parent in peer.mesh.parents.links.values()}
            above = holders.parent(at)
            is_in_crown = above is None or len(holders.nodes[at]) <= crown
            exact += held <= names if is_in_crown or above is None else by_place[above].peer_id in held
        return round(exact / len(by_place), 4)


def measure(hosts: int, seed: int) -> dict[str, Any]:
    """A mesh that grows, then joins, deaths one by one, and 30 % dead at one instant. A level or a cycle raises."""
    mesh = TreeMesh(seed, hosts)
    over = max(CHANGE, hosts / ARRIVALS)
    mesh.populate(roots=ROOTS, peers=hosts, over=over, root_capacity=ROOT_CAPACITY)
    run_with_progress(mesh, over + SETTLE, f"{hosts:,} hosts: growing")
    row: dict[str, Any] = {"hosts": hosts, "exact_at_first": mesh.exact()}

    few = max(1, hosts // 100)
    begun = mesh.begin()
    for number in range(few):
        mesh.network.at(begun + CHANGE * number / few, mesh.join_one)
    run_with_progress(mesh, begun + CHANGE + 20.0, "joining")
    row |= mesh.figures("join")

    begun = mesh.begin()
    for number, victim in enumerate(mesh.rng.sample(mesh.live(), few)):
        mesh.network.at(begun + CHANGE * number / few, mesh.bury, victim)
    run_with_progress(mesh, begun + CHANGE + 60.0, "deaths one by one")
    row |= mesh.figures("repair")
    row["exact_60s"] = mesh.exact()
    run_with_progress(mesh, begun + CHANGE + 240.0, "coming into place")
    row["exact_240s"] = mesh.exact()

    begun = mesh.begin()
    for victim in mesh.rng.sample(mesh.live(), int(DYING * len(mesh.live()))):
        mesh.bury(victim)
    run_with_progress(mesh, begun + 30.0, "three tenths dead at once")
    row |= mesh.figures("mass_repair")
    return row | {
        "short_after_30s": len(mesh.unsettled()),
        "children_max": max(len(peer.mesh.children) for peer in mesh.live()),
        "cold_restarts": mesh.measures.cold_restarts,
        "checks": mesh.measures.checks,
    }
