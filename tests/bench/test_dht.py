"""The DHT benchmark keeps its promises about its document; its figures are another matter."""

from __future__ import annotations

import argparse

import pytest

import bench.dht


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.dht.add_arguments(parser)
    return parser.parse_args(given)


def test_the_rows_have_the_promised_keys(monkeypatch):
    """Both systems on real sockets, with nobody dead: stock's five-second waits are for the benchmark itself."""
    monkeypatch.setattr(bench.dht, "DEAD", (0,))
    monkeypatch.setattr(bench.dht, "MAX_OPERATIONS", 4)
    monkeypatch.setattr(bench.dht, "_targets", lambda rows: [])
    report = bench.dht.run(arguments("--nodes", "24"))
    assert [set(row) for row in report.data["rows"]] == [{"system", "dead", "op", "p50_s", "p99_s", "ok"}] * 4
    assert {(row["system"], row["op"]) for row in report.data["rows"]} == {
        (system, op) for system in ("ours", "stock") for op in ("lookup", "publish")
    }
    assert all(row["ok"] == 1.0 and 0 < row["p50_s"] <= row["p99_s"] for row in report.data["rows"])


def row(system: str, op: str, p50: float, ok: float = 1.0) -> dict:
    return {"system": system, "dead": 50, "op": op, "p50_s": p50, "p99_s": p50, "ok": ok}


@pytest.mark.parametrize(
    ("ours", "stock", "ok", "met"),
    [(0.3, 15.0, 1.0, True), (0.3, 2.9, 1.0, False), (1.1, 15.0, 1.0, False), (0.3, 15.0, 0.9, False)],
)
def test_targets_are_a_tenth_of_stock_and_under_a_second(ours, stock, ok, met):
    rows = [row("ours", op, ours, ok) for op in ("lookup", "publish")]
    rows += [row("stock", op, stock) for op in ("lookup", "publish")]
    assert [target.met for target in bench.dht._targets(rows)] == [met, met]


def test_the_simulation_prints_its_fit():
    report = bench.dht.run(arguments("--simulate", "--nodes", "12", "--minutes", "0.2", "--half-life", "60"))
    assert [row["nodes"] for row in report.data["rows"]] == [10, 12, 12]
    assert set(report.data["fit"]) == {"start", "per_doubling", "error"}
    assert len(report.targets) == 3
