"""What an inner router asks its parents for, with 10 to 10,000 children's queries: how exact, how large, how fast."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from lxml import etree

from bench import _flights, _positions
from bench._switching import at_most, microseconds
from bench.report import Report, progress
from peer.queries import XPathPolicy
from xmlswitch import Interest, Query, QuerySet, Switch, disjoin, encode_members

SUMMARY = "what an inner router asks its parents for, with 10 to 10,000 children's queries"
COLUMNS = [
    "workload",
    "queries",
    "members",
    "covered",
    "widened",
    "exact_share",
    "passed_share",
    "passed_to_exact",
    "one_query_share",
    "ratio_to_parse",
    "control_bytes",
    "change_bytes",
    "change_ms",
    "change_ms_p99",
    "parent_ms",
    "parent_ms_p99",
]
SIZES = (10, 100, 1000, 10_000)
_CHANGES = 200
_STREAM = 7  # the seed of the packets that are pruned
_FLYING = 0.1
_SAMPLED = 200  # packets that the router has seen, for what widening costs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-queries", type=int, default=10_000, help="the most queries (default %(default)s)")
    parser.add_argument("--packets", type=int, default=1000, help="packets that are pruned (default %(default)s)")


def _narrow(number: int) -> list[str]:
    """Boxes of two degrees, each with a band of altitudes: selective, so that pruning is worth it."""
    rng = random.Random(2)
    found: dict[str, None] = {}
    at, leg = "/flight/flightleg/coordinate", "/flight/flightleg"
    while len(found) < number:
        south, west, low = round(rng.uniform(24, 49), 1), round(rng.uniform(-125, -66), 1), rng.randrange(0, 440, 10)
        found[
            f"{at}/lat > {south} and {at}/lat < {south + 2:.1f} and {at}/lon > {west} and {at}/lon < "
            f"{west + 2:.1f} and {leg}/altitude > {low} and {leg}/altitude < {low + 100}"
        ] = None
    return list(found)


def _ids(number: int) -> list[str]:
    """Flights, of which some are in the air now."""
    rng = random.Random(2)
    flying = [flight["id"] for flight in _positions.DecimalTraffic(_STREAM).flights]
    found: dict[str, None] = {}
    while len(found) < number:
        flight = f"{rng.choice(_flights.AIRLINES)}{rng.randint(1, 2999)}"
        found[f"/flight/id = '{rng.choice(flying) if rng.random() < _FLYING else flight}'"] = None
    return list(found)


WORKLOADS: dict[str, Callable[[int], list[str]]] = {"flights": _ids, "boxes": _narrow}


def run(args: argparse.Namespace) -> Report:
    rows = [
        _measure(name, make, number, args.packets)
        for name, make in WORKLOADS.items()
        for number in SIZES
        if number <= args.max_queries
    ]
    targets = []
    for row in rows:
        name = f"{row['queries']:,} {row['workload']}"
        if row["queries"] <= 1000:
            targets.append(at_most(f"{name}, passed_to_exact", row["passed_to_exact"], 1.1))
        targets.append(at_most(f"{name}, change_ms", row["change_ms"], 5.0))
        targets.append(at_most(f"{name}, parent_ms", row["parent_ms"], 5.0))
    return Report("pruning", {"rows": rows}, COLUMNS, [[row[column] for column in COLUMNS] for row in rows], targets)


def _measure(name: str, make: Callable[[int], list[str]], number: int, packets: int) -> dict[str, Any]:
    progress(f"{number:,} {name}")
    queries = [Query.parse(text) for text in make(number + _CHANGES)]
    standing, spare = queries[:number], queries[number:]
    interest = Interest()
    for packet in _positions.packets(1, _SAMPLED):
        interest.selectivity.observe(packet)
    for place, query in enumerate(standing):
        interest.add(query)
        if place == 0:  # now it knows the columns
            for packet in _positions.packets(1, _SAMPLED):
                interest.selectivity.observe(packet)
    stream = _positions.packets(_STREAM, packets)
    exact = _passed(_switch(standing), stream)
    switch = _switch(interest.members)
    passed = _passed(switch, stream)
    ratio = median(
        microseconds(switch.match_mask, stream[at : at + 100]) / microseconds(etree.fromstring, stream[at : at + 100])
        for at in range(0, len(stream), 100)
    )
    start = time.process_time()
    one = disjoin(standing)
    disjoin_ms = (time.process_time() - start) * 1e3
    row = {
        "workload": name,
        "queries": number,
        "members": len(interest.members),
        "covered": interest.covered,
        "widened": interest.widened,
        "exact_share": round(exact / packets, 4),
        "passed_share": round(passed / packets, 4),
        "passed_to_exact": round(passed / max(exact, 1), 3),
        "one_query_share": round(_passed(_switch([one]), stream) / packets, 4),
        "one_query_ms": round(disjoin_ms, 2),
        "ratio_to_parse": round(ratio, 2),
        "control_bytes": len(encode_members(interest.members)),
    }
    return row | _changes(interest, standing, spare)


def _changes(interest: Interest, standing: list[Query], spare: list[Query]) -> dict[str, Any]:
    """One child's query is replaced by another: what that takes here, what goes upstream, what it takes the parent."""
    rng, times, sizes, parents = random.Random(3), [], [], []
    child, parent = XPathPolicy(), XPathPolicy()
    members = QuerySet(interest.members)
    asked = child.token_of_set(members)
    parent.open_slot(0, asked)
    for number, query in enumerate(spare):
        place = rng.randrange(len(standing))
        start = time.process_time()
        interest.add(query)
        interest.remove(standing[place])
        members = QuerySet(interest.members, like=members)
        wanted = child.token_of_set(members)
        parts = child.parts(asked, wanted)  # None: it is short, and goes whole
        times.append((time.process_time() - start) * 1e3)
        standing[place] = query
        if wanted == asked:
            continue
        sizes.append(sum(map(len, [wanted] if parts is None else parts)))
        start = time.process_time()
        if parts is not None:
            got = parent.joined(asked, [read for part in parts if (read := parent.read_part(part)) is not None])
            assert got == wanted
        parent.open_slot(number + 1, wanted)
        parent.close_slot(number)
        parents.append((time.process_time() - start) * 1e3)
        asked = wanted
    return {
        "change_ms": round(median(times), 3),
        "change_ms_p99": round(_p99(times), 3),
        "change_bytes": round(median(sizes)),
        "parent_ms": round(median(parents), 3),
        "parent_ms_p99": round(_p99(parents), 3),
    }


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def _switch(queries: Any) -> Switch[Query]:
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    for query in queries:
        switch.subscribe(0, query)
    return switch


def _passed(switch: Switch[Query], packets: list[bytes]) -> int:
    return sum(1 for packet in packets if switch.match_mask(packet))
