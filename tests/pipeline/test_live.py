"""The streaming source on a packet log: exactly once into the archive, whatever happens in between."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from asdi.flights import Feed
from peer.packetlog import Gap, LogConfig, Packet, Writer
from pipeline import source
from pipeline.archive.jobs import read, verify
from pipeline.archive.manifest import Archive
from pipeline.archive.packet import describe
from pipeline.live.commands import is_written, recorder_command, root_command
from pipeline.live.record import BatchGate, record
from pipeline.live.restarts import Restarts
from pipeline.session import PipelineError
from tests.asdi.lines import GOLDEN
from tests.peer.packetlog.test_damage import kill
from tests.pipeline.conftest import NOON

spark_test = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore"),
]  # fmt: skip


def with_spark(test):
    for mark in spark_test:
        test = mark(test)
    return test


def entries(count, start=NOON):
    packets = []
    for packet in Feed().packets(start):
        packets.append(Packet(packet.an, packet.time * 1_000_000, packet.payload))
        if len(packets) == count:
            return packets
    return packets


def test_describe_knows_every_type():
    for line, xml in GOLDEN.items():
        kind, flight = describe(xml.encode())
        expected = {"RT": "message", "BZ": "message"}.get(line[16:18], line[16:18])
        assert kind == expected
        if kind not in {"HB", "message"}:
            assert flight == line[19:].split()[0].split("/")[0]
    assert describe(b'<?xml version="1.0"?><ns5:NasFlight xmlns:ns5="u"/>') == ("NasFlight", None)
    assert describe(b"nothing") == ("unknown", None)


def test_commands_to_the_mesh(tmp_path):
    command = recorder_command("asdi", tmp_path, query="/flight", bootstrap="a:1,b:2")
    assert command[2:8] == ["peer", "record", "--roots-key", "asdi", "--out", str(tmp_path)]
    assert command[8:] == ["--query", "/flight", "--bootstrap", "a:1", "--bootstrap", "b:2"]
    command = root_command("asdi", tmp_path, speed=10, from_time=1.5, to_time=None, more=[])
    source = f"archive:{tmp_path}?from=1.500000"
    assert command[3:] == ["root", "--roots-key", "asdi", "--feed", source, "--speed", "10"]
    command = root_command("asdi", tmp_path, speed=0, stream="a&b", more=["--listen", ":0"])
    assert command[6:] == ["--feed", f"archive:{tmp_path}?stream=a%26b", "--rate", "0", "--listen", ":0"]


def test_is_written(tmp_path):
    assert not is_written(tmp_path)
    with Writer(tmp_path):
        assert is_written(tmp_path)
    assert not is_written(tmp_path)


@pytest.mark.parametrize(("raised", "ends"), [("EOFError", True), ("BrokenPipeError", True), ("OSError", False)])
def test_a_planning_worker_whose_spark_hung_up_ends_without_a_word(tmp_path, raised, ends):
    """pyspark tried to answer a Spark that had gone, and printed a traceback on the terminal of who pressed Ctrl-C."""
    program = f"""
from pipeline.source import MeshReader
try:
    try:
        raise {raised}
    finally:
        MeshReader({{"log": {str(tmp_path)!r}}}).stop()
finally:
    print("went on")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr != "") == ((0, "", False) if ends else (1, "went on\n", True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxRecord": "5"}, "no option 'maxrecord'; did you mean maxRecords?"),
        ({"rootskey": "asdi"}, "did you mean roots_key?"),
        ({"colour": "red"}, "there are log, roots_key, query, bootstrap"),
        ({"from": "yesterday"}, "must be oldest or now, got 'yesterday'"),
    ],
)
def test_a_misspelt_option_is_an_error(tmp_path, options, said):
    with pytest.raises(PipelineError, match=re.escape(said)):
        source.MeshReader({"log": str(tmp_path), **options})


def test_record_starts_again_after_a_lost_worker_and_not_after_what_stays_wrong():
    restarts = Restarts()
    lost = "Python worker exited unexpectedly (crashed)"
    assert [restarts.delay_after(lost, None) for _ in range(7)] == [1, 2, 4, 8, 16, 32, None]
    restarts = Restarts()
    assert [restarts.delay_after(lost, batch) for batch in (3, 3, 4, 4, 4)] == [1, 2, 1, 2, 4]
    assert restarts.total == 5
    assert Restarts().delay_after("...\npipeline.session.PipelineError: positions 0 to 5 are gone", 9) is None
    ended = "pipeline.live.commands.RecorderEnded: `peer record` ended with -9: no message"
    assert Restarts().delay_after(ended, None) is None
    assert Restarts().delay_after(ended, 9) == 1


def test_a_log_that_can_not_be_written_is_read_as_far_as_it_was_synced(tmp_path, monkeypatch, caplog):
    with Writer(tmp_path) as writer:
        writer.append(entries(3))

    def refuse(log):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(source, "settle", refuse)
    reader = source.MeshReader({"log": str(tmp_path)})
    for _ in range(2):
        assert reader.latestOffset({"position": 0}, ReadAllAvailable()) == {"position": 3}
    (told,) = caplog.messages
    assert "Read-only file system; what a killed recorder left unsynced in it is not read" in told


def test_a_shut_gate_waits_for_the_batch_inside_and_lets_no_other_in():
    gate, entered, leave = BatchGate(), threading.Event(), threading.Event()

    def batch():
        with gate:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=batch)
    thread.start()
    entered.wait()
    assert not gate.shut(0.01)
    leave.set()
    assert gate.shut(60)
    thread.join()
    with pytest.raises(PipelineError, match="interrupted"), gate:
        pytest.fail("a batch went through a gate that was shut")
    assert gate.shut(0)


@with_spark
def test_record_is_exactly_once_over_restarts(spark, tmp_path):
    log, out, checkpoint = tmp_path / "log", tmp_path / "archive", tmp_path / "checkpoint"
    progress = tmp_path / "progress.jsonl"
    options = {"log": str(log), "maxRecords": "700"}
    packets = entries(2500)
    gap = Gap(packets[-1].an, packets[-1].an + 10, packets[-1].time_us)

    def once():
        record(spark, options, out, checkpoint, stream="asdi", once=True, progress=progress).awaitTermination()

    with Writer(log, LogConfig(max_segment_bytes=100_000)) as writer:
        writer.append(packets[:1000])
    once()
    assert read(spark, Archive(out)).count() == 1000
    once()  # nothing new
    writer = Writer(log)
    writer.append(packets[900:])
    writer.append([gap])
    kill(writer)  # its tail is in the log, but nobody has said that it is on the disk
    once()
    rows = read(spark, Archive(out)).orderBy("an").collect()
    assert [(row.an, bytes(row.xml)) for row in rows if row.xml is not None] == [(p.an, p.payload) for p in packets]
    assert [(row.after, row.an, row.type) for row in rows if row.xml is None] == [(gap.after, gap.until, "gap")]
    assert {row.type for row in rows} >= {"TZ", "HB", "gap"}
    found = verify(spark, Archive(out))
    assert (found.problems, found.packets, found.gaps) == ([], 2500, 1)
    for _ in range(200):  # Spark tells its listeners in its own time
        events = [json.loads(line) for line in progress.read_text().splitlines()]
        if sum(event["event"] == "ended" for event in events) == 3:
            break
        time.sleep(0.1)
    batches = [event["numInputRows"] for event in events if event["event"] == "progress" and event["numInputRows"]]
    assert sum(batches) == 2501
    assert max(batches) <= 700


@with_spark
def test_a_batch_that_is_run_again_changes_nothing(spark, tmp_path):
    """Killed after the archive's commit and before Spark's: the batch comes again."""
    from pipeline.live.record import write_batch
    from pipeline.source import COLUMNS

    rows = [(n, n, None, b"<flight/>", None) for n in range(10)]
    frame = spark.createDataFrame(rows, COLUMNS.replace("time TIMESTAMP", "time STRING"))
    frame = frame.selectExpr("position", "an", "timestamp_seconds(an) AS time", "xml", "after")
    archive = Archive(tmp_path)
    assert write_batch(frame, archive, "asdi", "key", 4).details == {"rows": 10}
    assert write_batch(frame, archive, "asdi", "key", 4) is None
    assert write_batch(frame, archive, "asdi", "key", 3) is None
    assert read(spark, archive).count() == 10


@with_spark
def test_lost_positions_are_told(spark, tmp_path):
    log = tmp_path / "log"
    with Writer(log, LogConfig(max_segment_bytes=2_000, max_log_bytes=4_000)) as writer:
        writer.append([Packet(n, n, bytes(100)) for n in range(20)])
        record(spark, {"log": str(log)}, tmp_path / "a", tmp_path / "c", stream="x", once=True).awaitTermination()
        writer.append([Packet(n, n, bytes(100)) for n in range(20, 200)])
    with pytest.raises(Exception, match="retention was too short"):
        record(spark, {"log": str(log)}, tmp_path / "a", tmp_path / "c", stream="x", once=True).awaitTermination()
    options = {"log": str(log), "failOnDataLoss": "false"}
    record(spark, options, tmp_path / "a", tmp_path / "c", stream="x", once=True).awaitTermination()
    assert read(spark, Archive(tmp_path / "a")).agg({"an": "max"}).first()[0] == 199
