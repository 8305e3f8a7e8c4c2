"""The paper's Table 1: four queries on its sample flight, one by one, and what the switch makes of them together."""

from __future__ import annotations

import argparse

from lxml import etree

from bench._switching import microseconds
from bench.report import Report
from xmlswitch import Query, Switch

SUMMARY = "the paper's Table 1: its four queries on its sample flight"
QUERIES = (
    "true()",
    "/flight/flightleg/altitude > 300",
    "starts-with(string(/flight/id),'TWA')",
    "substring-before(string(/flight/flightleg/coordinate/lat),'N') > 2327",
)
PAPER = (4.5, 7.1, 8.9, 14.5)
PAPER_PARSE = 64.2
FLIGHT = b"""<?xml version="1.0"?>
<flight>
  <id>UAL1021</id>
  <flightleg status="active">
    <speed type="ground">512</speed>
    <altitude type="reported" mode="plain">
      290
    </altitude>
    <coordinate>
      <lat>4928N</lat>
      <lon>12003W</lon>
    </coordinate>
  </flightleg>
</flight>"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=20_000, help="repetitions (default %(default)s)")


def run(args: argparse.Namespace) -> Report:
    packets = [FLIGHT] * args.rounds
    parse = min(microseconds(etree.fromstring, packets) for _ in range(3))
    root = etree.fromstring(FLIGHT)
    rows = [{"query": "parse", "us": round(parse, 2), "ratio_to_parse": 1.0, "paper_us": PAPER_PARSE, "matches": True}]
    for text, paper in zip(QUERIES, PAPER, strict=True):
        expression = etree.XPath(f"boolean({text})")
        roots = [root] * args.rounds
        spent = min(microseconds(expression, roots) for _ in range(3))
        switch: Switch[Query] = Switch()
        switch.add_link("one")
        switch.subscribe("one", Query.parse(text))
        alone = min(microseconds(switch.match_mask, packets) for _ in range(3))
        rows.append(
            {
                "query": text,
                "us": round(spent, 2),
                "ratio_to_parse": round(spent / parse, 2),
                "paper_us": paper,
                "matches": bool(switch.match(FLIGHT)),
                "switch_us": round(alone, 2),
            }
        )
    together: Switch[Query] = Switch()
    for number, text in enumerate(QUERIES):
        together.add_link(number)
        together.subscribe(number, Query.parse(text))
    spent = min(microseconds(together.match_mask, packets) for _ in range(3))
    data = {
        "flight_bytes": len(FLIGHT),
        "rows": rows,
        "switch_us": round(spent, 2),
        "switch_ratio_to_parse": round(spent / parse, 2),
    }
    columns = ["query", "us", "ratio_to_parse", "paper_us", "switch_us", "matches"]
    table = [[row.get(column, "") for column in columns] for row in rows]
    table.append(["all four in one switch", round(spent, 2), round(spent / parse, 2), "", round(spent, 2), ""])
    notes = ["us: lxml's compiled XPath on the parsed flight; switch_us: bytes in, links out, markup known."]
    return Report("table1", data, columns, table, notes=notes)
