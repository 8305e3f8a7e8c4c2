"""`ingest --format tfms|sfdps`: files of the FAA's XML messages into the archive, a file a task, in two passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.archive.schema import checksum
from pipeline.ingest.faaxml import split
from pipeline.ingest.inputs import (
    UNREADABLE_ERRORS,
    Chunk,
    Unreadable,
    digest,
    expand,
    leaves,
    reference_date,
    unpacker_of,
)  # fmt: skip
from pipeline.ingest.repeats import without_repeats
from pipeline.ingest.text import Ingested, InputFile, lines_in, unchanged_by
from pipeline.session import PipelineError
from pipeline.tables.write import TableWriter
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_FILE_BYTES = 256 << 20
ROOTS = {"tfms": frozenset({"tfmDataService"}), "sfdps": frozenset({"MessageCollection", "NasFlight", "NasMessage"})}
"""What the documents of each format begin with."""


def _content(path: str) -> bytes:
    """A file's content, unpacked; `PipelineError` when that is too much, or can't be done."""
    try:
        with unpacker_of(path)(path, "rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except UNREADABLE_ERRORS as error:
        raise Unreadable(f"cannot read {path}: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise PipelineError(f"{path} has more than {MAX_FILE_BYTES:,} bytes of XML")
    return data


def ingest_xml(
    spark: SparkSession | None,
    raw: Sequence[str],
    out: str | Path,
    *,
    stream: str,
    kind: str | None = None,
    day: date | None = None,
    first_an: int | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Ingested:
    """XML files to the archive; ANs go on from the stream's last one. The same input twice changes nothing.

    `kind` is what the documents must be, by the name of their root element.
    """
    files = expand(raw)
    references = [day or reference_date(path) for path in files]
    archive = Archive(out)
    on_progress(f"pass 1 of 2: counting {len(files)} files")
    chunks = [Chunk(str(path), 0, -1, number) for number, path in enumerate(files)]
    counted = each(spark, chunks, _count_task(kind))
    key = digest(len(files), chunks, [report["leaves"] for report in counted], "xml", stream, first_an, day)
    if archive.settled().done(key) is not None:
        return unchanged_by(archive, key)
    counts = [report["messages"] for report in counted]
    if sum(counts) == 0:
        raise PipelineError("the input is empty")
    first = first_an if first_an is not None else _next_an(archive, stream)
    begins = [first + sum(counts[:number]) for number in range(len(files))]
    on_progress(f"pass 2 of 2: {sum(counts):,} messages")
    with archive.staging("ingest") as staging:
        work = [(str(path), begin, str(day)) for path, begin, day in zip(files, begins, references, strict=True)]
        reports = each(spark, work, _convert_task(str(staging), stream))
        staged = [DataFile(**file) for report in reports for file in report["files"]]
        written = lines_in(staged)
        is_counted = first_an is not None
        staged = without_repeats(
            spark, archive, staged, staging, stream, is_counted=is_counted, by_content=not is_counted
        )
        last = first + sum(counts) - 1
        repeated = written - lines_in(staged)
        # What was there already leaves its new number unused.
        job = Job(key, "ingest", stream, first, last, not repeated, {"inputs": [path.name for path in files[:20]]})
        archive.commit(job, [(staging / file.path, file) for file in staged])
    types: Counter[str] = Counter()
    refused = 0
    for report in reports:
        types.update(report["types"])
        refused += report["refused"]
    reasons = {"no-xml": refused} if refused else {}
    size = sum(file.size for file in staged)
    made = sum(file.dataset == "packets" for file in staged)
    inputs = tuple(
        InputFile(str(path), path.stat().st_size, count, count - report["refused"], report["refused"], 0)
        for path, count, report in zip(files, counts, reports, strict=True)
    )
    return Ingested(types.total(), reasons, 0, dict(types), first, last, made, size, False, repeated, inputs)


def _next_an(archive: Archive, stream: str) -> int:
    """These messages carry no numbers of their own: they go on where the archive's end."""
    present = archive.manifest()
    files = present.select("packets", stream=stream) + present.select("quarantine", stream=stream)
    return max((file.last_an for file in files), default=-1) + 1


def _count_task(kind: str | None) -> Callable[[Chunk], dict[str, Any]]:
    def task(chunk: Chunk) -> dict[str, Any]:
        messages, path = 0, chunk.path
        for message in split(_content(path)):
            messages += 1
            if kind is not None and message.root is not None and message.root not in ROOTS[kind]:
                raise PipelineError(f"{path} is not {kind.upper()}: its root element is {message.root}")
        return {"messages": messages, "leaves": leaves(chunk)}

    return task


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
        tables = TableWriter(Path(staging), f"{item[1]:020d}", stream)
        for partition, held in rows.items():
            writer.write(partition, list(zip(*held, strict=True)))
            for row in held if partition.dataset == "packets" else ():
                tables.add_packet(row)
        files = [*writer.finish(), *tables.finish()]
        return {"types": types, "refused": refused, "files": [asdict(file) for file in files]}

    return task
