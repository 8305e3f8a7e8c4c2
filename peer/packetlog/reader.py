"""Reading a packet log, also while it is being written. Takes no lock and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from peer.packetlog.files import (
    LogDamaged,
    LogTruncated,
    PacketLogError,
    Segment,
    entry_before,
    index_of,
    list_segments,
    read_header,
    read_mark,
    read_stream,
)
from peer.packetlog.format import SEGMENT_HEADER_BYTES, Damage, Entry, Gap, Late, last_an_of, scan

# A read takes at most about this much into memory at once, whatever is asked for.
_CHUNK_BYTES = 4 << 20


class Reader:
    """Follows a log by position. What a crash left unfinished at the end is not seen; damage elsewhere raises.

    With `durable` (the default) only what the writer has synced is seen: a position that was read can then never come
    again with other content, which is what makes exactly-once possible downstream. Without it a reader sees every
    record at once, and a power cut (not a crash) may take back the last second of what it saw.
    """

    def __init__(self, directory: str | Path, *, durable: bool = True) -> None:
        self.directory = Path(directory)
        self.durable = durable
        # Where the last read ended: going on from there needs no search.
        self._cursor: tuple[int, Segment, int] | None = None

    @property
    def stream(self) -> str | None:
        """Whose packets these are, if the writer said so."""
        return read_stream(self.directory)

    def first_position(self) -> int:
        segments = list_segments(self.directory)
        return segments[0].first_position if segments else 0

    def end_position(self) -> int:
        """The position after the last record that this reader may see."""
        if self.durable:
            return read_mark(self.directory)
        segments = list_segments(self.directory)
        if not segments:
            return 0
        end = segments[-1].first_position
        for position, _ in self._scan(segments[-1], SEGMENT_HEADER_BYTES, end, last=True):
            end = position + 1
        return end

    def read(self, position: int, *, limit: int = 10_000) -> list[tuple[int, Entry]]:
        """Up to `limit` records from this position on; fewer, or none, where the log ends for now."""
        found: list[tuple[int, Entry]] = []
        for item in self.iterate(position):
            found.append(item)
            if len(found) == limit:
                break
        return found

    def iterate(self, position: int = 0, stop: int | None = None) -> Iterator[tuple[int, Entry]]:
        """(position, entry) from this position to `stop` or to the end as it is now. `LogTruncated` when it is gone."""
        end = self.end_position() if self.durable else None
        if stop is not None:
            end = stop if end is None else min(end, stop)
        if end is not None and position >= end:
            return
        while True:
            segments = list_segments(self.directory)
            if not segments:
                return
            if position < segments[0].first_position:
                raise LogTruncated(position, segments[0].first_position)
            at = max(i for i, segment in enumerate(segments) if segment.first_position <= position)
            segment, last = segments[at], at == len(segments) - 1
            begun = position
            for found, entry in self._from(segment, position, last=last):
                if end is not None and found >= end:
                    return
                position = found + 1
                yield found, entry
            if last or (position == begun and segments[at + 1].first_position != position):
                return

    def find_an(self, an: int) -> int:
        """The first position whose record reaches this AN or beyond (the end, when none does)."""
        return self._find("an", an)

    def find_time(self, time_us: int) -> int:
        """The first position from which on a record is of this time or later."""
        return self._find("time_us", time_us)

    def _find(self, key: str, value: int) -> int:
        segments = list_segments(self.directory)
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            try:
                entries = index_of(segment)
            except FileNotFoundError:
                continue
            if not last:
                following = index_of(segments[number + 1])
                # The next segment's first record is known, so most segments are passed without reading them.
                if following and getattr(following[0], key) < value:
                    continue
            begin = entry_before(entries, key, value)
            if begin is None:
                continue
            for position, entry in self._scan(segment, begin.offset, begin.position, last=last):
                reached = last_an_of(entry) if key == "an" else entry.time_us
                if reached >= value:
                    return position
        return self.end_position()

    def verify(self) -> dict[str, int]:
        """Read everything: records, packets, gaps, bytes. `LogDamaged` at the first thing that is wrong."""
        counts = {"segments": 0, "records": 0, "packets": 0, "gaps": 0, "payload_bytes": 0}
        segments = list_segments(self.directory)
        expected: int | None = None
        last_an = -1
        for number, segment in enumerate(segments):
            if expected is not None and segment.first_position != expected:
                raise LogDamaged(f"{segment.path.name} begins at {segment.first_position}, not at {expected}")
            expected = segment.first_position
            counts["segments"] += 1
            for position, entry in self._scan(
                segment, SEGMENT_HEADER_BYTES, expected, last=number == len(segments) - 1
            ):
                if not isinstance(entry, Late):
                    if last_an_of(entry) <= last_an:
                        raise LogDamaged(f"position {position} goes back from AN {last_an} to {last_an_of(entry)}")
                    last_an = last_an_of(entry)
                counts["records"] += 1
                if isinstance(entry, Gap):
                    counts["gaps"] += 1
                else:
                    counts["packets"] += 1
                    counts["payload_bytes"] += len(entry.payload)
                expected = position + 1
        return counts

    def _from(self, segment: Segment, position: int, *, last: bool) -> Iterator[tuple[int, Entry]]:
        """The records of one segment from a position on, starting from the nearest place that is known."""
        offset, at = SEGMENT_HEADER_BYTES, segment.first_position
        if self._cursor is not None and self._cursor[0] == position and self._cursor[1] == segment:
            offset, at = self._cursor[2], position
        elif position > at:
            for entry in index_of(segment):
                if entry.position > position:
                    break
                offset, at = entry.offset, entry.position
        for found, record in self._scan(segment, offset, at, last=last):
            if found >= position:
                yield found, record

    def _scan(self, segment: Segment, offset: int, position: int, *, last: bool) -> Iterator[tuple[int, Entry]]:
        try:
            with segment.path.open("rb") as file:
                if offset == SEGMENT_HEADER_BYTES:
                    read_header(segment)
                while True:
                    file.seek(offset)
                    data = file.read(_CHUNK_BYTES)
                    whole = len(data) < _CHUNK_BYTES
                    damage: Damage | None = None
                    start = offset
                    try:
                        for _, after, found, entry in scan(data, 0, position):
                            position = found + 1
                            self._cursor = (position, segment, start + after)
                            yield found, entry
                    except Damage as caught:
                        damage = caught
                    offset = start + (damage.offset if damage else len(data))
                    self._cursor = (position, segment, offset)
                    if damage is None and not data:
                        return
                    if damage is not None and damage.cut and not whole and offset > start:
                        continue  # only the chunk ended here
                    if damage is not None:
                        if damage.cut and last and position >= read_mark(self.directory):
                            return  # being written, or left by a crash
                        raise LogDamaged(f"{segment.path}: {damage.what} at byte {offset} (position {position})")
        except FileNotFoundError:
            raise LogTruncated(position, self.first_position()) from None
        except Damage as damage:
            if damage.cut and last:
                return
            raise LogDamaged(f"{segment.path}: {damage}") from None
        except OSError as error:
            raise PacketLogError(f"cannot read {segment.path}: {os.strerror(error.errno or 0)}") from error
