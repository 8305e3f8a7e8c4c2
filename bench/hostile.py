"""What strangers and bad children cost the honest: a root under attack, at 1,000 packets per second.

Real processes on loopback. In peace the same attack goes to another root: on two cores the attacker's own work would
else be taken for the victim's. For each attack a root of its own, with 15,000 packets in its log, and two honest
clients: one wants everything, one a part of it by a query with a negative longitude. The stream is watched in peace and
under attack in turns, and after it until everything published has arrived. Latency is from the moment a packet was due:
p99 of every second, and the median of the seconds, so that a hiccup of the scheduler is not taken for the attack.

Then the corpus of hostile queries at every door: how long the slowest of them keeps a peer busy there, Python's garbage
collection apart.

RSS growth is that of the root from the end of the peace to its highest value during and after the attack, less what
the log itself may have grown by, which is the same in peace.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import random
import resource
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from bench._attackers import ATTACKS, attack
from bench._peers import PeerProcess, Peers
from bench.report import Report, Target, progress

SUMMARY = "a root under attack: losses and delays of honest clients, and the cost to the root"

MAX_P99_RATIO = 3.0
MAX_GROWTH_MB = 50.0
MAX_ANSWER_MS = 50.0
# Below this the ratio of two latencies is the scheduler's: a root in peace answers within a fraction of it.
FLOOR_MS = 2.0
QUERY = "/flight/flightleg/coordinate/lon < -90.5"
LOG_PACKETS = 15_000
DECOY_RATE = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=1_000.0, help="packets per second (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of quiet and attack (%(default)s)")
    parser.add_argument("--quiet", type=float, default=4.0, help="seconds of quiet (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of attack (%(default)s)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-queries", action="store_true", help="skip the corpus of hostile queries")
    only.add_argument("--only-queries", action="store_true", help="run only the corpus of hostile queries")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, metavar="NAME", default=list(ATTACKS))


def run(args: argparse.Namespace) -> Report:
    rows = [] if args.only_queries else [_measure(name, args) for name in args.attacks]
    queries = [] if args.no_queries else _corpus()
    columns = (
        "attack",
        "attack_per_s",
        "honest_pps",
        "honest_lost",
        "quiet_p99_ms",
        "honest_p99_ms",
        "honest_p99_ms_ratio",
        "victim_core_share",
        "victim_rss_growth_mb",
    )
    return Report(
        name="hostile",
        data={"rate": args.rate, "rows": rows, "queries": queries},
        columns=columns,
        rows=[[row[name] for name in columns] for row in rows],
        targets=_targets(rows, queries),
        notes=(
            f"The ratio counts latencies below {FLOOR_MS:g} ms as {FLOOR_MS:g} ms.",
            *(
                f"{q['queries']} hostile queries, {q['entrance']}: slowest {q['slowest_ms']} ms of CPU time "
                f"({q['slowest_chars']} characters, {q['slowest_query']!r}), median {q['median_ms']} ms, "
                f"{q['rss_growth_mb']} MB"
                for q in queries
            ),
        ),
    )


def _corpus() -> list[dict[str, Any]]:
    """Each door in a process of its own, which shows its memory."""
    from bench._processes import run_all

    found = []
    for name in ("join", "children", "record", "command line", "page", "packets", "union"):
        progress(f"hostile queries: {name}")
        found += run_all(corpus_at, [{"name": name}])
    return found


def corpus_at(name: str) -> dict[str, Any]:
    from tests.peer.entrances import ENTRANCES
    from tests.xmlswitch.hostile import hostile_queries
    from xmlswitch import Query

    entrance = ENTRANCES[name]()
    for text in ("ends-with(/a, 'x')", "/a/b = 1 and not(/a/c)"):
        entrance(text, {})  # what is imported at the first query is not the query's fault
        Query.parse(text)
    gc.disable()  # a collection costs what the process holds, not what the query asks for
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: list[float] = []
    slowest, slowest_text = 0.0, ""
    for text, namespaces in hostile_queries():
        if len(times) % 20 == 0:
            gc.collect()
        began = time.process_time()
        entrance(text, namespaces)
        times.append(time.process_time() - began)
        if times[-1] > slowest:
            slowest, slowest_text = times[-1], text
    return {
        "entrance": name,
        "queries": len(times),
        "slowest_ms": round(slowest * 1e3, 1),
        "slowest_chars": len(slowest_text),
        "slowest_query": slowest_text[:60],
        "median_ms": round(statistics.median(times) * 1e3, 2),
        "rss_growth_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3, 1),
    }


def _measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Peace and attack in turns, on one root: the median of the rounds, for both; what was lost, in all of them."""
    payloads = [_flight(number) for number in range(997)]
    rounds: list[dict[str, Any]] = []
    with Peers() as peers, Attacker(name) as attacker:
        progress(f"{name}: starting")
        root = peers.start("root", role="root", capacity=12)
        decoy = peers.start("decoy", role="root", capacity=12)
        clients = [
            peers.start("all", role="leaf", parents=1, bootstrap=[root.address]),
            peers.start("west", role="leaf", parents=1, bootstrap=[root.address], query=QUERY),
        ]
        for client in clients:
            client.wait_parents(1)
        start_at = time.monotonic() - LOG_PACKETS / args.rate  # that many are overdue and are published at once
        root.ask("feed", (start_at, args.rate, payloads, None, 0))
        decoy.ask("feed", (time.monotonic(), DECOY_RATE, payloads, None, 0))
        time.sleep(2.0)
        arrived: list[list[tuple[float, int]]] = [[], []]
        _collect(clients, arrived)
        arrived = [everything[-1:] for everything in arrived]  # what was overdue is not judged
        _, resident = _usage(root)
        most = resident
        for number in range(args.rounds):
            progress(f"{name}: round {number + 1} of {args.rounds}")
            attacker.attack(decoy, args.quiet)
            quiet = _collect(clients, arrived)
            busy, _ = _usage(root)
            managed, peak = attacker.attack(root, args.seconds)
            under = _collect(clients, arrived)
            most = max(most, peak, _usage(root)[1])
            rounds.append(
                {
                    "quiet": [_p99s(part, start_at, args.rate) for part in quiet],
                    "attack": [_p99s(part, start_at, args.rate) for part in under],
                    "core": (_usage(root)[0] - busy) / args.seconds,
                    "managed": managed,
                }
            )
        time.sleep(2.0)
        ended = time.monotonic()
        _collect(clients, arrived)
        gaps = sum(client.ask("arrivals")[1] for client in clients)
    quiet_ms, attack_ms = (
        max(statistics.median([p99 for one in rounds for p99 in one[key][client]]) * 1e3 for client in range(2))
        for key in ("quiet", "attack")
    )
    span = arrived[0][-1][0] - arrived[0][0][0]
    return {
        "attack": name,
        "attack_per_s": round(statistics.median(one["managed"] for one in rounds)),
        "honest_pps": round(len(arrived[0]) / span),
        "honest_lost": gaps + _lost(arrived[0], start_at, args.rate, ended - 1.5) + _missing(arrived, payloads),
        "quiet_p99_ms": round(quiet_ms, 2),
        "honest_p99_ms": round(attack_ms, 2),
        "honest_p99_ms_ratio": round(max(attack_ms, FLOOR_MS) / max(quiet_ms, FLOOR_MS), 2),
        "victim_core_share": round(statistics.median(one["core"] for one in rounds), 3),
        "victim_rss_growth_mb": round(max(0, most - resident) / 1e6, 1),
    }


def _collect(clients: list[PeerProcess], arrived: list[list[tuple[float, int]]]) -> list[list[tuple[float, int]]]:
    """What has come since the last time, which is added to all that came."""
    parts = []
    for client, everything in zip(clients, arrived, strict=True):
        part = client.ask("arrivals")[0]
        part = [one for one in part if not everything or one[1] > everything[-1][1]]
        everything += part
        parts.append(part)
    return parts


def _flight(number: int) -> bytes:
    """Some 250 bytes; one in a hundred is a flight plan of 8 KB."""
    rng = random.Random(number)
    fixes = "".join(f"<fix>F{n:04d}</fix>" for n in range(500 if number % 100 == 0 else 0))
    return (
        f'<flight source="KZBW"><id>AAL{number}</id><flightleg status="ACTIVE">'
        f"<altitude>{rng.randint(10, 450)}</altitude><speed>{rng.randint(120, 550)}</speed><coordinate>"
        f"<lat>{rng.uniform(25, 48):.4f}</lat>"
        f"<lon>{rng.uniform(-124, -67):.4f}</lon></coordinate><departure>KBOS</departure><arrival>KSFO</arrival>"
        f"<route>{fixes}</route></flightleg></flight>"
    ).encode()


class Attacker:
    """A process of its own, started before anything is measured."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._pipe, self._theirs = context.Pipe()
        self._process = context.Process(target=_run_attacks, args=(self._theirs, name), daemon=True)

    def __enter__(self) -> Attacker:
        self._process.start()
        self._theirs.close()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def attack(self, root: PeerProcess, seconds: float) -> tuple[float, int]:
        """What it managed per second, and the root's largest resident size meanwhile."""
        self._pipe.send((root.address[:2], seconds))
        most = 0
        deadline = time.monotonic() + seconds + 30.0
        while not self._pipe.poll(0.1):
            most = max(most, _usage(root)[1])
            if time.monotonic() > deadline:
                raise RuntimeError(f"the attack {self._name!r} has not ended")
        try:
            return float(self._pipe.recv()), most
        except EOFError:
            raise RuntimeError(f"the attack {self._name!r} ended without a result; its error is above") from None


def _run_attacks(pipe: Connection, name: str) -> None:
    pipe.send(None)
    for seed in itertools.count():
        victim, seconds = pipe.recv()
        pipe.send(attack(name, victim, seconds, seed=seed))


def _usage(peer: PeerProcess) -> tuple[float, int]:
    """Seconds of processor time, and resident bytes."""
    with open(f"/proc/{peer.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def _p99s(arrivals: list[tuple[float, int]], start_at: float, rate: float) -> list[float]:
    """Of each second in which packets were due."""
    seconds: dict[int, list[float]] = {}
    for at, an in arrivals:
        seconds.setdefault(int(an / rate), []).append(at - (start_at + an / rate))
    return [statistics.quantiles(late, n=100)[98] for late in seconds.values() if len(late) > 50]


def _lost(arrivals: list[tuple[float, int]], start_at: float, rate: float, until: float) -> int:
    """Of the client that wants everything: numbers that were skipped, or due well before the end and not there."""
    if not arrivals:
        return int(rate)
    numbers = [an for _, an in arrivals]
    skipped = numbers[-1] - numbers[0] + 1 - len(numbers)
    return skipped + max(0, int((until - start_at) * rate) - numbers[-1])


def _missing(under: list[list[tuple[float, int]]], payloads: list[bytes]) -> int:
    """Of the client with a query: packets between its first and its last that it should have."""
    from xmlswitch import Query

    query = Query.parse(QUERY)
    wanted = [query.matches(payload) for payload in payloads]
    numbers = {an for _, an in under[1]}
    if not numbers:
        return 1
    due = [an for an in range(min(numbers), max(numbers) + 1) if wanted[an % len(payloads)]]
    return len(set(due) - numbers) + len(numbers - set(due))


def _targets(rows: list[dict[str, Any]], queries: list[dict[str, Any]]) -> list[Target]:
    doors = [q for q in queries if q["entrance"] not in ("packets", "union")]
    return [
        *(_attack_targets(rows) if rows else []),
        *(
            Target(
                f"hostile queries within {MAX_ANSWER_MS:g} ms and {MAX_GROWTH_MB:g} MB: {q['entrance']}",
                q["slowest_ms"] <= MAX_ANSWER_MS and q["rss_growth_mb"] <= MAX_GROWTH_MB,
                f"{q['slowest_ms']} ms, {q['rss_growth_mb']} MB",
            )
            for q in doors
        ),
    ]


def _attack_targets(rows: list[dict[str, Any]]) -> list[Target]:
    lost = sum(row["honest_lost"] for row in rows)
    slowest = max(rows, key=lambda row: float(row["honest_p99_ms_ratio"]))
    largest = max(rows, key=lambda row: float(row["victim_rss_growth_mb"]))
    return [
        Target("nothing lost", lost == 0, f"{lost} lost"),
        Target(
            f"p99 at most {MAX_P99_RATIO:g} times the quiet one",
            slowest["honest_p99_ms_ratio"] <= MAX_P99_RATIO,
            f"{slowest['honest_p99_ms_ratio']} under {slowest['attack']}",
        ),
        Target(
            f"resident size grows by at most {MAX_GROWTH_MB:g} MB",
            largest["victim_rss_growth_mb"] <= MAX_GROWTH_MB,
            f"{largest['victim_rss_growth_mb']} MB under {largest['attack']}",
        ),
    ]
