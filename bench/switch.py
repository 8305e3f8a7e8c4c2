"""Standing queries over the ATC stream: what a packet costs, in times of its parse, for 1 to 100,000 queries."""

from __future__ import annotations

import argparse
from typing import Any

from bench import _flights, _positions
from bench._switching import Case, Workload, at_most, measure_all
from bench.report import Report

SUMMARY = "cost per packet with 1 to 100,000 standing queries over the ATC stream"
COLUMNS = [
    "workload",
    "queries",
    "links",
    "us_a_packet",
    "ratio_to_parse",
    "wanted",
    "ratio_to_naive",
    "cold_ratio_to_parse",
    "churn_to_quiet",
    "add_us",
    "remove_us",
    "bytes_a_query",
    "evaluated_a_packet",
]
CLIENTELE = "clientele"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-queries", type=int, default=100_000, help="the largest switch (default %(default)s)")
    parser.add_argument("--packets", type=int, default=2000, help="packets per round (default %(default)s)")
    parser.add_argument("--links", type=int, default=16, help="links that share the queries (default %(default)s)")
    parser.add_argument("--workload", action="append", help="only this one (may be repeated)")


def cases(packets: int, links: int) -> list[Case]:
    def traffic(seed: int, number: int) -> list[bytes]:
        return _flights.Traffic(seed).packets(number)

    clientele = Workload(CLIENTELE, lambda number: _flights.queries(2, number), traffic, packets, 4, links)
    boxes = Workload("boxes", _positions.boxes, _positions.packets, packets, 2, links)
    anywhere = Workload("boxes on //coordinate", _positions.boxes_anywhere, _positions.packets, packets, 2, links)
    fleets = Workload("fleets of 33 to 70 flights", _positions.fleets, _positions.packets, packets, 2, links)
    later = Workload(
        "XPath 2.0 and later", _positions.later, _positions.packets, min(packets, 200), 2, links, is_first_version=False
    )
    return [
        *(Case(clientele, number) for number in (1, 10, 100, 1000)),
        Case(clientele, 10_000, wanted=3.0),
        Case(clientele, 10_000, own=True, wanted=4.0),
        Case(clientele, 100_000, wanted=4.0, wanted_cold=50.0),
        Case(clientele, 100_000, own=True, wanted=15.0, wanted_cold=50.0),
        Case(boxes, 100, own=True, wanted=2.0),
        Case(boxes, 1000, own=True, wanted=2.5),
        Case(boxes, 10_000, wanted=9.0),
        Case(boxes, 10_000, own=True, wanted=9.0),
        Case(anywhere, 1000, wanted=5.0),
        Case(anywhere, 1000, own=True, wanted=5.0),
        Case(fleets, 100, own=True, wanted=4.0),
        Case(later, 100),
    ]


def run(args: argparse.Namespace) -> Report:
    chosen = [
        case
        for case in cases(args.packets, args.links)
        if case.number <= args.max_queries and (not args.workload or case.workload.name in args.workload)
    ]
    rows, targets = measure_all(chosen)
    by_size = {row["queries"]: row for row in rows if row["links"] == args.links and row["workload"] == CLIENTELE}
    if 100_000 in by_size:
        last = by_size[100_000]
        targets += [
            at_most("add at 100,000, us", last["add_us"], 50),
            at_most("remove at 100,000, us", last["remove_us"], 50),
            at_most("churn to quiet at 100,000", last["churn_to_quiet"], 1.5),
            at_most("bytes per query at 100,000", last["bytes_a_query"], 1536),
        ]
    return Report(
        "switch",
        {"rows": rows},
        COLUMNS,
        [[row[column] for column in COLUMNS] for row in rows],
        targets,
        lambda figure: _draw(figure, [row for row in rows if row["workload"] == CLIENTELE]),
    )


def _draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    axes = figure.add_subplot()
    rows = list({row["queries"]: row for row in reversed(rows)}.values())
    sizes = [row["queries"] for row in rows]
    axes.loglog(sizes, [row["ratio_to_parse"] for row in rows], "o-", label="switch, warm")
    axes.loglog(sizes, [row["cold_ratio_to_parse"] for row in rows], "o--", label="switch, first packets")
    naive = [row["ratio_to_parse"] * row["ratio_to_naive"] for row in rows]
    axes.loglog(sizes, naive, "s:", label="one XPath after another")
    axes.set_xlabel("standing queries")
    axes.set_ylabel("time per packet, relative to its parse")
    axes.legend()
