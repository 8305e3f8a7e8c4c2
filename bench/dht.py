"""Lookup and publish latency with dead contacts, beside the stock `kademlia.network.Server` in the same run.

`--simulate` runs the campaign of docs/dht.md instead: churn and loss in virtual time, and the growth with N.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.report import Report, Target, progress

SUMMARY = (
    "DHT lookup and publish latency with dead contacts, compared with stock kademlia; --simulate: churn, growth with N"
)
DEAD = (0, 25, 50)  # percent of the nodes
LIFETIME = 600.0
STAGGER = 0.4  # seconds between the starts of operations
MAX_OPERATIONS = 12  # of a kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=0, help="default 40 on loopback, 1000 simulated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulate", action="store_true", help="virtual time: churn, loss, growth with N")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual minutes of churn (with --simulate)")
    parser.add_argument(
        "--half-life", type=float, default=300.0, help="half-life of a node in seconds (with --simulate)"
    )


def run(args: argparse.Namespace) -> Report:
    return _simulate(args) if args.simulate else _compare(args)


# --- on loopback, ours and stock


def _compare(args: argparse.Namespace) -> Report:
    count = args.nodes or 40
    # kademlia would log a line for every datagram to a dead node.
    for name in ("kademlia", "rpcudp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rows: list[dict[str, Any]] = []
    for dead in DEAD:
        for system, measure in (("ours", _measure_ours), ("stock", _measure_stock)):
            progress(f"{system}: {count} nodes, {dead} % dead")
            timings = asyncio.run(measure(count, dead, random.Random(args.seed)))
            for operation, samples in timings.items():
                rows.append({"system": system, "dead": dead, "op": operation, **_summary(samples)})
    return Report(
        name="dht",
        data={"nodes": count, "rows": rows},
        columns=["system", "dead %", "op", "p50 s", "p99 s", "ok"],
        rows=[[row["system"], row["dead"], row["op"], row["p50_s"], row["p99_s"], row["ok"]] for row in rows],
        targets=_targets(rows),
        draw=lambda figure: _draw(figure, rows),
        notes=["dead: share of the nodes closed at once; ok: share of the operations that succeeded"],
    )


Samples = list[tuple[float, bool]]


def _summary(samples: Samples) -> dict[str, float]:
    times = sorted(seconds for seconds, _ in samples)
    return {
        "p50_s": round(times[len(times) // 2], 4),
        "p99_s": round(times[min(len(times) - 1, len(times) * 99 // 100)], 4),
        "ok": round(sum(ok for _, ok in samples) / len(samples), 4),
    }


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    targets = []
    for operation in ("lookup", "publish"):
        at_half = {row["system"]: row for row in rows if row["dead"] == 50 and row["op"] == operation}
        ours, stock = at_half["ours"], at_half["stock"]
        met = ours["p50_s"] <= stock["p50_s"] / 10 and ours["p50_s"] < 1.0 and ours["ok"] == 1.0
        detail = f"ours {ours['p50_s']:.3f} s, stock {stock['p50_s']:.3f} s, ours ok {ours['ok']:.0%}"
        targets.append(Target(f"{operation} at 50 % dead: p50 a tenth of stock's, and under 1 s", met, detail))
    return targets


async def _timed(work: Callable[[], Awaitable[bool]]) -> tuple[float, bool]:
    started = time.perf_counter()
    try:
        ok = await work()
    except ValueError:  # stock raises it when every contact that it knows is dead
        ok = False
    return time.perf_counter() - started, ok


async def _measure(
    lookups: list[Callable[[], Awaitable[bool]]], publishes: list[Callable[[], Awaitable[bool]]]
) -> dict[str, Samples]:
    """Each node's first operation after the deaths: the second one knows who is dead.

    They start 0.4 s apart, on both systems: stock's would take many minutes in a row, and all at once they would wait
    for this one process, which is forty nodes, rather than for the network.
    """

    async def delayed(index: int, work: Callable[[], Awaitable[bool]]) -> tuple[float, bool]:
        await asyncio.sleep(index * STAGGER)
        return await _timed(work)

    results = await asyncio.gather(*(delayed(index, work) for index, work in enumerate([*lookups, *publishes])))
    return {"lookup": results[: len(lookups)], "publish": results[len(lookups) :]}


def _halves(alive: list[int]) -> tuple[list[int], list[int]]:
    return alive[::2][:MAX_OPERATIONS], alive[1::2][:MAX_OPERATIONS]


async def _until_quiet(requests: Callable[[], int]) -> None:
    """Joining goes on in the background: measure when it is over, however slow the machine."""
    before = -1
    while requests() != before:
        before = requests()
        await asyncio.sleep(1.5)


async def _measure_ours(count: int, dead: int, rng: random.Random) -> dict[str, Samples]:
    from dht.identity import Identity
    from dht.keys import roots_key
    from dht.record import PeerRecord, Role, sign_record
    from dht.shell.service import DirectoryOptions, DirectoryService

    loop = asyncio.get_running_loop()
    services: list[DirectoryService] = []
    for _ in range(count):
        known = tuple(service.address for service in services[:3])
        options = DirectoryOptions(bootstrap=known, beacon=False)
        identity = Identity.from_seed(rng.randbytes(32))
        services.append(await DirectoryService.open(identity, options, loop=loop, listen=("127.0.0.1", 0)))
    await _until_quiet(lambda: sum(service.node.protocol.counters["answered"] for service in services))

    def record(number: int, stream: str) -> bytes:
        identity = Identity.from_seed(random.Random(number).randbytes(32))
        said = PeerRecord(stream, identity.peer_id, (services[number].address,), Role.ROOT)
        expires_at = int(time.time() + LIFETIME)
        return sign_record(said.stamped(version=1, expires_at=expires_at), identity).wire

    for number in range(count):
        key = roots_key(f"old-{number}")
        await services[number].node.write(key, [record(number, f"old-{number}")])
    dying = set(rng.sample(range(count), count * dead // 100))
    for number in dying:
        services[number].crash()

    def lookup(number: int) -> Callable[[], Awaitable[bool]]:
        node = services[number].node
        absent = [other for other in range(count) if not node.store.records(roots_key(f"old-{other}"), now=time.time())]
        key = roots_key(f"old-{rng.choice(absent)}")

        async def work() -> bool:
            return bool((await node.read(key)).records)

        return work

    def publish(number: int) -> Callable[[], Awaitable[bool]]:
        wire = record(number, f"new-{number}")

        async def work() -> bool:
            return (await services[number].node.write(roots_key(f"new-{number}"), [wire])).replicas > 0

        return work

    lookups, publishes = _halves([number for number in range(count) if number not in dying])
    timings = await _measure([lookup(number) for number in lookups], [publish(number) for number in publishes])
    await asyncio.gather(*(service.close() for service in services))
    return timings


async def _measure_stock(count: int, dead: int, rng: random.Random) -> dict[str, Samples]:
    from kademlia.network import Server

    servers: list[Any] = []
    addresses: list[tuple[str, int]] = []
    for _ in range(count):
        server = Server(node_id=rng.randbytes(20))
        await server.listen(0, interface="127.0.0.1")
        address = server.transport.get_extra_info("sockname")
        if addresses:
            await server.bootstrap(addresses[:3])
        servers.append(server)
        addresses.append(address)
    await asyncio.sleep(3.0)
    for number in range(count):
        await servers[number].set(f"old-{number}", bytes(160))
    dying = set(rng.sample(range(count), count * dead // 100))
    for number in dying:
        servers[number].stop()

    def lookup(number: int) -> Callable[[], Awaitable[bool]]:
        from kademlia.utils import digest

        server = servers[number]
        absent = [other for other in range(count) if server.storage.get(digest(f"old-{other}")) is None]
        key = f"old-{rng.choice(absent)}"

        async def work() -> bool:
            return await server.get(key) is not None

        return work

    def publish(number: int) -> Callable[[], Awaitable[bool]]:
        async def work() -> bool:
            return bool(await servers[number].set(f"new-{number}", bytes(160)))

        return work

    lookups, publishes = _halves([number for number in range(count) if number not in dying])
    timings = await _measure([lookup(number) for number in lookups], [publish(number) for number in publishes])
    for number in set(range(count)) - dying:
        servers[number].stop()
    return timings


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    for axis, operation in zip(axes, ("lookup", "publish"), strict=True):
        for offset, system in ((-0.2, "stock"), (0.2, "ours")):
            shown = [row for row in rows if row["op"] == operation and row["system"] == system]
            places = [index + offset for index in range(len(shown))]
            axis.bar(places, [row["p50_s"] for row in shown], width=0.4, label=system)
        axis.set_xticks(range(len(DEAD)), [f"{dead} %" for dead in DEAD])
        axis.set_yscale("log")
        axis.set_title(f"{operation}, median")
        axis.set_xlabel("nodes dead")
    axes[0].set_ylabel("seconds")
    axes[0].legend()


# --- in virtual time


def _simulate(args: argparse.Namespace) -> Report:
    from dht.testing.campaign import CampaignPlan, CampaignResult, fit_logarithm, run_campaign

    largest = args.nodes or 1000
    sizes = [size for size in (10, 100, 1000) if size < largest] + [largest]
    rows: list[dict[str, Any]] = []
    points: list[tuple[int, float]] = []

    def add(kind: str, nodes: int, result: CampaignResult) -> None:
        times = sorted(result.latencies)
        rows.append(
            {
                "kind": kind,
                "nodes": nodes,
                "lookups": result.lookups,
                "found": round(result.found_share, 5),
                "deaths": result.deaths,
                "ghosts_looked_for": result.ghosts_looked_for,
                "ghosts_found": result.ghosts_found,
                "requests_per_lookup": round(result.queries_per_lookup, 2),
                "p50_s": round(times[len(times) // 2], 3),
                "p99_s": round(times[len(times) * 99 // 100], 3),
                "largest_datagram": result.largest_datagram,
            }
        )

    for nodes in sizes:
        still = min(60.0, 60.0 * args.minutes)
        plan = CampaignPlan(seed=args.seed, nodes=nodes, duration=still, half_life=float("inf"), loss=0.0)
        result = run_campaign(plan, progress)
        points.append((nodes, result.queries_per_lookup))
        add("still", nodes, result)
    plan = CampaignPlan(seed=args.seed, nodes=largest, duration=60.0 * args.minutes, half_life=args.half_life)
    churned = run_campaign(plan, progress)
    add("churn, 5 % loss", largest, churned)
    start, slope, error = fit_logarithm(points)
    found = f"{churned.found} of {churned.lookups} lookups"
    gone = f"{churned.ghosts_found} of {churned.ghosts_looked_for} lookups after their lifetime"
    fitted = f"{start:.2f} + {slope:.2f} log2 N, at most {error:.0%} off"
    return Report(
        name="dht-simulation",
        data={"seed": args.seed, "rows": rows, "fit": {"start": start, "per_doubling": slope, "error": error}},
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        targets=[
            Target("99.9 % of lookups find a published record under churn", churned.found_share >= 0.999, found),
            Target("withdrawn and dead peers' records disappear", churned.ghosts_found == 0, gone),
            Target("requests per lookup grow as log N", error < 0.15, fitted),
        ],
        notes=[f"requests per lookup = {fitted}"],
    )
