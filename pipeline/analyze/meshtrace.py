"""What a mesh achieved, from the traces its peers write: loss, latency, repair; ReLate and ReLate2 a protocol.

A trace is JSON lines, one event each; docs/pipeline.md has the fields. The metrics are those of the ADAMANT paper,
3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENTS = (
    "time DOUBLE, peer STRING, event STRING, protocol STRING, level INT, parents INT, an LONG, latency_ms DOUBLE, "
    "after LONG, until LONG, seconds DOUBLE, count LONG, parent STRING, first LONG"
)


def read_traces(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Trace files (also gzip) as a frame; a line that is no JSON is left out, as a killed peer may leave one."""
    from pyspark.sql import functions as f

    frame = spark.read.schema(EVENTS).option("mode", "DROPMALFORMED").json(list(paths))
    return frame.where(f.col("event").isNotNull())


def _count(event: str) -> Column:
    """How many events; an event with `count` stands for that many."""
    from pyspark.sql import functions as f

    times = f.when(f.col("event") == event, f.coalesce(f.col("count"), f.lit(1)))
    return f.coalesce(f.sum(times), f.lit(0))


def _lost() -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(f.when(f.col("event") == "gap", f.col("until") - f.col("after"))), f.lit(0))


def _percentile(event: str, column: str, share: float) -> Column:
    from pyspark.sql import functions as f

    return f.percentile(f.when(f.col("event") == event, f.col(column)), share)


def mesh(traces: DataFrame, by: str = "peer") -> DataFrame:
    """One row per peer, level or number of parents."""
    from pyspark.sql import functions as f

    delivered, lost = _count("deliver"), _lost()
    return traces.groupBy(by).agg(
        delivered.alias("delivered"),
        lost.alias("lost"),
        (lost / f.greatest(delivered + lost, f.lit(1))).alias("loss"),
        _percentile("deliver", "latency_ms", 0.5).alias("latency_p50"),
        _percentile("deliver", "latency_ms", 0.9).alias("latency_p90"),
        _percentile("deliver", "latency_ms", 0.99).alias("latency_p99"),
        _count("duplicate").alias("duplicates"),
        _count("nack").alias("nacks"),
        _count("stall").alias("stalls"),
        f.coalesce(f.sum(f.when(f.col("event") == "stall", f.col("seconds"))), f.lit(0.0)).alias("stalled_s"),
        _count("repair").alias("repairs"),
        _percentile("repair", "seconds", 0.5).alias("repair_p50"),
        _percentile("repair", "seconds", 0.99).alias("repair_p99"),
        (_mean_latency() * (lost / f.greatest(delivered + lost, f.lit(1)) * 100 + 1)).alias("relate2"),
    )


def _mean_latency() -> Column:
    from pyspark.sql import functions as f

    return f.avg(f.when(f.col("event") == "deliver", f.col("latency_ms")))


def first_copies(traces: DataFrame) -> DataFrame:
    """One row per peer and parent: packets that it brought first, all that it brought, its share of first copies."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sums = (
        traces.where(f.col("event") == "copies")
        .groupBy("peer", "parent")
        .agg(f.sum("first").alias("first"), f.sum("count").alias("copies"))
    )
    whole = f.greatest(f.sum("first").over(Window.partitionBy("peer")), f.lit(1))
    return sums.withColumn("share", f.col("first") / whole)


def relate(traces: DataFrame) -> DataFrame:
    """A row a protocol: received r, sent t (received and lost, over all receivers), mean latency, and the two metrics.

    ReLate = mean latency / (r / t); ReLate2 = mean latency * ((t - r) / t * 100 + 1).
    """
    from pyspark.sql import functions as f

    sums = traces.groupBy("protocol").agg(
        _count("deliver").alias("received"),
        (_count("deliver") + _lost()).alias("sent"),
        f.avg(f.when(f.col("event") == "deliver", f.col("latency_ms"))).alias("latency_ms"),
    )
    return sums.where(f.col("received") > 0).select(
        "protocol",
        "received",
        "sent",
        "latency_ms",
        (f.col("latency_ms") / (f.col("received") / f.col("sent"))).alias("relate"),
        (f.col("latency_ms") * ((f.col("sent") - f.col("received")) / f.col("sent") * 100 + 1)).alias("relate2"),
    )
