"""The optimizer's benchmark runs, small, and has a target for every row of the design's table."""

from __future__ import annotations

import argparse

from bench import xport


def run(*arguments: str):
    parser = argparse.ArgumentParser()
    xport.add_arguments(parser)
    return xport.run(parser.parse_args(arguments))


def test_rows_of_the_paper_reach_their_targets():
    report = run("--row", "star", "--row", "cpu", "--row", "bottleneck", "--row", "traffic")
    assert {row["row"] for row in report.data["rows"]} == {"star", "cpu", "bottleneck", "traffic"}
    assert report.targets
    assert report.reached, report.targets


def test_a_small_mesh_comes_nearer_to_its_goal_and_keeps_its_levels():
    report = run("--row", "mesh", "--peers", "60")
    rows = {row["policy"]: row for row in report.data["rows"]}
    assert rows["local"]["cost_ms"] < 0.8 * rows["today"]["cost_ms"]
    assert all(row["level_violations"] == 0 and row["hops_max"] <= 12 for row in rows.values())


def test_every_row_has_targets():
    assert set(xport.TARGETS) == set(xport.EXPERIMENTS)
