"""`ingest --format tfms|sfdps`: files of the FAA's XML messages into the archive, a file a task, in two passes."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.archive.schema import checksum
from pipeline.ingest.faaxml import split
from pipeline.ingest.inputs import digest, expand, reference_date
from pipeline.ingest.text import Ingested, unchanged_by, without_repeats
from pipeline.session import PipelineError
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_FILE_BYTES = 256 << 20


def _content(path: str) -> bytes:
    data = Path(path).read_bytes()
    if len(data) > MAX_FILE_BYTES:
        raise PipelineError(f"{path} has {len(data):,} bytes, maximum {MAX_FILE_BYTES:,}")
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_FILE_BYTES)
    return data


def ingest_xml(
    spark: SparkSession,
    raw: Sequence[str],
    out: str | Path,
    *,
    stream: str,
    day: date | None = None,
    first_an: int | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Ingested:
    """XML files to the archive; ANs count the messages over the whole input. The same input twice changes nothing."""
    files = expand(raw)
    references = [reference_date(path, day) for path in files]
    archive = Archive(out)
    key = digest(files, "xml", stream, first_an, [str(reference) for reference in references])
    if archive.manifest().has(key):
        return unchanged_by(archive, key)
    on_progress(f"pass 1 of 2: counting {len(files)} files")
    counts = [report["messages"] for report in each(spark, [str(path) for path in files], _count_task)]
    first = first_an if first_an is not None else 0
    begins = [first + sum(counts[:number]) for number in range(len(files))]
    on_progress(f"pass 2 of 2: {sum(counts):,} messages")
    with archive.staging("ingest") as staging:
        work = [(str(path), begin, str(day)) for path, begin, day in zip(files, begins, references, strict=True)]
        reports = each(spark, work, _convert_task(str(staging), stream))
        staged = [DataFile(**file) for report in reports for file in report["files"]]
        staged = without_repeats(spark, archive, staged, staging, stream)
        last = first + sum(counts) - 1
        job = Job(key, "ingest", stream, first, last, True, {"inputs": [path.name for path in files]})
        archive.commit(job, [(staging / file.path, file) for file in staged])
    types: Counter[str] = Counter()
    refused = 0
    for report in reports:
        types.update(report["types"])
        refused += report["refused"]
    reasons = {"no-xml": refused} if refused else {}
    size = sum(file.size for file in staged)
    return Ingested(types.total(), reasons, 0, dict(types), first, last, len(staged), size, False)


def _count_task(path: str) -> dict[str, Any]:
    return {"messages": sum(1 for _ in split(_content(path)))}


def _convert_task(staging: str, stream: str) -> Callable[[tuple[str, int, str]], dict[str, Any]]:
    def task(item: tuple[str, int, str]) -> dict[str, Any]:
        path, an, day = item
        writer = PartWriter(Path(staging), f"{an:020d}")
        moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
        time_us = int(moment.timestamp()) * 1_000_000
        types: Counter[str] = Counter()
        rows: dict[Any, list[tuple[Any, ...]]] = {}
        refused = 0
        for number, message in enumerate(split(_content(path)), 1):
            # A message without a time of its own takes that of the one before it.
            time_us = message.time_us if message.time_us is not None else time_us
            if message.problem is None:
                types[message.type] += 1
                row: tuple[Any, ...] = (
                    an, time_us, message.type, message.facility, message.flight, None, None, message.payload, None,
                    checksum(an, message.payload),
                )  # fmt: skip
                dataset = "packets"
            else:
                refused += 1
                text = message.payload.decode("utf-8", "backslashreplace")
                row = (an, time_us, text, path, number, "no-xml", message.problem)
                dataset = "quarantine"
            rows.setdefault(partition_of(dataset, stream, time_us // 1_000_000), []).append(row)
            an += 1
        for partition, held in rows.items():
            writer.write(partition, list(zip(*held, strict=True)))
        return {"types": types, "refused": refused, "files": [asdict(file) for file in writer.finish()]}

    return task
