"""`pipeline record`: the live source into the archive, exactly once.

Spark's checkpoint makes a batch the same positions again after a crash; the archive takes a job's key only once; the
key is the checkpoint's id and the batch's number. So a batch that was committed and is run again changes nothing.
Between batches small files are merged, so that the archive stays one that can be read.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

import asdi
from asdi.origin import split_origin_untrusted
from peer.feeds.stamp import strip_stamp
from pipeline.archive.jobs import compact_recent
from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.archive.schema import GAP_TYPE, checksum
from pipeline.ingest.text import exact, lines_in
from pipeline.session import PipelineError
from pipeline.source import register
from pipeline.tables.write import TableWriter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATUS = {
    b"active": "TZ", b"planned": "FZ", b"amended": "AF", b"boundary": "UZ", b"departed": "DZ", b"arrived": "AZ",
    b"cancelled": "RZ", b"oceanic": "TO",
}  # fmt: skip
_FLIGHT = re.compile(rb"<flight><id[^>]*>([A-Z0-9]{2,7})</id>.{0,80}?<flightleg status=\"([a-z]+)\">", re.DOTALL)
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")


def describe(packet: bytes) -> tuple[str, str | None]:
    """(type, flight) of a packet as far as its bytes show it: ASDI's types, else the name of the root element."""
    found = _FLIGHT.search(packet)
    if found:
        return _STATUS.get(found[2], "flight"), found[1].decode("ascii")
    if b"<heartbeat/>" in packet:
        return "HB", None
    root = _ROOT.search(packet)
    return (root[1].decode("ascii", "replace") if root else "unknown"), None


def write_batch(batch: DataFrame, archive: Archive, stream: str, recorder: str, number: int) -> Job | None:
    """One batch of a recorder into the archive, under its number. None when the archive has it already."""
    if archive.settled().has(Job(recorder, "record", stream, 0, -1, False, batch=number)):
        return None
    with archive.staging("record") as staging:
        target = str(staging)

        def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            import pyarrow as pa

            writer = PartWriter(Path(target), "record")
            tables = TableWriter(Path(target), "record", stream)
            for part in batches:
                for partition, rows in _rows(part, stream).items():
                    writer.write(partition, list(zip(*rows, strict=True)))
                    for row in rows:
                        tables.add_packet(row)
            reports = [json.dumps(asdict(file)) for file in [*writer.finish(), *tables.finish()]]
            yield pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], names=["report"])

        columns = ["an", "time", "xml", "after"]
        reports = batch.select(*columns).mapInArrow(run, "report STRING").collect()
        files = [DataFile(**json.loads(row.report)) for row in reports]
        first = min((file.first_an for file in files), default=0)
        last = max((file.last_an for file in files), default=-1)
        job = Job(recorder, "record", stream, first, last, False, {"rows": lines_in(files)}, number)
        archive.commit(job, [(staging / file.path, file) for file in files])
        return job


def _rows(part: pyarrow.RecordBatch, stream: str) -> dict[Any, list[tuple[Any, ...]]]:
    import pyarrow as pa

    found: dict[Any, list[tuple[Any, ...]]] = {}
    columns = [part.column(0), part.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), *part.columns[2:]]
    for an, us, xml, after in zip(*(column.to_pylist() for column in columns), strict=True):
        row = _gap(an, us, after) if xml is None else packet_row(an, us, xml)
        found.setdefault(partition_of("packets", stream, row[1] // 1_000_000), []).append(row)
    return found


def _gap(an: int, us: int, after: int) -> tuple[Any, ...]:
    return (an, us, GAP_TYPE, None, None, None, None, None, after, checksum(an, None))


def packet_row(an: int, us: int, payload: bytes) -> tuple[Any, ...]:
    """A packet that came at this time, as the archive keeps it: as `ingest` would have, if its line came along."""
    xml, time, line = split_origin_untrusted(strip_stamp(payload))
    message = _parsed(line, time, xml) if line is not None and time is not None else None
    if message is None or time is None or line is None:
        kind, flight = describe(xml)
        return (an, us, kind, None, flight, None, None, xml, None, checksum(an, xml))
    said = (message.type, message.facility, message.flight, message.sequence)
    return (an, time * 1_000_000, *said, exact(line), xml, None, checksum(an, xml))


def _parsed(line: bytes, time: int, xml: bytes) -> asdi.Message | None:
    """The line's message, if the packet is really made of it, and at that time; a root may lie."""
    try:
        message = asdi.parse(line)
    except asdi.AsdiError:
        return None
    is_then = (message.day, message.second) == (datetime.fromtimestamp(time, UTC).day, time % 86_400)
    return message if is_then and asdi.to_xml(message) == xml else None


class BatchGate:
    """Lets batches through until it is shut; shutting it waits for the one inside.

    A batch that Spark cuts short comes again, the same, but its workers print how they were hung up on.
    """

    def __init__(self) -> None:
        self._inside = threading.Lock()
        self._is_shut = False

    def __enter__(self) -> None:
        self._inside.acquire()
        if self._is_shut:
            self._inside.release()
            raise PipelineError("interrupted")

    def __exit__(self, *_: object) -> None:
        self._inside.release()

    def shut(self, seconds: float) -> bool:
        """Admit no more batches. Return whether none is being written, after waiting at most this many seconds."""
        self._is_shut = True
        if not self._inside.acquire(timeout=seconds):
            return False
        self._inside.release()
        return True


def recorder_id(folder: Path) -> str:
    """What the archive knows the writer of this folder by."""
    identity = folder / "identity"
    if not identity.exists():
        identity.write_text(uuid.uuid4().hex)
    return identity.read_text().strip()


def record(
    spark: SparkSession,
    options: dict[str, str],
    out: Path,
    checkpoint: Path,
    *,
    stream: str,
    once: bool,
    interval_seconds: float = 10,
    progress: Path | None = None,
    gate: BatchGate | None = None,
) -> StreamingQuery:
    """Start the query. With `once` it ends when it has what the log has now. A `gate` is for who will stop it."""
    archive = Archive(out)
    checkpoint.mkdir(parents=True, exist_ok=True)
    name = recorder_id(checkpoint)
    entry = gate or BatchGate()

    def sink(batch: DataFrame, number: int) -> None:
        with entry:
            write_batch(batch, archive, stream, name, number)
            compact_recent(archive)

    register(spark)
    source = spark.readStream.format("mesh").options(**options).load()
    writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint / "spark"))
    every = f"{interval_seconds} seconds"
    triggered = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    if progress is None:
        return triggered.queryName(f"record {stream}").start()
    lines = ProgressLines(spark, progress)
    spark.streams.addListener(lines)
    query = triggered.queryName(f"record {stream}").start()
    lines.follow(str(query.runId))
    return query


class ProgressLines(StreamingQueryListener):
    """Appends the progress of each batch of one run to a file, a JSON document a line."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        self._path = path
        self._run: str | None = None
        # Spark reports batches asynchronously, possibly before it has reported which run is ours.
        self._early: list[Any] = []

    def follow(self, run: str) -> None:
        self._run = run
        self._append({"event": "started", "run": run})
        for event in self._early:
            self.onQueryProgress(event)

    def onQueryStarted(self, event: Any) -> None:
        """Said in `follow`, when it is known to be ours."""

    def onQueryProgress(self, event: Any) -> None:
        if self._run is None:
            self._early.append(event)
        elif str(event.progress.runId) == self._run:
            self._append({"event": "progress", **json.loads(event.progress.json)})

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:
        if str(event.runId) == self._run:
            self._append({"event": "ended", "run": self._run, "error": event.exception})
            self._spark.streams.removeListener(self)

    def _append(self, document: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(document) + "\n")
