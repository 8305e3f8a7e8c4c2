"""Meshes of mesh machines that follow a goal, with latencies that differ from pair to pair.

mesh = Spread(7, guided=Guided(signed()), peers=20)
mesh.run(300.0)
print(mesh.mean_path())
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

from dcp.testing import Conditions
from dht.identity import Identity
from peer.goals.signed import sign_goal
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.optimizer.blending import blend
from peer.optimizer.placement import GoalPlacement
from peer.optimizer.proposing import Hysteresis
from peer.testing.meshpeer import MeshPeer
from peer.testing.meshsim import MeshSimulation

OWNER = Identity.from_seed(b"o" * 32)
STRANGER = Identity.from_seed(b"s" * 32)
LATENCY = "minimize average(path sum(link.latency))"
RESTLESS = Hysteresis(0.0, 0.0, 0.0)
"""Moves whenever anything seems better: for races, not for use."""


def signed(text: str = LATENCY, version: int = 1, stream: str = "asdi", owner: Identity = OWNER) -> bytes:
    return sign_goal(text, stream, owner, version)


@dataclass
class Guided:
    """Makes the placements of a simulation, and remembers them."""

    data: bytes = b""
    rules: Hysteresis | None = None
    made: list[GoalPlacement] = field(default_factory=list)

    def __call__(self, peer_id: PeerId | None = None, config: MeshConfig | None = None) -> GoalPlacement:
        placement = GoalPlacement(rules=self.rules)
        placement.follow("asdi", bytes(OWNER.peer_id))
        if self.data:
            placement.take_goal(self.data)
        self.made.append(placement)
        return placement


class Spread(MeshSimulation):
    """Peers on a square, up to about 140 ms from each other one way."""

    def __init__(
        self, seed: int, *, guided: Guided, peers: int, roots: int = 2, is_checked: bool = True, **knobs: Any
    ) -> None:
        config = MeshConfig(**({"capacity": 5, "replace_interval": 10.0} | knobs))
        super().__init__(seed, config=config, placement=guided, stale_share=0.0, is_checked=is_checked)
        self._where: list[tuple[float, float]] = []
        self._at_random = random.Random(seed + 1)
        for number in range(roots + peers):
            self.add(is_root=number < roots)

    def add(self, *, is_root: bool = False, **changes: Any) -> MeshPeer:
        peer = super().add(is_root=is_root, **changes)
        self._where.append((self._at_random.random(), self._at_random.random()))
        for other in self.peers[:-1]:
            one_way = Conditions(delay=self.latency(peer, other), jitter=0.001)
            self.network.set_conditions(one_way, peer.address, other.address)
            self.network.set_conditions(one_way, other.address, peer.address)
        return peer

    def latency(self, a: MeshPeer, b: MeshPeer) -> float:
        return 0.1 * math.dist(self._where[a.index], self._where[b.index]) + 0.002

    def mean_path(self) -> float:
        """The true expected first copy, over links that both ends hold."""
        path = {p.index: 0.0 for p in self.peers if p.is_root}
        for peer in sorted(self.live(), key=lambda p: p.mesh.level):
            above = [p for p in self.parents_of(peer) if p.index in path]
            if above:
                path[peer.index] = blend([path[p.index] + self.latency(p, peer) for p in above])
        return sum(path.values()) / len(self.live())
