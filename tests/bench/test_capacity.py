"""The capacity benchmark runs, small: every leaf is counted, and nothing is lost."""

from __future__ import annotations

import argparse

import pytest

from bench import capacity


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_capacity_counts_every_leaf_and_what_the_root_spent():
    parser = argparse.ArgumentParser()
    capacity.add_arguments(parser)
    report = capacity.run(parser.parse_args(["--leaves", "2", "--hosts", "1", "--settle", "2", "--seconds", "1"]))
    (row,) = report.data["rows"]
    assert row["joined"] <= row["leaves"] == 2
    assert row["complete"] <= row["joined"]
    assert row["lost"] == 0
    assert row["memory_mb"] > 1
    assert [target.name for target in report.targets][:2] == ["all leaves in within 15 s", "lost 0"]
