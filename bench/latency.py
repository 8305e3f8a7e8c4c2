"""Latency from the parents to the client by loss, number of parents and kind of timers: the paper's Figures 7 and 8.

As in the paper the feed is slow (one packet every quarter second), which magnifies the cost of a retransmission: with
fixed timers a loss is detected only by the packet that follows. The network delays by 1 ms and loses, either way. Each
mesh of a cell runs with the paper's timers and, at the same time and with the same random losses, with adaptive ones. A
cell gets enough meshes that all parents lose some packets, and is left out where that would take too many: only then do
timers matter, and without it the two kinds differ only by the machine's noise.

The lateness of the event loop itself, which is part of every latency, is reported with the figures: on an overloaded
machine the figures describe the machine.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

import dcp
from bench._mesh import open_star
from bench._processes import Result, run_all
from bench.report import Report, Target, progress
from dcp.testing.conditions import Conditions

SUMMARY = "mean and p99 latency by parents and loss, with fixed and with learned timers (Figures 7 and 8)"

TIMERS = {"fixed": dcp.Config.paper(), "adaptive": dcp.Config()}
PAYLOAD_BYTES = 262
DELAY = 0.001
# Packets lost by all parents that a cell is to have at least, as expected.
MIN_LOST = 8
MAX_MESHES = 3
# What was lost last is still to be delivered: far beyond what that takes.
DRAIN_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parents", type=int, nargs="+", default=[1, 2, 3, 4], help="(%(default)s)")
    parser.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], help="(%(default)s)")
    parser.add_argument("--packets", type=int, default=400, help="packets of one mesh (%(default)s)")
    parser.add_argument("--interval", type=float, default=0.25, help="seconds between packets (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes that share the meshes (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)


@dataclass(frozen=True)
class Mesh:
    """One client and its parents; the same seed with either kind of timers."""

    parents: int
    loss: float
    timers: str
    seed: int


@dataclass(slots=True)
class Cell:
    """One point of the figure."""

    parents: int
    loss: float
    timers: str
    sent: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def delivered(self) -> float:
        return len(self.seconds) / self.sent

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.seconds) * 1e3

    @property
    def p99_ms(self) -> float:
        return _p99(self.seconds) * 1e3


def meshes_for(parents: int, loss: float, packets: int) -> int:
    """So many that MIN_LOST packets are lost by all parents; none where that would take too many."""
    meshes = math.ceil(MIN_LOST / (loss**parents * packets)) if loss else 1
    return meshes if meshes <= MAX_MESHES else 0


def run(args: argparse.Namespace) -> Report:
    shares: list[list[Mesh]] = [[] for _ in range(args.processes)]
    for parents in args.parents:
        for loss in args.loss:
            for number in range(meshes_for(parents, loss, args.packets)):
                seed = args.seed + 1_000 * number
                # Both kinds in the same process: whatever disturbs one disturbs the other.
                share = min(shares, key=lambda s: sum(mesh.parents for mesh in s))
                share += [Mesh(parents, loss, timers, seed) for timers in TIMERS]
    progress(f"{sum(map(len, shares))} meshes for {args.packets * args.interval:.0f} s")
    cells: dict[tuple[int, float, str], Cell] = {}
    options = [{"meshes": share, "packets": args.packets, "interval": args.interval} for share in shares if share]
    results = run_all(measure, options)
    for share, result in zip((s for s in shares if s), results, strict=True):
        for mesh, seconds in zip(share, result["seconds"], strict=True):
            key = (mesh.parents, mesh.loss, mesh.timers)
            cell = cells.setdefault(key, Cell(*key))
            cell.sent += args.packets
            cell.seconds += seconds
    return _report([cells[key] for key in sorted(cells)], max(result["late"] for result in results))


def _report(cells: list[Cell], late: float) -> Report:
    by_kind = {(c.parents, c.loss, c.timers): c for c in cells}
    slower = [
        f"{c.parents} parents at {c.loss:g}"
        for c in cells
        if c.timers == "adaptive" and c.loss > 0 and c.mean_ms >= by_kind[c.parents, c.loss, "fixed"].mean_ms
    ]
    delivered = min(c.delivered for c in cells)
    return Report(
        name="latency",
        data={
            "rows": [
                {
                    "parents": c.parents,
                    "loss": c.loss,
                    "timers": c.timers,
                    "mean_ms": round(c.mean_ms, 3),
                    "p99_ms": round(c.p99_ms, 3),
                    "delivered": c.delivered,
                    "packets": c.sent,
                }
                for c in cells
            ],
            "event_loop_late_p99_ms": round(late * 1e3, 3),
        },
        columns=("parents", "loss", "timers", "mean ms", "p99 ms", "delivered", "packets"),
        rows=[(c.parents, c.loss, c.timers, c.mean_ms, c.p99_ms, f"{c.delivered:.2%}", c.sent) for c in cells],
        notes=[f"the event loop was late by {late * 1e3:.1f} ms (p99), which is included in every latency"],
        targets=[
            Target("everything is delivered", delivered == 1.0, f"{delivered:.2%} in the worst cell"),
            Target(
                "adaptive has the lower mean at every loss above 0",
                not slower,
                "not " + ", ".join(slower) if slower else "in every cell",
            ),
        ],
        draw=partial(_draw, cells),
    )


def measure(*, meshes: list[Mesh], packets: int, interval: float) -> Result:
    return trio.run(_measure, meshes, packets, interval)


async def _measure(meshes: list[Mesh], packets: int, interval: float) -> Result:
    found: list[list[float]] = [[] for _ in meshes]
    late: list[float] = []
    async with trio.open_nursery() as watch:
        watch.start_soon(_note_lateness, late)
        async with trio.open_nursery() as nursery:
            for mesh, seconds in zip(meshes, found, strict=True):
                nursery.start_soon(_run_mesh, mesh, packets, interval, seconds)
        watch.cancel_scope.cancel()
    return {"seconds": found, "late": _p99(late)}


async def _note_lateness(late: list[float]) -> None:
    """How much later than asked for a sleep ends."""
    while True:
        at = trio.current_time() + 0.02
        await trio.sleep_until(at)
        late.append(trio.current_time() - at)


def _p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


async def _run_mesh(mesh: Mesh, packets: int, interval: float, seconds: list[float]) -> None:
    """Put the latency of every packet into `seconds`."""
    conditions = Conditions(delay=DELAY, loss=mesh.loss)
    sent_at: list[float] = []
    async with (
        open_star(mesh.parents, conditions, TIMERS[mesh.timers], seed=mesh.seed) as star,
        trio.open_nursery() as nursery,
    ):

        async def feed() -> None:
            # Spread over the interval, so that the meshes do not all send at once.
            at = trio.current_time() + random.Random(mesh.seed + mesh.parents).random() * interval
            for number in range(packets):
                await trio.sleep_until(at + number * interval)
                sent_at.append(trio.current_time())
                for publisher in star.publishers:
                    await publisher.send(bytes(PAYLOAD_BYTES))

        nursery.start_soon(feed)
        with trio.move_on_after(packets * interval + DRAIN_SECONDS):
            last = 0
            while last < packets:
                item = await anext(star.subscription)
                if isinstance(item, dcp.Packet):
                    seconds.append(trio.current_time() - sent_at[item.an - 1])
                    last = item.an
                elif isinstance(item, dcp.Gap):
                    last = item.until
        nursery.cancel_scope.cancel()


def _draw(cells: list[Cell], figure: Any) -> None:
    by_loss, by_effective = figure.subplots(1, 2, sharey=True)
    for parents in sorted({c.parents for c in cells}):
        for timers, style in (("fixed", "--"), ("adaptive", "-")):
            row = sorted((c for c in cells if (c.parents, c.timers) == (parents, timers)), key=lambda c: c.loss)
            label = f"n = {parents}, {timers}"
            colour = f"C{parents - 1}"
            means = [c.mean_ms for c in row]
            by_loss.plot([c.loss for c in row], means, style, color=colour, marker=".", label=label)
            by_effective.plot([c.loss**c.parents for c in row], means, style, color=colour, marker=".")
    by_loss.set_yscale("log")
    by_loss.set_xlabel("loss rate p of every parent's link")
    by_loss.set_ylabel("mean latency, ms")
    by_effective.set_xlabel("effective loss p^n")
    by_loss.legend(fontsize=7)
    for axes in (by_loss, by_effective):
        axes.grid(alpha=0.3)
