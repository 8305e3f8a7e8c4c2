"""`pipeline live`: a machine of `watch` on the live source; its alerts go to a packet log, and to an archive if asked.

A batch is done when its state is on the disk. One that is repeated after a crash begins from the state before it and
finds the same alerts, which the log and the archive take once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asdi
from pipeline.archive.manifest import Archive, Job
from pipeline.archive.packet import packet_row
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.archive.schema import checksum
from pipeline.live.record import BatchGate, recorder_id
from pipeline.live.watch import MACHINES, Alert, Machine, Seen
from pipeline.session import PipelineError
from pipeline.sink import ROW_BITS, append
from pipeline.source import register
from pipeline.tables.packets import rows_of_packet
from pipeline.tables.rows import rows_of
from pipeline.tables.schema import names

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEEN = (
    "an LONG, time LONG, flight STRING, facility STRING, latitude DOUBLE, longitude DOUBLE, altitude_ft INT, "
    "speed_kt INT"
)
_STATES_KEPT = 2
_POSITION = names("positions")


def seen_of(an: int, us: int, payload: bytes) -> Seen | None:
    """What a packet that came at this time says of where a flight is; None if it does not."""
    row = packet_row(an, us, payload)
    time, raw, xml = row[1] // 1_000_000, row[6], row[7]
    if raw is not None:
        found = rows_of(asdi.parse(raw.encode("latin-1", "replace")), an, time)
    else:
        found = rows_of_packet(xml, an, time, row[2], row[3], row[4])
    for table, values in found:
        said = dict(zip(_POSITION, values, strict=False)) if table == "positions" else {}
        if said.get("latitude") is not None and said["flight"]:
            place = (said["latitude"], said["longitude"], said["altitude_ft"], said["speed_kt"])
            return Seen(an, time, said["flight"], said["facility"], *place)
        if (table == "arrivals" or values[5] == "RZ") and values[2]:
            return Seen(an, time, values[2])
    return None


class LiveJob:
    """One machine and where its state and alerts are. `take` batches in order."""

    def __init__(
        self, what: str, states: Path, log: Path, *, archive: Archive | None = None, stream: str = "alerts"
    ) -> None:
        self._what = what
        self._states = states
        self._log = log
        self._archive = archive
        self._stream = stream
        self._number: int | None = None
        self._machine: Machine = MACHINES[what]()
        states.mkdir(parents=True, exist_ok=True)
        self._id = recorder_id(states)

    @property
    def machine(self) -> Machine:
        return self._machine

    def take(self, number: int, rows: list[Seen]) -> list[Alert]:
        """The alerts of a batch, once it and its state are on the disk; none if that was so before."""
        if not self._go_to(number):
            return []
        self._number = None  # should anything fail, the machine has seen rows of a batch that is not done
        alerts = self._machine.add(sorted(rows))
        append(self._log, [alert.xml() for alert in alerts], batch=number, stream=self._stream)
        if self._archive is not None:
            self._keep(self._archive, number, alerts)
        self._save(number)
        return alerts

    def _go_to(self, number: int) -> bool:
        """Stand before this batch. False if it is done."""
        if self._number == number - 1:
            return True
        saved = sorted(int(path.stem) for path in self._states.glob("*.json"))
        if saved and saved[-1] >= number:
            return False
        self._machine = MACHINES[self._what]()
        if saved:
            state = json.loads((self._states / f"{saved[-1]:020d}.json").read_text())
            if state["what"] != self._what:
                raise PipelineError(f"{self._states} has the state of `live {state['what']}`; use another --alerts")
            self._machine.restore(state["machine"])
        return True

    def _save(self, number: int) -> None:
        target = self._states / f"{number:020d}.json"
        temporary = target.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump({"what": self._what, "machine": self._machine.snapshot()}, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        self._number = number
        for old in sorted(self._states.glob("*.json"))[:-_STATES_KEPT]:
            old.unlink()

    def _keep(self, archive: Archive, number: int, alerts: list[Alert]) -> None:
        job = Job(self._id, "live", self._stream, 0, -1, False, {"rows": len(alerts)}, number)
        if not alerts or archive.settled().has(job):
            return
        with archive.staging("live") as staging:
            writer = PartWriter(staging, "live")
            for row, alert in enumerate(alerts):
                an, xml = (number << ROW_BITS) + row, alert.xml()
                flight = alert.flights[0] if alert.flights else None
                us = alert.time * 1_000_000
                columns = (an, us, alert.kind, None, flight, None, None, xml, None, checksum(an, xml))
                writer.write(partition_of("packets", self._stream, alert.time), [[value] for value in columns])
            archive.commit(job, [(staging / file.path, file) for file in writer.finish()])


def read_batch(batch: DataFrame) -> list[Seen]:
    """What the packets of a batch say, read by the workers."""

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        kinds = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.float64(), pa.float64(), pa.int32(), pa.int32()]
        for part in batches:
            times = part.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
            packets = zip(part.column(0).to_pylist(), times, part.column(2).to_pylist(), strict=True)
            found = [seen for an, us, xml in packets if xml is not None and (seen := seen_of(an, us, xml)) is not None]
            columns: list[Any] = list(zip(*found, strict=True)) or [()] * len(kinds)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(Seen._fields))

    frame = batch.select("an", "time", "xml").mapInArrow(run, SEEN)
    return [Seen(*row) for row in frame.collect()]


def live(
    spark: SparkSession,
    options: dict[str, str],
    job: LiveJob,
    checkpoint: Path,
    *,
    name: str,
    once: bool,
    interval_seconds: float = 10,
    gate: BatchGate | None = None,
) -> StreamingQuery:
    """Start the query. With `once` it ends when it has what the log has now."""
    entry = gate or BatchGate()

    def sink(batch: DataFrame, number: int) -> None:
        with entry:
            job.take(number, read_batch(batch))

    register(spark)
    source = spark.readStream.format("mesh").options(**options).load()
    writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint / "spark"))
    every = f"{interval_seconds} seconds"
    triggered = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    return triggered.queryName(f"live {name}").start()
