"""`pipeline record`: the live source into the archive, exactly once.

Spark's checkpoint makes a batch the same positions again after a crash; the archive takes a job's key only once; the
key is the checkpoint's id and the batch's number. So a batch that was committed and is run again changes nothing.
Between batches small files are merged, so that the archive stays one that can be read.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pipeline.archive.jobs import compact_recent
from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.packet import gap_row, packet_row
from pipeline.archive.parts import Partition, PartWriter, partition_of
from pipeline.archive.proofs import ProofsOfLog, Signed, row_of
from pipeline.ingest.text import lines_in
from pipeline.session import PipelineError
from pipeline.source import register
from pipeline.tables.write import TableWriter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def write_batch(
    batch: DataFrame, archive: Archive, stream: str, recorder: str, number: int, log: Path | None = None
) -> Job | None:
    """One batch of a recorder into the archive, under its number. None when the archive has it already.

    `log` is where the batch comes from: if its packets are signed, the archive keeps the proofs.
    """
    if archive.settled().has(Job(recorder, "record", stream, 0, -1, False, batch=number)):
        return None
    with archive.staging("record") as staging:
        target = str(staging)

        def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            import pyarrow as pa

            writer = PartWriter(Path(target), "record")
            tables = TableWriter(Path(target), "record", stream)
            proofs = ProofsOfLog(log) if log is not None else None
            for part in batches:
                for partition, rows in _rows(part, stream, proofs).items():
                    writer.write(partition, list(zip(*rows, strict=True)))
                    for row in rows if partition.dataset == "packets" else ():
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


def _rows(part: pyarrow.RecordBatch, stream: str, proofs: ProofsOfLog | None) -> dict[Partition, list[tuple[Any, ...]]]:
    """Rows of packets and of their proofs, by hour."""
    import pyarrow as pa

    found: dict[Partition, list[tuple[Any, ...]]] = {}
    columns = [part.column(0), part.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), *part.columns[2:]]
    came = list(zip(*(column.to_pylist() for column in columns), strict=True))
    signed: dict[int, Signed] = {}
    if proofs is not None:
        signed = proofs.find({an: us for an, us, xml, _ in came if xml is not None})
    for an, us, xml, after in came:
        row = gap_row(an, us, after) if xml is None else packet_row(an, us, xml)
        second = row[1] // 1_000_000
        found.setdefault(partition_of("packets", stream, second), []).append(row)
        if xml is not None and an in signed:
            found.setdefault(partition_of("proofs", stream, second), []).append(row_of(row, us, xml, signed[an]))
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
    log = Path(options["log"]).absolute() if "log" in options else None

    def sink(batch: DataFrame, number: int) -> None:
        with entry:
            write_batch(batch, archive, stream, name, number, log)
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
