"""Small worlds with latencies that can be checked by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peer.goals import parse_goal
from peer.goals.syntax import Over
from peer.optimizer.costs import Evaluator
from peer.optimizer.layout import Layout, Move


@dataclass
class SmallWorld:
    size: int
    roots: int = 1
    latency: Callable[[int, int], float] = lambda a, b: 1.0
    bandwidth: Callable[[int, int], float] = lambda a, b: 1.0
    own: dict[int, int] = field(default_factory=dict)
    clients: Sequence[int] = ()

    def link_metric(self, name: str, layout: Layout) -> Callable[[int, int], float]:
        return {"latency": self.latency, "bandwidth": self.bandwidth}[name]

    def node_metric(self, name: str, layout: Layout) -> Callable[[int], float]:
        return lambda peer: 0.5 * len(layout.children[peer])

    def members(self, over: Over) -> Sequence[int]:
        return self.clients if over is Over.CLIENTS else range(self.roots, self.size)

    def own_profile(self, peer: int) -> int:
        return self.own.get(peer, 0)

    def rate(self, profile: int) -> float:
        return float(profile.bit_count())

    def layout(self, links: str, *, wanted: int = 1, capacity: int = 9, seed: int = 0) -> Layout:
        """From text like `1<0 2<1 3<1,2`: a peer and its parents, in the order in which they join."""
        made = Layout(roots=self.roots, capacity=[capacity] * self.size, wanted=wanted, rng=random.Random(seed))
        for link in links.split():
            peer, _, parents = link.partition("<")
            for parent in parents.split(","):
                assert made.apply([Move(int(peer), None, int(parent))]) is not None, link
        return made

    def evaluator(self, goal: str, **options) -> Evaluator:
        return Evaluator(parse_goal(goal), self, **options)


def grown(world: SmallWorld, wanted: int, seed: int, capacity: int = 6) -> Layout:
    """Everybody joins in turn, anywhere with room."""
    rng = random.Random(seed)
    layout = Layout(roots=world.roots, capacity=[capacity] * world.size, wanted=wanted, rng=rng)
    for peer in layout.peers:
        there = [q for q in range(peer) if len(layout.children[q]) < capacity]
        for parent in rng.sample(there, min(wanted, len(there))):
            layout.apply([Move(peer, None, parent)])
    return layout
