"""What `switch` and `switch-paths` have in common: load a switch, then time it warm, cold and under churn.

Times are processor time of this process: on a shared machine the wall clock measures the neighbours. All figures that
are compared are taken in turns within one run.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from lxml import etree

from bench.report import Target, progress
from xmlswitch import Query, Switch

CHURN_EVERY = 50  # packets between two changes
BATCH = 200  # packets that are timed together


@dataclass(frozen=True, slots=True)
class Workload:
    """`queries(number)` are distinct; `packets(seed, number)` come from one stream.

    `links`: how many share the queries; 0 is a link for each query, where no match of one spares the work for another.
    """

    name: str
    queries: Callable[[int], list[str]]
    packets: Callable[[int, int], list[bytes]]
    per_round: int
    rounds: int
    links: int
    namespaces: Mapping[str, str] = field(default_factory=dict)
    is_first_version: bool = True  # XPath 1.0, so that lxml can evaluate it, too


@dataclass(frozen=True, slots=True)
class Case:
    """A size at which a workload is measured, with a link per query (`own`) or not, and the ratio that is wanted."""

    workload: Workload
    number: int
    own: bool = False
    wanted: float | None = None
    wanted_cold: float | None = None

    @property
    def links(self) -> int:
        return 0 if self.own else self.workload.links


def measure_all(cases: Sequence[Case]) -> tuple[list[dict[str, Any]], list[Target]]:
    """The rows of all cases, and the targets that they have."""
    rows: list[dict[str, Any]] = []
    targets: list[Target] = []
    prepared: Prepared | None = None
    before: tuple[str, int] | None = None
    for case in cases:
        workload = replace(case.workload, links=case.links)
        if before != (workload.name, case.number) or prepared is None:
            before = workload.name, case.number
            prepared = prepare(workload, case.number)
        row = {"workload": workload.name, **measure(workload, prepared), "wanted": case.wanted}
        rows.append(row)
        name = f"{case.number:,} {workload.name}, {row['links']:,} links"
        for what, wanted in (("ratio_to_parse", case.wanted), ("cold_ratio_to_parse", case.wanted_cold)):
            if wanted is not None:
                targets.append(at_most(f"{name}, {what}", row[what], wanted))
    return rows, targets


def at_most(name: str, value: float, limit: float) -> Target:
    return Target(name, value <= limit, f"{value} (at most {limit})")


def batched(packets: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(packets), size):
        yield packets[at : at + size]


def microseconds(action: Callable[[Any], Any], packets: Sequence[Any]) -> float:
    start = time.process_time()
    for packet in packets:
        action(packet)
    return (time.process_time() - start) / len(packets) * 1e6


@dataclass(frozen=True, slots=True)
class Prepared:
    """Queries, parsed and planned, more than `number` of them, and what that took."""

    number: int
    queries: list[Query]
    parse_query_us: float


def prepare(workload: Workload, number: int) -> Prepared:
    progress(f"{number:,} {workload.name}: parsing")
    texts = workload.queries(number + 400)
    start = time.process_time()
    queries = [Query.parse(text, workload.namespaces) for text in texts]
    for query in queries:
        _ = query.plan
    return Prepared(number, queries, (time.process_time() - start) / len(queries) * 1e6)


def measure(workload: Workload, prepared: Prepared) -> dict[str, Any]:
    """Measure a switch with this many distinct queries, as one row."""
    number, queries = prepared.number, prepared.queries
    links = workload.links or number
    standing, spare = queries[:number], queries[number:]
    gc.collect()
    switch: Switch[Query] = Switch()
    for link in range(links):
        switch.add_link(link, slot=link)
    for place, query in enumerate(standing):
        switch.subscribe(place % links, query)
    gc.collect()
    gc.freeze()
    progress(f"{number:,} {workload.name}, {links:,} links: matching")
    cold_packets = workload.packets(1, min(200, workload.per_round))
    cold = microseconds(switch.match_mask, cold_packets)
    for seed in range(2, 5):
        microseconds(switch.match_mask, workload.packets(seed, workload.per_round))
    pairs: list[tuple[float, float]] = []
    for seed in range(10, 10 + workload.rounds):
        packets = workload.packets(seed, workload.per_round)
        # In turns, so that both meet the same moods of a shared machine.
        pairs += [
            (microseconds(etree.fromstring, batch), microseconds(switch.match_mask, batch))
            for batch in batched(packets, BATCH)
        ]
    changes, churned, slower = _churn(switch, workload, standing, spare)
    stats = switch.stats()
    naive = _naive(workload, standing) if workload.is_first_version else None
    gc.unfreeze()
    parse_us, warm_us = (median(times) for times in zip(*pairs, strict=True))
    return {
        "queries": number,
        "links": links,
        "us_a_packet": round(warm_us, 2),
        "parse_us": round(parse_us, 2),
        "ratio_to_parse": round(median(matched / parsed for parsed, matched in pairs), 2),
        "ratio_to_naive": None if naive is None else round(naive / warm_us, 1),
        "cold_us": round(cold, 2),
        "cold_ratio_to_parse": round(cold / parse_us, 2),
        "churn_us": round(churned, 2),
        "churn_to_quiet": round(slower, 2),
        "add_us": round(changes[0], 1),
        "remove_us": round(changes[1], 1),
        "parse_query_us": round(prepared.parse_query_us, 1),
        "bytes_a_query": round(_bytes_a_query(workload, standing)),
        "by_shape": round(stats.by_shape / stats.packets, 3),
        "evaluated_a_packet": round(stats.evaluated / stats.packets, 3),
    }


def _churn(
    switch: Switch[Query], workload: Workload, standing: list[Query], spare: list[Query]
) -> tuple[tuple[float, float], float, float]:
    """Cost of add and remove; matching with a change every N packets, and its ratio to matching without changes."""
    rng = random.Random(7)
    links = workload.links or len(standing)
    standing = list(standing)
    places = rng.sample(range(len(standing)), min(100, len(standing)))
    start = time.process_time()
    for place in places:
        switch.unsubscribe(place % links, standing[place])
    middle = time.process_time()
    for place in places:
        switch.subscribe(place % links, standing[place])
    end = time.process_time()
    changes = ((end - middle) / len(places) * 1e6, (middle - start) / len(places) * 1e6)
    pairs: list[tuple[float, float]] = []
    for seed in range(30, 33):
        quiet_packets = workload.packets(seed, workload.per_round)
        packets = workload.packets(seed + 100, workload.per_round)  # as new to the switch as the quiet ones were
        for still, batch in zip(batched(quiet_packets, BATCH), batched(packets, BATCH), strict=True):
            quiet = microseconds(switch.match_mask, still)
            spent = 0.0
            for few in batched(batch, CHURN_EVERY):
                place = rng.randrange(len(standing))
                switch.unsubscribe(place % links, standing[place])
                standing[place] = spare.pop()
                switch.subscribe(place % links, standing[place])
                spent += microseconds(switch.match_mask, few) * len(few)
            pairs.append((quiet, spent / len(batch)))
    return changes, median(churned for _, churned in pairs), median(churned / quiet for quiet, churned in pairs)


def _naive(workload: Workload, queries: Sequence[Query]) -> float:
    """One compiled XPath after another; beyond 2,000 queries a sample stands for all."""
    packets = workload.packets(99, 2)
    bound = dict(workload.namespaces) or None
    sample = queries if len(queries) <= 2000 else random.Random(3).sample(list(queries), 2000)
    compiled = [etree.XPath(f"boolean({query.text})", namespaces=bound) for query in sample]

    def one_by_one(packet: bytes) -> None:
        root = etree.fromstring(packet)
        for expression in compiled:
            expression(root)

    microseconds(one_by_one, packets)
    return microseconds(one_by_one, packets) * len(queries) / len(sample)


def _bytes_a_query(workload: Workload, standing: Sequence[Query]) -> float:
    """Of a switch of its own, with all that matching builds: rows of thresholds, what values mean, states."""
    packets = workload.packets(5, min(500, workload.per_round))
    links = workload.links or len(standing)
    tracemalloc.start()
    switch: Switch[Query] = Switch()
    for link in range(links):
        switch.add_link(link, slot=link)
    for place, query in enumerate(standing):
        switch.subscribe(place % links, query)
    for packet in packets:
        switch.match_mask(packet)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / len(standing)
