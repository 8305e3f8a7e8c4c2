"""The streaming source `mesh`: what a recorder logs, as a Spark stream, exactly once.

    from pipeline.source import register
    register(spark)
    spark.readStream.format("mesh").option("log", DIR).option("roots_key", "asdi").option("query", XPATH).load()

The offset is a position in the packet log, which never comes again with other content; the AN is data. With `roots_key`
the source sees to it that a recorder writes the log; without, it only reads. Options: log, roots_key, query, bootstrap,
maxRecords (a batch, 100,000), from (`oldest` or `now`), failOnDataLoss (true).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from peer.packetlog import Gap, LogTruncated, PacketLogError, Reader, settle
from pipeline.live.commands import check_recorder, start_recorder
from pipeline.options import check_options
from pipeline.places import local_path
from pipeline.session import PipelineError
from pipeline.sink import MeshBatchWriter, MeshStreamWriter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("pipeline.source")

COLUMNS = "position LONG, an LONG, time TIMESTAMP, xml BINARY, after LONG"
DEFAULT_MAX_RECORDS = 100_000
# A task reads at least this many records: less is not worth a task.
_RECORDS_A_TASK = 10_000
_BATCH_ROWS = 5_000


OPTIONS = ("log", "roots_key", "query", "bootstrap", "maxRecords", "from", "failOnDataLoss")


class MeshSource(DataSource):
    """The format `mesh`: read a log, as a stream or as it is now; write one (`pipeline.sink`)."""

    @classmethod
    def name(cls) -> str:
        return "mesh"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> MeshReader:
        return MeshReader(dict(self.options))

    def reader(self, schema: StructType) -> MeshBatchReader:
        return MeshBatchReader(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> MeshStreamWriter:
        return MeshStreamWriter(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> MeshBatchWriter:
        if overwrite:
            raise PipelineError("a packet log can't be overwritten; use mode('append') or another directory")
        return MeshBatchWriter(dict(self.options), schema)


class _Range(InputPartition):
    def __init__(self, begin: int, end: int) -> None:
        super().__init__((begin, end))


class MeshReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans by position. Spark keeps copies of it in several processes, so it opens nothing before it is needed."""

    def __init__(self, options: dict[str, str]) -> None:
        lower = {key.lower(): value for key, value in options.items()}
        check_options(lower, OPTIONS, "source")
        if "log" not in lower:
            raise PipelineError("the source `mesh` needs the option `log`: the directory of a packet log")
        self._log = local_path(lower["log"])
        self._roots_key = lower.get("roots_key")
        self._query = lower.get("query")
        self._bootstrap = lower.get("bootstrap")
        self._max_records = int(lower.get("maxrecords", DEFAULT_MAX_RECORDS))
        if lower.get("from", "oldest") not in ("oldest", "now"):
            raise PipelineError(f"the option `from` must be oldest or now, got {lower['from']!r}")
        self._from_now = lower.get("from") == "now"
        self._fail = lower.get("failondataloss", "true").lower() != "false"
        self._target: int | None = None
        self._recorder: subprocess.Popen[bytes] | None = None
        self._is_settled = False

    def __getstate__(self) -> dict[str, Any]:
        """A copy for another process takes no child processes along."""
        return self.__dict__ | {"_recorder": None}

    def _reader(self) -> Reader:
        if self._roots_key and self._recorder is None:
            self._recorder = start_recorder(self._roots_key, self._log, query=self._query, bootstrap=self._bootstrap)
        if self._recorder is not None:
            check_recorder(self._recorder, self._log)
        if not self._log.is_dir():
            raise PipelineError(f"no packet log in {self._log}")
        if not self._roots_key and not self._is_settled:
            self._settle()
        return Reader(self._log)

    def _settle(self) -> None:
        """A recorder that was killed left a tail that no durable reader sees, and here none comes to see to it."""
        try:
            settle(self._log)
        except OSError as error:
            log.warning("%s: %s; what a killed recorder left unsynced in it is not read", self._log, error.strerror)
        except PacketLogError as error:
            raise PipelineError(str(error)) from error
        self._is_settled = True

    def initialOffset(self) -> dict[str, int]:
        """Where a new query begins. Spark asks twice, and a restarted query not at all."""
        reader = self._reader()
        return {"position": reader.end_position() if self._from_now else reader.first_position()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._reader().end_position()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._reader().end_position()
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["position"] + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise PipelineError(f"the source `mesh` does not support the limit {limit!r}")
        return {"position": max(end, start["position"])}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"position": self._reader().end_position()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, stop = start["position"], end["position"]
        first = Reader(self._log).first_position()
        if begin < first:
            if self._fail:
                raise PipelineError(
                    f"positions {begin} to {first - 1} are gone from {self._log}: its retention was too short for this "
                    "query; set failOnDataLoss to false to continue without them"
                )
            begin = min(first, stop)
        return [_Range(at, min(at + _RECORDS_A_TASK, stop)) for at in range(begin, stop, _RECORDS_A_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        begin, end = partition.value
        expected = begin
        rows: list[tuple[Any, ...]] = []
        kinds = [pa.int64(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.binary(), pa.int64()]
        names = ["position", "an", "time", "xml", "after"]

        def batch() -> pyarrow.RecordBatch:
            columns = zip(*rows, strict=True)
            return pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names
            )

        try:
            for position, entry in Reader(self._log).iterate(begin, end):
                if isinstance(entry, Gap):
                    rows.append((position, entry.until, entry.time_us, None, entry.after))
                else:
                    rows.append((position, entry.an, entry.time_us, entry.payload, None))
                expected = position + 1
                if len(rows) == _BATCH_ROWS:
                    yield batch()
                    rows.clear()
        except LogTruncated as gone:
            raise PipelineError(f"{self._log}: {gone}") from gone
        if expected != end:
            raise PipelineError(f"{self._log} ends at position {expected}, but {end} was there before")
        if rows:
            yield batch()

    def stop(self) -> None:
        """The planning worker ends. When Spark hung up, at once: pyspark would answer, and print that it can't."""
        if self._recorder is not None:
            self._recorder.terminate()
        if isinstance(sys.exception(), EOFError | ConnectionError):
            os._exit(0)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: the log keeps what it keeps by its own bounds, and other readers may be behind."""


class MeshBatchReader(DataSourceReader):
    """`spark.read.format("mesh")`: what the log has now."""

    def __init__(self, options: dict[str, str]) -> None:
        lower = {key.lower() for key in options}
        unfit = lower & {"roots_key", "bootstrap", "query", "from"}
        if unfit:
            raise PipelineError(f"a batch reads what a packet log has: {', '.join(sorted(unfit))} is for readStream")
        self._reader = MeshReader(options)

    def partitions(self) -> Sequence[InputPartition]:
        begin = self._reader.initialOffset()
        return self._reader.partitions(begin, self._reader.reportLatestOffset())

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self._reader.read(partition)


def register(spark: SparkSession) -> None:
    """Make the format `mesh` known to a session."""
    spark.dataSource.register(MeshSource)
