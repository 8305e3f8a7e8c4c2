"""The join benchmark runs, small, and prints what the issue asks for."""

from __future__ import annotations

import argparse

import pytest

from bench import join


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_join_has_the_time_to_the_first_packet_and_its_parts():
    parser = argparse.ArgumentParser()
    join.add_arguments(parser)
    report = join.run(parser.parse_args(["--runs", "1", "--starts", "1", "--rate", "200"]))
    (row,) = report.data["runs"]
    parts = [row[name] for name in ("start_up_s", "dht_s", "join_s", "packet_s")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(row["first_packet_s"], abs=0.01)
    assert report.data["first_packet_s"] == row["first_packet_s"]
    assert row["cpu_s"] > 0
    assert report.data["help_times_bare_python"] > 1
