"""The second pass over a piece of text: its lines as packets, rows of the typed tables, and quarantine.

A block of some megabytes at a time: plain lines as columns (`plain`), the others one by one through the parser; then
numbers and times for all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import asdi
from asdi.time import Unwrapper, header
from pipeline.archive import schema
from pipeline.archive.packet import exact
from pipeline.archive.parts import Partition, PartWriter, partition_of
from pipeline.ingest.inputs import texts
from pipeline.ingest.numbering import Begin, Numbers, numbers_of, times_of
from pipeline.ingest.plain import Tracks, checksums, is_plain, lines_of, read_tracks
from pipeline.tables.rows import rows_of
from pipeline.tables.write import TableWriter, positions_of

RAW_KEPT = 8_192
"""Of a line that is not a message."""
UNREADABLE = "unreadable"


def convert(begin: Begin, writer: PartWriter, tables: TableWriter, stream: str) -> dict[str, Any]:
    """Parse, write, and report what was found."""
    if begin.problem:
        return _quarantine_file(begin, writer, stream)
    work = _Piece(begin, writer, tables, stream)
    for text in texts(begin.chunk):
        work.take(text)
    return {"types": work.types, "reasons": work.reasons, "blank": work.blank, "lines": work.line - begin.line}


def _quarantine_file(begin: Begin, writer: PartWriter, stream: str) -> dict[str, Any]:
    """A file that can't be read, as one line of the quarantine."""
    time = begin.time
    bad = (begin.an, time * 1_000_000, "", begin.chunk.path, 0, UNREADABLE, begin.problem)
    writer.write(partition_of("quarantine", stream, time), [[value] for value in bad])
    return {"types": {}, "reasons": {UNREADABLE: 1}, "blank": 0, "lines": 1 + begin.skipped, "skipped": begin.skipped}


class _Parsed(NamedTuple):
    """A line that is not plain, and what it is."""

    place: int
    raw: bytes
    message: asdi.Message


class _Refused(NamedTuple):
    place: int
    raw: bytes
    error: asdi.AsdiError


class _Lines:
    """The lines of a block, and what the header of each says."""

    def __init__(self, text: bytes) -> None:
        lines = lines_of(text)
        self.number = len(lines)
        self.is_plain = is_plain(lines)
        self.tracks = read_tracks(lines if self.is_plain.all() else lines.filter(pa.array(self.is_plain)))
        self.parsed: list[_Parsed] = []
        self.refused: list[_Refused] = []
        self.is_blank = np.zeros(self.number, bool)
        self.has_header = self.is_plain.copy()
        self.heads = np.zeros((self.number, 3), np.int64)
        """Sequence number, day and second."""
        self.heads[self.is_plain] = np.column_stack((self.tracks.sequence, self.tracks.day, self.tracks.second))
        for place in np.flatnonzero(~self.is_plain).tolist():
            self._read(place, lines[place].as_py().removesuffix(b"\n"))

    def _read(self, place: int, raw: bytes) -> None:
        if not raw or raw.isspace():
            self.is_blank[place] = True
            return
        head: tuple[int, int, int] | None
        try:
            message = asdi.parse(raw)
        except asdi.AsdiError as error:
            self.refused.append(_Refused(place, raw, error))
            head = header(raw)
        else:
            self.parsed.append(_Parsed(place, raw, message))
            head = (message.sequence, message.day, message.second)
        if head is not None:
            self.has_header[place] = True
            self.heads[place] = head


class _Piece:
    """Where the second pass stands in its piece, between two blocks."""

    def __init__(self, begin: Begin, writer: PartWriter, tables: TableWriter, stream: str) -> None:
        self._path = begin.chunk.path
        self._writer = writer
        self._tables = tables
        self._stream = stream
        self._calendar = asdi.Calendar(begin.date)
        self._unwrapper = None if begin.is_counting else Unwrapper(begin.position, at_rest=True)
        self._an = begin.an - begin.is_counting
        self._time = begin.time
        self.line = begin.line
        self.blank = 0
        self.types: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def take(self, text: bytes) -> None:
        lines = _Lines(text)
        times, ans = self._place(lines)
        self._write_packets(lines, times, ans)
        self._write_refused(lines, times, ans)
        self.line += lines.number
        self.blank += int(lines.is_blank.sum())
        self._time, self._an = int(times[-1]), int(ans[-1])

    def _place(self, lines: _Lines) -> tuple[Numbers, Numbers]:
        """Time and AN of each line; one without a header has those of the line before it."""
        with_header = np.flatnonzero(lines.has_header)
        sequences, days, seconds = lines.heads[with_header].T
        known_times = times_of(self._calendar, days, seconds)
        before = np.cumsum(lines.has_header)  # lines with a header up to here
        times = np.concatenate(([self._time], known_times))[before]
        if self._unwrapper is None:
            return times, self._an + np.cumsum(~lines.is_blank)
        return times, np.concatenate(([self._an], numbers_of(self._unwrapper, sequences, known_times)))[before]

    def _write_packets(self, lines: _Lines, times: Numbers, ans: Numbers) -> None:
        tracks, parsed = lines.tracks, lines.parsed
        plain = np.flatnonzero(lines.is_plain)
        places = np.concatenate((plain, [line.place for line in parsed])).astype(np.int64)
        if not len(places):
            return
        if len(plain):
            self.types["TZ"] += len(plain)
        self.types.update(line.message.type for line in parsed)
        usual = [pa.repeat("TZ", len(plain)), tracks.facility, tracks.flight, tracks.raw, tracks.xml]
        said = [(m.type, m.facility, m.flight, exact(raw), asdi.to_xml(m)) for _, raw, m in parsed]
        others = zip(*said, strict=True) if said else [()] * len(usual)
        columns = [
            pa.concat_arrays([column, pa.array(other, column.type)])
            for column, other in zip(usual, others, strict=True)
        ]
        if parsed:
            order = np.argsort(places, kind="stable")
            places = places[order]
            columns = [column.take(pa.array(order)) for column in columns]
        kind, facility, flight, raw, xml = columns
        numbers, seconds = ans[places], times[places]
        crc = checksums(numbers, xml.to_pylist())
        whole = [
            pa.array(numbers), _moments(seconds), kind, facility, flight,
            pa.array(lines.heads[places, 0], pa.int32()), raw, xml, pa.nulls(len(places), pa.int64()), pa.array(crc),
        ]  # fmt: skip
        table = pa.Table.from_arrays(whole, schema=schema.arrow("packets"))
        for hour, part in by_hour(table, seconds):
            self._writer.write_table(self._partition("packets", hour), part)
        self._add_positions(tracks, times[plain], ans[plain])
        for line in parsed:
            self._tables.add(rows_of(line.message, int(ans[line.place]), int(times[line.place])))

    def _add_positions(self, tracks: Tracks, times: Numbers, ans: Numbers) -> None:
        for hour, part in by_hour(positions_of(tracks, pa.array(ans), _moments(times)), times):
            self._tables.add_table("positions", hour, part)

    def _write_refused(self, lines: _Lines, times: Numbers, ans: Numbers) -> None:
        rows: dict[Partition, list[tuple[Any, ...]]] = {}
        for place, raw, error in lines.refused:
            time, reason = int(times[place]), error.reason.value
            text = raw[:RAW_KEPT].decode("utf-8", "backslashreplace")
            row = (int(ans[place]), time * 1_000_000, text, self._path, self.line + place + 1, reason, error.detail)
            rows.setdefault(self._partition("quarantine", time // 3600), []).append(row)
            self.reasons[reason] += 1
        for partition, held in rows.items():
            self._writer.write(partition, list(zip(*held, strict=True)))

    def _partition(self, dataset: str, hour: int) -> Partition:
        return partition_of(dataset, self._stream, hour * 3600)


def _moments(seconds: Numbers) -> pa.Array:
    return pa.array(seconds * 1_000_000).view(pa.timestamp("us", tz="UTC"))


def by_hour(table: pa.Table, seconds: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each hour, in their order."""
    hours = seconds // 3600
    if not len(hours):
        return
    if (hours == hours[0]).all():
        yield int(hours[0]), table
        return
    order = np.argsort(hours, kind="stable")
    found, first = np.unique(hours[order], return_index=True)
    for hour, places in zip(found.tolist(), np.split(order, first[1:]), strict=True):
        yield hour, table.take(pa.array(places))
