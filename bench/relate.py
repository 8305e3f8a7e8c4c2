"""The experiments of the ADAMANT paper (Figures 9 to 22), and DCP beside its transports. In virtual time.

The paper's transports are arithmetic (`bench._paper`), DCP's rows are its real machines (`bench._paths`): one parent,
two parents, and one parent with the controller (profile `latency`). 12-byte updates, a round trip of 1.6 ms. Rows have
the mean latency, the share delivered, ReLate (mean / share received) and ReLate2 (mean x (percent lost + 1)).

`ordering_ok` says for each figure whether the order that the paper reports comes out: which transport is fastest, which
delivers all, which score favours whom. That RMcast delivered 79 and 49 % in Figure 17 was a bug of theirs, and is not
copied.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

from bench import _paper
from bench._paper import MULTICAST, NAK, RICOCHET4, RICOCHET8, TCP, TRANSPORTS, UDP
from bench._paths import Cell, Outcome
from bench._paths import run as run_path
from bench._processes import Result, run_all
from bench.report import Report, Target, progress
from dcp.profile import PLAIN, profile_of

SUMMARY = "latency, loss, ReLate and ReLate2 of the ADAMANT paper's transports and of DCP (Figures 9 to 22)"

RTT = 0.0016
UPDATES = 20_000
DCP1, DCP2, ADAPTIVE = "DCP n = 1", "DCP n = 2", "DCP adaptive"
OURS = (DCP1, DCP2, ADAPTIVE)
# Updates that count for each row and seed, by readers: what a run costs grows with both.
PAPER_UPDATES = {3: UPDATES, 25: UPDATES // 5}
MACHINE_UPDATES = {3: 600, 25: 100}
# Before those that count: the controller has seen some losses by then.
WARM_UP_UPDATES = 200
SCORES = ("mean", "p99", "delivered", "relate", "relate2", "bytes_ratio")

Point = tuple[int, float, float]
"""Readers, Hz, loss."""
Scores = dict[tuple[str, Point], dict[str, float]]

FIGURES: dict[str, list[Point]] = {
    "9": [(3, 25, 0.0)],
    "10": [(3, 50, 0.0)],
    "11": [(3, 25, 0.03)],
    "12": [(3, 50, 0.03)],
    "13": [(3, 25, 0.03), (3, 50, 0.03)],
    "14": [(3, 25, 0.03), (3, 50, 0.03)],
    "15": [(3, 25, 0.03), (3, 50, 0.03)],
    "16 to 18": [(3, 10, 0.01), (3, 25, 0.01), (3, 50, 0.01), (3, 100, 0.01)],
    "19 to 21": [(3, 10, 0.01), (3, 25, 0.01), (3, 50, 0.01), (3, 100, 0.01)],
    "22": [(25, 25, 0.01), (25, 50, 0.01)],
}
BESIDE = [*product((3, 25), (10.0, 25.0, 50.0, 100.0), (0.0, 0.01, 0.03))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes that share the runs (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one seed and fewer updates")


def run(args: argparse.Namespace) -> Report:
    seeds = range(1, 2 if args.quick else args.seeds + 1)
    scale = 0.1 if args.quick else 1.0
    points = sorted({*BESIDE, *(point for points in FIGURES.values() for point in points)})
    score: Scores = {}
    for number, point in enumerate(points):
        progress(f"{number + 1} of {len(points)}: {point[0]} readers, {point[1]:g} Hz, {point[2]:.0%} loss")
        score |= _scores_at(point, seeds, scale, args.processes)
    rows = [_row(figure, name, point, score) for figure, name, point in _lines()]
    ordering = _ordering(score)
    below = {name: sum(_is_below_winners(name, point, score) for point in BESIDE) for name in OURS}
    return Report(
        name="relate",
        data={
            "seeds": len(seeds),
            "rows": rows,
            "ordering_ok": ordering,
            "points": len(BESIDE),
            "below_winners": below,
        },
        columns=(
            "figure",
            "transport",
            "readers",
            "Hz",
            "loss",
            "mean ms",
            "p99 ms",
            "delivered",
            "ReLate",
            "ReLate2",
            "bytes",
        ),
        rows=[tuple(row.values()) for row in rows],
        targets=[
            *(Target(f"figure {figure}: the paper's order", ok, str(ok)) for figure, ok in ordering.items()),
            *(
                Target(f"{name} not above both winners", count == len(BESIDE), f"at {count} of {len(BESIDE)} points")
                for name, count in below.items()
            ),
        ],
    )


def _lines() -> list[tuple[str, str, Point]]:
    shown = [(figure, name, point) for figure, points in FIGURES.items() for point in points for name in TRANSPORTS]
    return [*shown, *(("beside", name, point) for point in BESIDE for name in (NAK, RICOCHET4, *OURS))]


def _row(figure: str, name: str, point: Point, score: Scores) -> dict[str, Any]:
    readers, hz, loss = point
    got = score[name, point]
    return {
        "figure": figure,
        "transport": name,
        "readers": readers,
        "hz": hz,
        "loss": loss,
        "mean_ms": round(got["mean"] * 1e3, 3),
        "p99_ms": round(got["p99"] * 1e3, 3),
        "delivered": round(got["delivered"], 5),
        "relate": round(got["relate"] * 1e3, 3),
        "relate2": round(got["relate2"] * 1e3, 3),
        "bytes_ratio": round(got["bytes_ratio"], 2),
    }


def _ordering(score: Scores) -> dict[str, bool]:
    def get(name: str, what: str, point: Point) -> float:
        return score[name, point][what]

    def lowest(what: str, names: tuple[str, ...], figure: str) -> bool:
        others = [name for name in TRANSPORTS if name not in names]
        return all(
            max(get(name, what, point) for name in names) <= min(get(name, what, point) for name in others) * 1.02
            for point in FIGURES[figure]
        )

    clean = {
        figure: all(get(name, "delivered", point) == 1 for name in TRANSPORTS for point in FIGURES[figure])
        and lowest("mean", (UDP, MULTICAST), figure)
        for figure in ("9", "10")
    }
    lossy = {
        figure: all(
            get(TCP, "mean", point) == max(get(name, "mean", point) for name in TRANSPORTS) for point in FIGURES[figure]
        )
        and lowest("mean", (UDP, MULTICAST), figure)
        for figure in ("11", "12")
    }
    once = FIGURES["19 to 21"]
    return (
        clean
        | lossy
        | {
            "13": all(
                get(TCP, "delivered", p) == 1 and 0.99 < get(RICOCHET8, "delivered", p) < 1 for p in FIGURES["13"]
            ),
            "14": lowest("relate", (UDP, MULTICAST), "14"),
            "15": all(
                max(get(NAK, "relate2", p), get(RICOCHET4, "relate2", p))
                < min(get(n, "relate2", p) for n in (UDP, MULTICAST, TCP))
                for p in FIGURES["15"]
            ),
            "16 to 18": all(get(NAK, "relate2", p) < get(RICOCHET8, "relate2", p) for p in FIGURES["16 to 18"]),
            "19 to 21": sum(get(RICOCHET4, "mean", p) < get(NAK, "mean", p) for p in once) >= len(once) / 2,
            "22": all(get(RICOCHET4, "mean", p) < get(NAK, "mean", p) for p in FIGURES["22"]),
        }
    )


def _is_below_winners(name: str, point: Point, score: Scores) -> bool:
    """ReLate2, at most that of both winners of the paper; without loss all are the same."""
    winners = min(score[NAK, point]["relate2"], score[RICOCHET4, point]["relate2"])
    return score[name, point]["relate2"] <= winners * 1.02


def _scores_at(point: Point, seeds: range, scale: float, processes: int) -> Scores:
    """Every transport on one path, the mean over the seeds."""
    jobs = [(name, point, seed, scale) for name in (*OURS, *TRANSPORTS) for seed in seeds]
    shares = [{"jobs": jobs[number::processes]} for number in range(processes)]
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for share in run_all(measure, shares):
        found.update(share["found"])
    return {
        (name, point): {
            what: sum(found[name, point, seed, scale][what] for seed in seeds) / len(seeds) for what in SCORES
        }
        for name in (*OURS, *TRANSPORTS)
    }


# --- in the processes -------------------------------------------------------------------------------------------------


def measure(*, jobs: list[tuple[Any, ...]]) -> Result:
    return {"found": {job: _document(_run_job(*job)) for job in jobs}}


def _run_job(name: str, point: Point, seed: int, scale: float) -> Outcome:
    readers, hz, loss = point
    cell = Cell(RTT, hz, loss)
    if name in TRANSPORTS:
        return _paper.run(name, cell, readers, seed, updates=int(PAPER_UPDATES[readers] * scale))
    profile = profile_of("latency") if name == ADAPTIVE else PLAIN
    return run_path(
        cell,
        seed,
        profile=profile,
        readers=readers,
        parents=2 if name == DCP2 else 1,
        seconds=MACHINE_UPDATES[readers] * scale / hz,
        warm_up=WARM_UP_UPDATES * scale / hz,
    )


def _document(done: Outcome) -> dict[str, float]:
    return {name: getattr(done, name) for name in SCORES}
