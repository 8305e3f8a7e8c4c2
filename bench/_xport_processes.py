"""Real processes that follow a goal: a mesh that formed without distances is given some, and moves towards the goal.

The demo's mesh: every datagram between two processes waits as long as they are apart. What each client's first copies
are worth is computed from who is whose parent, as for the best placement that annealing finds; what the clients
measured stands beside it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import trio

from bench._xport_world import anneal
from bench.report import progress
from demo.run.faults import Weather
from demo.run.localmesh import LocalMesh, open_mesh
from demo.run.settings import DemoSettings
from peer.goals.parser import parse_goal
from peer.goals.syntax import Over
from peer.optimizer.costs import Evaluator
from peer.optimizer.layout import Layout, Move

ROOTS, ROUTERS, CLIENTS, CAPACITY = 2, 12, 8, 10
SETTINGS = DemoSettings(roots=ROOTS, routers=ROUTERS, clients=CLIENTS, capacity=CAPACITY, copies=2)
GOAL = "minimize average(path sum(link.latency)) over clients"
FARTHEST = 0.08
"""Seconds from one corner of the landscape to the opposite one."""
SECONDS = 300.0
WINDOW = 20.0
"""Seconds over which the clients' latency is measured."""
STEPS = 15_000


class Landscape:
    """Where everybody is. Peers are numbered: roots, routers, clients."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.names = [f"root-{n}" for n in range(1, ROOTS + 1)]
        self.names += [f"router-{n}" for n in range(1, ROUTERS + 1)]
        self.names += [f"client-{n}" for n in range(1, CLIENTS + 1)]
        self.number = {name: number for number, name in enumerate(self.names)}
        self._places = {name: (rng.random(), rng.random()) for name in self.names}

    def delay(self, a: str, b: str) -> float:
        return FARTHEST * math.dist(self._places[a], self._places[b]) / math.sqrt(2)

    def weather(self) -> dict[frozenset[str], Weather]:
        return {frozenset(pair): Weather(delay=self.delay(*pair)) for pair in combinations(self.names, 2)}

    # What an evaluator asks of a world

    def link_metric(self, name: str, layout: Layout) -> Callable[[int, int], float]:
        return lambda parent, child: self.delay(self.names[parent], self.names[child])

    def node_metric(self, name: str, layout: Layout) -> Callable[[int], float]:
        return lambda peer: 0.0

    def members(self, over: Over) -> Sequence[int]:
        return range(ROOTS + ROUTERS, len(self.names))

    def own_profile(self, peer: int) -> int:
        return 0

    def rate(self, profile: int) -> float:
        return 0.0


def processes(seed: int = 1) -> list[dict[str, Any]]:
    return [trio.run(_run, Landscape(seed))]


async def _run(world: Landscape) -> dict[str, Any]:
    evaluator = Evaluator(parse_goal(GOAL), world)
    async with open_mesh(SETTINGS) as mesh:
        if not await mesh.wait_settled(120.0):
            short = ", ".join(sorted(mesh.ledger.short)) or "nobody"
            raise RuntimeError(f"the mesh did not come up within two minutes; short of parents: {short}")
        mesh.set_links(world.weather())
        start, start_p50 = await _look(mesh, world, evaluator)
        progress(f"expected first copy {1e3 * start:.1f} ms, measured median {start_p50} ms; following the goal")
        mesh.set_goal(GOAL)
        for _ in range(round(SECONDS / 30.0)):
            await trio.sleep(30.0)
            progress(f"{1e3 * evaluator.value(_layout(mesh, world))[1]:.1f} ms")
        end, end_p50 = await _look(mesh, world, evaluator)
        totals = mesh.totals()
        layout = _layout(mesh, world)
        moves = sum((member.status.get("goal") or {}).get("moves", 0) for member in mesh.members.values())
    best = min(anneal(layout, evaluator, STEPS, hot=0.05), anneal(layout, evaluator, STEPS, hot=0.01, seed=2))
    return {
        "peers": len(world.names) - ROOTS,
        "start_ms": 1e3 * start,
        "end_ms": 1e3 * end,
        "best_ms": 1e3 * best,
        "start_to_best": start / best,
        "end_to_best": end / best,
        "start_measured_p50_ms": start_p50,
        "end_measured_p50_ms": end_p50,
        "lost": totals["lost"] + totals["wrong"],
        "moves": moves,
    }


async def _look(mesh: LocalMesh, world: Landscape, evaluator: Evaluator) -> tuple[float, float]:
    """What first copies are expected to take by the links that there are, and what the clients measure."""
    await mesh.wait_settled(60.0)
    lost = mesh.totals()["lost"] + mesh.totals()["wrong"]
    if lost:
        raise RuntimeError(f"{lost} packets were lost or wrong")
    mesh.reset_totals()
    await trio.sleep(WINDOW)
    return evaluator.value(_layout(mesh, world))[1], mesh.totals()["latency_ms"]["p50"]


def _layout(mesh: LocalMesh, world: Landscape) -> Layout:
    slots = [CAPACITY] * (ROOTS + ROUTERS) + [0] * CLIENTS
    layout = Layout(roots=ROOTS, capacity=slots, wanted=SETTINGS.parents, rng=random.Random(1))
    members = [mesh.members[name] for name in world.names[ROOTS:]]
    for member in sorted(members, key=lambda m: m.status.get("level") or 0):
        for parent in member.status["up"]:
            if parent["sound"] and parent["name"] in world.number:
                layout.apply([Move(world.number[member.name], None, world.number[parent["name"]])])
    return layout
