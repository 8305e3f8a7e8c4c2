"""What one root carries: 10, 100 and 300 leaves at 200 packets/s, all of which join at the same moment.

The root is a process of its own; the leaves are whole peers (mesh, DHT, DCP), many in each of a few processes. They
start together, each with one parent, and check that the numbers they get have no hole. The root's processor
time and memory are read from the operating system while all leaves receive. On a machine with few
cores the leaves take most of it: what the root could not do for lack of a core shows as lost packets or late joins.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import trio

from bench._peers import PeerProcess, Peers
from bench._processes import Result, run_all
from bench.report import Report, Target, progress

SUMMARY = "one root with 10, 100 and 300 leaves at 200 packets/s: joined within, core share, memory, lost packets"

STREAM = "bench"
PAYLOADS = [
    b"<flight><id>UAL%d</id><flightleg status='active'><altitude>%d</altitude><speed>%d</speed></flightleg></flight>"
    % (n, n % 450, n % 500)
    for n in range(997)
]
MAX_JOINED_S = 15.0
TICKS = os.sysconf("SC_CLK_TCK")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--leaves", type=int, nargs="+", default=[10, 100, 300], help="how many (10 100 300)")
    parser.add_argument("--rate", type=float, default=200.0, help="packets per second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure (%(default)s)")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds until then, for joins (%(default)s)")
    parser.add_argument("--hosts", type=int, default=2, help="processes that the leaves share (%(default)s)")
    parser.add_argument("--query", help="XPath query of every leaf; everything if not given")


def run(args: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        rows = [_measure(folder, leaves, args) for leaves in args.leaves]
    slowest = max(row["joined_within_s"] for row in rows)
    lost = sum(row["lost"] for row in rows)
    missing = sum(row["leaves"] - row["complete"] for row in rows)
    least = min(row["received_per_leaf_and_s"] for row in rows)
    outside = sum(row["leaves"] - row["joined"] for row in rows)
    return Report(
        name="capacity",
        data={"rate": args.rate, "query": args.query, "rows": rows},
        columns=tuple(name.replace("_", " ") for name in rows[0]),
        rows=[tuple(row.values()) for row in rows],
        targets=[
            Target(
                f"all leaves in within {MAX_JOINED_S:g} s",
                slowest <= MAX_JOINED_S and not outside,
                f"{slowest:.1f} s, {outside} not at all",
            ),
            Target("lost 0", lost == 0, f"{lost} packets"),
            Target(
                "leaves received what was published",
                args.query is not None or least >= 0.95 * args.rate,
                f"{least:g} of {args.rate:g} packets/s",
            ),
            Target("every leaf received to the end", missing == 0, f"{missing} did not"),
        ],
    )


def _measure(folder: str, leaves: int, args: argparse.Namespace) -> dict[str, Any]:
    from dht import Identity

    progress(f"{leaves} leaves")
    owner = Path(folder) / f"{leaves}.key"
    Identity.generate().save(owner)
    with Peers() as peers:
        root = peers.start("root", role="root", owner=str(owner), stream=STREAM, capacity=_capacity(leaves))
        root.ask("feed", (time.monotonic() + 0.5, args.rate, PAYLOADS))
        from_at = time.monotonic() + args.settle
        until_at = from_at + args.seconds
        used: list[tuple[float, float]] = []
        watch = threading.Thread(target=_watch, args=(root, (from_at, until_at), used))
        watch.start()
        share, more = divmod(leaves, args.hosts)
        hosts = [share + (place < more) for place in range(args.hosts)]
        options = [
            {"address": root.address, "leaves": count, "query": args.query, "from_at": from_at, "until_at": until_at}
            for count in hosts
            if count
        ]
        told = run_all(_leaves, options)
        watch.join()
    (before, _), (after, memory) = used
    core_share = (after - before) / args.seconds
    return {
        "leaves": leaves,
        "joined": sum(one["joined"] for one in told),
        "joined_within_s": round(max(one["joined_within"] for one in told), 2),
        "core_share": round(core_share, 3),
        "us_per_packet_and_child": round(
            core_share / (args.rate * max(1, sum(one["joined"] for one in told))) * 1e6, 2
        ),
        "memory_mb": round(memory / 1e6, 1),
        "lost": sum(one["lost"] for one in told),
        "complete": sum(one["complete"] for one in told),
        "received_per_leaf_and_s": round(sum(one["packets"] for one in told) / leaves / args.seconds, 1),
        "leaf_core_share": round(sum(one["cpu"] for one in told) / leaves / args.seconds, 4),
    }


def _capacity(leaves: int) -> int:
    """A quarter of the places is kept for peers that have children of their own."""
    return leaves * 4 // 3 + 2


def _watch(root: PeerProcess, times: tuple[float, float], used: list[tuple[float, float]]) -> None:
    """The root's processor time and memory at these moments, by the operating system."""
    for at in times:
        time.sleep(max(0.0, at - time.monotonic()))
        fields = Path(f"/proc/{root.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{root.pid}/statm").read_text().split()[1])
        used.append(((int(fields[11]) + int(fields[12])) / TICKS, pages * os.sysconf("SC_PAGE_SIZE")))


def _leaves(*, address: tuple[str, int], leaves: int, query: str | None, from_at: float, until_at: float) -> Result:
    return trio.run(_run_leaves, address, leaves, query, from_at, until_at)


async def _run_leaves(
    address: tuple[str, int], leaves: int, query: str | None, from_at: float, until_at: float
) -> Result:
    told = {"joined": 0, "joined_within": 0.0, "lost": 0, "complete": 0, "packets": 0, "cpu": 0.0}
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for _ in range(leaves):
            nursery.start_soon(_leaf, address, query, began, from_at, until_at, told)
        await trio.sleep(from_at - time.monotonic())
        cpu = time.process_time()
        await trio.sleep(until_at - time.monotonic())
        told["cpu"] = time.process_time() - cpu
    return told


async def _leaf(
    address: tuple[str, int], query: str | None, began: float, from_at: float, until_at: float, told: Result
) -> None:
    import dcp
    from peer import PeerOptions, Role, open_peer

    options = PeerOptions(
        stream=STREAM, role=Role.LEAF, parents=1, beacon=False, query=query, bootstrap=((address[0], address[1]),)
    )
    last_at = 0.0
    with trio.move_on_after(until_at - began):
        async with open_peer(options) as leaf:
            await leaf.wait_parents(1)
            told["joined"] += 1
            told["joined_within"] = max(told["joined_within"], time.monotonic() - began)
            while items := await leaf.receive_many():
                last_at = time.monotonic()
                told["lost"] += sum(item.until - item.after for item in items if isinstance(item, dcp.Gap))
                if from_at <= last_at < until_at:
                    told["packets"] += sum(isinstance(item, dcp.Packet) for item in items)
    told["complete"] += last_at > until_at - 1.0
