"""Jobs over a whole archive: read it as a DataFrame, verify it, compact it, retire what is old."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archive import schema
from pipeline.archive.manifest import Archive, ArchiveError, DataFile, Job
from pipeline.archive.parts import Partition, PartWriter, partition_of, read_rows
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Problems named in full; there may be thousands, and the first few tell.
_SHOWN = 20


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
    kind = schema.struct(schema.PACKETS if dataset == "packets" else schema.QUARANTINE)
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
    duplicates: int = 0
    missing: int = 0
    wrong_checksums: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(problem)


def verify(spark: SparkSession, archive: Archive) -> Verified:
    """Read every row: checksums, order within files, partitions, repeats, and that contiguous jobs are."""
    manifest = archive.require()
    found = Verified(files=len(manifest.files))
    root = str(archive.path)

    def task(file: DataFile) -> dict[str, Any]:
        return _check(Path(root), file)

    covered: dict[str, list[tuple[int, int, str]]] = {}
    for file, report in zip(manifest.files, each(spark, manifest.files, task), strict=True):
        if file.dataset == "quarantine":
            found.quarantined += report["rows"]
        else:
            found.packets += report["rows"] - report["gaps"]
            found.gaps += report["gaps"]
        found.wrong_checksums += report["wrong"]
        for problem in report["problems"]:
            found.note(f"{file.path}: {problem}")
        covered.setdefault(file.part("stream"), []).extend((a, b, file.path) for a, b in report["runs"])
    for stream, runs in covered.items():
        runs.sort()
        _find_repeats(found, stream, runs)
    for job in manifest.jobs:
        if job.contiguous:
            low = max(job.first_an, manifest.retained_from.get(job.stream, job.first_an))
            _find_missing(found, job, low, covered.get(job.stream, []))
    return found


def _check(root: Path, file: DataFile) -> dict[str, Any]:
    """One file, in a task. `runs` are its ANs as ranges, gaps included."""
    packets = file.dataset == "packets"
    rows = gaps = wrong = 0
    problems: list[str] = []
    runs: list[list[int]] = []
    last = -1
    try:
        for batch in read_rows(
            [root / file.path], ["an", "time", "xml", "after", "crc"] if packets else ["an", "time"]
        ):
            columns = batch.to_pydict()
            times = batch.column("time").cast(pa.int64()).to_pylist()
            rows += batch.num_rows
            stream = file.part("stream")
            seconds = {us // 3_600_000_000 * 3600 for us in times}
            hours = {partition_of(file.dataset, stream, second).directory for second in seconds}
            if hours - {file.path.rpartition("/")[0]}:
                problems.append(f"rows of another hour: {sorted(hours)}")
            for at, an in enumerate(columns["an"]):
                after = columns["after"][at] if packets else None
                if an <= last:
                    problems.append(f"AN {an} follows {last}")
                if packets and schema.checksum(an, columns["xml"][at]) != columns["crc"][at]:
                    wrong += 1
                    problems.append(f"AN {an} has a wrong checksum")
                gaps += after is not None
                begin = an if after is None else after + 1
                if runs and begin == runs[-1][1] + 1:
                    runs[-1][1] = an
                else:
                    runs.append([begin, an])
                last = an
    except ArchiveError as error:
        problems.append(f"cannot be read: {error.__cause__}")
    if rows != file.rows:
        problems.append(f"has {rows} rows, but the manifest says {file.rows}")
    return {"rows": rows, "gaps": gaps, "wrong": wrong, "problems": problems[:_SHOWN], "runs": runs}


def _find_repeats(found: Verified, stream: str, runs: list[tuple[int, int, str]]) -> None:
    reached = -1
    for begin, end, path in runs:
        if begin <= reached:
            found.duplicates += min(reached, end) - begin + 1
            found.note(f"{stream}: ANs {begin} to {min(reached, end)} appear twice, the second time in {path}")
        reached = max(reached, end)


def _find_missing(found: Verified, job: Job, low: int, runs: Iterable[tuple[int, int, str]]) -> None:
    wanted = low
    for begin, end, _ in runs:
        if end < wanted:
            continue
        if begin > job.last_an:
            break
        if begin > wanted:
            found.missing += begin - wanted
            found.note(f"{job.stream}: ANs {wanted} to {begin - 1} of the {job.kind} are missing")
        wanted = max(wanted, end + 1)
    if wanted <= job.last_an:
        found.missing += job.last_an - wanted + 1
        found.note(f"{job.stream}: ANs {wanted} to {job.last_an} of the {job.kind} are missing")


def compact(spark: SparkSession, archive: Archive) -> int:
    """One file for each hour that has several; rows and order stay. Returns how many files went."""
    manifest = archive.require()
    hours: dict[str, list[DataFile]] = {}
    for file in manifest.files:
        hours.setdefault(file.path.rpartition("/")[0], []).append(file)
    work = [files for files in hours.values() if len(files) > 1]
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
