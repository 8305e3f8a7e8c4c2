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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asdi
from asdi.time import header_day
from pipeline.archive.manifest import Archive, DataFile, Job
from pipeline.archive.parts import PartWriter
from pipeline.ingest.convert import RAW_KEPT, convert
from pipeline.ingest.inputs import (
    Chunk,
    Unreadable,
    chunk_bytes_for,
    cut,
    digest,
    expand,
    leaves,
    lines_before_break,
    pack,
    texts,
)
from pipeline.ingest.numbering import TAIL_BYTES, Begin, Counted, begin_all, tail_heads
from pipeline.ingest.repeats import file_dates, without_repeats
from pipeline.session import PipelineError
from pipeline.tables.write import TableWriter
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADER_BYTES = 64
# Names of inputs that the manifest keeps for a job; there may be thousands.
_NAMES_KEPT = 20
_FATES = ("packets", "quarantined", "blank", "skipped")
"""What a line of the input can become."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """What became of one file: every line is a packet, in the quarantine, blank, or skipped."""

    path: str
    bytes: int
    lines: int
    packets: int
    quarantined: int
    blank: int
    skipped: int = 0
    """Lines before the place where the file breaks off."""


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
            found, number, kept = [begun], text.count(b"\n") + 1, [text[:RAW_KEPT].partition(b"\n")[0]]
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
            first = next((asdi.clean(line[:RAW_KEPT]) for line in kept if header_day(line) is not None), "")
    if is_cut:
        tail = tail.partition(b"\n")[2]
    last = next((asdi.clean(line[:RAW_KEPT]) for line in reversed(tail.split(b"\n")) if header_day(line)), "")
    heads, is_whole = tail_heads(tail)
    return Counted(lines, messages, tuple(days), first, last, tuple(heads), is_whole and not is_cut)


def _other_day(text: bytes, day: int) -> re.Match[bytes] | None:
    """The first line, but the very first, that does not begin like a header of this day; a blank one does not."""
    return re.search(rb"\n(?![0-9A-Fa-f]{4}%02d)" % day, text)


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
    size = chunk_bytes or chunk_bytes_for(files, spark.sparkContext.defaultParallelism if spark else 1)
    chunks = cut(files, size, keep_bad_files=keep_bad_files)
    if not chunks:
        raise PipelineError("the input is empty")
    groups = pack(chunks, size)
    on_progress(f"pass 1 of 2: counting {len(files)} files in {len(groups)} pieces")
    counting = [[chunks[number] for number in group] for group in groups]
    counted = each(spark, counting, _count_task(keep_bad_files))
    counts = [Counted(**entry) for report in counted for entry in report["counts"]]
    key = digest(len(files), chunks, [each for report in counted for each in report["leaves"]],
                 "asdi", stream, first_an, day)  # fmt: skip
    if archive.settled().done(key) is not None:
        return unchanged_by(archive, key)
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
            quarantined=sum(report["reasons"].values()), skipped=report.get("skipped", 0),
        )  # fmt: skip
    for path, found in zip(files, sums, strict=True):
        if found["lines"] != sum(found[key] for key in _FATES):
            raise PipelineError(f"{path}: {dict(found)} does not add up; please report this as a fault")
    return tuple(
        InputFile(str(path), path.stat().st_size, *(found[key] for key in ("lines", *_FATES)))
        for path, found in zip(files, sums, strict=True)
    )


def unchanged_by(archive: Archive, key: str) -> Ingested:
    job = archive.manifest().done(key)
    assert job is not None
    return Ingested(0, {}, 0, {}, job.first_an, job.last_an, 0, 0, True)


def _count_task(keep_bad_files: bool) -> Callable[[list[Chunk]], dict[str, Any]]:
    def task(chunks: list[Chunk]) -> dict[str, Any]:
        return {
            "counts": [asdict(counted(chunk)) for chunk in chunks],
            "leaves": [leaves(chunk) for chunk in chunks],
        }

    def counted(chunk: Chunk) -> Counted:
        try:
            return count(chunk)
        except Unreadable as error:
            if not keep_bad_files:
                raise
            skipped = lines_before_break(chunk)
            return Counted(1 + skipped, 1, (), "", "", (), True, str(error), skipped)

    return task


def _convert_task(staging: str, stream: str) -> Callable[[list[Begin]], dict[str, Any]]:
    def task(begins: list[Begin]) -> dict[str, Any]:
        writer = PartWriter(Path(staging), f"{begins[0].an:020d}")
        tables = TableWriter(Path(staging), f"{begins[0].an:020d}", stream)
        reports = [convert(begin, writer, tables, stream) for begin in begins]
        return {"reports": reports, "files": [asdict(file) for file in [*writer.finish(), *tables.finish()]]}

    return task
