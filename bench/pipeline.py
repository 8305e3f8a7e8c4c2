"""The pipeline on Spark beside the same work in one plain Python process: ingest, selectivity, replay."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import _product
from bench._processes import run_all
from bench.report import Report, Target, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.archive.scan import Piece

SUMMARY = "pipeline: ingest, selectivity and replay on Spark compared with one process (rows/s, ratio, growth)"
PAPER = [
    "/flight",
    "/flight/flightleg/altitude > 300",
    "starts-with(string(/flight/id),'UAL')",
    "substring-before(string(/flight/flightleg/coordinate/lat),'N') > 4000",
]
NOON = 1_794_830_400  # 2026-11-16 12:00 UTC
FILE_LINES = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=2_000_000, help="generated lines (default: 2,000,000)")
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[1, 2, 5, 10], metavar="N",
        help="measure growth: ingest N million lines (default: 1 2 5 10)",
    )  # fmt: skip
    parser.add_argument("--no-growth", action="store_true", help="skip the measurement of growth")
    parser.add_argument("--only-growth", action="store_true", help="only measure growth")
    parser.add_argument(
        "--turns",
        type=int,
        choices=range(1, 10),
        default=3,
        metavar="N",
        help="how many times to run each stage on Spark (default: 3)",
    )
    parser.add_argument("--no-product", action="store_true", help="skip tables, queries, commits and delay")
    parser.add_argument("--only-product", action="store_true", help="only measure these")
    parser.add_argument("--thousand-lines", type=int, help="lines to match against 1,000 queries (default: all)")
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

    spark = open_session(args.master, name="bench", light=True)
    _warm_up(spark, root / "warm")
    raw = _Raw(spark, root / "raw", args.lines)
    args.no_growth |= args.only_product
    args.no_product |= args.only_growth
    rows = [] if args.only_growth or args.only_product else _stages(args, spark, raw.files(args.lines), root)
    growth = [] if args.no_growth else _growth(spark, raw, root, args.growth)
    product = [] if args.no_product else _product.measure(spark, raw.files(args.lines), args.lines, root, _cpu_seconds)
    spark.stop()
    columns = ["stage", "rows", "rows_per_s", "one_process_rows_per_s", "ratio", "cpu_us", "one_process_cpu_us"]
    return Report(
        "pipeline",
        {"rows": rows, "growth": growth, "product": product},
        columns,
        [[row[column] for column in columns] for row in rows],
        [*_targets(rows, growth), *(_product.targets(product) if product else [])],
        notes=[
            *(
                f"{row['stage']}: the median of {', '.join(f'{ratio:.2f}' for ratio in row['ratios'])}, each run of "
                "Spark between two runs of one process"
                for row in rows
            ),
            "Not counted: starting Java and the workers, and a first job of a few lines. cpu_us: CPU time per row, in "
            "microseconds, of all processes.",
            *(
                f"{entry['lines']:>12,} lines: {entry['seconds']:.1f} s, {entry['us_per_line']:.2f} us per line, CPU "
                f"{entry['cpu_us_per_line']:.2f} us per line; peak memory: worker {entry['worker_mb']:.0f} MB, "
                f"driver {entry['driver_mb']:.0f} MB, Java {entry['java_mb']:.0f} MB"
                for entry in growth
            ),
            *(
                f"{row['question']}: "
                + ", ".join(f"{key} {value:.3g}" for key, value in row.items() if key != "question")
                for row in product
            ),
        ],
    )


def _targets(rows: list[dict[str, Any]], growth: list[dict[str, Any]]) -> list[Target]:
    targets = []
    if rows:
        ratio = {row["stage"]: row["ratio"] for row in rows}
        least = min(ratio["selectivity 4"], ratio["selectivity 1000"])
        targets += [
            Target("ingest at least 1.6 times one process", ratio["ingest"] >= 1.6, f"{ratio['ingest']:.2f}"),
            Target("selectivity at least 1.7 times one process", least >= 1.7, f"{least:.2f} (the lower of the two)"),
        ]
    if len(growth) > 1:
        costs = [entry["cpu_us_per_line"] for entry in growth]
        spread = max(costs) / min(costs)
        targets.append(
            Target("cost grows linearly", spread <= 1.3, f"CPU time per line differs by a factor of {spread:.2f}")
        )
        for who in ("worker", "driver"):
            more = growth[-1][f"{who}_mb"] / growth[0][f"{who}_mb"]
            detail = f"{more:.2f} times from {growth[0]['lines']:,} to {growth[-1]['lines']:,} lines"
            targets.append(Target(f"memory of the {who} is flat", more <= 1.3, detail))
    return targets


def _stages(args: argparse.Namespace, spark: SparkSession, raw: list[Path], root: Path) -> list[dict[str, Any]]:
    from pipeline.analyze.selectivity import partial, selectivity
    from pipeline.archive.manifest import Archive
    from pipeline.archive.scan import pieces
    from pipeline.ingest.text import ingest
    from pipeline.replay import iterate_with_spark

    rows: list[dict[str, Any]] = []

    def stage(name: str, count: int, spark_work: Callable[[], object], alone: str, **options: Any) -> None:
        def in_one_process() -> dict[str, float]:
            progress(f"{name}: one process")
            return run_all(_alone, [{"work": alone, **options}])[0]

        # In turns: the speed of a core changes while a shared machine works. Each run of Spark is compared
        # with the two runs of one process around it, and the median of these ratios is reported.
        alone_turns, spark_turns = [in_one_process()], []
        for _ in range(args.turns):
            progress(f"{name}: Spark")
            begun, used = time.perf_counter(), _cpu_seconds()
            spark_work()
            spark_turns.append({"seconds": time.perf_counter() - begun, "cpu": _cpu_seconds() - used})
            alone_turns.append(in_one_process())
        around = [(a["seconds"] + b["seconds"]) / 2 for a, b in pairwise(alone_turns)]
        ratios = [one / turn["seconds"] for one, turn in zip(around, spark_turns, strict=True)]
        one = {key: median(turn[key] for turn in alone_turns) for key in ("seconds", "cpu")}
        many = {key: median(turn[key] for turn in spark_turns) for key in ("seconds", "cpu")}
        rows.append(
            {
                "stage": name,
                "rows": count,
                "rows_per_s": count / many["seconds"],
                "one_process_rows_per_s": count / one["seconds"],
                "ratio": median(ratios),
                "ratios": ratios,
                "cpu_us": many["cpu"] / count * 1e6,
                "one_process_cpu_us": one["cpu"] / count * 1e6,
            }
        )
        progress(f"{name}: " + ", ".join(f"{ratio:.2f}" for ratio in ratios) + " times one process")

    archive = root / "archive"
    files = [str(path) for path in raw]

    def ingest_anew() -> None:
        shutil.rmtree(archive, ignore_errors=True)
        ingest(spark, files, archive)

    stage("ingest", args.lines, ingest_anew, "ingest", raw=files, out=str(root / "archive-alone"))
    whole = pieces(Archive(archive))
    stage(
        "selectivity 4", args.lines, lambda: selectivity(partial(spark, whole, PAPER)).collect(), "selectivity",
        pieces=whole, queries=PAPER,
    )  # fmt: skip
    part, lines = whole, args.lines
    if args.thousand_lines is not None:
        first = Archive(archive).manifest().files[0].first_an
        lines = min(args.thousand_lines, lines)
        part = [_below(piece, first, first + lines) for piece in whole]
    stage(
        "selectivity 1000", lines, lambda: selectivity(partial(spark, part, _thousand())).collect(), "selectivity",
        pieces=part, queries=_thousand(),
    )  # fmt: skip
    stage(
        "replay", args.lines, lambda: sum(1 for _ in iterate_with_spark(spark, archive)), "replay", archive=str(archive)
    )
    return rows


def _below(piece: Piece, first: int, end: int) -> Piece:
    """The piece without what lies at or beyond `end`."""
    low, high = piece.ans or (first, end)
    return piece._replace(ans=(low, min(high, end)))


def _warm_up(spark: SparkSession, root: Path) -> None:
    """Each job once with a few lines: Java, both workers and their modules are up, as a job of minutes finds them."""
    from asdi.flights import Feed
    from pipeline.analyze.selectivity import partial, selectivity
    from pipeline.archive.manifest import Archive
    from pipeline.archive.scan import pieces
    from pipeline.ingest.text import ingest
    from pipeline.replay import iterate_with_spark

    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for hour in (0, 1):  # two files are two tasks at least, one a worker
        lines = Feed().lines(NOON + hour * 3600, NOON + hour * 3600 + 60)
        (root / f"asdi-2026-11-16-{hour}.txt").write_text("".join(f"{line.text}\n" for line in lines))
    ingest(spark, sorted(map(str, root.glob("*.txt"))), root / "archive")
    (whole,) = pieces(Archive(root / "archive"))
    selectivity(partial(spark, [whole._replace(files=(file,)) for file in whole.files], PAPER)).collect()
    sum(1 for _ in iterate_with_spark(spark, root / "archive"))
    shutil.rmtree(root)


# --- the same work in one process of its own ---
def _alone(*, work: str, **options: Any) -> dict[str, float]:
    import pipeline.analyze.selectivity
    import pipeline.ingest.text
    import pipeline.replay

    begun, used = time.perf_counter(), time.process_time()
    if work == "ingest":
        _ingest_alone([Path(path) for path in options["raw"]], Path(options["out"]))
    elif work == "selectivity":
        pipeline.analyze.selectivity.tally(options["pieces"], options["queries"])
    else:
        sum(1 for _ in pipeline.replay.iterate(options["archive"]))
    return {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - used}


def _ingest_alone(raw: list[Path], out: Path) -> None:
    """One pass, which is all that one process needs: the same parser, XML, Parquet and commit."""
    from pipeline.archive.manifest import Archive, Job
    from pipeline.archive.parts import PartWriter
    from pipeline.ingest.convert import convert
    from pipeline.ingest.inputs import Chunk, reference_date
    from pipeline.ingest.numbering import Begin
    from pipeline.tables.write import TableWriter

    shutil.rmtree(out, ignore_errors=True)
    archive = Archive(out)
    an = 0
    with archive.staging("alone") as staging:
        staged = []
        for number, path in enumerate(raw):
            writer, tables = PartWriter(staging, f"{an:020d}"), TableWriter(staging, f"{an:020d}", "asdi")
            chunk = Chunk(str(path), 0, path.stat().st_size, number)
            report = convert(Begin(chunk, 0, an, reference_date(path)), writer, tables, "asdi")
            an += report["types"].total() + report["reasons"].total()
            staged += [*writer.finish(), *tables.finish()]
        archive.commit(
            Job("alone", "ingest", "asdi", 0, an - 1, True), [(staging / file.path, file) for file in staged]
        )
    shutil.rmtree(out)


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


# --- input ---
class _Raw:
    """Files of the feed's text, a million lines each. Beyond the lines that were generated the same come again on the
    days after: only the day of the month differs."""

    def __init__(self, spark: SparkSession, directory: Path, generated: int) -> None:
        self._spark = spark
        self._directory = directory
        self._generated = generated
        self.unit = min(generated, FILE_LINES)

    def files(self, lines: int) -> list[Path]:
        """Files with this many lines, made unless they are there."""
        first = self._first_day()
        found = []
        for number in range(-(-lines // self.unit)):
            later, at = divmod(number, len(first))
            found.append(self._on_day(first[at], later) if later else first[at])
        return found

    def _first_day(self) -> list[Path]:
        names = [f"asdi-2026-11-16-{number}.txt" for number in range(-(-self._generated // self.unit))]
        paths = [self._directory / f"{self._generated}" / name for name in names]
        if not all(path.exists() for path in paths):
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            progress(f"generating {self._generated:,} lines")
            lines = self._lines()
            for number, path in enumerate(paths):
                with path.with_suffix(".tmp").open("wb") as file:
                    for _ in range(min(self.unit, self._generated - number * self.unit)):
                        file.write(next(lines))
                path.with_suffix(".tmp").replace(path)
        return paths

    def _lines(self) -> Iterator[bytes]:
        from asdi.flights import Feed
        from pipeline.ingest.generate import write_hour
        from pipeline.tasks import each

        hours = self._directory / "hours"
        hours.mkdir(parents=True, exist_ok=True)
        target = str(hours)

        def task(moment: int) -> dict[str, Any]:
            return write_hour(Path(target), Feed(copies=45), moment, compress=False)

        moment = NOON
        while True:  # two hours at a time, one a worker
            each(self._spark, [moment, moment + 3600], task)
            for path in sorted(hours.iterdir()):
                with path.open("rb") as file:
                    yield from file
                path.unlink()
            moment += 7200

    @staticmethod
    def _on_day(path: Path, later: int) -> Path:
        day = b"%02d" % (16 + later)
        target = path.with_name(path.name.replace("-11-16-", f"-11-{16 + later}-"))
        if not target.exists():
            with path.open("rb") as source, target.with_suffix(".tmp").open("wb") as file:
                file.writelines(line[:4] + day + line[6:] for line in source)
            target.with_suffix(".tmp").replace(target)
        return target


def _growth(spark: SparkSession, raw: _Raw, root: Path, millions: list[int]) -> list[dict[str, Any]]:
    """Cost of ingest against size, one after another in the same session; memory is the most there ever was."""
    from pipeline.ingest.text import ingest

    found = []
    for size in sorted(millions):
        files = raw.files(size * raw.unit)
        lines = size * raw.unit
        out = root / "growth"
        shutil.rmtree(out, ignore_errors=True)
        begun, used = time.perf_counter(), _cpu_seconds()
        ingest(spark, [str(path) for path in files], out)
        seconds, cpu = time.perf_counter() - begun, _cpu_seconds() - used
        peaks = spark.range(0, 8, 1, 8).mapInArrow(_peak, "mb DOUBLE").collect()
        found.append(
            {
                "lines": lines,
                "seconds": seconds,
                "us_per_line": seconds / lines * 1e6,
                "cpu_us_per_line": cpu / lines * 1e6,
                "worker_mb": max(row.mb for row in peaks),
                "driver_mb": _peak_mb(),
                "java_mb": _java_mb(),
            }
        )
        progress(f"growth: {lines:,} lines in {seconds:.1f} s")
        shutil.rmtree(out, ignore_errors=True)
    return found


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _peak(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  Spark gives and takes Arrow batches
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"mb": [_peak_mb()]})


# --- what /proc says of this process and all below it: the JVM and the workers ---
def _family() -> list[Path]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(Path("/proc") / str(pid))
        waiting += [child for child, parent in parents.items() if parent == pid]
    return found


_ticks: dict[tuple[str, str], int] = {}
"""CPU time of every process that was ever seen, by its id and the moment it began."""


def _cpu_seconds() -> float:
    """Of all of them. Those that have ended keep what they had: Spark ends idle workers, also while another job runs,
    and without them a job that outlived them seemed to have taken less than nothing.
    """
    for entry in _family():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        _ticks[entry.name, fields[19]] = int(fields[11]) + int(fields[12])
    return sum(_ticks.values()) / os.sysconf("SC_CLK_TCK")


def _java_mb() -> float:
    for entry in _family():
        try:
            status = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
        except OSError:
            continue
        if status["Name"].strip() == "java":
            return int(status["VmHWM"].split()[0]) / 1024
    return 0.0
