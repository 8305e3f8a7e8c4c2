"""A parent dies or freezes under a client: what is lost, how long it hears nothing, when it has n parents again.

Real processes on loopback with the real DHT, two or more roots, a few routers, one client with n parents, 1,000 packets
a second. First the stream is watched with no fault; then a parent of the client gets SIGKILL; then another one SIGSTOP.

The longest of thousands of gaps between packets is the scheduler's worst moment as often as the fault's doing. So all
of it is done in several rounds, each with a mesh of its own: what a fault costs is there in every round, a hiccup not.
The median of the rounds is compared; of losses the sum counts, of repairs the slowest.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench._peers import PeerProcess, Peers
from bench.report import Report, Target, progress

SUMMARY = "a parent is killed or frozen: packets lost, longest silence, time until n parents again"

PAYLOADS = [b"<flight><id>UAL%d</id><altitude>%d</altitude></flight>" % (n, n % 450) for n in range(997)]
# Longest silence that a fault may add to what the same run shows without one.
MAX_ADDED_SILENCE_MS = 20.0
MAX_RESTORED_S = 2.0
LOOK_EVERY_S = 0.02
USUAL_REPAIR_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=1_000.0, help="packets per second (%(default)s)")
    parser.add_argument("--parents", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--watch", type=float, default=4.0, help="seconds to watch after each fault (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="meshes for each number of parents (%(default)s)")


def run(args: argparse.Namespace) -> Report:
    from dht import Identity

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        owner = Path(folder) / "owner.key"
        Identity.generate().save(owner)
        for parents in args.parents:
            rounds = [_measure(parents, str(owner), args, f"round {n + 1}") for n in range(args.rounds)]
            rows += [summary(of_one_fault) for of_one_fault in zip(*rounds, strict=True)]
    return Report(
        name="failover",
        data={"rate": args.rate, "rows": rows},
        columns=("parents", "fault", "lost", "longest silence ms", "of each round", "restored s"),
        rows=[
            (
                r["parents"],
                r["fault"],
                r["lost"],
                r["longest_silence_ms"],
                " ".join(map(str, r["silences_ms"])),
                "" if r["restored_s"] is None else r["restored_s"],
            )
            for r in rows
        ],
        targets=_targets(rows),
    )


def summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One fault at one number of parents, over all rounds."""
    silences = [one["longest_silence_ms"] for one in rounds]
    repairs = [one["restored_s"] for one in rounds if one["restored_s"] is not None]
    return {
        "parents": rounds[0]["parents"],
        "fault": rounds[0]["fault"],
        "lost": sum(one["lost"] for one in rounds),
        "longest_silence_ms": round(statistics.median(silences), 1),
        "restored_s": max(repairs, default=None),
        "silences_ms": silences,
        "silent_from_s": [one["silent_from_s"] for one in rounds],
    }


def _measure(parents: int, owner: str, args: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    rows = []
    with Peers() as peers:
        progress(f"{parents} parents, {name}: starting the mesh")
        roots = parents + 2  # each fault may take one: as many as the client wants must be left to feed the mesh
        first = peers.start("root 1", role="root", owner=owner)
        bootstrap = [first.address]
        feeders = [first] + [
            peers.start(f"root {number}", role="root", owner=owner, bootstrap=bootstrap)
            for number in range(2, roots + 1)
        ]
        routers = [
            peers.start(f"router {number}", role="router", deliver=False, parents=min(2, roots), bootstrap=bootstrap)
            for number in range(1, parents + 3)
        ]
        for router in routers:
            router.wait_parents(min(2, roots))
        client = peers.start("client", role="leaf", parents=parents, bootstrap=bootstrap)
        client.wait_parents(parents)
        start_at = time.monotonic() + 0.5
        for root in feeders:
            root.ask("feed", (start_at, args.rate, PAYLOADS))
        time.sleep(1.5)
        client.ask("arrivals")
        for fault in ("none", "kill", "freeze"):
            progress(f"{parents} parents, {name}: {fault}")
            rows.append(_one_fault(fault, parents, client, peers, args.watch))
    return rows


def _one_fault(fault: str, parents: int, client: PeerProcess, peers: Peers, watch: float) -> dict[str, Any]:
    client.wait_parents(parents)
    _, lost_before = client.ask("arrivals")
    victim = _victim(client, peers) if fault != "none" else None
    began = time.monotonic()
    restored: float | None = None
    if victim is not None:
        victim.signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        restored = _time_to_restore(client, victim, parents, began)
    else:
        while time.monotonic() - began < USUAL_REPAIR_S:  # to be asked takes the client's time, so it is asked here too
            _parents(client)
            time.sleep(LOOK_EVERY_S)
    time.sleep(max(0.0, began + watch - time.monotonic()))
    arrivals, lost = client.ask("arrivals")
    ended = time.monotonic()
    if victim is not None and fault == "freeze":
        victim.signal(signal.SIGCONT)
    silence, silent_from = longest_silence([at for at, _ in arrivals], began, ended)
    numbers = [an for _, an in arrivals]
    skipped = numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0
    return {
        "parents": parents,
        "fault": fault,
        "lost": max(lost - lost_before, skipped),
        "longest_silence_ms": round(silence * 1e3, 1),
        "silent_from_s": round(silent_from, 2),
        "restored_s": None if restored is None else round(restored, 3),
    }


def longest_silence(times: list[float], began: float, ended: float) -> tuple[float, float]:
    """Within the watch, its ends counted: a stream that stops for good is silent until the end. And when it began."""
    heard = [began, *(at for at in times if began < at < ended), ended]
    return max((b - a, a - began) for a, b in pairwise(heard))


def _victim(client: PeerProcess, peers: Peers) -> PeerProcess:
    """A parent of the client, a router if it has one."""
    held = [peers.at(tuple(address)) for address in client.ask("parent addresses")]
    return next((peer for peer in held if peer.name.startswith("router")), held[0])


def _time_to_restore(client: PeerProcess, victim: PeerProcess, parents: int, began: float) -> float:
    """Until n sound parents are held, none of them the victim."""
    gone = False
    while time.monotonic() - began < 30.0:
        addresses, sound = _parents(client)
        gone = gone or sound < parents or victim.address not in addresses or len(addresses) > parents
        if gone and sound >= parents:
            return time.monotonic() - began
        time.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


def _parents(client: PeerProcess) -> tuple[list[tuple[str, int]], int]:
    """The addresses of those it holds, and how many of them are sound."""
    return [tuple(address) for address in client.ask("parent addresses")], client.ask("parents")


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    quiet = {row["parents"]: row["longest_silence_ms"] for row in rows if row["fault"] == "none"}
    faults = [row for row in rows if row["fault"] != "none" and row["parents"] >= 2]
    if not faults:
        return []
    lost = sum(row["lost"] for row in faults)
    added = max(row["longest_silence_ms"] - quiet[row["parents"]] for row in faults)
    restored = max(row["restored_s"] for row in faults)
    return [
        Target("nothing lost with 2 parents or more", lost == 0, f"{lost} lost"),
        Target(
            f"at most {MAX_ADDED_SILENCE_MS:.0f} ms added silence", added <= MAX_ADDED_SILENCE_MS, f"{added:.1f} ms"
        ),
        Target(f"n parents again within {MAX_RESTORED_S:.0f} s", restored <= MAX_RESTORED_S, f"{restored:.2f} s"),
    ]
