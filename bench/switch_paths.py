"""Structural queries over documents of news size: what a document costs, in times of its parse."""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from lxml import etree

from bench import _faa, _news
from bench._switching import Case, Workload, measure_all, microseconds
from bench.report import Report

SUMMARY = "cost per document of news size, and of the FAA's feeds, with up to 100,000 structural queries"
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
    "evaluated_a_packet",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-queries", type=int, default=100_000, help="the largest switch (default %(default)s)")
    parser.add_argument("--documents", type=int, default=200, help="documents per round (default %(default)s)")
    parser.add_argument("--links", type=int, default=16, help="links that share the queries (default %(default)s)")
    parser.add_argument("--workload", action="append", help="only this one (may be repeated)")


def _of_kind(kind: str, documents: int, links: int) -> Workload:
    return Workload(kind, lambda number: _news.queries(2, number, kind), _news.documents, documents, 3, links)


def cases(documents: int, links: int) -> list[Case]:
    kinds = {kind: _of_kind(kind, documents, links) for kind in _news.KINDS}
    faa = Workload(
        "faa", lambda number: _faa.queries(2, number), _faa.documents, documents, 2, links, namespaces=_faa.NAMESPACES
    )
    return [
        *(Case(kinds["linear"], number, own) for number in (1000, 10_000) for own in (False, True)),
        Case(kinds["linear"], 100_000, wanted=4.0),
        Case(kinds["linear"], 100_000, own=True),
        *(Case(kinds["mixed"], 1000, own) for own in (False, True)),
        Case(kinds["mixed"], 10_000, wanted=15.0),
        Case(kinds["mixed"], 10_000, own=True, wanted=25.0),
        *(Case(kinds[kind], 1000, own, wanted=6.0) for kind in ("predicates", "nested") for own in (False, True)),
        *(Case(faa, number, own, wanted=10.0 if own else 4.0) for number in (100, 1000) for own in (False, True)),
    ]


def run(args: argparse.Namespace) -> Report:
    chosen = [
        case
        for case in cases(args.documents, args.links)
        if case.number <= args.max_queries and (not args.workload or case.workload.name in args.workload)
    ]
    rows, targets = measure_all(chosen)
    table = [[row[column] for column in COLUMNS] for row in rows]
    floor = _floor(args.documents)
    note = (
        f"The floor of a walk in Python over news documents, in times of the parse: {floor['read']} to read names, "
        f"attributes and texts, {floor['frames']} with a list for each element"
    )
    return Report("switch-paths", {"rows": rows, "floor": floor}, COLUMNS, table, targets, notes=[note])


def _floor(number: int) -> dict[str, float]:
    """What any switch pays that looks at all elements from Python, before it decides anything."""

    def read(packet: bytes) -> None:
        for element in etree.fromstring(packet).iter("*"):
            _ = element.getparent(), element.tag, element.items(), element.text

    def frames(packet: bytes) -> None:
        open_: list[list[Any]] = []
        for element in etree.fromstring(packet).iter("*"):
            parent = element.getparent()
            _ = element.tag, element.items(), element.text
            while open_ and open_[-1][0] is not parent:
                open_.pop()
            open_.append([element, 0, 0, None])

    documents = [_news.documents(seed, number) for seed in range(5)]
    return {
        walk.__name__: round(
            median(microseconds(walk, each) / microseconds(etree.fromstring, each) for each in documents), 2
        )
        for walk in (read, frames)
    }
