"""The cost of subscriptions: match rate, bytes per second and overlap of many queries, in one pass over packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analyze.matcher import Matcher, compile_queries
from pipeline.archive.scan import Piece, batches, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTIAL = (
    "query LONG, matches LONG, bytes LONG, shared LONG, packets LONG, total_bytes LONG, first_us LONG, last_us LONG"
)
# The row that stands for the union of all queries: what a link that serves all of them carries.
UNION = -1
# Packets whose matches are added up at once: their bits stay in a core's cache.
_AT_ONCE = 512


class Tally:
    """Counts of many queries over packets: one process's work, in Spark's workers or alone."""

    def __init__(self, queries: int, match: Matcher) -> None:
        self._match = match
        self._queries = queries
        # Matches, bytes, and matches that another query shares, by query; the last column is the union.
        self._sums = np.zeros((3, queries + 1), np.int64)
        self._packets = self._bytes = 0
        self._first_us: int | None = None
        self._last_us: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """A batch with the columns `time` and `xml`, none of them null."""
        if not batch.num_rows:
            return
        low, high = pc.min_max(batch.column("time").cast(pa.int64())).as_py().values()
        self._first_us = low if self._first_us is None else min(low, self._first_us)
        self._last_us = high if self._last_us is None else max(high, self._last_us)
        packets = batch.column("xml").to_pylist()
        for at in range(0, len(packets), _AT_ONCE):
            self._count(packets[at : at + _AT_ONCE])

    def _count(self, packets: Sequence[bytes]) -> None:
        masks = list(map(self._match, packets))
        sizes = np.fromiter(map(len, packets), np.float64, len(packets))
        several = np.fromiter((mask.bit_count() > 1 for mask in masks), np.float64, len(masks))
        width = self._queries // 8 + 1
        union = 1 << self._queries  # one bit more than there are queries
        packed = b"".join((mask | union if mask else 0).to_bytes(width, "little") for mask in masks)
        rows = np.frombuffer(packed, np.uint8).reshape(len(packets), width)
        bits = np.unpackbits(rows, axis=1, bitorder="little", count=self._queries + 1)
        weights = np.stack([np.ones(len(packets)), sizes, several])
        # Whole numbers below 2^53, so exact. Not `@`: it would take threads, and the other core has its own worker.
        self._sums += np.einsum("ij,jk->ik", weights, bits).astype(np.int64)
        self._packets += len(packets)
        self._bytes += int(sizes.sum())

    def report(self) -> pa.RecordBatch:
        """One row per query and one for the union, in the format PARTIAL."""
        rows = self._queries + 1
        matches, sizes, shared = self._sums
        shared[-1] = 0
        columns = [
            [*range(self._queries), UNION], matches, sizes, shared, [self._packets] * rows, [self._bytes] * rows,
            [self._first_us] * rows, [self._last_us] * rows,
        ]  # fmt: skip
        names = [column.split()[0] for column in PARTIAL.split(", ")]
        return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names=names)


def tally(work: Iterable[Piece], queries: Sequence[str], namespaces: dict[str, str] | None = None) -> pa.RecordBatch:
    """The counts of these pieces, by this process."""
    counted = Tally(len(queries), compile_queries(queries, namespaces))
    for piece in work:
        for batch in batches(piece):
            counted.add(batch)
    return counted.report()


def partial(
    spark: SparkSession, work: Sequence[Piece], queries: Sequence[str], namespaces: dict[str, str] | None = None
) -> DataFrame:
    """Counts a piece and query, by the workers."""
    compile_queries(queries, namespaces)  # an error here is a sentence; in a worker it would be a page
    queries = list(queries)

    def run(piece: Piece) -> Iterator[pa.RecordBatch]:
        yield tally([piece], queries, namespaces)

    return scan(spark, work, run, PARTIAL)


def selectivity(partials: DataFrame) -> DataFrame:
    """Counts -> one row per query, and one (query -1) for their union.

    `rate` is the share of packets, `bytes_per_s` what the query would carry over the time the packets span, `overlap`
    the share of its matches that another query matches too.
    """
    from pyspark.sql import functions as f

    sums = partials.groupBy("query").agg(
        *(f.sum(name).alias(name) for name in ("matches", "bytes", "shared", "packets")),
        f.greatest((f.max("last_us") - f.min("first_us")) / 1e6, f.lit(1.0)).alias("seconds"),
    )
    return sums.select(
        "query",
        "matches",
        (f.col("matches") / f.greatest(f.col("packets"), f.lit(1))).alias("rate"),
        "bytes",
        (f.col("bytes") / f.col("seconds")).alias("bytes_per_s"),
        (f.col("shared") / f.greatest(f.col("matches"), f.lit(1))).alias("overlap"),
    )
