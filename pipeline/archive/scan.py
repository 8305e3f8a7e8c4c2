"""Packets of an archive as Arrow batches, read by the workers themselves.

Spark's own reader decodes Parquet in the JVM and hands every row to Python through a socket; on the same cores that
costs as much as a small job itself. Here Spark gets the list of files, cut into pieces, and hands out pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archive.manifest import Archive, DataFile
from pipeline.archive.parts import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows of a piece at most: seconds of work for a worker, so that starting tasks costs nothing and the last ends soon.
# A small archive is cut finer, so that every core has some.
PIECE_ROWS = 128_000
_LEAST_ROWS = 10_000
_PIECES_WANTED = 16


class Piece(NamedTuple):
    """Some files, and the times and ANs (from inclusive, to exclusive) that are wanted of them."""

    files: tuple[str, ...]
    from_us: int | None = None
    to_us: int | None = None
    ans: tuple[int, int] | None = None


def pieces(
    archive: Archive, *, stream: str | None = None, from_us: int | None = None, to_us: int | None = None
) -> list[Piece]:
    """The archive's packets, of one stream or all, in pieces of much the same size, the largest first.

    Small files share one; large ones are cut by their ANs. What is small comes last, so that no worker begins with much
    when the others have ended.
    """
    found: list[tuple[int, Piece]] = []
    held: list[DataFile] = []
    rows = 0
    files = archive.require().select(stream=stream, from_us=from_us, to_us=to_us)
    most = min(PIECE_ROWS, max(_LEAST_ROWS, sum(file.rows for file in files) // _PIECES_WANTED))

    def put(files: Sequence[DataFile], rows: int, ans: tuple[int, int] | None = None) -> None:
        found.append((rows, Piece(tuple(archive.absolute(files)), from_us, to_us, ans)))

    for file in files:
        if held and rows + file.rows > most:
            put(held, rows)
            held, rows = [], 0
        if file.rows > most:
            parts = -(-file.rows // most)
            ans = [file.first_an + (file.last_an + 1 - file.first_an) * n // parts for n in range(parts + 1)]
            for bounds in pairwise(ans):
                put([file], file.rows // parts, bounds)
            continue
        held.append(file)
        rows += file.rows
    if held:
        put(held, rows)
    return [piece for _, piece in sorted(found, key=lambda entry: -entry[0])]


def batches(piece: Piece, columns: Sequence[str] = ("an", "time", "xml")) -> Iterator[pa.RecordBatch]:
    """The piece's packets as columns (these three, then others), without gaps and what is out of its bounds."""
    for batch in read_rows(piece.files, columns, piece.ans):
        wanted = pc.is_valid(batch.column("xml"))
        times = batch.column("time").cast(pa.int64())
        if piece.from_us is not None:
            wanted = pc.and_(wanted, pc.greater_equal(times, piece.from_us))
        if piece.to_us is not None:
            wanted = pc.and_(wanted, pc.less(times, piece.to_us))
        if piece.ans is not None:
            ans, (low, high) = batch.column("an"), piece.ans
            wanted = pc.and_(wanted, pc.and_(pc.greater_equal(ans, low), pc.less(ans, high)))
        yield batch if pc.all(wanted).as_py() else batch.filter(wanted)


def scan(
    spark: SparkSession, work: Sequence[Piece], run: Callable[[Piece], Iterator[pa.RecordBatch]], columns: str
) -> DataFrame:
    """What `run` makes of each piece, as a frame: a partition a piece, in their order."""

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from run(work[number])

    return spark.range(0, len(work), 1, max(1, len(work))).mapInArrow(task, columns)
