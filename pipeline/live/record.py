"""`pipeline record`: the live source into the archive, exactly once.

Spark's checkpoint makes a batch the same positions again after a crash; the archive takes a job's key only once; the
key is the checkpoint's id and the batch's number. So a batch that was committed and is run again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.archive.schema import GAP_TYPE, checksum
from pipeline.session import PipelineError
from pipeline.source import register

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


def write_batch(batch: DataFrame, archive: Archive, stream: str, key: str) -> Job | None:
    """One batch of the source into the archive, under its key. None when the archive has it already."""
    if archive.manifest().has(key):
        return None
    with archive.staging("record") as staging:
        target = str(staging)

        def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            import pyarrow as pa

            writer = PartWriter(Path(target), "record")
            for part in batches:
                for partition, rows in _rows(part, stream).items():
                    writer.write(partition, list(zip(*rows, strict=True)))
            reports = [json.dumps(asdict(file)) for file in writer.finish()]
            yield pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], names=["report"])

        columns = ["an", "time", "xml", "after"]
        reports = batch.select(*columns).mapInArrow(run, "report STRING").collect()
        files = [DataFile(**json.loads(row.report)) for row in reports]
        first = min((file.first_an for file in files), default=0)
        last = max((file.last_an for file in files), default=-1)
        job = Job(key, "record", stream, first, last, False, {"rows": sum(file.rows for file in files)})
        archive.commit(job, [(staging / file.path, file) for file in files])
        return job


def _rows(part: pyarrow.RecordBatch, stream: str) -> dict[Any, list[tuple[Any, ...]]]:
    import pyarrow as pa

    found: dict[Any, list[tuple[Any, ...]]] = {}
    columns = [part.column(0), part.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), *part.columns[2:]]
    for an, us, xml, after in zip(*(column.to_pylist() for column in columns), strict=True):
        kind, flight = (GAP_TYPE, None) if xml is None else describe(xml)
        row = (an, us, kind, None, flight, None, None, xml, after, checksum(an, xml))
        found.setdefault(partition_of("packets", stream, us // 1_000_000), []).append(row)
    return found


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
    identity = checkpoint / "identity"
    if not identity.exists():
        identity.write_text(uuid.uuid4().hex)
    name = identity.read_text().strip()
    entry = gate or BatchGate()

    def sink(batch: DataFrame, number: int) -> None:
        key = hashlib.sha256(f"record {name} {number}".encode()).hexdigest()
        with entry:
            write_batch(batch, archive, stream, key)

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
