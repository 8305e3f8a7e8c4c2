"""What of an input the archive has already: a line is the same line whatever file it comes in.

A packet is known by its time, its sequence number and its content; a line that is not a message by its text, once per
hour. Names and dates of files do not matter, nor how the lines were cut or joined, nor what was ingested together.
If lines are counted (`--first-an`), they are known by their numbers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asdi
from pipeline.archive.manifest import Archive, DataFile
from pipeline.archive.parts import Partition, PartWriter
from pipeline.ingest.inputs import Chunk, reference_date
from pipeline.ingest.numbering import Counted
from pipeline.session import PipelineError
from pipeline.tables.schema import TABLES
from pipeline.tables.write import TableWriter, derive
from pipeline.tasks import each

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SAME_NUMBER = "same-number"
"""Reason in the quarantine: another line has this AN. The feed repeated a number, or two feeds were mixed."""


# --- the date of a file -----------------------------------------------------------------------------------------------
def file_dates(
    archive: Archive,
    stream: str,
    files: Sequence[Path],
    chunks: Sequence[Chunk],
    counts: Sequence[Counted],
    given: date | None,
) -> list[date | None]:
    """A date near the first line of each file; None for one without such lines.

    Given, or that of the file's first or last line in the archive, or by the name or the date of the file.
    """
    ends: list[list[str]] = [[] for _ in files]
    for chunk, counted in zip(chunks, counts, strict=True):
        ends[chunk.file] += [line for line in (counted.first, counted.last) if line]
    if given is not None:
        return [given] * len(files)
    asked = {line for lines in ends for line in (lines[:1] + lines[-1:])}
    known = _known_dates(archive, stream, asked) if asked else {}
    return [
        next((known[line] for line in (lines[0], lines[-1]) if line in known), None) or reference_date(path)
        if lines
        else None
        for path, lines in zip(files, ends, strict=True)
    ]


def _known_dates(archive: Archive, stream: str, lines: set[str]) -> dict[str, date]:
    """The dates of those lines that are in the archive: the same sequence number, time of the month, and content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted: dict[tuple[int, int], dict[tuple[int, int, bytes], str]] = {}
    for line in lines:
        try:
            message = asdi.parse(line)
        except asdi.AsdiError:
            continue
        hour = (message.day, message.second // 3600)
        wanted.setdefault(hour, {})[message.sequence, message.second, asdi.to_xml(message)] = line
    found: dict[str, date] = {}
    for file in archive.manifest().select(stream=stream):
        asked = wanted.get((int(file.part("date")[-2:]), int(file.part("hour"))))
        if asked is None:
            continue
        sequences = [sequence for sequence, _, _ in asked]
        table = pq.read_table(
            archive.path / file.path, columns=["time", "sequence", "xml"], filters=[("sequence", "in", sequences)],
            partitioning=None,
        )  # fmt: skip
        times = table.column("time").cast(pa.int64()).to_pylist()
        for us, sequence, xml in zip(
            times, table.column("sequence").to_pylist(), table.column("xml").to_pylist(), strict=True
        ):
            line_found = asked.get((sequence, us // 1_000_000 % 86_400, xml))
            if line_found is not None:
                found[line_found] = datetime.fromtimestamp(us // 1_000_000, UTC).date()
    return found


# --- the rows that are new --------------------------------------------------------------------------------------------
def without_repeats(
    spark: SparkSession | None,
    archive: Archive,
    staged: list[DataFile],
    staging: Path,
    stream: str,
    *,
    is_counted: bool,
    by_content: bool = False,
) -> list[DataFile]:
    """The staged files without the rows that the archive has already, or that are staged twice.

    Other content under the same AN goes to the quarantine; if lines are counted, it is an error. `by_content` is for
    packets without numbers of their own: the same one may have several.
    """
    packets = [file for file in staged if file.dataset == "packets"]
    before = {file.path for file in packets}
    packets = _settle_all(spark, archive, packets, staging, stream, is_counted=is_counted, by_content=by_content)
    refused = [file for file in staged if file.dataset == "quarantine"]
    refused += [file for file in packets if file.dataset == "quarantine"]
    packets = [file for file in packets if file.dataset != "quarantine"]
    # Where packets were left out, the typed tables were made again from the others.
    gone = {_hour(path) for path in before - {file.path for file in packets}}
    packets += [file for file in staged if file.dataset in TABLES and _hour(file.path) not in gone]
    return packets + _settle_all(spark, archive, refused, staging, stream, is_counted=is_counted, by_content=by_content)


def _settle_all(
    spark: SparkSession | None,
    archive: Archive,
    staged: list[DataFile],
    staging: Path,
    stream: str,
    *,
    is_counted: bool,
    by_content: bool = False,
) -> list[DataFile]:
    present = archive.manifest().select(staged[0].dataset, stream=stream) if staged else []
    places: dict[str, list[DataFile]] = {}
    for file in staged:
        places.setdefault(_place(file), []).append(file)
    kept: list[DataFile] = []
    work: list[tuple[list[str], list[str], list[str]]] = []
    for place, files in places.items():
        same = [old for old in present if _place(old) == place]
        low, high = min(file.first_an for file in files), max(file.last_an for file in files)
        meets = [old for old in present if old.first_an <= high and old.last_an >= low and _place(old) != place]
        if same or meets or by_content or _overlap(files) or files[0].dataset == "quarantine":
            work.append(([file.path for file in files], archive.absolute(same), archive.absolute(meets)))
        else:
            kept += files
    root = str(staging)

    def task(item: tuple[list[str], list[str], list[str]]) -> dict[str, Any]:
        return settle(Path(root), *item, is_counted=is_counted)

    for report in each(spark, work, task):
        if report["conflict"] is not None:
            raise PipelineError(
                f"AN {report['conflict']} is in the archive with other content; choose another --first-an or --stream"
            )
        kept += [DataFile(**file) for file in report["files"]]
    return kept


def _hour(path: str) -> str:
    """Stream, date and hour of a file, whatever it has."""
    return path.partition("/")[2].rpartition("/")[0]


def _place(file: DataFile) -> str:
    return file.path.rpartition("/")[0]


def _overlap(files: Sequence[DataFile]) -> bool:
    reached = -1
    for file in sorted(files, key=lambda file: file.first_an):
        if file.first_an <= reached:
            return True
        reached = max(reached, file.last_an)
    return False


def settle(
    root: Path, staged: Sequence[str], same: Sequence[str], meets: Sequence[str], *, is_counted: bool
) -> dict[str, Any]:
    """One hour's staged files as new ones, without what is in `same` (files of that hour in the archive).

    `meets` are files of other hours whose ANs overlap.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pa.concat_tables(pq.ParquetFile(root / name).read() for name in staged)
    dataset, stream, day, hour, _ = staged[0].split("/")
    is_packets = dataset == "packets"
    where = (stream.partition("=")[2], day.partition("=")[2], int(hour.partition("=")[2]))
    writer = PartWriter(root, "new")
    if not is_counted or not is_packets:
        keys = _keys(table, is_packets, is_counted)
        known = [_keys(pq.ParquetFile(path).read(), is_packets, is_counted) for path in same]
        first = np.zeros(len(keys), dtype=bool)
        first[np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)[1]] = True
        new = pa.array(first)
        if known:
            new = pc.and_(new, pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(known))))
        table = table.filter(new)
    if is_packets:
        others = [pq.ParquetFile(path).read(columns=["an", "crc"]) for path in (*same, *meets)]
        taken = pa.concat_tables(others) if others else table.select(["an", "crc"]).slice(0, 0)
        ans = taken.column("an").combine_chunks()
        at = pc.index_in(table.column("an"), value_set=ans)
        is_taken = pc.is_valid(at)
        if is_counted:
            wrong = pc.and_(is_taken, pc.not_equal(table.column("crc"), taken.column("crc").take(at)))
            if pc.any(wrong).as_py():
                return {"conflict": pc.min(table.column("an").filter(wrong)).as_py(), "files": []}
            table = table.filter(pc.invert(is_taken))
        else:
            once = np.zeros(len(table), dtype=bool)
            once[np.unique(table.column("an").to_numpy(), return_index=True)[1]] = True
            good = pc.and_(pa.array(once), pc.invert(is_taken))
            _quarantine(writer, where, table.filter(pc.invert(good)))
            table = table.filter(good)
    table = table.sort_by("an")
    writer.write_table(Partition(dataset, *where), table)
    tables = TableWriter(root, "new", where[0])
    if is_packets:
        derive(table, tables)
    return {"conflict": None, "files": [asdict(file) for file in [*writer.finish(), *tables.finish()]]}


def _keys(table: pa.Table, is_packets: bool, is_counted: bool) -> pa.Array:
    """What a row is known by, as bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_packets:
        columns = [table.column("time").cast(pa.int64()), table.column("sequence"), table.column("xml")]
    else:
        columns = [table.column(name) for name in (["an"] if is_counted else ["reason", "raw", "detail"])]
    parts = [column if column.type == pa.binary() else column.cast(pa.string()).cast(pa.binary()) for column in columns]
    joined = pc.binary_join_element_wise(*parts, b"|", null_handling="replace", null_replacement=b"")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _quarantine(writer: PartWriter, where: tuple[str, str, int], table: pa.Table) -> None:
    nothing = [None] * len(table)
    rows = zip(*(table.column(name).to_pylist() for name in ("an", "raw", "xml")), strict=True)
    texts = [(an, raw if raw is not None else xml.decode("utf-8", "backslashreplace")) for an, raw, xml in rows]
    columns = [
        [an for an, _ in texts], table.column("time").combine_chunks(), [text for _, text in texts], nothing, nothing,
        [SAME_NUMBER] * len(table), [f"another line has AN {an}" for an, _ in texts],
    ]  # fmt: skip
    writer.write(Partition("quarantine", *where), columns)


__all__ = ["SAME_NUMBER", "file_dates", "settle", "without_repeats"]
