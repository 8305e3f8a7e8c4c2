"""Mesh machines that follow a goal, message by message, against the best placement that annealing finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from bench._xport_paper import means
from bench._xport_world import LATENCY, anneal
from peer.goals.parser import parse_goal
from peer.goals.syntax import Over
from peer.optimizer.costs import Evaluator
from peer.optimizer.layout import Layout, Move
from peer.testing.guided import Guided, Spread, signed

ROOTS, PEERS = 2, 20
SECONDS = 300.0
STEPS = 15_000


class _World:
    """The latencies of a simulated mesh, as `peer.optimizer.costs.World` wants them."""

    def __init__(self, mesh: Spread) -> None:
        self._mesh = mesh
        size = range(ROOTS + PEERS)
        self._latency = [[mesh.latency(mesh.peers[a], mesh.peers[b]) for b in size] for a in size]

    def link_metric(self, name: str, layout: Layout) -> Callable[[int, int], float]:
        latency = self._latency
        return lambda parent, child: latency[parent][child]

    def node_metric(self, name: str, layout: Layout) -> Callable[[int], float]:
        return lambda peer: 0.0

    def members(self, over: Over) -> Sequence[int]:
        return range(ROOTS, ROOTS + PEERS)

    def own_profile(self, peer: int) -> int:
        return 0

    def rate(self, profile: int) -> float:
        return 0.0


def peers(seeds: int = 3) -> list[dict[str, Any]]:
    """Two roots and 20 peers up to 140 ms apart, n = 2, six slots each, five minutes: local decisions and exchanges."""
    found = []
    for seed in range(1, seeds + 1):
        guided = Guided(signed(LATENCY))
        mesh = Spread(seed, guided=guided, peers=PEERS, roots=ROOTS, capacity=6, is_checked=False)
        mesh.run(20.0)
        start = mesh.mean_path()
        mesh.run(SECONDS)
        end, best = mesh.mean_path(), _best(mesh)
        moves = sum(placement.moves for placement in guided.made)
        found.append((1e3 * start, 1e3 * end, 1e3 * best, start / best, end / best, float(moves)))
    start, end, best, start_to_best, end_to_best, moved = means(found)
    return [{"peers": PEERS, "start_ms": start, "end_ms": end, "best_ms": best, "start_to_best": start_to_best,
             "end_to_best": end_to_best, "worst_end_to_best": max(row[4] for row in found), "moves": moved,
             }]  # fmt: skip


def _best(mesh: Spread) -> float:
    slots = mesh.config.capacity - mesh.config.reserved_slots
    layout = Layout(roots=ROOTS, capacity=[slots] * (ROOTS + PEERS), wanted=2, rng=random.Random(1))
    for peer in sorted(mesh.live(), key=lambda p: p.mesh.level):
        for parent in mesh.parents_of(peer):
            layout.apply([Move(peer.index, None, parent.index)])
    layout.capacity = [max(slots, len(children)) for children in layout.children]
    evaluator = Evaluator(parse_goal(LATENCY), _World(mesh))
    return min(anneal(layout, evaluator, STEPS, hot=0.05), anneal(layout, evaluator, STEPS // 2, hot=0.01, seed=2))
