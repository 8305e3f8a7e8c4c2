"""Tiny runs of the benchmarks of dcp: the documents have the promised keys, and the figures can be drawn."""

from __future__ import annotations

import json

import pytest

import bench.report
from bench.__main__ import main

pytestmark = [pytest.mark.net, pytest.mark.slow]


@pytest.fixture
def document(capsys, tmp_path, monkeypatch):
    """Run a benchmark as the command line does: its JSON document, with the figure drawn somewhere harmless."""

    def run(name: str, *options: str) -> dict:
        monkeypatch.setattr(bench.report, "FIGURES", tmp_path)
        # Whether a target is reached in a run as short as this says nothing.
        assert main([name, "--json", "--plot", *options]) in (0, 1)
        assert (tmp_path / f"{name}.png").stat().st_size > 1_000
        return json.loads(capsys.readouterr().out)

    return run


def test_loss(document):
    found = document("loss", "--parents", "1", "2", "--loss", "0", "0.3", "--packets", "200", "--processes", "1")
    assert found["max_abs_error"] < 0.2
    assert [(row["parents"], row["loss"]) for row in found["rows"]] == [(1, 0.0), (1, 0.3), (2, 0.0), (2, 0.3)]
    for row in found["rows"]:
        assert row["theory"] == pytest.approx(row["loss"] ** row["parents"])
        assert row["packets"] == 200
        if row["loss"] == 0:
            assert row["measured"] == 0
    assert found["rows"][1]["measured"] > 0


def test_latency(document):
    found = document(
        "latency", "--parents", "2", "--loss", "0", "0.5", "--packets", "20", "--interval", "0.05", "--processes", "1"
    )
    assert [(row["loss"], row["timers"]) for row in found["rows"]] == [
        (0.0, "adaptive"),
        (0.0, "fixed"),
        (0.5, "adaptive"),
        (0.5, "fixed"),
    ]
    for row in found["rows"]:
        assert row["parents"] == 2
        assert row["delivered"] == 1.0
        assert 0 < row["mean_ms"] <= row["p99_ms"]


def test_throughput(document):
    found = document("throughput", "--loss", "0", "0.5", "--seconds", "3", "--repetitions", "1")
    calm, lossy = found["rows"]
    assert calm["erasure_bytes_per_second"] == 2381.0
    assert lossy["erasure_bytes_per_second"] == pytest.approx(2381 * 0.4375, abs=0.1)
    assert calm["dcp_bytes_per_second"] > 0
    assert (found["tcp_skipped"] is None) == (calm["tcp_bytes_per_second"] is not None)


def test_firehose(document):
    found = document("firehose", "--packets", "20000", "--sample", "8000", "--repetitions", "1")
    assert found["delivered_in_order"] is True
    assert found["ratio_to_bare"] == pytest.approx(
        found["dcp_packets_per_second"] / found["bare_packets_per_second"], rel=0.01
    )
    assert found["ratio_to_without_protection"] == pytest.approx(
        found["peers_packets_per_second"] / found["peers_without_protection_packets_per_second"], rel=0.01
    )
    assert found["memory"]["packets"] == 20_000
    assert found["memory"]["receiver_rss_bytes"] > 1 << 20


def test_a_wrong_name_is_told_in_one_line(capsys):
    assert main(["no-such-bench"]) == 2
    assert "no-such-bench" in capsys.readouterr().err
