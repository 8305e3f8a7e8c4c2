"""Writing the archive's Parquet files, a partition of an hour each, from rows in order of their ANs.

Runs inside Spark's tasks and just as well in one plain process: workers write their own files, without handing rows to
the JVM, and report what they wrote. Only what a task that succeeded reports is ever committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.archive import schema
from pipeline.archive.manifest import ArchiveError, DataFile

# Zstandard's own default; higher levels cost ingest a third of its speed for 4 % of the size.
_LEVEL = 3
# Open files a task may have. An hour that comes back after its file was closed gets another file.
_MAX_OPEN = 64
# A page is compressed by itself. In one of 1 MiB, the default, hardly two packets of a flight are together.
_PAGE_BYTES = 4 << 20
_DIFFERENT = ("raw", "xml", "crc", "proof", "rest")


class Partition(NamedTuple):
    dataset: str
    stream: str
    date: str
    hour: int

    @property
    def directory(self) -> str:
        return f"{self.dataset}/stream={self.stream}/date={self.date}/hour={self.hour}"


def partition_of(dataset: str, stream: str, time: int) -> Partition:
    """The partition of a Unix time in seconds."""
    moment = datetime.fromtimestamp(time // 3600 * 3600, UTC)
    return Partition(dataset, stream, f"{moment:%Y-%m-%d}", moment.hour)


def encodings(kind: pa.Schema) -> dict[str, Any]:
    """Numbers that rise are stored as steps: they were 29 % of the bytes. Values that all differ need no dictionary."""
    steps = [
        name for name in ("an", "time", "sequence", "received") if name in kind.names and "last_time" not in kind.names
    ]
    return {
        "use_dictionary": [name for name in kind.names if name not in (*steps, *_DIFFERENT)],
        "column_encoding": dict.fromkeys(steps, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in kind.names if name not in _DIFFERENT],
        "data_page_size": _PAGE_BYTES,
    }


class _Open:
    def __init__(self, path: Path, kind: pa.Schema) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.writer = pq.ParquetWriter(path, kind, compression="zstd", compression_level=_LEVEL, **encodings(kind))
        self.rows = 0
        self.ans: list[int] = []
        self.times: list[int] = []


class PartWriter:
    """Writes tables of rows to one file a partition. `finish` closes the files and tells what is in them."""

    def __init__(self, staging: Path, name: str) -> None:
        self.staging = staging
        # A task that is tried again must not meet the files of its first attempt.
        self._name = f"{name}-{uuid.uuid4().hex[:8]}"
        self._open: dict[Partition, _Open] = {}
        self._done: list[DataFile] = []
        self._number = 0

    def write(self, partition: Partition, columns: Sequence[Any]) -> None:
        """Rows as columns, in the order of the dataset's schema; times in microseconds."""
        kind = schema.arrow(partition.dataset)
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, kind, strict=True)
        ]
        self.write_table(partition, pa.Table.from_arrays(arrays, schema=kind))

    def write_table(self, partition: Partition, table: pa.Table) -> None:
        """The rows of a file rise by AN, but for the quarantine, where lines without a number have that before them.

        So what comes late begins another file, and of rows that share an AN all but the first go there, too.
        """
        if not table.num_rows:
            return
        ans = table.column("an").to_numpy()
        steps = np.diff(ans)
        is_strict = partition.dataset != "quarantine"
        if (steps < 0).any():
            table = table.take(pa.array(np.argsort(ans, kind="stable")))
            ans = table.column("an").to_numpy()
            steps = np.diff(ans)
        if is_strict and (steps == 0).any():
            is_first = np.concatenate([[True], steps > 0])
            self._write_rising(partition, table.filter(pa.array(is_first)))
            self.write_table(partition, table.filter(pa.array(~is_first)))
            return
        self._write_rising(partition, table)

    def _write_rising(self, partition: Partition, table: pa.Table) -> None:
        part = self._open.get(partition)
        if part is not None:
            first = table.column("an")[0].as_py()
            if first < part.ans[1] or (first == part.ans[1] and partition.dataset != "quarantine"):
                self._close(partition)
                part = None
        if part is None:
            if len(self._open) >= _MAX_OPEN:
                self._close(next(iter(self._open)))
            path = self.staging / partition.directory / f"{self._name}-{self._number:04d}.parquet"
            self._number += 1
            part = self._open[partition] = _Open(path, schema.arrow(partition.dataset))
        part.writer.write_table(table)
        part.rows += table.num_rows
        for bounds, column in ((part.ans, "an"), (part.times, "time")):
            values = table.column(column)
            if column == "time":
                values = values.cast(pa.int64())
            low, high = pc.min_max(values).as_py().values()
            bounds[:] = [min([low, *bounds]), max([high, *bounds])]

    def _close(self, partition: Partition) -> None:
        part = self._open.pop(partition)
        part.writer.close()
        self._done.append(
            DataFile(
                f"{partition.directory}/{part.path.name}",
                part.rows,
                part.path.stat().st_size,
                *(int(bound) for bound in (*part.ans, *part.times)),
            )
        )

    def finish(self) -> list[DataFile]:
        for partition in list(self._open):
            self._close(partition)
        return self._done


def read_rows(
    paths: Iterable[str | Path], columns: Sequence[str], ans: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of the files, one file after another, without holding one whole.

    With `ans` only those row groups are read that can have an AN from the first up to before the second.
    """
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                groups = None if ans is None else [n for n in range(file.num_row_groups) if _meets(file, n, *ans)]
                yield from file.iter_batches(batch_size=20_000, row_groups=groups, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            why = str(error).splitlines()[0]
            raise ArchiveError(
                f"{path} cannot be read ({why}); `python -m pipeline verify` names every such file"
            ) from error


def _meets(file: pq.ParquetFile, group: int, low: int, high: int) -> bool:
    known = file.metadata.row_group(group).column(0).statistics  # the first column is `an`
    return known is None or not known.has_min_max or (known.min < high and known.max >= low)
