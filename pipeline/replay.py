"""Packets of an archive again, in order: for a root (`archive:PATH`), for the replay command, for tests.

`iterate` needs no Spark and no Java, so a root can be fed from history on any machine: files of the archive are
sorted, and where files overlap they are merged. `iterate_with_spark` gives the same from a plan that a cluster carries
out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.archive import Archive, DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Replayed(NamedTuple):
    """A packet with its number and its Unix time in seconds."""

    an: int
    time: float
    payload: bytes


def iterate(
    path: str | Path, from_time: float | None = None, to_time: float | None = None, *, stream: str | None = None
) -> Iterator[Replayed]:
    """Packets with from_time <= time < to_time, in order of their ANs. Holds a few thousand at a time."""
    archive = Archive(path)
    from_us, to_us = _us(from_time), _us(to_time)
    files = sorted(
        archive.require().select(stream=stream, from_us=from_us, to_us=to_us),
        key=lambda file: (file.first_an, file.path),
    )
    for group in _overlapping(files):
        readers = [_rows(archive, file, from_us, to_us) for file in group]
        yield from readers[0] if len(readers) == 1 else heapq.merge(*readers)


def _us(time: float | None) -> int | None:
    return None if time is None else round(time * 1_000_000)


def _overlapping(files: list[DataFile]) -> Iterator[list[DataFile]]:
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


def _rows(archive: Archive, file: DataFile, from_us: int | None, to_us: int | None) -> Iterator[Replayed]:
    import pyarrow as pa

    from pipeline.parts import read_rows

    for batch in read_rows([archive.path / file.path], ["an", "time", "xml"]):
        ans, payloads = batch.column(0).to_pylist(), batch.column(2).to_pylist()
        for an, us, payload in zip(ans, batch.column(1).cast(pa.int64()).to_pylist(), payloads, strict=True):
            # A gap's row has no packet.
            if payload is not None and (from_us is None or us >= from_us) and (to_us is None or us < to_us):
                yield Replayed(an, us / 1_000_000, payload)


def iterate_with_spark(
    spark: SparkSession,
    path: str | Path,
    from_time: float | None = None,
    to_time: float | None = None,
    *,
    stream: str | None = None,
) -> Iterator[Replayed]:
    """The same, planned and sorted by Spark, a partition at a time."""
    from pyspark.sql import functions as f

    from pipeline.archive_jobs import read

    frame = read(spark, Archive(path), stream=stream, from_us=_us(from_time), to_us=_us(to_time))
    ordered = frame.where(f.col("xml").isNotNull()).select("an", f.unix_micros("time").alias("us"), "xml").orderBy("an")
    for row in ordered.toLocalIterator(prefetchPartitions=True):
        yield Replayed(row.an, row.us / 1_000_000, bytes(row.xml))
