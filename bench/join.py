"""`skymesh join` on a running mesh: from the start of the process to its first packet, and what the time goes to.

A local mesh of real processes with the real DHT (two roots, three routers, 100 packets/s). Then the real
command, again and again, each time a process of its own; its log (`--log-json`) says when it was open, had found the
DHT and had a parent. The clock starts before the process does. Beside it: `--help`, against an interpreter that does
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench._peers import Peers
from bench.report import REPOSITORY, Report, Target, progress
from dht.addresses import endpoint_text

SUMMARY = "seconds from `skymesh join` to its first packet on a running local mesh, broken down by phase"

PAYLOADS = [b"<flight><id>UAL%d</id><altitude>%d</altitude></flight>" % (n, n % 450) for n in range(997)]
MAX_FIRST_PACKET_S = 0.5
MAX_HELP_S = 0.1
PARTS = ("start_up_s", "dht_s", "join_s", "packet_s", "cpu_s")
STREAM = "bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="how many times to start the command (%(default)s)")
    parser.add_argument("--rate", type=float, default=1_000.0, help="packets per second (%(default)s)")
    parser.add_argument("--parents", type=int, default=2)
    parser.add_argument(
        "--starts", type=int, default=10, help="how many times to run --help; the fastest counts (%(default)s)"
    )


def run(args: argparse.Namespace) -> Report:
    from dht import Identity

    with tempfile.TemporaryDirectory() as folder, Peers() as peers:
        owner = Path(folder) / "owner.key"
        Identity.generate().save(owner)
        bootstrap = _start_mesh(peers, str(owner), args.rate)
        environment = _environment(folder)
        _measure(bootstrap, args.parents, environment)  # compiles what an installation has compiled
        progress(f"{args.runs} joins")
        rows = [_measure(bootstrap, args.parents, environment) for _ in range(args.runs)]
        progress("--help")
        bare = _best_time(args.starts, environment, "-c", "pass")
        shown = _best_time(args.starts + 1, environment, "-m", "peer", "--help")
    middle = {name: round(statistics.median(row[name] for row in rows), 3) for name in ("first_packet_s", *PARTS)}
    worst = max(row["first_packet_s"] for row in rows)
    return Report(
        name="join",
        data={
            **middle,
            "worst_first_packet_s": worst,
            "help_s": round(shown, 3),
            "help_times_bare_python": round(shown / bare, 2),
            "bare_python_s": round(bare, 3),
            "runs": rows,
        },
        columns=("", "first packet s", "start-up s", "DHT s", "join s", "packet s", "CPU s"),
        rows=[
            ("median", *(middle[name] for name in ("first_packet_s", *PARTS))),
            *((f"run {n}", *(row[name] for name in ("first_packet_s", *PARTS))) for n, row in enumerate(rows, 1)),
        ],
        notes=[f"--help: {shown:.3f} s, {shown / bare:.1f} times a Python that does nothing ({bare:.3f} s)"],
        targets=[
            Target(
                f"first packet within {MAX_FIRST_PACKET_S:g} s (median)",
                middle["first_packet_s"] < MAX_FIRST_PACKET_S,
                f"{middle['first_packet_s']:.3f} s, worst {worst:.3f} s",
            ),
            Target(f"--help within {MAX_HELP_S:g} s", shown < MAX_HELP_S, f"{shown:.3f} s"),
        ],
    )


def _start_mesh(peers: Peers, owner: str, rate: float) -> tuple[str, int]:
    progress("starting the mesh")
    first = peers.start("root 1", role="root", owner=owner, stream=STREAM)
    bootstrap = (str(first.address[0]), int(first.address[1]))
    second = peers.start("root 2", role="root", owner=owner, stream=STREAM, bootstrap=[bootstrap])
    routers = [
        peers.start(f"router {n}", role="router", deliver=False, stream=STREAM, bootstrap=[bootstrap])
        for n in range(1, 4)
    ]
    for router in routers:
        router.wait_parents(2)
    start_at = time.monotonic() + 0.5
    for root in (first, second):
        root.ask("feed", (start_at, rate, PAYLOADS))
    time.sleep(1.0)
    return bootstrap


def _measure(bootstrap: tuple[str, int], parents: int, environment: dict[str, str]) -> dict[str, Any]:
    """One join. Times are the wall clock's: the command's log has no other."""
    command = [
        *(sys.executable, "-m", "peer", "join", "--roots-key", STREAM, "--leaf", "--parents", str(parents)),
        *("--bootstrap", endpoint_text(bootstrap), "--no-beacon", "--format", "raw", "--count", "1"),
        *("--timeout", "60", "--log-json", "--log-level", "info"),
    ]
    began, spent = time.time(), _spent()
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    came = time.time() if process.stdout.read(1) else None
    _, log = process.communicate()
    if came is None:
        raise RuntimeError(f"no packet arrived: {log.decode()}")
    at: dict[str, float] = {}
    for line in log.decode().splitlines():
        entry = json.loads(line)
        at.setdefault(entry.get("event", ""), entry["time"])
    # A peer that learns of candidates from its first contact can have a parent before it reports that it found the DHT.
    found = min(at["DhtFound"], at["ParentGained"])
    return {
        "first_packet_s": round(came - began, 3),
        "start_up_s": round(at["Open"] - began, 3),
        "dht_s": round(found - at["Open"], 3),
        "join_s": round(at["ParentGained"] - found, 3),
        "packet_s": round(came - at["ParentGained"], 3),
        "cpu_s": round(_spent() - spent, 3),
    }


def _spent() -> float:
    """Processor time of the processes that have ended: it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _best_time(starts: int, environment: dict[str, str], *arguments: str) -> float:
    """Of some starts of the interpreter the fastest: what it costs, not what else went on."""
    best = float("inf")
    for _ in range(starts):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, check=True
        )
        best = min(best, time.perf_counter() - began)
    return best


def _environment(folder: str) -> dict[str, str]:
    """No settings of ours, and compiled files in a folder of their own: an installed program has them."""
    dropped = ("PEER_", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
