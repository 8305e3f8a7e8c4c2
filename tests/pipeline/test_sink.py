"""Packets out of Spark again: the sink `mesh`, batch reads and writes, and the live jobs with their state."""

from __future__ import annotations

import contextlib
import json
import math

import pytest

import asdi
from asdi.origin import with_origin
from peer.packetlog import Packet, Reader, Writer
from pipeline import sink
from pipeline.archive.manifest import Archive
from pipeline.live import alerts as alerts_module
from pipeline.live.alerts import LiveJob, live, seen_of
from pipeline.replay import iterate
from pipeline.session import PipelineError
from pipeline.sink import ROW_BITS, append, check_packet
from pipeline.source import register
from tests.pipeline.conftest import NOON
from tests.pipeline.dying import Died
from tests.pipeline.test_watch import course, in_order

spark_test = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore"),
]  # fmt: skip


def with_spark(test):
    for mark in spark_test:
        test = mark(test)
    return test


def logged(log) -> list[tuple[int, bytes]]:
    return [(entry.an, entry.payload) for _, entry in Reader(log).iterate() if isinstance(entry, Packet)]


# --- without Spark ---
def test_a_batch_that_comes_again_changes_nothing(tmp_path):
    packets = [b"<a>%d</a>" % n for n in range(5)]
    assert append(tmp_path, packets[:3], batch=4) == 3
    assert append(tmp_path, packets[:3], batch=4) == 0
    assert append(tmp_path, packets, batch=4) == 2  # a commit that had died halfway
    assert append(tmp_path, packets[:1], batch=7) == 1
    assert append(tmp_path, packets[:2], batch=None) == 2
    first, later = 4 << ROW_BITS, 7 << ROW_BITS
    assert [an for an, _ in logged(tmp_path)] == [*range(first, first + 5), later, later + 1, later + 2]


def test_rows_that_are_not_packets_are_refused(monkeypatch):
    assert check_packet("<a/>") == check_packet(bytearray(b"<a/>")) == b"<a/>"
    for bad in (None, b"", b"text", b"<a>", b"<a/>" + bytes(1 << 20)):
        with pytest.raises(PipelineError):
            check_packet(bad)
    monkeypatch.setattr(sink, "ROW_BITS", 2)
    with pytest.raises(PipelineError, match="fewer than 4 packets"):
        append("nowhere", [b"<a/>"] * 4, batch=0)


def meeting() -> list:
    return in_order(
        course("A1", 40, -73, 90, 480, 35_000, NOON, 9),
        course("B2", 40, -73 + 1 / math.cos(math.radians(40)), 270, 480, 35_000, NOON + 7, 9),
        course("C3", 30, -90, 0, 400, 20_000, NOON + 3, 25),
    )


@pytest.mark.parametrize("what", ["conflicts", "lost", "sectors"])
@pytest.mark.parametrize("step", ["append", "_keep", "_save"])
@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_live_job_that_dies_anywhere_finds_everything_once(tmp_path, monkeypatch, what, step, is_same_process):
    rows = meeting()
    batches = [rows[at : at + 6] for at in range(0, len(rows), 6)]

    def job(name: str) -> LiveJob:
        return LiveJob(what, tmp_path / name / "state", tmp_path / name, archive=Archive(tmp_path / f"{name}-archive"))

    whole = job("whole")
    for number, batch in enumerate(batches):
        whole.take(number, batch)
    broken, owner = job("broken"), alerts_module if step == "append" else LiveJob
    for number, batch in enumerate(batches):
        for after in (False, True):  # before the step's work, and behind it
            real = getattr(owner, step)

            def dying(*args, after=after, real=real, **options):
                if after:
                    real(*args, **options)
                raise Died

            with monkeypatch.context() as patch:
                patch.setattr(owner, step, dying)
                with contextlib.suppress(Died):  # the second time it may be done already
                    broken.take(number, batch)
            broken = broken if is_same_process else job("broken")
        broken.take(number, batch)
    assert logged(tmp_path / "broken") == logged(tmp_path / "whole") != []
    kept = [(packet.an, packet.payload) for packet in iterate(tmp_path / "broken-archive")]
    assert kept == logged(tmp_path / "whole")
    assert len(list((tmp_path / "broken" / "state").glob("*.json"))) == 2
    other = LiveJob("lost" if what != "lost" else "sectors", tmp_path / "whole" / "state", tmp_path / "whole")
    with pytest.raises(PipelineError, match="use another --alerts"):
        other.take(99, [])


def line_of(row) -> bytes:
    """A position as the feed writes it, with seconds."""
    ns, ew = "N" if row.latitude >= 0 else "S", "E" if row.longitude >= 0 else "W"
    places = []
    for value, digits, letter in ((row.latitude, 2, ns), (row.longitude, 3, ew)):
        seconds = round(abs(value) * 3600)
        places.append(f"{seconds // 3600:0{digits}d}{seconds // 60 % 60:02d}{seconds % 60:02d}{letter}")
    clock = f"16{row.time // 3600 % 24:02d}{row.time // 60 % 60:02d}{row.time % 60:02d}"
    fields = f"{row.flight} {row.speed_kt} {row.altitude_ft // 100:03d} {'/'.join(places)}"
    return f"{row.an & 0xFFFF:04X}{clock}KZNYTZ {fields}".encode()


def packets_of(rows, *, lines: bool) -> list[Packet]:
    packets = []
    for row in rows:
        line = line_of(row)
        payload = asdi.to_xml(asdi.parse(line))
        payload = with_origin(payload, row.time, line) if lines else payload
        packets.append(Packet(row.an, row.time * 1_000_000, payload))
    return packets


@pytest.mark.parametrize("lines", [True, False])
def test_a_packet_says_where_a_flight_is(lines):
    row = meeting()[0]
    (packet,) = packets_of([row], lines=lines)
    seen = seen_of(packet.an, packet.time_us, packet.payload)
    assert (seen.an, seen.time, seen.flight, seen.facility) == (row.an, row.time, "A1", "KZNY" if lines else None)
    assert (seen.latitude, seen.longitude) == pytest.approx((row.latitude, row.longitude), abs=0.001)
    assert seen_of(1, 1, b"<heartbeat/>") is None
    landed = asdi.to_xml(asdi.parse("000116120000KZNYAZ UAL1 KJFK KBOS 1200"))
    assert seen_of(5, NOON * 1_000_000, landed) == (5, NOON, "UAL1", *([None] * 5))


# --- with Spark ---
@with_spark
def test_the_live_source_to_alerts(spark, tmp_path):
    with Writer(tmp_path / "log") as writer:
        writer.append(packets_of(meeting(), lines=True))
    job = LiveJob("conflicts", tmp_path / "out" / "state", tmp_path / "out", archive=Archive(tmp_path / "a"))
    options = {"log": str(tmp_path / "log"), "maxRecords": "10"}
    live(spark, options, job, tmp_path / "checkpoint", name="conflicts", once=True).awaitTermination()
    ((an, xml),) = logged(tmp_path / "out")
    assert b'<alert kind="conflict"' in xml
    assert b"<id>A1</id><id>B2</id>" in xml
    assert [(packet.an, packet.payload) for packet in iterate(tmp_path / "a")] == [(an, xml)]


@with_spark
def test_the_sink_publishes_a_derived_stream_exactly_once(spark, tmp_path):
    register(spark)
    packets = packets_of(meeting(), lines=False)
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("mesh").option("log", str(log)).option("maxRecords", "8").load()
        derived = source.selectExpr("an AS order", "concat('<derived an=\"', an, '\"/>') AS xml").repartition(3)
        writer = derived.writeStream.format("mesh").option("log", str(out)).option("roots_key", "derived")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    with Writer(log) as writer:
        writer.append(packets[:20])
    run()
    # Killed behind our commit and before Spark's own: the last batch comes again.
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
    with Writer(log) as writer:
        writer.append(packets[20:])
    run()
    assert [xml for _, xml in logged(out)] == [b'<derived an="%d"/>' % packet.an for packet in packets]
    assert Reader(out).stream == "derived"
    assert not list((out / "_sink").iterdir())
    # The same as batches.
    frame = spark.read.format("mesh").option("log", str(out)).load()
    assert frame.count() == len(packets)
    again = tmp_path / "again"
    frame.selectExpr("an AS order", "xml").write.format("mesh").option("log", str(again)).mode("append").save()
    assert [xml for _, xml in logged(again)] == [xml for _, xml in logged(out)]
    for options, columns, said in (
        ({"log": "x", "root_key": "y"}, ["xml"], "did you mean roots_key"),
        ({"log": str(again)}, ["xml", "after"], "takes the columns xml and order"),
    ):
        with pytest.raises(Exception, match=said):
            frame.select(*columns).write.format("mesh").options(**options).mode("append").save()


def test_alerts_can_be_read_by_anybody(tmp_path):
    job = LiveJob("lost", tmp_path / "state", tmp_path)
    job.take(0, meeting()[:5])
    state = json.loads(next((tmp_path / "state").glob("*.json")).read_text())
    assert state["what"] == "lost"
    assert set(state["machine"]["last"]) == {"A1", "B2", "C3"}
