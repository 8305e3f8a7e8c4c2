"""Raw feed text to packets in the archive.

Two passes, both in parallel. The first counts the lines of each piece and notes which days of the month it sees and how
it ends; from that the driver computes the number, line and date at which each piece begins. The second reads the pieces
again, parses, writes packets and quarantine, and reports. Then what the archive has already is left out. So the result
is the same for any number of pieces, and for the same lines in any other files (`numbering`, `repeats`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asdi
from asdi.time import Unwrapper, header, header_day
from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import Partition, PartWriter, partition_of
from pipeline.archive.schema import checksum
from pipeline.ingest.fast import read_plain
from pipeline.ingest.inputs import Chunk, Unreadable, blocks, chunk_bytes_for, cut, digest, expand, pack, texts
from pipeline.ingest.numbering import TAIL_BYTES, Begin, Counted, begin_all, tail_heads
from pipeline.ingest.repeats import file_dates, without_repeats
from pipeline.session import PipelineError
from pipeline.tables.rows import rows_of
from pipeline.tables.write import TableWriter
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAW_KEPT = 8_192
_HEADER_BYTES = 64
# Names of inputs that the manifest keeps for a job; there may be thousands.
_NAMES_KEPT = 20
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class InputFile:
    """What became of one file: every line is a packet, in the quarantine, or blank."""

    path: str
    bytes: int
    lines: int
    packets: int
    quarantined: int
    blank: int


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
    repeated: int = 0
    """Lines that the archive had already, or that came twice."""
    inputs: tuple[InputFile, ...] = ()

    @property
    def bad_share(self) -> float:
        """The share of the lines that are not blank which went into the quarantine."""
        bad = sum(self.quarantined.values())
        return bad / (bad + self.packets) if bad else 0.0


def count(chunk: Chunk) -> Counted:
    """The first pass over one piece: cheap, no parsing."""
    lines = messages = 0
    days: list[int] = []
    first = ""
    tail, is_cut = b"", False
    for text in texts(chunk):
        tail = b"\n".join((tail, text[-TAIL_BYTES:])) if tail else text[-TAIL_BYTES:]
        is_cut |= max(len(tail), len(text)) > TAIL_BYTES
        tail = tail[-TAIL_BYTES:]
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
    if is_cut:
        tail = tail.partition(b"\n")[2]
    last = next((asdi.clean(line[:_RAW_KEPT]) for line in reversed(tail.split(b"\n")) if header_day(line)), "")
    heads, is_whole = tail_heads(tail)
    return Counted(lines, messages, tuple(days), first, last, tuple(heads), is_whole and not is_cut)


def _other_day(text: bytes, day: int) -> re.Match[bytes] | None:
    """The first line, but the very first, that does not begin like a header of this day; a blank one does not."""
    return re.search(rb"\n(?![0-9A-Fa-f]{4}%02d)" % day, text)


def convert(begin: Begin, writer: PartWriter, tables: TableWriter, stream: str) -> dict[str, Any]:
    """The second pass over one piece: parse, write, and report what was found."""
    calendar = asdi.Calendar(begin.date)
    if begin.problem:
        return _quarantine_file(begin, writer, stream)
    an, line_number, blank, tracks = begin.an - begin.is_counting, begin.line, 0, 0
    number = _counter(an) if begin.is_counting else Unwrapper(begin.position, at_rest=True).number
    types: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    time = begin.time
    parse, to_xml = asdi.parse, asdi.to_xml
    for block in blocks(begin.chunk):
        hour = -1
        packets: list[tuple[Any, ...]] = []
        held: list[tuple[Partition, list[tuple[Any, ...]]]] = []
        quarantine: dict[Partition, list[tuple[Any, ...]]] = {}
        for raw in block:
            line_number += 1
            plain = read_plain(raw)
            if plain is not None:
                sequence, day, second, facility, flight, xml, computer, place = plain
                time = calendar.seconds(day, second)
                an = number(sequence, time)
                if time // 3600 != hour:
                    hour = time // 3600
                    packets = []
                    held.append((partition_of("packets", stream, time), packets))
                us = time * 1_000_000
                packets.append((an, us, "TZ", facility, flight, sequence, exact(raw), xml, None, checksum(an, xml)))
                tracks += 1
                tables.add_position((an, us, flight, computer, facility, "TZ", *place))
                continue
            if not raw or raw.isspace():
                blank += 1
                continue
            try:
                message = parse(raw)
            except asdi.AsdiError as error:
                head = header(raw)
                if head is not None:
                    time = calendar.seconds(*head[1:])
                if head is not None or begin.is_counting:
                    an = number(head[0] if head else 0, time)
                text = raw[:_RAW_KEPT].decode("utf-8", "backslashreplace")
                bad = (an, time * 1_000_000, text, begin.chunk.path, line_number, error.reason.value, error.detail)
                quarantine.setdefault(partition_of("quarantine", stream, time), []).append(bad)
                reasons[error.reason.value] += 1
                continue
            time = calendar.seconds(message.day, message.second)
            an = number(message.sequence, time)
            if time // 3600 != hour:
                hour = time // 3600
                packets = []
                held.append((partition_of("packets", stream, time), packets))
            xml = to_xml(message)
            packets.append(
                (an, time * 1_000_000, message.type, message.facility, message.flight, message.sequence,
                 exact(raw), xml, None, checksum(an, xml))
            )  # fmt: skip
            types[message.type] += 1
            tables.add(rows_of(message, an, time))
        for partition, rows in held:
            writer.write(partition, list(zip(*rows, strict=True)))
        for partition, refused in quarantine.items():
            writer.write(partition, list(zip(*refused, strict=True)))
    if tracks:
        types["TZ"] += tracks
    return {"types": types, "reasons": reasons, "blank": blank, "lines": line_number - begin.line}


def exact(raw: bytes) -> str:
    """The line without its end, every byte a character: `.encode("latin-1")` gives it back."""
    return raw.removesuffix(b"\r").decode("latin-1")


def _counter(an: int) -> Callable[[int, int], int]:
    """Numbers one after another, whatever the line says."""
    numbers = count_from(an + 1)
    return lambda sequence, time: next(numbers)


def _quarantine_file(begin: Begin, writer: PartWriter, stream: str) -> dict[str, Any]:
    """A file that can't be read, as one line of the quarantine."""
    time = begin.time
    bad = (begin.an, time * 1_000_000, "", begin.chunk.path, 0, UNREADABLE, begin.problem)
    writer.write(partition_of("quarantine", stream, time), [[value] for value in bad])
    return {"types": {}, "reasons": {UNREADABLE: 1}, "blank": 0, "lines": 1}


def ingest(
    spark: SparkSession | None,
    raw: Sequence[str],
    out: str | Path,
    *,
    stream: str = "asdi",
    day: date | None = None,
    first_an: int | None = None,
    chunk_bytes: int | None = None,
    keep_bad_files: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Ingested:
    """ASDI text files to the archive. What it has already, from whatever files, changes nothing.

    With `first_an` lines are counted from there on; without, they have their own numbers. A file that breaks off is an
    error; with `keep_bad_files` it is a line of the quarantine, and the others go on.
    """
    files = expand(raw)
    archive = Archive(out)
    key = digest(files, "asdi", stream, first_an, day)
    if archive.settled().done(key) is not None:
        return unchanged_by(archive, key)
    size = chunk_bytes or chunk_bytes_for(files, spark.sparkContext.defaultParallelism if spark else 1)
    chunks = cut(files, size, keep_bad_files=keep_bad_files)
    if not chunks:
        raise PipelineError("the input is empty")
    groups = pack(chunks, size)
    on_progress(f"pass 1 of 2: counting {len(files)} files in {len(groups)} pieces")
    counting = [[chunks[number] for number in group] for group in groups]
    counted = each(spark, counting, _count_task(keep_bad_files))
    counts = [Counted(**entry) for report in counted for entry in report["counts"]]
    references = file_dates(archive, stream, files, chunks, counts, day)
    begins, _ = begin_all(chunks, counts, references, first_an)
    total = sum(each_count.messages for each_count in counts)
    on_progress(f"pass 2 of 2: {total:,} lines")
    with archive.staging("ingest") as staging:
        work = [[begins[number] for number in group] for group in groups]
        converted = each(spark, work, _convert_task(str(staging), stream))
        reports = [report for group in converted for report in group["reports"]]
        staged = [DataFile(**file) for group in converted for file in group["files"]]
        written = lines_in(staged)
        first, last = _bounds(staged)
        staged = without_repeats(spark, archive, staged, staging, stream, is_counted=first_an is not None)
        details = {"inputs": [path.name for path in files[:_NAMES_KEPT]]}
        job = Job(key, "ingest", stream, first, last, first_an is not None, details)
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
        last_an=last,
        files=sum(file.dataset == "packets" for file in staged),
        bytes=sum(file.size for file in staged),
        unchanged=False,
        repeated=written - lines_in(staged),
        inputs=_account(files, begins, reports),
    )


def lines_in(files: Sequence[DataFile]) -> int:
    """Rows of packets and quarantine: what is in the tables is there, too."""
    return sum(file.rows for file in files if file.dataset in ("packets", "quarantine"))


def _bounds(files: Sequence[DataFile]) -> tuple[int, int]:
    """The first and the last AN of these files."""
    return min((file.first_an for file in files), default=0), max((file.last_an for file in files), default=-1)


def _account(
    files: Sequence[Path], begins: Sequence[Begin], reports: Sequence[dict[str, Any]]
) -> tuple[InputFile, ...]:
    """What became of each file. A line that is in none of the columns would be a fault of this program."""
    sums = [Counter[str]() for _ in files]
    for begin, report in zip(begins, reports, strict=True):
        sums[begin.chunk.file].update(
            lines=report["lines"], packets=sum(report["types"].values()), blank=report["blank"],
            quarantined=sum(report["reasons"].values()),
        )  # fmt: skip
    for path, found in zip(files, sums, strict=True):
        if found["lines"] != found["packets"] + found["quarantined"] + found["blank"]:
            raise PipelineError(f"{path}: {dict(found)} does not add up; please report this as a fault")
    return tuple(
        InputFile(str(path), path.stat().st_size, *(found[key] for key in ("lines", "packets", "quarantined", "blank")))
        for path, found in zip(files, sums, strict=True)
    )


def unchanged_by(archive: Archive, key: str) -> Ingested:
    job = archive.manifest().done(key)
    assert job is not None
    return Ingested(0, {}, 0, {}, job.first_an, job.last_an, 0, 0, True)


def _count_task(keep_bad_files: bool) -> Callable[[list[Chunk]], dict[str, Any]]:
    def task(chunks: list[Chunk]) -> dict[str, Any]:
        return {"counts": [asdict(counted(chunk)) for chunk in chunks]}

    def counted(chunk: Chunk) -> Counted:
        try:
            return count(chunk)
        except Unreadable as error:
            if not keep_bad_files:
                raise
            return Counted(1, 1, (), "", "", (), True, str(error))

    return task


def _convert_task(staging: str, stream: str) -> Callable[[list[Begin]], dict[str, Any]]:
    def task(begins: list[Begin]) -> dict[str, Any]:
        writer = PartWriter(Path(staging), f"{begins[0].an:020d}")
        tables = TableWriter(Path(staging), f"{begins[0].an:020d}", stream)
        reports = [convert(begin, writer, tables, stream) for begin in begins]
        return {"reports": reports, "files": [asdict(file) for file in [*writer.finish(), *tables.finish()]]}

    return task
