"""Whether each link finds the protection that suits it: ReLate2 of every fixed choice and of the controller, by path.

Real machines in virtual time (`bench._paths`): 12-byte packets, one parent, profile `latency`, 10 s to settle in and
30 s that count, the mean over the seeds. ReLate2 is the mean latency times (percent lost + 1), from the ADAMANT paper;
nothing is lost here, so it is the mean latency in the order of the stream. The total is the sum
over all cells, in which a cell of 200 ms outweighs all of 0.2 ms; the mean is over the cells, each relative to the best
fixed choice there. Bytes are all bytes both ways, compared with one UDP datagram per packet.

Below the grid, single questions: how fast the controller reacts, whether it swings, what a sliding window, one decoder
for all parents, copies instead of keep-alives, the order of arrival and a deadline bring, and what sending costs the
processor (`bench._costs`).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench._costs import multicast_ratio, protected_ratio
from bench._paths import Cell, Outcome
from bench._paths import run as run_path
from bench._processes import Result, run_all
from bench.report import Report, Target, progress
from dcp.config import Config
from dcp.profile import PLAIN, Profile, profile_of

SUMMARY = "ReLate2 of every fixed protection and of the controller, over round trips, rates and losses"

FIXED: dict[str, tuple[int, int, int] | None] = {
    "plain": None,
    "1 per 8": (8, 1, 4),
    "1 per 4": (4, 1, 4),
    "1 per 2": (2, 1, 4),
    "2 per 3": (3, 2, 4),
    "copy": (1, 1, 1),
}
ADAPTIVE = "adaptive"
ROUND_TRIPS = (0.0002, 0.02, 0.08, 0.2)
RATES = (10.0, 50.0, 100.0)
LOSSES = ((0.0, 0.0), (0.01, 0.0), (0.05, 0.0), (0.2, 0.0), (0.05, 3.0))
NEAR = 1.10
WITHIN = 0.85
REACTION_SECONDS = 5.0
STEP_AT = 15.0
ALTERNATE_SECONDS = 150
GRID_SECONDS = 30.0
QUESTION_SECONDS = 60.0
SLOW_PACKETS = 200
DEADLINE = 0.2
TIMER = 0.002


@dataclass(frozen=True)
class Question:
    """Two runs whose ratio is the answer."""

    cell: Cell
    ours: tuple[Profile, Config, int]
    theirs: tuple[Profile, Config, int]


def _fixed(protection: tuple[int, int, int], parents: int = 1, *, joint: bool = True) -> tuple[Profile, Config, int]:
    return PLAIN, Config(fixed_protection=protection, joint_decoding=joint), parents


_PLAIN = (PLAIN, Config(), 1)
QUESTIONS = {
    "window over block": Question(Cell(0.2, 100, 0.1), _fixed((4, 1, 4)), _fixed((4, 1, 1))),
    "joint over apart": Question(Cell(0.2, 100, 0.2), _fixed((8, 1, 4), 2), _fixed((8, 1, 4), 2, joint=False)),
    "copy": Question(Cell(0.0002, 25, 0.03), (profile_of("reliable"), Config(), 1), _PLAIN),
    "arrival": Question(Cell(0.08, 100, 0.2), (profile_of("bandwidth", order="arrival"), Config(), 1), _PLAIN),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each run (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes that share the runs (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one seed and a quarter of the grid")


def run(args: argparse.Namespace) -> Report:
    seeds = range(1, 2 if args.quick else args.seeds + 1)
    cells = [Cell(rtt, hz, *loss) for rtt, hz, loss in product(ROUND_TRIPS, RATES, LOSSES)]
    if args.quick:
        cells = cells[::4]
    jobs: list[tuple[Any, ...]] = [("grid", c, name, s) for c in cells for name in (*FIXED, ADAPTIVE) for s in seeds]
    jobs += [(kind, name, seed) for name in QUESTIONS for kind in ("ours", "theirs") for seed in seeds]
    jobs += [("costs",)]
    jobs += [(kind, seed) for kind in ("reaction", "alternating", "deadline", "slow") for seed in seeds]
    progress(f"{len(jobs)} runs in {args.processes} processes")
    shares = [jobs[number :: args.processes] for number in range(args.processes)]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for share in run_all(measure, [{"jobs": share} for share in shares]):
        found.update(share["found"])
    rows = [_row(cell, found, seeds) for cell in cells]
    answers = _answers(rows, found, seeds)
    return Report(
        name="adaptive",
        data={"seeds": len(seeds), "rows": rows, **answers},
        columns=("rtt ms", "Hz", "loss", "burst", *FIXED, ADAPTIVE, "to best", "bytes"),
        rows=[
            (
                row["rtt_ms"],
                row["hz"],
                row["loss"],
                row["burst"],
                *(row["relate2_ms"][name] for name in (*FIXED, ADAPTIVE)),
                row["to_best"],
                row["bytes_ratio"][ADAPTIVE],
            )
            for row in rows
        ],
        targets=_targets(answers),
        notes=[f"{name} {value}" for name, value in answers.items()],
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _row(cell: Cell, found: dict[tuple[Any, ...], dict[str, Any]], seeds: range) -> dict[str, Any]:
    names = (*FIXED, ADAPTIVE)
    scores = {name: _mean([found["grid", cell, name, seed]["relate2"] for seed in seeds]) for name in names}
    sizes = {name: _mean([found["grid", cell, name, seed]["bytes_ratio"] for seed in seeds]) for name in names}
    best = min(scores[name] for name in FIXED)
    return {
        "rtt_ms": cell.rtt * 1e3,
        "hz": cell.hz,
        "loss": cell.loss,
        "burst": cell.burst,
        "relate2_ms": {name: round(score * 1e3, 3) for name, score in scores.items()},
        "to_best": round(scores[ADAPTIVE] / best, 3),
        "bytes_ratio": {name: round(size, 2) for name, size in sizes.items()},
        "delivered": min(found["grid", cell, name, seed]["delivered"] for name in names for seed in seeds),
    }


def _answers(rows: list[dict[str, Any]], found: dict[tuple[Any, ...], dict[str, Any]], seeds: range) -> dict[str, Any]:
    totals = {name: sum(row["relate2_ms"][name] for row in rows) for name in (*FIXED, ADAPTIVE)}
    best = [min(row["relate2_ms"][name] for name in FIXED) for row in rows]
    relative = {
        name: _mean([row["relate2_ms"][name] / least for row, least in zip(rows, best, strict=True)])
        for name in (*FIXED, ADAPTIVE)
    }
    ratios = {name: _ratio(name, "mean", found, seeds) for name in QUESTIONS}
    return {
        "within_10pct_cells": round(_mean([row["to_best"] <= NEAR for row in rows]), 3),
        "mean_to_best": {name: round(mean, 3) for name, mean in relative.items()},
        "worst_to_best": max(row["to_best"] for row in rows),
        "all_delivered": all(row["delivered"] == 1 for row in rows),
        "totals_ms": {name: round(total, 1) for name, total in totals.items()},
        "total_not_above_any_fixed": all(totals[ADAPTIVE] <= totals[name] for name in FIXED),
        "mean_not_above_any_fixed": all(relative[ADAPTIVE] <= relative[name] for name in FIXED),
        "reaction_s": max(found["reaction", seed]["reaction"] for seed in seeds),
        "switches_alternating": max(found["alternating", seed]["changes"] for seed in seeds),
        "fec": {"window_over_block": ratios["window over block"], "joint_over_apart": ratios["joint over apart"]},
        "copy": {"mean_ratio": ratios["copy"], "bytes_ratio": _ratio("copy", "bytes_ratio", found, seeds)},
        "arrival": {"mean_ratio": ratios["arrival"]},
        "multicast": {"send_us_ratio_25": found[("costs",)]["multicast"]},
        "clean": {"calls_ratio": found[("costs",)]["protected"]},
        "slow": {
            "mean_ms": round(1e3 * _mean([found["slow", seed]["mean"] for seed in seeds]), 1),
            "p99_ms": round(1e3 * _mean([found["slow", seed]["p99"] for seed in seeds]), 1),
            "delivered": min(found["slow", seed]["delivered"] for seed in seeds),
        },
        "deadline": {
            "seconds": DEADLINE,
            "longest_wait_s": max(found["deadline", seed]["longest"] for seed in seeds),
            "given_up": round(_mean([1 - found["deadline", seed]["delivered"] for seed in seeds]), 4),
        },
    }


def _ratio(name: str, what: str, found: dict[tuple[Any, ...], dict[str, Any]], seeds: range) -> float:
    ours, theirs = (_mean([found[kind, name, seed][what] for seed in seeds]) for kind in ("ours", "theirs"))
    return round(ours / theirs, 3)


def _targets(found: dict[str, Any]) -> list[Target]:
    fec, copy, wait = found["fec"], found["copy"], found["deadline"]["longest_wait_s"]
    group = found["multicast"]["send_us_ratio_25"]
    return [
        Target("every packet delivered", found["all_delivered"], str(found["all_delivered"])),
        Target("within_10pct_cells >= 0.85", found["within_10pct_cells"] >= WITHIN, str(found["within_10pct_cells"])),
        Target("total_not_above_any_fixed", found["total_not_above_any_fixed"], str(found["totals_ms"])),
        Target("mean_not_above_any_fixed", found["mean_not_above_any_fixed"], str(found["mean_to_best"])),
        Target("reaction_s <= 5", found["reaction_s"] <= REACTION_SECONDS, str(found["reaction_s"])),
        Target("switches_alternating <= 3", found["switches_alternating"] <= 3, str(found["switches_alternating"])),
        Target("fec.window_over_block <= 0.75", fec["window_over_block"] <= 0.75, str(fec["window_over_block"])),
        Target("fec.joint_over_apart <= 0.65", fec["joint_over_apart"] <= 0.65, str(fec["joint_over_apart"])),
        Target("copy.mean_ratio <= 0.6", copy["mean_ratio"] <= 0.6, str(copy["mean_ratio"])),
        Target("copy.bytes_ratio <= 0.6", copy["bytes_ratio"] <= 0.6, str(copy["bytes_ratio"])),
        Target("arrival.mean_ratio <= 0.5", found["arrival"]["mean_ratio"] <= 0.5, str(found["arrival"]["mean_ratio"])),
        Target("multicast.send_us_ratio_25 <= 0.2", group <= 0.2, str(group)),
        Target("clean.calls_ratio <= 1.02", found["clean"]["calls_ratio"] <= 1.02, str(found["clean"])),
        Target("nothing later than arrival + deadline", wait <= DEADLINE + TIMER, f"{wait:.4f} s"),
    ]


# --- in the processes -------------------------------------------------------------------------------------------------


def measure(*, jobs: list[tuple[Any, ...]]) -> Result:
    return {"found": {job: _run_job(job) for job in jobs}}


def _run_job(job: tuple[Any, ...]) -> dict[str, Any]:
    match job:
        case ("grid", Cell() as cell, str(name), int(seed)):
            if name == ADAPTIVE:
                return _document(run_path(cell, seed, profile=profile_of("latency"), seconds=GRID_SECONDS))
            config = Config(fixed_protection=FIXED[name])
            return _document(run_path(cell, seed, config=config, seconds=GRID_SECONDS))
        case ("ours" | "theirs" as kind, str(name), int(seed)):
            question = QUESTIONS[name]
            profile, config, parents = question.ours if kind == "ours" else question.theirs
            seconds = QUESTION_SECONDS
            done = run_path(question.cell, seed, profile=profile, config=config, parents=parents, seconds=seconds)
            return _document(done)
        case ("reaction", int(seed)):
            return _reaction(seed)
        case ("alternating", int(seed)):
            low, high = Cell(0.08, 50, 0.02), Cell(0.08, 50, 0.04)
            later = [(5.0 * n, low if n % 2 else high) for n in range(1, ALTERNATE_SECONDS // 5)]
            done = run_path(low, seed, profile=profile_of("latency"), seconds=ALTERNATE_SECONDS - 10, later=later)
            return {"changes": len(done.changes)}
        case ("costs",):
            return {"multicast": round(multicast_ratio(), 3), "protected": round(protected_ratio(), 3)}
        case ("slow", int(seed)):  # a packet a minute
            return _document(run_path(Cell(0.08, 1 / 60, 0.2), seed, seconds=60 * SLOW_PACKETS))
        case ("deadline", int(seed)):
            done = run_path(Cell(0.08, 100, 0.2), seed, profile=profile_of("bandwidth", deadline=DEADLINE))
            return {"longest": max(done.waits), "delivered": done.delivered}
    raise ValueError(f"no such run: {job}")


def _reaction(seed: int) -> dict[str, Any]:
    """From a clean path to 20 % loss: how long until the link is protected."""
    clean, lossy = Cell(0.08, 50, 0.0), Cell(0.08, 50, 0.2)
    done = run_path(clean, seed, profile=profile_of("latency"), seconds=20, later=[(STEP_AT, lossy)])
    after = [when - STEP_AT for when, _ in done.changes if when >= STEP_AT]
    return {"reaction": round(min(after, default=float("inf")), 2)}


def _document(done: Outcome) -> dict[str, Any]:
    names = ("mean", "p99", "relate2", "bytes_ratio", "delivered")
    return {name: getattr(done, name) for name in names}
