"""Effective loss before retransmission, by the number of parents: the paper's Figure 6, beside p^n.

How it is counted. Packets go out in trains, one datagram a packet (two do not fit a datagram here), from every parent
at once, through a network that loses each datagram, either way, with probability p. The client's NACK waits until the
whole train has long passed, and then asks for exactly the packets of which no parent's first copy came. Those are what
its own counter `recovered` counts, once each when they come after all. So the figure is `recovered / packets` of the
receiver's statistics: what the network loses, what comes twice and what is asked for again are all DCP's own doing.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

import dcp
from bench._mesh import Star, open_star
from bench._processes import Result, run_all
from bench.report import Report, Target, progress
from dcp.testing.conditions import Conditions

SUMMARY = "effective loss before retransmission with 1 to 4 parents, compared with p^n (Figure 6)"

BOUND = 0.01
# A NACK lists 64 stretches at most, and all that is missing is to be in the first one.
TRAIN = 100
PAYLOAD_BYTES = 300
MIN_PACKETS = 2_000
TRAINS_A_JOB = 20

CONFIG = dcp.Config(
    loopback_datagram_bytes=512,  # room for one packet of ours, not for two
    # Asked for only after every first copy is here or lost, however busy the machine is.
    reorder_window=0.12,
    min_reorder_window=0.12,
    slow_nack_interval=5.0,
    # A train is not to wait for acknowledgments, whatever was lost of the one before.
    initial_window=1 << 20,
    min_window=1 << 20,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parents", type=int, nargs="+", default=[1, 2, 3, 4], help="(%(default)s)")
    parser.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], help="(%(default)s)")
    parser.add_argument(
        "--deviations",
        type=float,
        default=4.0,
        help="choose the packets per cell so that an error of 0.01 is this many standard deviations (%(default)s)",
    )
    parser.add_argument("--packets", type=int, help="packets per cell, overriding --deviations")
    parser.add_argument("--processes", type=int, default=2, help="processes that share the meshes (%(default)s)")
    parser.add_argument("--at-once", type=int, default=16, help="concurrent meshes per process (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)


@dataclass(slots=True)
class Cell:
    """One point of the figure, and what was counted for it so far."""

    parents: int
    loss: float
    wanted: int
    packets: int = 0
    lost: int = 0

    @property
    def theory(self) -> float:
        return float(self.loss**self.parents)

    @property
    def measured(self) -> float:
        return self.lost / self.packets


@dataclass(frozen=True)
class Job:
    """Some trains of one cell, over one mesh."""

    cell: int
    parents: int
    loss: float
    trains: int
    seed: int


def packets_for(parents: int, loss: float, deviations: float) -> int:
    """Enough packets, in whole trains, that an error of BOUND is `deviations` standard deviations of the binomial."""
    p = loss**parents
    return max(MIN_PACKETS, math.ceil(p * (1 - p) * (deviations / BOUND) ** 2 / TRAIN) * TRAIN)


def run(args: argparse.Namespace) -> Report:
    cells = [
        Cell(parents, loss, args.packets or packets_for(parents, loss, args.deviations))
        for parents in args.parents
        for loss in args.loss
    ]
    progress(f"{sum(cell.wanted for cell in cells):,} packets, {len(cells)} cells")
    jobs = _jobs(cells, args.seed)
    shares = [jobs[number :: args.processes] for number in range(min(args.processes, len(jobs)))]
    for result in run_all(measure, [{"jobs": share, "at_once": args.at_once} for share in shares]):
        for cell, packets, lost in result["counts"]:
            cells[cell].packets += packets
            cells[cell].lost += lost
    worst = max(abs(cell.measured - cell.theory) for cell in cells)
    return Report(
        name="loss",
        data={
            "rows": [
                {
                    "parents": cell.parents,
                    "loss": cell.loss,
                    "measured": round(cell.measured, 5),
                    "theory": round(cell.theory, 5),
                    "packets": cell.packets,
                }
                for cell in cells
            ],
            "max_abs_error": round(worst, 5),
            "counted": "ReceiverStatistics.recovered / packets",
        },
        columns=("parents", "loss", "measured", "p^n", "error", "packets"),
        rows=[(c.parents, c.loss, c.measured, c.theory, c.measured - c.theory, c.packets) for c in cells],
        targets=[Target("max_abs_error <= 0.01", worst <= BOUND, f"{worst:.4f}")],
        draw=partial(_draw, cells),
    )


def _jobs(cells: list[Cell], seed: int) -> list[Job]:
    """The slowest first: those with much to recover take longest for a train."""
    jobs: list[Job] = []
    for number, cell in enumerate(cells):
        trains = math.ceil(cell.wanted / TRAIN)
        for begin in range(0, trains, TRAINS_A_JOB):
            some = min(TRAINS_A_JOB, trains - begin)
            jobs.append(Job(number, cell.parents, cell.loss, some, seed * 100_003 + len(jobs)))
    return sorted(jobs, key=lambda job: -job.loss / job.parents)


def measure(*, jobs: list[Job], at_once: int) -> Result:
    return trio.run(_measure, jobs, at_once)


async def _measure(jobs: list[Job], at_once: int) -> Result:
    """(cell, packets, lost) of each job, several of them at a time."""
    # One train at a time on its way: a first copy that waits behind others' would be taken for lost.
    track = trio.Lock()
    meter = _Meter(sum(job.trains for job in jobs))
    queue = iter(jobs)
    counts: list[tuple[int, int, int]] = []

    async def work() -> None:
        counts.extend([await _carry_trains(job, track, meter) for job in queue])

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(work)
    return {"counts": counts}


class _Meter:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._told_at = trio.current_time()

    def tick(self) -> None:
        self._done += 1
        if trio.current_time() - self._told_at > 10:
            self._told_at = trio.current_time()
            progress(f"process {os.getpid()}: {self._done / self._total:4.0%}")


async def _carry_trains(job: Job, track: trio.Lock, meter: _Meter) -> tuple[int, int, int]:
    conditions = Conditions(delay=0.001, loss=job.loss)
    async with open_star(job.parents, conditions, CONFIG, seed=job.seed) as star:
        for number in range(job.trains):
            async with track:
                await _send_train(star, number)
            await _receive_train(star, number)
            meter.tick()
        counts = star.subscription.statistics()
        if counts.packets != job.trains * TRAIN or counts.gaps:
            raise RuntimeError(f"not everything was delivered: {counts}")
        return job.cell, counts.packets, counts.recovered


async def _send_train(star: Star, number: int) -> None:
    before = [proxy.statistics().to_client for proxy in star.proxies]
    await star.send_all([f"{number * TRAIN + i + 1:08}".encode().ljust(PAYLOAD_BYTES) for i in range(TRAIN)])
    for proxy, direction in zip(star.proxies, before, strict=True):
        await proxy.wait_settled(to_client=direction.passed + direction.dropped + TRAIN)


async def _receive_train(star: Star, number: int) -> None:
    for an in range(number * TRAIN + 1, (number + 1) * TRAIN + 1):
        item = await anext(star.subscription)
        if not isinstance(item, dcp.Packet) or item.an != an or int(item.payload) != an:
            raise RuntimeError(f"expected packet {an}, got {item!r:.60}")


def _draw(cells: list[Cell], figure: Any) -> None:
    axes = figure.subplots()
    for parents in sorted({cell.parents for cell in cells}):
        row = sorted((c for c in cells if c.parents == parents), key=lambda c: c.loss)
        (line,) = axes.plot([c.loss for c in row], [c.theory for c in row], linewidth=1, label=f"p^{parents}")
        axes.plot([c.loss for c in row], [c.measured for c in row], "o", markersize=4, color=line.get_color())
    axes.set_xlabel("loss rate p of every parent's link")
    axes.set_ylabel("effective loss before retransmission")
    axes.set_title("Redundancy reduces loss exponentially (dots: measured)")
    axes.grid(alpha=0.3)
    axes.legend()
