"""`python -m demo simulate`: a big mesh in virtual time, under churn, from a seed. The same call prints the same again.

The machines are the peers' own (`peer.mesh`), on a simulated network; packets are not simulated, but whether one would
reach a peer at once is: whether a way of links that both ends hold leads to it from a root.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from demo.check.ledger import percentile
from demo.errors import DemoError
from dht.places import place_of
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.mesh.placement.moves import Placement
from peer.mesh.placement.scored import ScoredPlacement
from peer.mesh.placement.tree import TreePlacement
from peer.mesh.placement.walk import WalkPlacement
from peer.testing import LAN, MeshSimulation
from peer.testing.directory import STREAM
from peer.testing.meshpeer import MeshPeer
from peer.testing.violations import MeshViolation

BUILD_RATE: Final = 100.0
"""Peers that arrive per second at the beginning..."""
MAX_BUILD: Final = 20.0
"""...but all within this many seconds."""
SETTLE: Final = 10.0
CALM: Final = 60.0
"""No peer dies in this final period: at its end every peer must have its parents."""
SAMPLE: Final = 1.0
AWAY: Final = (2.0, 20.0)
ROOT_CAPACITY: Final = 12
PLACEMENTS: Final[dict[str, Callable[[PeerId, MeshConfig], Placement]]] = {
    "scored": lambda peer_id, config: ScoredPlacement(),
    "walk": lambda peer_id, config: WalkPlacement(),
    "tree": lambda peer_id, config: TreePlacement(peer_id, partial(place_of, STREAM), is_leaf=not config.capacity),
}
EPILOG: Final = """\
examples:
  python -m demo simulate --peers 1000 --minutes 10 --churn 0.2 --seed 7
  python -m demo simulate --peers 100 --minutes 2 --selection tree
  python -m demo simulate --peers 200 --minutes 2 --churn 2 --loss 0.1 --parents 3 --roots 3 --picture mesh.png

exit codes: 0 every promise was kept; 1 one broke; 2 a wrong call; 130 Ctrl-C
"""


@dataclass(slots=True)
class Sample:
    """The mesh at one virtual second."""

    at: float
    live: int
    reached: int
    """Live peers that a packet would reach immediately."""
    whole: int
    """Live peers with all the parents they want."""
    deepest: int


@dataclass(slots=True)
class Run:
    simulation: MeshSimulation
    dice: Random
    deaths: int = 0
    samples: list[Sample] = field(default_factory=list)
    violation: str = ""
    wall_s: float = 0.0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo simulate",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--peers", type=int, default=1_000, help="number of peers, not counting the roots (default %(default)s)"
    )
    parser.add_argument("--roots", type=int, default=3, help="default %(default)s")
    parser.add_argument("--parents", type=int, default=2, help="parents per peer (default %(default)s)")
    parser.add_argument("--capacity", type=int, default=6, help="maximum children per peer (default %(default)s)")
    parser.add_argument(
        "--selection", choices=tuple(PLACEMENTS), default="scored", help="how parents are chosen (default %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual ones, of churn (default %(default)s)")
    parser.add_argument(
        "--churn", type=float, default=0.2, help="share of all peers killed per minute (default %(default)s)"
    )
    parser.add_argument("--loss", type=float, default=0.01, help="share of datagrams lost (default %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="default %(default)s")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw what happened, as PNG or SVG")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON to stdout")
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    _check(args)
    if args.picture is not None:
        _import_matplotlib()
        if not args.picture.absolute().parent.is_dir():  # known before a run of minutes, not after it
            raise DemoError(f"can't write the picture to {args.picture}: no such folder")
    run = simulate(args)
    summary = summarise(run, args)
    if args.json:
        print(json.dumps(summary, indent=1))
    else:
        print(_table(summary, run))
    if args.picture is not None:
        draw(run, args, args.picture)
        print(f"drew {args.picture}", file=sys.stderr)
    return 0 if not summary["broken"] else 1


def _check(args: argparse.Namespace) -> None:
    for name, least, most in (
        ("peers", 1, 20_000),
        ("roots", 1, 100),
        ("parents", 1, 16),
        ("capacity", 1, 256),
        ("minutes", 0.05, 24 * 60),
        ("churn", 0, 60),
        ("loss", 0, 0.9),
    ):
        value = getattr(args, name)
        if not least <= value <= most:
            raise DemoError(f"--{name} must be in {least:g}..{most:g}, got {value:g}")
    if args.parents > args.roots:
        raise DemoError(f"{args.parents} parents need {args.parents} roots: the first peers have no other choice")
    if args.capacity <= args.parents:
        raise DemoError("--capacity must be greater than --parents, or there is not enough room for all peers")


def simulate(args: argparse.Namespace) -> Run:
    """Arrivals, churn, calm. A broken promise ends the run and is reported."""
    config = MeshConfig(parents_wanted=args.parents, capacity=args.capacity)
    is_tree = args.selection == "tree"
    simulation = MeshSimulation(
        args.seed,
        config=config.for_tree() if is_tree else config,
        network=replace(LAN, loss=args.loss),
        walks_up=args.peers <= 200,
        placement=PLACEMENTS[args.selection],
        lists_places=is_tree,
    )
    run = Run(simulation, Random(f"churn {args.seed}"))
    over = min(MAX_BUILD, args.peers / BUILD_RATE)
    simulation.populate(roots=args.roots, peers=args.peers, over=over, root_capacity=max(ROOT_CAPACITY, args.capacity))
    begin = over + SETTLE
    end = begin + args.minutes * 60
    if args.churn:
        simulation.network.at(begin, _die, run, args.churn * args.peers / 60, end)
    bar = _Bar(end + CALM)
    began = time.perf_counter()
    try:
        while simulation.now < end + CALM:
            simulation.run(simulation.now + SAMPLE)
            run.samples.append(_sample(simulation))
            bar.show(simulation.now)
        simulation.check_settled()
    except MeshViolation as violation:
        run.violation = str(violation)
    bar.done()
    run.wall_s = time.perf_counter() - began
    return run


def _die(run: Run, rate: float, end: float) -> None:
    """One death, and the next one planned."""
    simulation = run.simulation
    if simulation.now >= end:
        return
    live = simulation.live()
    if live:
        victim = run.dice.choice(live)
        simulation.crash(victim)
        run.deaths += 1
        simulation.network.after(run.dice.uniform(*AWAY), _return, simulation, victim)
    simulation.network.after(run.dice.expovariate(rate), _die, run, rate, end)


def _return(simulation: MeshSimulation, peer: MeshPeer) -> None:
    if not peer.is_alive:
        simulation.restart(peer)


def _sample(simulation: MeshSimulation) -> Sample:
    depth = {peer.index: 0 for peer in simulation.peers if peer.is_root and peer.is_alive}
    live = simulation.live()
    whole = 0
    for peer in sorted(live, key=lambda peer: peer.mesh.level):
        parents = simulation.parents_of(peer)
        whole += len(parents) >= peer.config.parents_wanted
        above = [depth[parent.index] for parent in parents if parent.index in depth]
        if above:
            depth[peer.index] = 1 + min(above)
    roots = sum(value == 0 for value in depth.values())
    return Sample(simulation.now, len(live), len(depth) - roots, whole, max(depth.values(), default=0))


# --- what came of it --------------------------------------------------------------------------------------------------


def summarise(run: Run, args: argparse.Namespace) -> dict[str, Any]:
    simulation, measures = run.simulation, run.simulation.measures
    begin = min(MAX_BUILD, args.peers / BUILD_RATE) + SETTLE
    churn = [sample for sample in run.samples if begin < sample.at <= begin + args.minutes * 60]
    repairs, joins = sorted(measures.repair_times), sorted(measures.join_times)
    depths = simulation.depths()
    fan_out = sorted(len(peer.mesh.children) for peer in simulation.live(with_roots=True))
    live = sum(sample.live for sample in churn)
    summary: dict[str, Any] = {
        "peers": args.peers,
        "roots": args.roots,
        "parents": args.parents,
        "virtual_s": round(simulation.now, 1),
        "seed": args.seed,
        "deaths": run.deaths,
        "events": simulation.network.steps,
        "checks": measures.checks,
        "reached_at_once": round(sum(sample.reached for sample in churn) / live, 6) if live else 1.0,
        "reached_worst_second": round(min((s.reached / s.live for s in churn if s.live), default=1.0), 6),
        "whole": round(sum(sample.whole for sample in churn) / live, 6) if live else 1.0,
        "join_s": _spread(joins),
        "repair_s": _spread(repairs),
        "repairs": len(repairs),
        "cold_restarts": measures.cold_restarts,
        "depth": [depths[len(depths) // 2], depths[-1]] if depths else [0, 0],
        "fan_out": [fan_out[len(fan_out) // 2], fan_out[-1]] if fan_out else [0, 0],
        "short_at_the_end": len(simulation.unsettled()),
        "broken": run.violation,
    }
    story = json.dumps([summary, [[s.at, s.live, s.reached, s.whole, s.deepest] for s in run.samples], repairs])
    return summary | {"digest": hashlib.blake2b(story.encode(), digest_size=8).hexdigest()}


def _spread(ordered: list[float]) -> dict[str, float]:
    return {name: round(percentile(ordered, share), 3) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}


def _table(summary: dict[str, Any], run: Run) -> str:
    def seconds(spread: dict[str, float]) -> str:
        return f"{spread['p50']:.2f} s, 99 %: {spread['p99']:.2f} s, longest {spread['max']:.2f} s"

    rows = [
        ("mesh", f"{summary['peers']:,} peers, {summary['roots']} roots, {summary['parents']} parents each"),
        ("virtual time", f"{summary['virtual_s']:,.0f} s, {summary['events']:,} events"),
        ("killed", f"{summary['deaths']:,}, each back after {AWAY[0]:g} to {AWAY[1]:g} s"),
        ("depth", f"median {summary['depth'][0]}, deepest {summary['depth'][1]}"),
        ("fan-out", f"median {summary['fan_out'][0]}, largest {summary['fan_out'][1]}"),
        ("to the first n parents", seconds(summary["join_s"])),
        ("repairs", f"{summary['repairs']:,}; median {seconds(summary['repair_s'])}"),
        ("cold restarts", f"{summary['cold_restarts']:,}"),
        ("packets delivered immediately", f"{summary['reached_at_once']:.4%} of live peers"),
        ("in the worst second", f"{summary['reached_worst_second']:.2%}"),
        ("peers with all n parents", f"{summary['whole']:.2%} of the time"),
        ("lacking parents at the end", f"{summary['short_at_the_end']}"),
        ("promises", summary["broken"].splitlines()[0] if summary["broken"] else f"kept, {summary['checks']:,} checks"),
        ("digest", f"{summary['digest']} (seed {summary['seed']}: the same command prints the same)"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {text}" for name, text in rows)


class _Bar:
    """On a terminal, one line that is overwritten; elsewhere an occasional line."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._began = self._said = time.perf_counter()
        self._is_terminal = sys.stderr.isatty()

    def show(self, now: float) -> None:
        moment = time.perf_counter()
        if moment - self._said < (0.2 if self._is_terminal else 10.0):
            return
        self._said = moment
        share = min(1.0, now / self._until)
        left = (moment - self._began) * (1 - share) / max(share, 1e-9)
        filled = int(share * 30)
        text = f"[{'#' * filled}{'.' * (30 - filled)}] {now:6,.0f} of {self._until:,.0f} virtual s, {left:4.0f} s left"
        sys.stderr.write(f"\r\x1b[K{text}" if self._is_terminal else text + "\n")
        sys.stderr.flush()

    def done(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")


# --- the picture ------------------------------------------------------------------------------------------------------


def _import_matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise DemoError("the picture needs matplotlib: pip install 'skymesh[plots]', or omit --picture") from None
    matplotlib.use("Agg")
    return matplotlib


def draw(run: Run, args: argparse.Namespace, path: Path) -> None:
    _import_matplotlib()
    from matplotlib.figure import Figure

    simulation, samples = run.simulation, run.samples
    figure = Figure(figsize=(11, 7), layout="constrained")
    depth, fan_out, repairs, reached = figure.subplots(2, 2).flat
    depths = simulation.depths()
    depth.hist(depths, bins=range(1, max(depths, default=1) + 2), align="left", color="#2a78c8", rwidth=0.85)
    depth.set(title="depth", xlabel="longest path to a root, hops", ylabel="peers")
    children = [len(peer.mesh.children) for peer in simulation.live()]
    fan_out.hist(children, bins=range(max(children, default=0) + 2), align="left", color="#1f9d6b", rwidth=0.85)
    fan_out.set(title="fan-out", xlabel="children", ylabel="peers")
    times = simulation.measures.repair_times
    repairs.hist(times, bins=60, color="#c8862a")
    repairs.set(title=f"{len(times):,} repairs", xlabel="seconds until n parents again", ylabel="repairs", yscale="log")
    reached.plot([s.at for s in samples], [100 * s.reached / max(1, s.live) for s in samples], color="#1f9d6b")
    reached.plot([s.at for s in samples], [100 * s.whole / max(1, s.live) for s in samples], color="#c8862a", lw=0.8)
    reached.set(title="deliveries", xlabel="virtual seconds", ylabel="% of live peers", ylim=(60, 101))
    reached.legend(["receives a packet immediately", "has all its parents"], loc="lower right")
    figure.suptitle(f"{args.peers:,} peers, {args.churn:.0%} killed per minute, {args.loss:.0%} loss, seed {args.seed}")
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise DemoError(f"can't write the picture to {path}: {error}") from None
