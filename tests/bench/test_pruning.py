"""The pruning benchmark runs, small, and prints what the issue asks for."""

from __future__ import annotations

import argparse

from bench import pruning


def test_rows_have_every_figure():
    parser = argparse.ArgumentParser()
    pruning.add_arguments(parser)
    report = pruning.run(parser.parse_args(["--max-queries", "100", "--packets", "200"]))
    assert [(row["workload"], row["queries"]) for row in report.data["rows"]] == [
        ("flights", 10),
        ("flights", 100),
        ("boxes", 10),
        ("boxes", 100),
    ]
    assert all(row["passed_share"] == row["exact_share"] for row in report.data["rows"])
    assert all(set(pruning.COLUMNS) <= set(row) for row in report.data["rows"])
