"""The pipeline on Spark beside the same work in one plain Python process: ingest, selectivity, replay."""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.report import Report, Target, progress

SUMMARY = "pipeline: ingest, selectivity and replay on Spark beside one process (rows a second, ratio, growth)"
PAPER = [
    "/flight",
    "/flight/flightleg/altitude > 300",
    "starts-with(string(/flight/id),'UAL')",
    "substring-before(string(/flight/flightleg/coordinate/lat),'N') > 4000",
]
# With a thousand compiled XPaths a packet takes a thousand times as long: a part of the lines shows the rate.
THOUSAND_SHARE = 400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=2_000_000, help="generated lines (default: 2,000,000)")
    parser.add_argument("--growth", type=int, nargs="*", default=[1, 2, 5, 10], help="millions of lines for the growth")
    parser.add_argument("--no-growth", action="store_true", help="leave out how cost grows with size")
    parser.add_argument("--master", default="local[2]", help="default: local[2]")
    parser.add_argument("--directory", type=Path, help="keep raw files and archives here (default: a temporary one)")


def run(args: argparse.Namespace) -> Report:
    root = args.directory or Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        return _run(args, root)
    finally:
        if args.directory is None:
            shutil.rmtree(root, ignore_errors=True)


def _run(args: argparse.Namespace, root: Path) -> Report:
    from pipeline.session import open_session

    spark = open_session(args.master, name="bench")
    raw = _raw(root, args.lines)
    # Workers are started and modules read before the clock runs: a job of hours does not notice them.
    spark.range(0, 4, 1, 4).mapInArrow(_warm, "id LONG").count()
    rows: list[dict[str, Any]] = []

    def stage(name: str, count: int, spark_work: Callable[[], object], one_work: Callable[[], object]) -> None:
        one = _timed(one_work)
        many = _timed(spark_work)
        rows.append(
            {
                "stage": name,
                "rows_per_s": count / many,
                "one_process_rows_per_s": count / one,
                "ratio": one / many,
            }
        )
        progress(
            f"{name}: {count / many:,.0f} rows/s on Spark, {count / one:,.0f} in one process, ratio {one / many:.2f}"
        )

    from pipeline.archive import Archive
    from pipeline.archive_jobs import read
    from pipeline.ingest import ingest
    from pipeline.replay import iterate, iterate_with_spark
    from pipeline.selectivity import selectivity

    archive = root / "archive"
    shutil.rmtree(archive, ignore_errors=True)
    stage("ingest", args.lines, lambda: ingest(spark, [str(raw)], archive), lambda: _ingest_alone(raw, root / "alone"))
    packets = read(spark, Archive(archive))
    thousand = _thousand()
    few = max(1000, args.lines // THOUSAND_SHARE)
    first = Archive(archive).manifest().files[0].first_an
    part = packets.where(f"an < {first + few}").repartition(8)
    stage(
        "selectivity 4",
        args.lines,
        lambda: selectivity(packets, PAPER).collect(),
        lambda: _select_alone(archive, PAPER, None),
    )
    stage(
        "selectivity 1000",
        few,
        lambda: selectivity(part, thousand).collect(),
        lambda: _select_alone(archive, thousand, few),
    )
    stage(
        "replay",
        args.lines,
        lambda: sum(1 for _ in iterate_with_spark(spark, archive)),
        lambda: sum(1 for _ in iterate(archive)),
    )
    growth = [] if args.no_growth else _growth(spark, root, [million * 1_000_000 for million in args.growth])
    spark.stop()
    ratio = {row["stage"]: row["ratio"] for row in rows}
    least = min(ratio["selectivity 4"], ratio["selectivity 1000"])
    targets = [
        Target("ingest at least 1.6 times one process", ratio["ingest"] >= 1.6, f"{ratio['ingest']:.2f}"),
        Target("selectivity at least 1.7 times one process", least >= 1.7, f"{least:.2f} (the lower of the two)"),
    ]
    notes = [
        f"{entry['lines']:>12,} lines: {entry['seconds']:.1f} s, {entry['us_per_line']:.2f} us a line, "
        f"worker's largest memory {entry['worker_mb']:.0f} MB"
        for entry in growth
    ]
    if len(growth) > 1:
        spread = max(e["us_per_line"] for e in growth) / min(e["us_per_line"] for e in growth)
        memory = max(e["worker_mb"] for e in growth) / min(e["worker_mb"] for e in growth)
        targets.append(Target("cost grows linearly", spread <= 1.3, f"us a line differ {spread:.2f} times"))
        targets.append(Target("memory is flat", memory <= 1.3, f"differs {memory:.2f} times"))
    columns = ["stage", "rows_per_s", "one_process_rows_per_s", "ratio"]
    table = [[row[column] for column in columns] for row in rows]
    return Report("pipeline", {"rows": rows, "growth": growth}, columns, table, targets, notes=notes)


def _warm(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  Spark gives and takes Arrow batches
    import pipeline.ingest
    import pipeline.matcher  # noqa: F401

    yield from batches


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _raw(root: Path, lines: int) -> Path:
    """A file of exactly so many generated lines; made once."""
    from pipeline.flights import Feed

    directory = root / f"raw-{lines}"
    target = directory / "asdi-2026-11-16.txt"
    if target.exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    progress(f"generating {lines:,} lines")
    temporary = target.with_suffix(".tmp")
    with temporary.open("w") as file:
        for number, line in enumerate(Feed(copies=45).lines(1_794_830_400)):
            if number == lines:
                break
            file.write(line.text + "\n")
    temporary.replace(target)
    return directory


def _ingest_alone(raw: Path, out: Path) -> None:
    """The same two passes and the same files, one piece after another in this process."""
    from pipeline.ingest import begin_all, convert, count
    from pipeline.inputs import cut, expand, reference_date
    from pipeline.parts import PartWriter

    shutil.rmtree(out, ignore_errors=True)
    files = expand([str(raw)])
    chunks = cut(files)
    begins, _ = begin_all(chunks, [count(chunk) for chunk in chunks], [reference_date(p, None) for p in files], None)
    for begin in begins:
        writer = PartWriter(out, f"{begin.an:020d}")
        convert(begin, writer, "asdi")
        writer.finish()


def _select_alone(archive: Path, queries: list[str], limit: int | None) -> None:
    from pipeline.archive import Archive
    from pipeline.matcher import compile_queries
    from pipeline.parts import read_rows
    from pipeline.selectivity import tally

    match = compile_queries(queries)
    manifest = Archive(archive).manifest()
    left = limit
    for batch in read_rows(Archive(archive).absolute(manifest.select()), ["xml"]):
        packets = batch.column(0).to_pylist()
        if left is not None:
            packets = packets[:left]
            left -= len(packets)
        tally(packets, len(queries), match)
        if left == 0:
            return


def _thousand() -> list[str]:
    """Queries like those of users: an airline, a flight, a height, a place."""
    airlines = ["UAL", "AAL", "DAL", "JBU", "ASQ", "EGF", "SWA", "AWE"]
    queries = []
    for number in range(250):
        airline = airlines[number % len(airlines)]
        queries.append(f"starts-with(string(/flight/id),'{airline}{number % 100}')")
        queries.append(f"/flight[id='{airline}{number * 7}']/flightleg")
        queries.append(f"/flight/flightleg/altitude > {100 + number}")
        queries.append(f"substring-before(string(/flight/flightleg/coordinate/lat),'N') > {2500 + number * 10}")
    return queries


def _growth(spark: Any, root: Path, sizes: list[int]) -> list[dict[str, Any]]:
    """Cost of ingest against size, each in the same session; the workers' memory is that of the largest ever."""
    from pipeline.ingest import ingest

    found = []
    for lines in sizes:
        raw = _raw(root, lines)
        out = root / "growth"
        shutil.rmtree(out, ignore_errors=True)
        begun = time.perf_counter()
        ingest(spark, [str(raw)], out)
        seconds = time.perf_counter() - begun
        peaks = spark.range(0, 8, 1, 8).mapInArrow(_peak, "mb DOUBLE").collect()
        found.append(
            {
                "lines": lines,
                "seconds": seconds,
                "us_per_line": seconds / lines * 1e6,
                "worker_mb": max(row.mb for row in peaks),
            }
        )
        progress(f"growth: {lines:,} lines in {seconds:.1f} s")
        shutil.rmtree(out, ignore_errors=True)
    return found


def _peak(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  Spark gives and takes Arrow batches
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"mb": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]})
