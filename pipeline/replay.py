"""Packets of an archive again, in order: for a root (`archive:PATH`), for the replay command, for tests.

`iterate` needs no Spark and no Java, so a root can be fed from history on any machine: files of the archive are
sorted, and where files overlap they are merged. `iterate_with_spark` gives the same from a plan that a cluster carries
out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.archive.manifest import Archive, DataFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pipeline.archive.scan import Piece

# Rows that one task reads and sorts, and of them those that come to the driver in one piece.
RANGE_ROWS = 100_000
_BLOB_ROWS = 20_000


class Replayed(NamedTuple):
    """A packet with its number and its Unix time in seconds."""

    an: int
    time: float
    payload: bytes
    sequence: int | None = None
    """The number that the feed itself gave it, if it is known..."""
    raw: str | None = None
    """...and its line."""


def iterate(
    path: str | Path,
    from_time: float | None = None,
    to_time: float | None = None,
    *,
    stream: str | None = None,
    with_lines: bool = False,
) -> Iterator[Replayed]:
    """Packets with from_time <= time < to_time, in order of their ANs. Holds a few thousand at a time.

    `with_lines` also reads what the feed itself said: `sequence` and `raw`.
    """
    archive = Archive(path)
    from_us, to_us = _us(from_time), _us(to_time)
    files = sorted(
        archive.require().select(stream=stream, from_us=from_us, to_us=to_us),
        key=lambda file: (file.first_an, file.path),
    )
    for group in overlapping(files):
        readers = [_rows(archive, file, from_us, to_us, with_lines) for file in group]
        yield from readers[0] if len(readers) == 1 else heapq.merge(*readers)


def _us(time: float | None) -> int | None:
    return None if time is None else round(time * 1_000_000)


def overlapping(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Runs of files whose ANs overlap: mostly one file each."""
    group: list[DataFile] = []
    reached = -1
    for file in files:
        if group and file.first_an > reached:
            yield group
            group = []
        group.append(file)
        reached = max(reached, file.last_an)
    if group:
        yield group


def _rows(
    archive: Archive, file: DataFile, from_us: int | None, to_us: int | None, with_lines: bool
) -> Iterator[Replayed]:
    from pipeline.archive.scan import Piece, batches

    more = ("sequence", "raw") if with_lines else ()
    for batch in batches(Piece((str(archive.path / file.path),), from_us, to_us), ("an", "time", "xml", *more)):
        yield from _replayed(batch)


def _replayed(batch: pa.RecordBatch) -> Iterator[Replayed]:
    """The batch's rows (an, time, xml, perhaps sequence and raw), in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = pc.divide(batch.column(1).cast(pa.int64()).cast(pa.float64()), 1e6)
    rest = [column.to_pylist() for column in batch.columns[2:]]
    return map(Replayed, batch.column(0).to_pylist(), seconds.to_pylist(), *rest)


def ranges(
    archive: Archive, files: list[DataFile], from_us: int | None, to_us: int | None, rows: int = RANGE_ROWS
) -> list[Piece]:
    """Split files, sorted by first AN, into AN ranges of about this many rows, in order; each needs only its files."""
    from pipeline.archive.scan import Piece

    found: list[Piece] = []
    group: list[DataFile] = []

    def cut() -> None:
        low, high = group[0].first_an, max(file.last_an for file in group) + 1
        number = -(-sum(file.rows for file in group) // rows)
        edges = sorted({low + (high - low) * at // number for at in range(number)} | {high})
        for begin, end in pairwise(edges):
            meeting = [file for file in group if file.first_an < end and file.last_an >= begin]
            found.append(Piece(tuple(archive.absolute(meeting)), from_us, to_us, (begin, end)))

    for run in overlapping(files):
        if group and sum(file.rows for file in group + run) > rows:
            cut()
            group = []
        group += run
    if group:
        cut()
    return found


def iterate_with_spark(
    spark: SparkSession,
    path: str | Path,
    from_time: float | None = None,
    to_time: float | None = None,
    *,
    stream: str | None = None,
) -> Iterator[Replayed]:
    """The same, read and sorted by Spark's workers, a range of ANs each; this process only hands packets on.

    Packets come as compressed Arrow, a few thousand in one piece: rows, and even the bytes of plain XML, cost the JVM
    more on their way than everything else together.
    """
    import pyarrow as pa

    from pipeline.archive.scan import scan

    archive = Archive(path)
    from_us, to_us = _us(from_time), _us(to_time)
    files = archive.require().select(stream=stream, from_us=from_us, to_us=to_us)
    work = ranges(archive, sorted(files, key=lambda file: (file.first_an, file.path)), from_us, to_us)
    for row in scan(spark, work, sorted_range, "packets BINARY").toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row.packets) as reader:
            for batch in reader:
                yield from _replayed(batch)


def sorted_range(piece: Piece) -> Iterator[pa.RecordBatch]:
    """A worker's part: the packets of a range in order, as Arrow streams of a few thousand, a row each."""
    import pyarrow as pa

    from pipeline.archive.scan import batches

    found = list(batches(piece))
    if not found:
        return
    table = pa.Table.from_batches(found)
    if len(piece.files) > 1:
        table = table.sort_by("an")
    for batch in table.to_batches(max_chunksize=_BLOB_ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(batch)
        blob = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([blob], names=["packets"])
