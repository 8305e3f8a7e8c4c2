"""The archive as a data product: tables and their queries beside hand-written jobs, commits after years, delay of
`record`. Part of `bench pipeline`."""

from __future__ import annotations

import itertools
import math
import shutil
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from bench import _events
from bench.report import Target, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_794_830_400
BATCHES = 3_000_000
_LINE = (
    r"^([0-9A-F]{4})(\d\d)(\d\d)(\d\d)(\d\d)([A-Z0-9]{4})TZ ([A-Z0-9]+)(?:/[A-Z0-9]+)? (\d+) (\d+)[CT]? "
    r"(\d\d)(\d\d)([NS])/(\d\d\d)(\d\d)([EW])"
)
DENSITY = "SELECT floor(latitude) AS a, floor(longitude) AS b, count(*) AS n FROM positions GROUP BY 1, 2"


def measure(
    spark: SparkSession, raw: list[Path], lines: int, root: Path, cpu: Callable[[], float]
) -> list[dict[str, Any]]:
    """One row per question: seconds, CPU microseconds per line where that means something."""
    from pipeline.archive.manifest import Archive
    from pipeline.ingest.text import ingest
    from pipeline.tables.views import spark_views

    rows: list[dict[str, Any]] = []

    def timed(name: str, work: Callable[[], object], count: int | None = None) -> None:
        progress(name)
        begun, used = time.perf_counter(), cpu()
        work()
        row: dict[str, Any] = {"question": name, "seconds": time.perf_counter() - begun}
        if count is not None:
            row["cpu_us_per_line"] = (cpu() - used) / count * 1e6
        rows.append(row)

    files, archive = [str(path) for path in raw], Archive(root / "product")
    text_bytes = sum(path.stat().st_size for path in raw)
    timed(
        "ingest: packets, tables, quarantine", lambda: ingest(spark, files, archive.path, day=date(2026, 11, 16)), lines
    )
    rows[-1]["bytes_to_text"] = sum(file.size for file in archive.manifest().files) / text_bytes
    timed("positions only, hand-written PySpark", lambda: _by_hand(spark, files, root / "hand"), lines)
    timed("positions only, DuckDB", lambda: _by_duckdb(files, root / "duck.parquet"), lines)
    spark_views(spark, archive)
    timed("density, Spark on positions", lambda: spark.sql(DENSITY).collect())
    timed("density, DuckDB on positions", lambda: _duckdb(archive).execute(DENSITY).fetchall())
    timed("density, hand-written PySpark on the text", lambda: _density_by_hand(spark, files))
    rows.append(_commits(root / "years"))
    rows.append(_delay(spark, root / "delay"))
    rows += _events.measure()
    timed("1,000 files of 2 lines", lambda: ingest(spark, [str(_small_files(files, root / "small"))], root / "few"))
    shutil.rmtree(archive.path, ignore_errors=True)
    return rows


def targets(rows: list[dict[str, Any]]) -> list[Target]:
    by_name = {row["question"]: row for row in rows}
    ingest, density = by_name["ingest: packets, tables, quarantine"], by_name["density, DuckDB on positions"]
    commit, small = by_name[f"commit after {BATCHES:,} batches"], by_name["1,000 files of 2 lines"]
    return [
        Target(
            "ingest at most 8 us of CPU per line", ingest["cpu_us_per_line"] <= 8, f"{ingest['cpu_us_per_line']:.1f}"
        ),
        Target("archive at most 1.0 of the text", ingest["bytes_to_text"] <= 1.0, f"{ingest['bytes_to_text']:.2f}"),
        Target("density below 2 s", density["seconds"] < 2, f"{density['seconds']:.2f} s"),
        Target("a commit at most 0.1 s of CPU", commit["cpu_seconds"] <= 0.1, f"{commit['cpu_seconds']:.3f} s"),
        Target("1,000 small files below 10 s", small["seconds"] < 10, f"{small['seconds']:.1f} s"),
        *_events.targets(rows),
    ]


def _small_files(files: list[str], folder: Path) -> Path:
    folder.mkdir()
    with Path(files[0]).open("rb") as source:
        for number in range(1000):
            (folder / f"{number:04d}.txt").write_bytes(source.readline() + source.readline())
    return folder


def _positions(spark: SparkSession, files: list[str]) -> Any:
    from pyspark.sql import functions as f

    def part(number: int) -> Any:
        return f.regexp_extract("value", _LINE, number)

    def angle(first: int) -> Any:
        sign = f.when(part(first + 2).isin("S", "W"), -1.0).otherwise(1.0)
        return sign * (part(first).cast("int") + part(first + 1).cast("int") / 60)

    return (
        spark.read.text(files)
        .where(f.substring("value", 17, 2) == "TZ")
        .select(
            part(7).alias("flight"), part(6).alias("facility"), part(8).cast("int").alias("speed_kt"),
            (part(9).cast("int") * 100).alias("altitude_ft"), angle(10).alias("latitude"), angle(13).alias("longitude"),
        )
    )  # fmt: skip


def _by_hand(spark: SparkSession, files: list[str], out: Path) -> None:
    _positions(spark, files).write.mode("overwrite").parquet(str(out))


def _density_by_hand(spark: SparkSession, files: list[str]) -> None:
    _positions(spark, files).createOrReplaceTempView("by_hand")
    spark.sql(DENSITY.replace("positions", "by_hand")).collect()


def _by_duckdb(files: list[str], out: Path) -> None:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    names = ", ".join(f"'{name}'" for name in files)
    pattern = r"([A-Z0-9]{4})TZ ([A-Z0-9]+)(?:/[A-Z0-9]+)? (\d+) (\d+)[CT]? (\d{4})([NS])/(\d{5})([EW])"
    groups = "['facility', 'flight', 'speed', 'level', 'lat', 'ns', 'lon', 'ew']"
    lines = (
        f"SELECT regexp_extract(line, '{pattern}', {groups}) AS f FROM read_csv([{names}], "
        "columns={'line': 'VARCHAR'}, "
        "delim='\\x01', quote='', escape='', header=false, auto_detect=false) WHERE substr(line, 17, 2) = 'TZ'"
    )
    angle = "CASE f.{1} WHEN '{2}' THEN -1 ELSE 1 END * ({0} // 100 + {0} % 100 / 60)"
    columns = ", ".join([
        "f.flight", "f.facility", "f.speed::INT AS speed_kt", "f.level::INT * 100 AS altitude_ft",
        angle.format("f.lat::INT", "ns", "S") + " AS latitude", angle.format("f.lon::INT", "ew", "W") + " AS longitude",
    ])  # fmt: skip
    with duckdb.connect(":memory:", config={"threads": 2}) as connection:
        connection.execute(f"COPY (SELECT {columns} FROM ({lines})) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


def _duckdb(archive: Any) -> Any:
    import duckdb

    from pipeline.tables.views import duckdb_views

    connection = duckdb.connect(":memory:", config={"threads": 2})
    connection.execute(duckdb_views(archive))
    return connection


def _commits(root: Path) -> dict[str, Any]:
    """CPU of a commit to an archive whose books are those of three million batches of ten seconds."""
    from pipeline.archive import books
    from pipeline.archive.manifest import Archive
    from pipeline.archive.packet import packet_row
    from pipeline.archive.parts import PartWriter, partition_of

    progress(f"commit after {BATCHES:,} batches")
    archive, hours = Archive(root), BATCHES // 360
    written: dict[str, tuple[books.DataFile, ...]] = {}
    numbers = itertools.count()
    manifest = books.Manifest(load=lambda part: written[part.name])
    tables = ("packets", "positions", "plans", "departures", "arrivals", "flights")
    for hour in range(hours + 1):
        us = (NOON + hour * 3600) * 1_000_000
        places = [partition_of(table, "asdi", us // 1_000_000).directory for table in tables]
        added = [
            books.DataFile(f"{place}/{n}.parquet", 7200, 500_000, hour, hour, us, us + 3_599_000_000)
            for place in places
            for n in range(1 if hour < hours else 60)
        ]
        job = books.Job("bench", "record", "asdi", 0, -1, False, batch=hour * 360)
        change = books.advance(manifest, job, added, now=0.0, new_name=lambda: f"part-{next(numbers)}.json")
        written.update(change.written)
        manifest = change.manifest
    (root / "_manifest").mkdir(parents=True)
    for name, files in written.items():
        (root / "_manifest" / name).write_text(books.encode_part(files))
    (root / "_manifest" / f"{manifest.version:020d}.json").write_text(books.encode(manifest, 2))
    spent = []
    for number in range(20):
        with archive.staging("record") as staging:
            writer = PartWriter(staging, "record")
            row = packet_row(number, NOON * 1_000_000, b"<heartbeat/>")
            writer.write(partition_of("packets", "asdi", NOON), [[value] for value in row])
            staged = [(staging / file.path, file) for file in writer.finish()]
            begun = time.process_time()
            archive.commit(books.Job("bench", "record", "asdi", 0, -1, False, batch=BATCHES + number), staged)
            spent.append(time.process_time() - begun)
    return {"question": f"commit after {BATCHES:,} batches", "cpu_seconds": median(spent)}


def _delay(spark: SparkSession, root: Path, seconds: float = 20.0, interval: float = 1.0) -> dict[str, Any]:
    """From a packet in the log to its commit in the archive, while `record` runs with batches of a second."""
    from asdi.flights import Feed
    from peer.packetlog import LogConfig, Packet, Writer
    from pipeline.archive.manifest import Archive
    from pipeline.live.record import record

    progress("delay of record")
    log, archive = root / "log", Archive(root / "archive")
    done = threading.Event()
    logged: list[tuple[int, float]] = []
    packets = Feed(copies=45).packets(NOON)

    def feed() -> None:
        with Writer(log, LogConfig(sync_seconds=0.0, sync_bytes=0)) as writer:
            while not done.wait(0.1):
                now = time.time()
                part = list(itertools.islice(packets, 10))
                writer.append([Packet(packet.an, int(now * 1e6), packet.payload) for packet in part])
                logged.append((part[-1].an, now))

    thread = threading.Thread(target=feed)
    thread.start()
    while not logged:
        time.sleep(0.01)
    query = record(spark, {"log": str(log)}, archive.path, root / "checkpoint", stream="asdi", once=False,
                   interval_seconds=interval)  # fmt: skip
    delays: list[float] = []
    reached, begun, until = -1, time.monotonic(), math.inf
    while (now := time.monotonic()) < until:
        if until == math.inf and reached >= 0:  # the first batch starts the workers: count from the next one on
            delays.clear()
            until = now + seconds
        elif now - begun > 10 * seconds:
            break
        files = archive.manifest().select()
        last, now = max((file.last_an for file in files), default=-1), time.time()
        delays += [now - at for an, at in logged if reached < an <= last]
        reached = max(reached, last)
        time.sleep(0.02)
    query.stop()
    done.set()
    thread.join()
    row: dict[str, Any] = {"question": "delay of record, batches of 1 s", "packets": 10 * len(delays)}
    if len(delays) > 1:
        cuts = quantiles(delays, n=100)
        row |= {"p50_seconds": cuts[49], "p99_seconds": cuts[98]}
    return row
