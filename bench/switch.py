"""Standing queries over the ATC stream: what a packet costs, in times of its parse, for 1 to 100,000 queries."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from bench import _flights
from bench._switching import Workload, measure, prepare
from bench.report import Report, Target

SUMMARY = "cost per packet with 1 to 100,000 standing queries over the ATC stream"
COLUMNS = [
    "queries",
    "links",
    "us_a_packet",
    "ratio_to_parse",
    "ratio_to_naive",
    "cold_ratio_to_parse",
    "churn_to_quiet",
    "add_us",
    "remove_us",
]
COLUMNS += ["bytes_a_query"]
_OWN_FROM = 10_000  # queries, from which on they are also measured with a link each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-queries", type=int, default=100_000, help="the largest switch (default %(default)s)")
    parser.add_argument("--packets", type=int, default=2000, help="packets per round (default %(default)s)")
    parser.add_argument("--links", type=int, default=16, help="links that share the queries (default %(default)s)")


def run(args: argparse.Namespace) -> Report:
    def packets(seed: int, number: int) -> list[bytes]:
        return _flights.Traffic(seed).packets(number)

    rows = []
    for size in (1, 10, 100, 1000, 10_000, 100_000):
        if size <= args.max_queries:
            shared = Workload(lambda number: _flights.queries(2, number), packets, args.packets, 4, args.links)
            prepared = prepare(shared, size)
            rows.append(measure(shared, prepared))
            if size >= _OWN_FROM:
                rows.append(measure(replace(shared, links=0), prepared))
    by_size = {row["queries"]: row for row in rows if row["links"] == args.links}
    targets: list[Target] = []
    for size, limit in ((10_000, 4.0), (100_000, 10.0)):
        if size in by_size:
            targets.append(_at_most(f"ratio_to_parse at {size:,}", by_size[size]["ratio_to_parse"], limit))
    if 100_000 in by_size:
        last = by_size[100_000]
        targets += [
            _at_most("add at 100,000, us", last["add_us"], 50),
            _at_most("remove at 100,000, us", last["remove_us"], 50),
            _at_most("churn to quiet at 100,000", last["churn_to_quiet"], 1.5),
            _at_most("bytes per query at 100,000", last["bytes_a_query"], 1536),
        ]
    return Report(
        "switch",
        {"rows": rows},
        COLUMNS,
        [[row[column] for column in COLUMNS] for row in rows],
        targets,
        lambda figure: _draw(figure, rows),
    )


def _at_most(name: str, value: float, limit: float) -> Target:
    return Target(name, value <= limit, f"{value} (at most {limit})")


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
