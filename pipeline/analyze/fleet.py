"""What flew: flights, distances, delays, busiest routes and facilities, the mix of messages, gaps in the feed.

Each question is a function from the archive's packets to a small frame. What columns do not say is read from the raw
line by the one parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

FACTS = (
    "an LONG, time TIMESTAMP, type STRING, flight STRING, departure STRING, destination STRING, planned INT, "
    "actual INT, latitude DOUBLE, longitude DOUBLE"
)
# A callsign that is not seen for this long flies again as another leg.
LEG_SECONDS = 1200
SILENCE_SECONDS = 60
_EARTH_MILES = 3440.065


def degrees(text: str) -> float:
    """`4928N` or `492830N` in degrees, south and west negative."""
    digits, hemisphere = text[:-1], text[-1]
    seconds = int(digits[-2:]) if len(digits) > 5 else 0
    whole = digits[:-2] if len(digits) > 5 else digits
    value = int(whole[:-2]) + int(whole[-2:]) / 60 + seconds / 3600
    return -value if hemisphere in "SW" else value


def _minutes(text: str) -> int | None:
    return int(text[-4:-2]) * 60 + int(text[-2:]) if len(text) >= 4 and text[-4:].isdigit() else None


def fact(raw: str | None) -> tuple[Any, ...]:
    """What a line says of ends, times and place: (departure, destination, planned, actual, latitude, longitude)."""
    import asdi

    nothing: tuple[Any, ...] = (None,) * 6
    if raw is None:
        return nothing
    try:
        body = asdi.parse(raw).body
    except asdi.AsdiError:
        return nothing
    match body:
        case asdi.Track():
            return (None, None, None, None, degrees(body.latitude), degrees(body.longitude))
        case asdi.Plan():
            return (None, None, _minutes(body.time) if body.time[:1] == "P" else None, None, None, None)
        case asdi.Departure():
            return (body.departure, body.destination, None, _minutes(body.time), None, None)
        case asdi.Arrival() | asdi.Cancellation() | asdi.Amendment():
            return (body.departure, body.destination, None, None, None, None)
        case _:
            return nothing


def facts(packets: DataFrame) -> DataFrame:
    """Packets -> one row each with what their lines say."""

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        kinds = [pa.string(), pa.string(), pa.int32(), pa.int32(), pa.float64(), pa.float64()]
        for batch in batches:
            columns = list(zip(*(fact(raw) for raw in batch.column(4).to_pylist()), strict=True)) or [()] * 6
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            names = ["an", "time", "type", "flight", "departure", "destination", "planned", "actual"]
            yield pa.RecordBatch.from_arrays([*batch.columns[:4], *arrays], names=[*names, "latitude", "longitude"])

    return packets.select("an", "time", "type", "flight", "raw").mapInArrow(run, FACTS)


def mix(packets: DataFrame) -> DataFrame:
    """Messages and bytes of XML by type."""
    from pyspark.sql import functions as f

    return (
        packets.where(f.col("xml").isNotNull())
        .groupBy("type")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.octet_length("xml")).alias("bytes"),
            f.countDistinct("flight").alias("flights"),
        )
    )


def facilities(packets: DataFrame) -> DataFrame:
    """Messages and flights by facility."""
    from pyspark.sql import functions as f

    known = packets.where(f.col("xml").isNotNull())
    return known.groupBy("facility").agg(f.count("*").alias("messages"), f.countDistinct("flight").alias("flights"))


def routes(known: DataFrame) -> DataFrame:
    """Departures by pair of airports."""
    from pyspark.sql import functions as f

    return known.where(f.col("type") == "DZ").groupBy("departure", "destination").agg(f.count("*").alias("departures"))


def delays(known: DataFrame) -> DataFrame:
    """Departures by airport with how late they were: departure time against the last plan before it, in minutes."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = Window.partitionBy("flight").orderBy("an")
    late = f.pmod(f.col("actual") - f.last("planned", ignorenulls=True).over(before) + 720, f.lit(1440)) - 720
    departures = known.where(f.col("flight").isNotNull()).withColumn("late", late).where(f.col("type") == "DZ")
    return (
        departures.where(f.col("late").isNotNull())
        .groupBy("departure")
        .agg(
            f.count("*").alias("departures"),
            f.avg("late").alias("mean"),
            f.percentile("late", 0.5).alias("median"),
            f.percentile("late", 0.9).alias("p90"),
            f.avg((f.col("late") > 15).cast("double")).alias("over_15"),
        )
    )


def _miles(lat1: Column, lon1: Column, lat2: Column, lon2: Column) -> Column:
    from pyspark.sql import functions as f

    a, b = f.radians(lat1), f.radians(lat2)
    half = f.pow(f.sin((b - a) / 2), 2) + f.cos(a) * f.cos(b) * f.pow(f.sin(f.radians(lon2 - lon1) / 2), 2)
    return 2 * _EARTH_MILES * f.asin(f.sqrt(half))


def distances(known: DataFrame) -> DataFrame:
    """Legs seen in the tracks: flight, first and last time, tracks, nautical miles along them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("flight").orderBy("an")
    seconds = f.col("time").cast("double")
    before = f.lag("time").over(order).cast("double")
    new_leg = (before.isNull() | (seconds - before > LEG_SECONDS)).cast("int")
    step = _miles(f.lag("latitude").over(order), f.lag("longitude").over(order), f.col("latitude"), f.col("longitude"))
    tracks = (
        known.where(f.col("type") == "TZ")
        .withColumn("new_leg", new_leg)
        .withColumn("miles", f.when(f.col("new_leg") == 1, f.lit(0.0)).otherwise(step))
        .withColumn("leg", f.sum("new_leg").over(order))
    )
    return tracks.groupBy("flight", "leg").agg(
        f.min("time").alias("begin"),
        f.max("time").alias("end"),
        f.count("*").alias("tracks"),
        f.sum("miles").alias("miles"),
    )


def gaps(packets: DataFrame) -> DataFrame:
    """Where the feed was silent for a minute or skipped sequence numbers: after AN, until AN, seconds, missed.

    Worked out within each hour, and then over the ends of the hours, so that no task sees the whole stream.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    at = f.col("time").cast("double").alias("at")
    rows = packets.where(f.col("xml").isNotNull()).select("stream", "date", "hour", "an", at, "sequence")
    inside = Window.partitionBy("stream", "date", "hour").orderBy("an")
    ends = rows.groupBy("stream", "date", "hour").agg(
        f.min_by(f.struct("an", "at", "sequence"), "an").alias("first"),
        f.max_by(f.struct("an", "at", "sequence"), "an").alias("last"),
    )
    over = Window.partitionBy("stream").orderBy("first.an")
    across = ends.select(
        f.lag("last.an").over(over).alias("after"),
        f.col("first.an").alias("until"),
        (f.col("first.at") - f.lag("last.at").over(over)).alias("seconds"),
        _skipped(f.col("first.sequence"), f.lag("last.sequence").over(over)).alias("missed"),
    )
    within = rows.select(
        f.lag("an").over(inside).alias("after"),
        f.col("an").alias("until"),
        (f.col("at") - f.lag("at").over(inside)).alias("seconds"),
        _skipped(f.col("sequence"), f.lag("sequence").over(inside)).alias("missed"),
    )
    found = within.unionByName(across).where(f.col("after").isNotNull())
    return found.where((f.col("seconds") >= SILENCE_SECONDS) | (f.coalesce("missed", f.lit(0)) > 0))


def _skipped(sequence: Column, before: Column) -> Column:
    from pyspark.sql import functions as f

    return f.pmod(sequence - before - 1, f.lit(65536))
