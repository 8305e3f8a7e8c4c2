"""Peers in a latency space with 700 topics by Zipf, as in the XPORT paper; and how meshes of them grow.

Everything repeats exactly from its seed. Latencies are in seconds, rates in bytes per second.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from peer.goals.parser import parse_goal
from peer.goals.syntax import Over
from peer.optimizer.costs import Evaluator
from peer.optimizer.layout import Layout, Move

UNLIMITED = 999
ZIPF = 0.97
MEAN_KB = 27.7
LATENCY = "minimize average(path sum(link.latency))"


class World:
    """The first `roots` peers are roots. `cpu` is processor time per child; `noise` bends the latency space."""

    def __init__(
        self,
        peers: int,
        seed: int,
        *,
        roots: int = 1,
        fanout: int = 6,
        root_fanout: int | None = None,
        clients: int = 100,
        topics: int = 700,
        noise: float = 0.0,
        cpu: float = 0.0,
    ) -> None:
        rng = self.rng = random.Random(seed)
        self.roots, self.size, self.cpu = roots, roots + peers, cpu
        self.capacity = [root_fanout or fanout] * roots + [fanout] * peers
        self._at = [[rng.random() for _ in range(3)] for _ in range(self.size)]
        self._mile = [rng.lognormvariate(math.log(6), 0.8) for _ in range(self.size)]
        self._up = [rng.lognormvariate(math.log(4000), 0.9) for _ in range(self.size)]
        self._noise, self._salt = noise, seed
        self._bandwidths: dict[tuple[int, int], float] = {}
        self._latencies: list[dict[int, float]] = [{} for _ in range(self.size)]
        kilobytes = [rng.lognormvariate(math.log(MEAN_KB) - 0.5, 1) for _ in range(topics)]
        self._bytes = [1e3 * kb for kb in kilobytes]
        self.own = [0] * self.size
        for topic in rng.choices(range(topics), [1 / (k + 1) ** ZIPF for k in range(topics)], k=clients):
            self.own[rng.randrange(roots, self.size)] |= 1 << topic
        self._rates: dict[int, float] = {}
        self._peers = range(roots, self.size)
        self._clients = [peer for peer in self._peers if self.own[peer]]

    def replace(self, peer: int) -> None:
        """It dies, and a stranger comes under its number."""
        self._at[peer] = [self.rng.random() for _ in range(3)]
        self._mile[peer] = self.rng.lognormvariate(math.log(6), 0.8)
        self._latencies[peer].clear()
        for known in self._latencies[:peer]:
            known.pop(peer, None)

    def latency(self, a: int, b: int) -> float:
        a, b = (a, b) if a < b else (b, a)
        known = self._latencies[a].get(b)
        if known is None:
            noise = 1.0
            if self._noise:
                noise = random.Random(a * 7919 + b + self._salt).lognormvariate(0, self._noise)
            known = (100 * math.dist(self._at[a], self._at[b]) + self._mile[a] + self._mile[b]) * noise / 1e3
            self._latencies[a][b] = known
        return known

    def drift(self, rng: random.Random, spread: float) -> None:
        """Every known latency changes a little."""
        for known in self._latencies:
            for other in known:
                known[other] *= rng.lognormvariate(0, spread)

    def bandwidth(self, a: int, b: int) -> float:
        if (a, b) not in self._bandwidths:
            noise = random.Random(f"{self._salt},{a},{b}").lognormvariate(0, 0.4)
            self._bandwidths[a, b] = min(self._up[a], self._up[b]) * noise * 125
        return self._bandwidths[a, b]

    # What `peer.optimizer.costs.World` asks for

    def link_metric(self, name: str, layout: Layout) -> Callable[[int, int], float]:
        return {"latency": self.latency, "bandwidth": self.bandwidth}[name]

    def node_metric(self, name: str, layout: Layout) -> Callable[[int], float]:
        assert name == "cpu", name
        cpu, children = self.cpu, layout.children
        return lambda peer: cpu * len(children[peer])

    def members(self, over: Over) -> Sequence[int]:
        return self._clients if over is Over.CLIENTS else self._peers

    def own_profile(self, peer: int) -> int:
        return self.own[peer]

    def rate(self, profile: int) -> float:
        known = self._rates.get(profile)
        if known is None:
            known = self._rates[profile] = sum(b for k, b in enumerate(self._bytes) if profile >> k & 1)
        return known

    # Meshes

    def layout(self, wanted: int, seed: int) -> Layout:
        return Layout(roots=self.roots, capacity=self.capacity, wanted=wanted, rng=random.Random(seed))

    def grown(self, wanted: int, seed: int, *, choices: int = 1, reserve: int = 0) -> Layout:
        """Everybody joins in turn: each parent is the best of `choices` random ones with room, by hops and load."""
        layout = self.layout(wanted, seed)
        rng, there, hops = layout.rng, list(range(self.roots)), [0] * self.size
        order = list(layout.peers)
        rng.shuffle(order)
        for peer in order:
            for _ in range(min(wanted, len(there))):
                room = [q for q in there if len(layout.children[q]) < self.capacity[q] - reserve
                        and q not in layout.parents[peer]]  # fmt: skip
                few = rng.sample(room, min(choices, len(room)))
                scores = {q: hops[q] + len(layout.children[q]) / self.capacity[q] + rng.random() / 2 for q in few}
                if few:
                    layout.apply([Move(peer, None, min(few, key=scores.__getitem__))])
            hops[peer] = 1 + max(hops[p] for p in layout.parents[peer])
            there.append(peer)
        return layout

    def star(self) -> Layout:
        layout = self.layout(1, 0)
        for peer in layout.peers:
            layout.apply([Move(peer, None, 0)])
        return layout

    def evaluator(self, goal: str, **options: float) -> Evaluator:
        return Evaluator(parse_goal(goal), self, **options)  # type: ignore[arg-type]


def tree(peers: int, seed: int, fanout: int, **options: float) -> tuple[World, Layout]:
    world = World(peers, seed, fanout=fanout, **options)  # type: ignore[arg-type]
    return world, world.grown(1, seed)


def anneal(layout: Layout, evaluator: Evaluator, steps: int, *, seed: int = 1, hot: float = 0.15) -> float:
    """The best cost known: moves and exchanges anywhere, cooled."""
    rng, size = random.Random(seed), len(layout.peers)
    now = best = evaluator.value(layout)[1]
    for step in range(steps):
        heat = hot * abs(best) / size * 10 * (1 - step / steps) + 1e-12
        peer = rng.choice(layout.peers)
        old, new = rng.choice(layout.parents[peer]), rng.randrange(layout.size)
        if not layout.capacity[new]:
            continue
        moves = [Move(peer, old, new)]
        if len(layout.children[new]) >= layout.capacity[new]:
            moves.append(Move(rng.choice(sorted(layout.children[new])), new, old))
        saved = layout.apply(moves)
        if saved is None:
            continue
        violation, value = evaluator.value(layout)
        if not layout.has_room(moves) or violation > 0:
            value = math.inf
        if value < now or rng.random() < math.exp(min(0.0, (now - value) / heat)):
            now = value
            best = min(best, now)
        else:
            layout.undo(saved)
    return best
