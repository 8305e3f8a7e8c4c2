"""Depth, fan-out, messages a join and repair time of simulated meshes, for 10 to 10,000 peers."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from typing import Any

from bench.report import Report, Target, progress
from peer.mesh.config import MeshConfig
from peer.testing import LAN, MeshSimulation

SUMMARY = "depth, fan-out, join messages and repair time of simulated meshes of 10 to 10,000 peers"
ROOTS = 3
ROOT_CAPACITY = 12
JOIN_RATE = 100.0
"""Arrivals per second..."""
MAX_ARRIVAL = 20.0
"""...but all within this many seconds: the largest mesh is also the largest crowd."""
SETTLE = 10.0
REPAIR = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1_000, 10_000], metavar="N", help="peers")
    parser.add_argument("--seed", type=int, default=1, help="the same seed repeats the same run (default 1)")
    parser.add_argument("--loss", type=float, default=0.01, help="share of datagrams lost (default 0.01)")
    parser.add_argument("--die", type=float, default=0.3, help="share of peers that die at once (default 0.3)")


def run(args: argparse.Namespace) -> Report:
    rows = [measure(size, seed=args.seed, loss=args.loss, die=args.die) for size in args.sizes]
    fit = log_fit([(row["peers"], row["join_messages_with_lookups"]) for row in rows])
    columns = [
        "peers",
        "depth",
        "depth_max",
        "fan_out_max",
        "join_messages",
        "join_messages_with_lookups",
        "join_s",
        "repair_s",
        "repair_p99_s",
        "repair_max_s",
        "cold_restarts",
        "unsettled",
    ]
    notes = [
        f"messages per join, lookups counted as 2 log2(N) each: {fit['a']:.1f} + {fit['b']:.1f} log2(N), "
        f"worst deviation {fit['deviation']:.1f}",
        f"repair: from the death of {args.die:.0%} of the peers at one instant until n sound parents again, over the "
        "peers that lost one",
    ]
    targets = [
        Target(
            "joins cost O(log N)",
            growth_is_logarithmic(rows),
            notes[0],
        ),
        Target(
            "every peer has n parents again",
            all(row["unsettled"] == 0 for row in rows),
            f"{sum(row['unsettled'] for row in rows)} peers short after {REPAIR:.0f} s",
        ),
        Target(
            "no cascade of cold restarts",
            all(row["cold_depth"] <= 1 for row in rows),
            f"longest chain {max(row['cold_depth'] for row in rows)}",
        ),
    ]
    return Report(
        "mesh",
        {"rows": rows, "fit": fit, "seed": args.seed, "loss": args.loss, "died": args.die},
        columns,
        [[row[c] for c in columns] for row in rows],
        targets,
        draw=lambda figure: draw(figure, rows),
        notes=notes,
    )


def measure(size: int, *, seed: int, loss: float, die: float) -> dict[str, Any]:
    started = time.perf_counter()
    simulation = MeshSimulation(seed, config=MeshConfig(), network=replace(LAN, loss=loss), walks_up=size <= 1_000)
    over = min(size / JOIN_RATE, MAX_ARRIVAL)
    simulation.populate(roots=ROOTS, peers=size, over=over, root_capacity=ROOT_CAPACITY)
    run_with_progress(simulation, over + SETTLE, f"{size} peers: building")
    measures = simulation.measures
    depths = simulation.depths()
    row: dict[str, Any] = {
        "peers": size,
        "depth": share(depths, 0.5),
        "depth_max": depths[-1],
        "fan_out_max": max(len(p.mesh.children) for p in simulation.live()),
        "join_messages": share(measures.join_messages, 0.5),
        "join_messages_p99": share(measures.join_messages, 0.99),
        "join_messages_with_lookups": mean_join_messages(simulation, size),
        "join_s": round(share(measures.join_times, 0.5), 3),
        "join_p99_s": round(share(measures.join_times, 0.99), 3),
    }
    victims = simulation.rng.sample(simulation.live(), int(size * die))
    died_at = simulation.now
    for victim in victims:
        simulation.crash(victim)
    bereft = {p.index for p in simulation.live() if len(simulation.parents_of(p)) < p.config.parents_wanted}
    measures.restored.clear()
    run_with_progress(simulation, died_at + REPAIR, f"{size} peers: repairing")
    first: dict[int, float] = {}
    for index, at in measures.restored:
        if index in bereft:
            first.setdefault(index, at - died_at)
    times = sorted(first.values())
    row |= {
        "bereft": len(bereft),
        "repair_s": round(share(times, 0.5), 3),
        "repair_p99_s": round(share(times, 0.99), 3),
        "repair_max_s": round(times[-1], 3) if times else 0.0,
        "depth_after": share(simulation.depths(), 0.5),
        "depth_max_after": simulation.depths()[-1],
        "cold_restarts": measures.cold_restarts,
        "cold_depth": measures.cold_depth,
        "unsettled": len(simulation.unsettled()),
        "events": simulation.network.steps,
        "wall_s": round(time.perf_counter() - started, 1),
    }
    return row


def run_with_progress(simulation: MeshSimulation, until: float, what: str) -> None:
    started = time.perf_counter()
    said = started
    while simulation.now < until:
        simulation.run(min(until, simulation.now + 1.0))
        if time.perf_counter() - said > 5:
            said = time.perf_counter()
            progress(f"{what}: {simulation.now:.0f} of {until:.0f} virtual seconds, {said - started:.0f} s")


def mean_join_messages(simulation: MeshSimulation, size: int) -> float:
    """Joins and their answers, and each directory lookup as the 2 log2(N) messages that Kademlia needs at most."""
    lookup = 2 * max(1.0, math.log2(size))
    costs = [joins * 2 + lookups * lookup for joins, lookups in simulation.measures.join_counts]
    return round(sum(costs) / max(1, len(costs)), 1)


def log_fit(points: list[tuple[int, float]]) -> dict[str, float]:
    """Least squares of y = a + b log2(x)."""
    xs, ys = [math.log2(x) for x, _ in points], [y for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    b = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
    a = mean_y - b * mean_x
    deviation = max(abs(y - a - b * x) for x, y in zip(xs, ys, strict=True))
    return {"a": round(a, 2), "b": round(b, 2), "deviation": round(deviation, 2)}


def growth_is_logarithmic(rows: list[dict[str, Any]]) -> bool:
    """From the smallest to the largest mesh the cost grows no more than the logarithm does, with half as much again."""
    small, large = min(rows, key=lambda r: r["peers"]), max(rows, key=lambda r: r["peers"])
    allowed = math.log2(large["peers"]) / math.log2(small["peers"])
    return bool(large["join_messages_with_lookups"] <= 1.5 * allowed * small["join_messages_with_lookups"])


def share(values: list[Any], part: float) -> Any:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2)
    sizes = [row["peers"] for row in rows]
    left.semilogx(sizes, [row["depth"] for row in rows], "o-", label="depth, median")
    left.semilogx(sizes, [row["depth_max"] for row in rows], "o-", label="depth, deepest")
    left.semilogx(sizes, [row["join_messages_with_lookups"] for row in rows], "s-", label="messages per join")
    left.set_xlabel("peers")
    left.legend()
    right.semilogx(sizes, [row["repair_s"] for row in rows], "o-", label="repair, median")
    right.semilogx(sizes, [row["repair_p99_s"] for row in rows], "o-", label="repair, 99 %")
    right.set_xlabel("peers")
    right.set_ylabel("seconds after 30 % died")
    right.legend()
