"""Two trees in turns: the medians, and what counts as slower."""

from __future__ import annotations

import argparse

import pytest

from bench import versus


def test_the_slower_tree_is_named(monkeypatch, tmp_path):
    (tmp_path / "bench").mkdir()
    speeds = iter([100.0, 100.0, 50.0, 90.0, 101.0, 80.0])

    def rates(tree, bench):
        return {"x": 100.0} if tree == tmp_path.resolve() else {"x": next(speeds)}

    monkeypatch.setattr(versus, "_rates", rates)
    args = argparse.Namespace(other=tmp_path, turns=3, benches=["firehose"])
    report = versus.run(args)
    assert report.data["rows"][0]["ratio"] == 1.0
    assert report.reached
    report = versus.run(args)
    assert report.data["rows"][0]["ratios"] == [0.9, 1.01, 0.8]
    assert report.data["rows"][0]["ratio"] == 0.9
    assert not report.reached


def test_a_tree_that_is_none_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="name the root of another tree"):
        versus.run(argparse.Namespace(other=tmp_path, turns=1, benches=["firehose"]))
