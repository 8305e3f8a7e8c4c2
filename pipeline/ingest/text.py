"""Raw feed text to packets in the archive.

Two passes, both in parallel. The first counts the lines of each piece and notes which days of the month it sees; from
that the driver computes the number, line and date at which each piece begins. The second reads the pieces again,
parses, writes packets and quarantine, and reports. So the result is the same for any number of pieces.

Every line that is not blank takes a number, even if it is not a message: the feed counted it too, and it is in the
quarantine under that number. Numbers are contiguous over the whole input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import asdi
from asdi.time import Unwrapper, header_day
from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import Partition, PartWriter, partition_of, read_rows
from pipeline.archive.schema import checksum
from pipeline.ingest.inputs import Chunk, blocks, chunk_bytes_for, cut, digest, expand, reference_date, texts
from pipeline.session import PipelineError
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAW_KEPT = 8_192
_HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Counted:
    """What the first pass says of a piece."""

    lines: int
    messages: int
    """Lines that are not blank."""
    days: tuple[int, ...]
    """The days of the month of its headers, in order, repeats left out."""
    first: str
    """Its first header line, which gives the first number when none is given."""


class Begin(NamedTuple):
    """Where the second pass begins with a piece."""

    chunk: Chunk
    line: int
    an: int
    date: date


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did."""

    packets: int
    quarantined: dict[str, int]
    blank: int
    types: dict[str, int]
    first_an: int
    last_an: int
    files: int
    bytes: int
    unchanged: bool
    """The archive had this input already, and nothing was done."""


def count(chunk: Chunk) -> Counted:
    """The first pass over one piece: cheap, no parsing."""
    lines = messages = 0
    days: list[int] = []
    first = ""
    for text in texts(chunk):
        begun = header_day(text[:_HEADER_BYTES].partition(b"\n")[0])
        if begun is not None and _other_day(text, begun) is None:
            # Mostly every line of a block has a header of the same day: one look at each is enough.
            found, number, kept = [begun], text.count(b"\n") + 1, [text[:_RAW_KEPT].partition(b"\n")[0]]
            messages += number
        else:
            block = text.split(b"\n")
            number, kept = len(block), [line for line in block if line and not line.isspace()]
            messages += len(kept)
            found = [day for line in kept if (day := header_day(line)) is not None]
        lines += number
        for day in found:
            if not days or days[-1] != day:
                days.append(day)
        if not first:
            first = next((asdi.clean(line[:_RAW_KEPT]) for line in kept if header_day(line) is not None), "")
    return Counted(lines, messages, tuple(days), first)


def _other_day(text: bytes, day: int) -> re.Match[bytes] | None:
    """The first line, but the very first, that does not begin like a header of this day; a blank one does not."""
    return re.search(rb"\n(?![0-9A-Fa-f]{4}%02d)" % day, text)


def begin_all(
    chunks: Sequence[Chunk], counts: Sequence[Counted], references: Sequence[date], first_an: int | None
) -> tuple[list[Begin], int]:
    """The driver's part between the passes: where each piece begins. Returns the first number, too."""
    begins: list[Begin] = []
    line = an = 0
    file = -1
    calendar = asdi.Calendar(references[0])
    for chunk, counted in zip(chunks, counts, strict=True):
        if chunk.file != file:
            file, line = chunk.file, 0
            calendar = asdi.Calendar(references[file])
        begins.append(Begin(chunk, line, an, calendar.date))
        for day in counted.days:
            calendar.seconds(day, 0)
        line += counted.lines
        an += counted.messages
    if first_an is None:
        first_an = _first_an(chunks, counts, references)
    return [begin._replace(an=begin.an + first_an) for begin in begins], first_an


def _first_an(chunks: Sequence[Chunk], counts: Sequence[Counted], references: Sequence[date]) -> int:
    """The number that a root which starts with the first message gives it, so later inputs get later numbers."""
    for chunk, counted in zip(chunks, counts, strict=True):
        if counted.first:
            calendar = asdi.Calendar(references[chunk.file])
            head = counted.first
            time = calendar.seconds(int(head[4:6]), int(head[6:8]) * 3600 + int(head[8:10]) * 60 + int(head[10:12]))
            return Unwrapper().number(int(head[:4], 16), time)
    return 0


def convert(begin: Begin, writer: PartWriter, stream: str) -> dict[str, Any]:
    """The second pass over one piece: parse, write, and report what was found."""
    calendar = asdi.Calendar(begin.date)
    an, line_number, blank = begin.an, begin.line, 0
    types: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    time = calendar.seconds(begin.date.day, 0)
    parse, to_xml = asdi.parse, asdi.to_xml
    for block in blocks(begin.chunk):
        hour = -1
        packets: list[tuple[Any, ...]] = []
        held: list[tuple[Partition, list[tuple[Any, ...]]]] = []
        quarantine: dict[Partition, list[tuple[Any, ...]]] = {}
        for raw in block:
            line_number += 1
            if not raw or raw.isspace():
                blank += 1
                continue
            try:
                message = parse(raw)
            except asdi.AsdiError as error:
                day = header_day(raw)
                if day is not None:
                    time = calendar.seconds(day, time % 86_400)
                text = raw[:_RAW_KEPT].decode("utf-8", "backslashreplace")
                bad = (an, time * 1_000_000, text, begin.chunk.path, line_number, error.reason.value, error.detail)
                quarantine.setdefault(partition_of("quarantine", stream, time), []).append(bad)
                reasons[error.reason.value] += 1
                an += 1
                continue
            time = calendar.seconds(message.day, message.second)
            if time // 3600 != hour:
                hour = time // 3600
                packets = []
                held.append((partition_of("packets", stream, time), packets))
            xml = to_xml(message)
            packets.append(
                (an, time * 1_000_000, message.type, message.facility, message.flight, message.sequence,
                 asdi.clean(raw), xml, None, checksum(an, xml))
            )  # fmt: skip
            types[message.type] += 1
            an += 1
        for partition, rows in held:
            writer.write(partition, list(zip(*rows, strict=True)))
        for partition, refused in quarantine.items():
            writer.write(partition, list(zip(*refused, strict=True)))
    return {"types": types, "reasons": reasons, "blank": blank}


def ingest(
    spark: SparkSession,
    raw: Sequence[str],
    out: str | Path,
    *,
    stream: str = "asdi",
    day: date | None = None,
    first_an: int | None = None,
    chunk_bytes: int | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Ingested:
    """ASDI text files to the archive. The same input twice changes nothing."""
    files = expand(raw)
    references = [reference_date(path, day) for path in files]
    archive = Archive(out)
    key = digest(files, "asdi", stream, first_an, [str(reference) for reference in references])
    if archive.manifest().has(key):
        return unchanged_by(archive, key)
    chunks = cut(files, chunk_bytes or chunk_bytes_for(files, spark.sparkContext.defaultParallelism))
    if not chunks:
        raise PipelineError("the input is empty")
    on_progress(f"pass 1 of 2: counting {len(files)} files in {len(chunks)} pieces")
    counts = [Counted(**entry) for entry in each(spark, chunks, _count_task)]
    begins, first = begin_all(chunks, counts, references, first_an)
    total = sum(counted.messages for counted in counts)
    on_progress(f"pass 2 of 2: {total:,} lines from AN {first}")
    with archive.staging("ingest") as staging:
        reports = each(spark, begins, _convert_task(str(staging), stream))
        staged = [DataFile(**file) for report in reports for file in report["files"]]
        staged = without_repeats(spark, archive, staged, staging, stream)
        job = Job(key, "ingest", stream, first, first + total - 1, True, {"inputs": [path.name for path in files]})
        archive.commit(job, [(staging / file.path, file) for file in staged])
    types: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for report in reports:
        types.update(report["types"])
        reasons.update(report["reasons"])
    return Ingested(
        packets=types.total(),
        quarantined=dict(reasons),
        blank=sum(report["blank"] for report in reports),
        types=dict(types),
        first_an=first,
        last_an=first + total - 1,
        files=len(staged),
        bytes=sum(file.size for file in staged),
        unchanged=False,
    )


def unchanged_by(archive: Archive, key: str) -> Ingested:
    job = next(job for job in archive.manifest().jobs if job.key == key)
    return Ingested(0, {}, 0, {}, job.first_an, job.last_an, 0, 0, True)


def _count_task(chunk: Chunk) -> dict[str, Any]:
    return asdict(count(chunk))


def _convert_task(staging: str, stream: str) -> Callable[[Begin], dict[str, Any]]:
    def task(begin: Begin) -> dict[str, Any]:
        writer = PartWriter(Path(staging), f"{begin.an:020d}")
        report = convert(begin, writer, stream)
        return report | {"files": [asdict(file) for file in writer.finish()]}

    return task


def without_repeats(
    spark: SparkSession, archive: Archive, staged: list[DataFile], staging: Path, stream: str
) -> list[DataFile]:
    """The staged files without the rows that the archive has already. Other content under the same AN is an error."""
    present = archive.manifest().select(stream=stream)
    meets = [
        [
            str(archive.path / old.path)
            for old in present
            if old.first_an <= file.last_an and old.last_an >= file.first_an
        ]
        if file.dataset == "packets"
        else []
        for file in staged
    ]
    work = [(number, files) for number, files in enumerate(meets) if files]
    if not work:
        return staged
    root = str(staging)
    names = [file.path for file in staged]

    def task(item: tuple[int, list[str]]) -> dict[str, Any]:
        return _drop_repeats(Path(root), names[item[0]], item[1])

    kept = [file for file, files in zip(staged, meets, strict=True) if not files]
    for report in each(spark, work, task):
        if report["conflict"] is not None:
            raise PipelineError(
                f"AN {report['conflict']} is in the archive with other content; choose another --first-an or --stream"
            )
        kept += [DataFile(**file) for file in report["files"]]
    return kept


def _drop_repeats(root: Path, name: str, others: list[str]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.ParquetFile(root / name).read()
    low, high = pc.min_max(table.column("an")).as_py().values()
    present = {
        an: crc
        for batch in read_rows(others, ["an", "crc"])
        for an, crc in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        if low <= an <= high
    }
    keep = []
    for an, crc in zip(table.column("an").to_pylist(), table.column("crc").to_pylist(), strict=True):
        if an in present and present[an] != crc:
            return {"conflict": an, "files": []}
        keep.append(an not in present)
    dataset, stream, day, hour, _ = name.split("/")
    writer = PartWriter(root, f"{low:020d}")
    partition = Partition(dataset, stream.partition("=")[2], day.partition("=")[2], int(hour.partition("=")[2]))
    writer.write_table(partition, table.filter(pa.array(keep)))
    return {"conflict": None, "files": [asdict(file) for file in writer.finish()]}
