"""Structural queries over documents of news size: what a document costs, in times of its parse."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from bench import _news
from bench._switching import Workload, measure, prepare
from bench.report import Report, Target

SUMMARY = "cost per news-sized document with up to 100,000 structural queries"
COLUMNS = [
    "kind",
    "queries",
    "links",
    "us_a_packet",
    "ratio_to_parse",
    "ratio_to_naive",
    "cold_ratio_to_parse",
    "churn_to_quiet",
    "add_us",
]
COLUMNS += ["evaluated_a_packet"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-queries", type=int, default=100_000, help="the largest switch (default %(default)s)")
    parser.add_argument("--documents", type=int, default=200, help="documents per round (default %(default)s)")
    parser.add_argument("--links", type=int, default=16, help="links that share the queries (default %(default)s)")


def run(args: argparse.Namespace) -> Report:
    rows: list[dict[str, Any]] = []
    for kind, sizes in (("linear", (1000, 10_000, 100_000)), ("mixed", (1000, 10_000))):

        def texts(number: int, kind: str = kind) -> list[str]:
            return _news.queries(2, number, kind)

        shared = Workload(texts, _news.documents, args.documents, 3, args.links)
        for size in sizes:
            if size <= args.max_queries:
                prepared = prepare(shared, size)
                rows += [
                    {"kind": kind, **measure(workload, prepared)} for workload in (shared, replace(shared, links=0))
                ]
    targets = []
    for kind, size, limit in (("linear", 100_000, 4.0), ("mixed", 10_000, 15.0)):
        for row in rows:  # one link per query is not a router: reported without a target, as in `switch`
            if row["kind"] == kind and row["queries"] == size and row["links"] == args.links:
                value = row["ratio_to_parse"]
                name = f"{size:,} {kind}, {row['links']:,} links, ratio_to_parse"
                targets.append(Target(name, value <= limit, f"{value} (at most {limit})"))
    table = [[row[column] for column in COLUMNS] for row in rows]
    return Report("switch-paths", {"rows": rows}, COLUMNS, table, targets)
