"""From peers that run to the table of `analyze mesh`: what `join --trace` writes is what the analysis reads."""

from __future__ import annotations

import json
import time

import pytest

from peer.cli.errors import ExitCode
from pipeline.cli import main
from tests.peer.cli.command import LOCAL, PATIENCE, call, root, running

pytestmark = [
    pytest.mark.net,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
]
JOIN = ("join", "--roots-key", "asdi", *LOCAL, "--format", "none")


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def state(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def events(path, kind):
    """Whole lines; the last may still be being written."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in found if event["event"] == kind]


def test_from_traces_of_real_peers_to_the_table(spark, tmp_path, capsys):
    """A root, two routers and a client of two parents, one of which dies: delivered, duplicated, repaired."""
    trace, status, router_trace = (tmp_path / name for name in ("client.jsonl", "status.json", "router.jsonl"))
    with root("--feed", "demo", "--rate", "100", "--stamp") as (_, address):
        reach = ("--bootstrap", address)
        router = (*JOIN, *reach, "--parents", "1")
        homes = [tmp_path / "one.json", tmp_path / "two.json"]
        with (
            running(*router, "--status-file", str(homes[0])) as one,
            running(*router, "--status-file", str(homes[1]), "--trace", str(router_trace)) as two,
            running(*JOIN, *reach, "--leaf", "--trace", str(trace), "--status-file", str(status)) as client,
        ):
            whole = wait_for(lambda: (now := state(status)) and now["parents_sound"] == 2 and now)
            routers = {
                wait_for(lambda at=home: state(at))["peer"]: command
                for home, command in zip(homes, (one, two), strict=True)
            }
            wait_for(lambda: len(events(trace, "deliver")) > 100 and events(trace, "duplicate"))
            wait_for(lambda: events(router_trace, "deliver"))  # it may be the one that dies: by then it has written
            parent = next(routers[link["peer"]] for link in whole["parents"] if link["peer"] in routers)
            parent.process.kill()
            wait_for(lambda: events(trace, "repair"))
            assert client.stop() == ExitCode.INTERRUPTED, client.text
    written = events(trace, "deliver")
    assert [event["an"] for event in written] == list(range(written[0]["an"], written[-1]["an"] + 1))
    assert main(["analyze", "mesh", str(trace), str(router_trace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["peer"]: row for row in found["peer"]}
    assert len(rows) == 2
    row = rows[written[0]["peer"]]
    assert (row["delivered"], row["lost"], row["repairs"]) == (len(written), 0, len(events(trace, "repair")))
    assert row["duplicates"] == sum(event["count"] for event in events(trace, "duplicate")) > 0
    assert 0 < row["latency_p50"] <= row["latency_p99"]
    assert 0 < row["repair_p50"] < PATIENCE
    # Two parents at a time, one of which was replaced: what they brought first adds up to what was delivered, about.
    brought = [entry for entry in found["first_copies"] if entry["peer"] == written[0]["peer"]]
    assert len(brought) >= 2
    assert sum(entry["share"] for entry in brought) == pytest.approx(1)
    assert all(0 <= entry["first"] <= entry["copies"] for entry in brought)
    (metric,) = found["protocols"]
    assert metric["protocol"] == "dcp"
    assert metric["received"] == metric["sent"] == sum(entry["delivered"] for entry in rows.values())
    # Nothing was lost, so both metrics are the mean latency.
    assert metric["relate"] == pytest.approx(metric["latency_ms"])
    assert metric["relate2"] == pytest.approx(metric["latency_ms"])


def test_a_trace_that_cannot_be_written_is_one_sentence(tmp_path):
    with root("--feed", "demo") as (_, address):
        done = call(*JOIN, "--bootstrap", address, "--trace", str(tmp_path / "none" / "trace"))
    assert done.returncode == ExitCode.CONFIG
    assert b"--trace" in done.stderr
    assert b"No such file" in done.stderr
    assert b"Traceback" not in done.stderr
