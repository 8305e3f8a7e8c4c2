"""`pipeline record` against peers that run: a root, the recorder that joins it, Spark, and deaths in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from peer.errors import FeedError
from peer.packetlog import Packet, Reader
from pipeline.archive.feed import packets as archive_packets
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.cli import INTERRUPTED
from pipeline.live.commands import is_written
from pipeline.replay import iterate
from pipeline.sink import append
from tests.asdi.lines import GOLDEN
from tests.peer.cli.command import LOCAL, PATIENCE, Running, call, root
from tests.pipeline.conftest import SHORT_LIVED, record_once
from tests.pipeline.test_kill import descendants, kill_all, wait_until

pytestmark = [
    pytest.mark.net,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.soak  # six lives of Spark and four of a peer: a minute and more
def test_a_live_mesh_into_the_archive_exactly_once(spark, tmp_path):
    log, out, progress = tmp_path / "log", tmp_path / "archive", tmp_path / "progress.jsonl"

    def batches() -> int:
        return Archive(out).manifest().version

    with root("--feed", "demo", "--rate", "300") as (_, address):
        command = [
            sys.executable,
            "-m",
            "pipeline",
            "record",
            "--log",
            str(log),
            "--out",
            str(out),
            "--interval",
            "0.2",
        ]
        command += ["--roots-key", "asdi", "--bootstrap", address, "--progress", str(progress), "--max-records", "400"]
        command += ["--master", "local[2]", *SHORT_LIVED]

        def start() -> subprocess.Popen[bytes]:
            error = (tmp_path / "err").open("wb")
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=error, start_new_session=True)

        def told(number: int, code: int, last_words: str) -> None:
            """A life that goes some way and is then asked to end."""
            reached, logged_before = batches(), Reader(log).end_position()
            life = start()
            assert wait_until(
                life, lambda: batches() >= reached + 2 and Reader(log).end_position() > logged_before + 100
            ), (tmp_path / "err").read_text()
            below = descendants(life.pid)
            life.send_signal(number)
            assert life.wait(60) == code
            said = (tmp_path / "err").read_text()
            assert "Traceback" not in said
            assert " ERROR " not in said
            assert said.rstrip().endswith(last_words)
            assert holds_soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))  # nothing stays behind
            assert holds_soon(lambda: not is_written(log))

        life = start()
        assert wait_until(life, lambda: batches() >= 2), (tmp_path / "err").read_text()
        kill_all(life)
        assert holds_soon(lambda: not is_written(log))  # the recorder goes with the rest
        told(signal.SIGINT, INTERRUPTED, "pipeline: interrupted")
        told(signal.SIGTERM, 0, "/s")  # whoever stops a service asked for it: nothing is said
    # What the log has beyond the last batch, by a query that ends with it.
    options = {"log": str(log), "maxRecords": "100000"}
    record_once(spark, options, out, log / "checkpoint", progress=progress)
    reader = Reader(log, durable=False)
    logged = [entry for _, entry in reader.iterate(reader.first_position()) if isinstance(entry, Packet)]
    stored = [(packet.an, packet.payload) for packet in iterate(out)]
    assert stored == [(packet.an, packet.payload) for packet in logged]
    ans = [an for an, _ in stored]
    assert ans == list(range(ans[0], ans[0] + len(ans)))  # the demo feed counts without holes, over both lives
    assert verify(spark, Archive(out)).problems == []
    events = [json.loads(line) for line in progress.read_text().splitlines()]
    runs = [event["run"] for event in events if event["event"] == "started"]
    assert len(runs) >= 4
    sizes = [event["numInputRows"] for event in events if event["event"] == "progress" and event["runId"] in runs[:3]]
    assert 0 < max(sizes) <= 400  # admission control: no batch of the commands took more than it was allowed


def holds_soon(condition) -> bool:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_golden_lines_over_a_live_mesh(tmp_path):
    """Every message type, byte-equal at a client to what the parser alone makes of its line."""
    feed = tmp_path / "lines.txt"
    feed.write_text("".join(f"{line} \r\n" for line in GOLDEN))
    with root("--feed", f"asdi:{feed}", "--numbering", "position", "--rate", "0") as (_, address):
        done = call(
            "join", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--leaf", "--parents", "1",
            "--from", "oldest", "--count", str(len(GOLDEN)), "--timeout", str(PATIENCE),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == list(GOLDEN.values())


def test_an_archive_is_replayed_by_a_root(archive_path, tmp_path):
    """A part of history through `replay --roots-key`, at a client: the same packets under the same numbers."""
    begin, end = 1_796_083_200.0 - 30, 1_796_083_200.0 + 30
    expected = list(iterate(archive_path, begin, end))
    bounds = [datetime.fromtimestamp(moment, UTC).isoformat() for moment in (begin, end)]
    command = [sys.executable, "-m", "pipeline", "replay", str(archive_path), "--from", bounds[0], "--to", bounds[1]]
    command += ["--speed", "0", "--roots-key", "asdi", "--listen", "127.0.0.1:0", "--stream", "asdi"]
    life = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = next(line.split(" on ")[1].split(",")[0] for line in life.stderr if " on 127." in line)
        done = call(
            "join", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--leaf", "--parents", "1", "--format",
            "jsonl", "--from", "oldest", "--count", str(len(expected)), "--timeout", str(PATIENCE),
        )  # fmt: skip
        below = descendants(life.pid)
        assert below
        life.terminate()  # a service is stopped like this; the root stayed, and published on
        life.wait(PATIENCE)
        assert holds_soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    finally:
        kill_all(life)
        life.stderr.close()
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["an"], line["xml"].encode()) for line in got] == [(p.an, p.payload) for p in expected]


def test_an_archive_as_a_feed(archive_path):
    middle = 1_796_083_200.0
    every = list(iterate(archive_path))
    assert [(p.an, p.payload, p.time) for p in archive_packets(str(archive_path))] == [
        (p.an, p.payload, p.time) for p in every
    ]
    later = [p.an for p in archive_packets(f"{archive_path}?from={middle}&stream=asdi")]
    sooner = [p.an for p in archive_packets(f"{archive_path}?to={middle}")]
    assert sooner + later == [p.an for p in every]
    assert list(archive_packets(f"{archive_path}?stream=other")) == []
    for wrong in ("from=noon", "form=1", "from"):
        with pytest.raises(FeedError, match="from"):
            list(archive_packets(f"{archive_path}?{wrong}"))


def test_a_log_that_grows_is_published_as_it_grows(tmp_path):
    """What the sink `mesh` writes, at a client: packets that came before the root did, and after the client did."""
    log, first = tmp_path / "log", 3 << 20
    append(log, [b"<alert>1</alert>", b"<alert>2</alert>"], batch=3, stream="alerts")
    with root("--feed", f"log:{log}", "--follow", stream="alerts") as (_, address):
        client = Running(
            "join", "--roots-key", "alerts", *LOCAL, "--bootstrap", address, "--leaf", "--parents", "1", "--format",
            "jsonl", "--from", "oldest", "--count", "3", "--timeout", str(PATIENCE),
        )  # fmt: skip
        client.until(lambda: len(client.out) >= 2)
        append(log, [b"<alert>1</alert>"], batch=4, stream="alerts")
        assert client.end() == 0, client.text
    got = [json.loads(line) for line in client.out]
    assert [line["an"] for line in got] == [first, first + 1, 4 << 20]
