"""The switch benchmarks run, small, and print what the issue asks for."""

from __future__ import annotations

import argparse
import random

from lxml import etree

from bench import _flights, _news, switch, switch_paths, table1
from xmlswitch import Query


def arguments(module, *given):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(given)


def test_switch_rows_have_every_figure():
    report = switch.run(arguments(switch, "--max-queries", "10", "--packets", "60", "--workload", "clientele"))
    assert [row["queries"] for row in report.data["rows"]] == [1, 10]
    for row in report.data["rows"]:
        assert {"us_a_packet", "ratio_to_parse", "ratio_to_naive", "bytes_a_query", "add_us", "remove_us"} <= set(row)


def test_switch_paths_rows_have_every_figure():
    report = switch_paths.run(arguments(switch_paths, "--max-queries", "100", "--documents", "10"))
    assert [row["workload"] for row in report.data["rows"]] == ["faa", "faa"]


def test_every_row_of_the_table_has_a_workload_that_its_documents_meet():
    """A workload whose queries match nothing would measure nothing."""
    for case in (*switch.cases(20, 16), *switch_paths.cases(20, 16)):
        workload = case.workload
        queries = [Query.parse(text, workload.namespaces) for text in workload.queries(60)]
        assert all((query.version == "1.0") == workload.is_first_version for query in queries)
        packets = workload.packets(1, 200)
        assert any(query.matches(packet) for query in queries for packet in packets), workload.name


def test_table1_gives_the_papers_answers():
    report = table1.run(arguments(table1, "--rounds", "20"))
    assert [row["matches"] for row in report.data["rows"][1:]] == [True, False, False, True]


def test_the_stream_is_what_it_claims_to_be():
    packets = _flights.Traffic(1).packets(500)
    assert all(200 <= len(packet) <= 1000 for packet in packets)
    assert len({etree.fromstring(packet).find("message").get("type") for packet in packets}) == 8
    assert len({Query.parse(text) for text in _flights.queries(1, 200)}) == 200


def test_news_documents_are_news_size():
    documents = _news.documents(1, 20)
    assert 2500 < sum(map(len, documents)) / 20 < 6000
    assert 80 < sum(document.count(b"</") for document in documents) / 20 < 120
    assert all(Query.parse(_news.mixed_query(random.Random(seed))) for seed in range(50))
