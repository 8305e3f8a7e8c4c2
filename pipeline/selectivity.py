"""What subscriptions would cost: match rate, bytes a second and overlap of many queries, in one pass over packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.matcher import compile_queries

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

PARTIAL = "query LONG, matches LONG, bytes LONG, shared LONG, packets LONG, total_bytes LONG"
# The row that stands for the union of all queries: what a link that serves all of them carries.
UNION = -1


def tally(packets: Sequence[bytes], queries: int, match: Any) -> tuple[list[int], list[int], list[int], int, int]:
    """Matches, bytes and shared matches a query; packets and bytes that any query matches. One process's work."""
    matches, sizes, shared = [0] * queries, [0] * queries, [0] * queries
    any_count = any_bytes = 0
    for packet in packets:
        found = match(packet)
        if not found:
            continue
        size = len(packet)
        any_count += 1
        any_bytes += size
        several = len(found) > 1
        for query in found:
            matches[query] += 1
            sizes[query] += size
            shared[query] += several
    return matches, sizes, shared, any_count, any_bytes


def partial(packets: DataFrame, queries: Sequence[str], namespaces: dict[str, str] | None = None) -> DataFrame:
    """Counts a task and query, of a frame with a column `xml`."""
    queries = list(queries)

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        match = compile_queries(queries, namespaces)
        matches, sizes, shared = [0] * len(queries), [0] * len(queries), [0] * len(queries)
        any_count = any_bytes = count = total = 0
        for batch in batches:
            payloads = [payload for payload in batch.column(0).to_pylist() if payload is not None]
            part = tally(payloads, len(queries), match)
            for kept, new in zip((matches, sizes, shared), part[:3], strict=True):
                for at, value in enumerate(new):
                    kept[at] += value
            any_count, any_bytes = any_count + part[3], any_bytes + part[4]
            count += len(payloads)
            total += sum(map(len, payloads))
        rows = len(queries) + 1
        columns = [
            [*range(len(queries)), UNION],
            [*matches, any_count],
            [*sizes, any_bytes],
            [*shared, 0],
            [count] * rows,
            [total] * rows,
        ]
        names = ["query", "matches", "bytes", "shared", "packets", "total_bytes"]
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names=names)

    return packets.select("xml").mapInArrow(run, PARTIAL)


def selectivity(packets: DataFrame, queries: Sequence[str], namespaces: dict[str, str] | None = None) -> DataFrame:
    """Packets -> one row a query, and one (query -1) for their union.

    `rate` is the share of packets, `bytes_per_s` what the query would carry over the time the packets span, `overlap`
    the share of its matches that another query matches too.
    """
    from pyspark.sql import functions as f

    compile_queries(queries, namespaces)  # an error here is a sentence; in a worker it would be a page
    span = packets.agg(
        f.greatest(f.max("time").cast("double") - f.min("time").cast("double"), f.lit(1.0)).alias("seconds")
    )
    sums = (
        partial(packets, queries, namespaces)
        .groupBy("query")
        .agg(*(f.sum(name).alias(name) for name in ("matches", "bytes", "shared", "packets")))
    )
    return sums.crossJoin(span).select(
        "query",
        "matches",
        (f.col("matches") / f.greatest(f.col("packets"), f.lit(1))).alias("rate"),
        "bytes",
        (f.col("bytes") / f.col("seconds")).alias("bytes_per_s"),
        (f.col("shared") / f.greatest(f.col("matches"), f.lit(1))).alias("overlap"),
    )
