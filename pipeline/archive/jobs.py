"""Jobs over a whole archive: read it as a DataFrame, verify it, compact it, retire what is old."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archive import delta, schema
from pipeline.archive.manifest import Archive, ArchiveError, DataFile, Job
from pipeline.archive.parts import Partition, PartWriter, partition_of, read_rows
from pipeline.tables.schema import TABLES, arrow
from pipeline.tables.write import TableWriter, derive, write_file
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Problems named in full; there may be thousands, and the first few tell.
_SHOWN = 20
MOST_FILES = 64
"""Files of an hour and table that a recorder leaves."""
_HOUR_US = 3_600_000_000
# Types of ASDI messages of which every packet is a row of a typed table.
_TABLED = frozenset({"TZ", "TO", "FZ", "AF", "UZ", "RZ", "DZ", "AZ"})


def read(
    spark: SparkSession,
    archive: Archive,
    *,
    stream: str | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
    dataset: str = "packets",
) -> DataFrame:
    """The rows that the manifest names, of one stream or all, from a time (inclusive) to a time (exclusive)."""
    from pyspark.sql import functions as f

    files = archive.require().select(dataset, stream=stream, from_us=from_us, to_us=to_us)
    kind = schema.struct(schema.columns(dataset))
    if not files:
        return spark.createDataFrame([], kind)
    frame = spark.read.schema(kind).option("basePath", str(archive.path / dataset)).parquet(*archive.absolute(files))
    if from_us is not None:
        frame = frame.where(f.col("time") >= f.timestamp_micros(f.lit(from_us)))
    if to_us is not None:
        frame = frame.where(f.col("time") < f.timestamp_micros(f.lit(to_us)))
    return frame


@dataclass(slots=True)
class Verified:
    """What `verify` found; the archive is sound when `problems` is empty."""

    files: int = 0
    packets: int = 0
    gaps: int = 0
    quarantined: int = 0
    proofs: int = 0
    duplicates: int = 0
    missing: int = 0
    wrong_checksums: int = 0
    table_rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(problem)


def verify(spark: SparkSession | None, archive: Archive) -> Verified:
    """Read every row: checksums, order within files, partitions, repeats, and that contiguous jobs are."""
    manifest = archive.require()
    found = Verified(files=len(manifest.files))
    root = str(archive.path)

    def task(file: DataFile) -> dict[str, Any]:
        return _check(Path(root), file)

    covered: dict[str, list[tuple[int, int, str]]] = {}
    accounted: dict[str, list[tuple[int, int, str]]] = {}
    kinds: dict[str, Counter[str]] = {"packets": Counter(), "tables": Counter()}
    for file, report in zip(manifest.files, each(spark, manifest.files, task), strict=True):
        for problem in report["problems"]:
            found.note(f"{file.path}: {problem}")
        stream = file.part("stream")
        if file.dataset in TABLES:
            found.table_rows[file.dataset] = found.table_rows.get(file.dataset, 0) + report["rows"]
        elif file.dataset == "quarantine":
            found.quarantined += report["rows"]
        elif file.dataset == "proofs":
            found.proofs += report["rows"]
            continue
        else:
            found.packets += report["rows"] - report["gaps"]
            found.gaps += report["gaps"]
        counts = kinds["packets" if file.dataset == "packets" else "tables"]
        for kind, number in report["types"].items():
            counts[f"{stream} {kind} of {file.part('date')} hour {file.part('hour')}"] += number
        found.wrong_checksums += report["wrong"]
        held = accounted if file.dataset == "quarantine" else covered
        held.setdefault(stream, []).extend((a, b, file.path) for a, b in report["runs"])
        # A packet may come late, after it was given up as part of a gap: that is no repeat.
        accounted.setdefault(stream, []).extend((a, b, file.path) for a, b in report["gap_runs"])
    _compare_tables(found, kinds["packets"], kinds["tables"])
    for problem in delta.differences(archive.path, manifest):
        found.note(problem)
    for stream, runs in covered.items():
        runs.sort()
        _find_repeats(found, stream, runs)
    for stream, ranges in manifest.whole.items():
        both = sorted(covered.get(stream, []) + accounted.get(stream, []))
        for first, last in ranges:
            _find_missing(found, stream, max(first, manifest.retained_from.get(stream, first)), last, both)
    return found


def _compare_tables(found: Verified, packets: Counter[str], tables: Counter[str]) -> None:
    """The typed tables have a row for each packet of their types."""
    if packets and not tables:
        found.note("the archive has no typed tables; `python -m pipeline tables ARCHIVE` makes them")
        return
    for place in sorted(packets | tables):
        if packets[place] != tables[place]:
            found.note(
                f"{place}: {packets[place]} packets, but {tables[place]} rows of typed tables; `python -m pipeline "
                "tables ARCHIVE` makes them again"
            )


def _check_table(root: Path, file: DataFile) -> dict[str, Any]:
    problems: list[str] = []
    rows = 0
    types: Counter[str] = Counter()
    columns = ["an", "flight"] if file.dataset == "flights" else ["an", "flight", "type"]
    last: tuple[str, int] = ("", -1)
    try:
        for batch in read_rows([root / file.path], columns):
            rows += batch.num_rows
            types.update(batch.column(2).to_pylist() if len(columns) > 2 else ())
            order = list(zip(batch.column(1).to_pylist(), batch.column(0).to_pylist(), strict=True))
            if any(b < a for a, b in pairwise([last, *((flight or "", an) for flight, an in order)])):
                problems.append("is not sorted by flight")
            last = (order[-1][0] or "", order[-1][1])
    except ArchiveError as error:
        problems.append(f"cannot be read: {error.__cause__}")
    if rows != file.rows:
        problems.append(f"has {rows} rows, but the manifest says {file.rows}")
    asdi_types = {kind: number for kind, number in types.items() if kind in _TABLED}
    return {"rows": rows, "gaps": 0, "wrong": 0, "problems": problems, "runs": [], "gap_runs": [], "types": asdi_types}


def _check(root: Path, file: DataFile) -> dict[str, Any]:
    """One file, in a task. `runs` are its ANs as ranges, `gap_runs` those of its gaps."""
    if file.dataset in TABLES:
        return _check_table(root, file)
    packets = file.dataset == "packets"
    types: Counter[str] = Counter()
    rows = gaps = wrong = 0
    problems: list[str] = []
    runs: list[list[int]] = []
    gap_runs: list[list[int]] = []
    last = -1
    try:
        for batch in read_rows(
            [root / file.path], ["an", "time", "xml", "after", "crc", "type"] if packets else ["an", "time"]
        ):
            columns = batch.to_pydict()
            times = batch.column("time").cast(pa.int64()).to_pylist()
            rows += batch.num_rows
            types.update(kind for kind in columns.get("type", ()) if kind in _TABLED)
            stream = file.part("stream")
            seconds = {us // 3_600_000_000 * 3600 for us in times}
            hours = {partition_of(file.dataset, stream, second).directory for second in seconds}
            if hours - {file.path.rpartition("/")[0]}:
                problems.append(f"rows of another hour: {sorted(hours)}")
            for at, an in enumerate(columns["an"]):
                after = columns["after"][at] if packets else None
                if an < last or (packets and an == last):
                    problems.append(f"AN {an} follows {last}")
                if packets and schema.checksum(an, columns["xml"][at]) != columns["crc"][at]:
                    wrong += 1
                    problems.append(f"AN {an} has a wrong checksum")
                last = an
                if after is not None:
                    gaps += 1
                    gap_runs.append([after + 1, an])
                elif runs and an == runs[-1][1] + 1:
                    runs[-1][1] = an
                else:
                    runs.append([an, an])
    except ArchiveError as error:
        problems.append(f"cannot be read: {error.__cause__}")
    if rows != file.rows:
        problems.append(f"has {rows} rows, but the manifest says {file.rows}")
    return {
        "rows": rows, "gaps": gaps, "wrong": wrong, "problems": problems[:_SHOWN], "runs": runs, "gap_runs": gap_runs,
        "types": types,
    }  # fmt: skip


def _find_repeats(found: Verified, stream: str, runs: list[tuple[int, int, str]]) -> None:
    reached = -1
    for begin, end, path in runs:
        if begin <= reached:
            found.duplicates += min(reached, end) - begin + 1
            found.note(f"{stream}: ANs {begin} to {min(reached, end)} appear twice, the second time in {path}")
        reached = max(reached, end)


def _find_missing(found: Verified, stream: str, low: int, high: int, runs: Iterable[tuple[int, int, str]]) -> None:
    """What is missing of a range that was counted without holes."""
    wanted = low
    for begin, end, _ in runs:
        if end < wanted:
            continue
        if begin > high:
            break
        if begin > wanted:
            found.missing += begin - wanted
            found.note(f"{stream}: ANs {wanted} to {begin - 1} are missing")
        wanted = max(wanted, end + 1)
    if wanted <= high:
        found.missing += high - wanted + 1
        found.note(f"{stream}: ANs {wanted} to {high} are missing")


def compact(spark: SparkSession | None, archive: Archive) -> int:
    """One file for each hour that has several; rows and order stay. Returns how many files went."""
    return _compact(spark, archive, [files for files in _hours(archive.require().files) if len(files) > 1])


def compact_recent(archive: Archive, *, most: int = MOST_FILES) -> int:
    """What a recorder does between batches, in its own process: bound the files of the hours of the last days.

    An hour gets one file when a later one has begun, and before that whenever it has more than `most`.
    """
    hours = _hours(archive.require().recent)
    newest: dict[tuple[str, str], int] = {}
    for files in hours:
        key = (files[0].dataset, files[0].part("stream"))
        newest[key] = max(newest.get(key, 0), max(file.last_us for file in files) // _HOUR_US)
    work = []
    for files in hours:
        is_over = files[0].first_us // _HOUR_US < newest[files[0].dataset, files[0].part("stream")]
        if len(files) > (1 if is_over else most):
            work.append(files)
    return _compact(None, archive, work)


def _hours(files: Iterable[DataFile]) -> list[list[DataFile]]:
    hours: dict[str, list[DataFile]] = {}
    for file in files:
        hours.setdefault(file.path.rpartition("/")[0], []).append(file)
    return list(hours.values())


def _compact(spark: SparkSession | None, archive: Archive, work: list[list[DataFile]]) -> int:
    if not work:
        return 0
    root = str(archive.path)
    with archive.staging("compact") as staging:
        target = str(staging)

        def task(files: list[DataFile]) -> dict[str, Any]:
            return {"files": [asdict(file) for file in _merge(Path(root), Path(target), files)]}

        merged = [DataFile(**file) for report in each(spark, work, task) for file in report["files"]]
        replaced = frozenset(file.path for files in work for file in files)
        key = hashlib.sha256(" ".join(sorted(replaced)).encode()).hexdigest()
        streams = {file.part("stream") for file in merged}
        job = Job(key, "compact", ",".join(sorted(streams)), 0, -1, False, {"files": len(replaced)})
        archive.commit(job, [(staging / file.path, file) for file in merged], replaced=replaced)
    return len(replaced) - len(merged)


def _merge(root: Path, staging: Path, files: list[DataFile]) -> list[DataFile]:
    files = sorted(files, key=lambda file: file.first_an)
    first = files[0]
    partition = Partition(first.dataset, first.part("stream"), first.part("date"), int(first.part("hour")))
    if first.dataset in TABLES:
        whole = pa.concat_tables(pq.ParquetFile(root / file.path).read().cast(arrow(first.dataset)) for file in files)
        name = f"{first.first_an:020d}-{uuid.uuid4().hex[:8]}.parquet"
        return [write_file(staging / partition.directory / name, partition, whole)]
    writer = PartWriter(staging, f"{first.first_an:020d}")
    apart = all(a.last_an < b.first_an for a, b in pairwise(files))
    if apart:
        for file in files:
            with pq.ParquetFile(root / file.path) as source:
                for batch in source.iter_batches(batch_size=50_000):
                    writer.write_table(partition, pa.Table.from_batches([batch]).cast(schema.arrow(first.dataset)))
    else:  # files of one hour that interleave: only then is the hour held in memory
        tables = [pq.ParquetFile(root / file.path).read().cast(schema.arrow(first.dataset)) for file in files]
        writer.write_table(partition, pa.concat_tables(tables).sort_by("an"))
    return writer.finish()


def retain(archive: Archive, before: date) -> int:
    """Take everything of days before this one out of the archive, then delete it. Returns the number of files."""
    manifest = archive.require()
    old = [file for file in manifest.files if file.part("date") < before.isoformat()]
    if not old:
        return 0
    kept = [file for file in manifest.files if file.part("date") >= before.isoformat()]
    left: dict[str, int] = {}
    for stream in {file.part("stream") for file in old}:
        ans = [file.first_an for file in kept if file.part("stream") == stream]
        left[stream] = min(ans) if ans else max(file.last_an for file in old if file.part("stream") == stream) + 1
    key = hashlib.sha256(f"retain {manifest.version} {before}".encode()).hexdigest()
    job = Job(key, "retain", ",".join(sorted(left)), 0, -1, False, {"before": before.isoformat(), "files": len(old)})
    archive.commit(job, [], replaced=frozenset(file.path for file in old), retained_from=left)
    return len(old)


def rebuild_tables(spark: SparkSession | None, archive: Archive) -> int:
    """Make all typed tables again from the packets: for an archive that had none, or has them in an older version.

    Returns the number of rows.
    """
    manifest = archive.require()
    root = str(archive.path)
    packets = manifest.select("packets")
    with archive.staging("tables") as staging:
        target = str(staging)

        def task(file: DataFile) -> dict[str, Any]:
            writer = TableWriter(Path(target), f"{file.first_an:020d}", file.part("stream"))
            for batch in pq.ParquetFile(Path(root) / file.path).iter_batches(batch_size=50_000):
                derive(pa.Table.from_batches([batch]), writer)
            return {"files": [asdict(made) for made in writer.finish()]}

        made = [DataFile(**file) for report in each(spark, packets, task) for file in report["files"]]
        old = frozenset(file.path for file in manifest.files if file.dataset in TABLES)
        key = hashlib.sha256(f"tables {manifest.version}".encode()).hexdigest()
        streams = {file.part("stream") for file in packets}
        job = Job(key, "tables", ",".join(sorted(streams)), 0, -1, False, {"files": len(made)})
        archive.commit(job, [(staging / file.path, file) for file in made], replaced=old)
    return sum(file.rows for file in made)
