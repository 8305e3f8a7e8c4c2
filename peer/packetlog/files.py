"""The files of a packet log: their names, the sparse index of a sealed segment, the mark of what is synced."""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from peer.packetlog.format import (
    SEGMENT_HEADER_BYTES,
    Damage,
    Entry,
    SegmentHeader,
    decode_segment_header_untrusted,
    last_an_of,
    scan,
)

SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
LOCK = "LOCK"
STREAM = "STREAM"
MAX_STREAM_BYTES = 256
SYNCED = "SYNCED"
# One entry for about this many bytes of log: a lookup reads so much, and the index is below a thousandth of the log.
INDEX_STEP_BYTES = 32 << 10
_ENTRY = struct.Struct(">QQQq")
_MARK = struct.Struct(">QI")
# A mark that is being written may be read half old, half new. 0 would say then that the log is empty.
_MARK_READS = 5


class PacketLogError(Exception):
    """Whatever goes wrong with a packet log."""


class LogLocked(PacketLogError):
    """Another process writes this log."""


class LogFull(PacketLogError):
    """The disk (or a quota) is full. Nothing half-written stays, and appending works again once there is room."""


class LogDamaged(PacketLogError):
    """A record that had been written whole is damaged: a disk or another program did that, not a crash."""


class LogTruncated(PacketLogError):
    """The position was wanted too late: retention has removed it."""

    def __init__(self, wanted: int, first: int) -> None:
        super().__init__(f"position {wanted} is gone: the log now begins at {first}")
        self.first = first


class IndexEntry(NamedTuple):
    """A record of a segment: where it is in the log and in the file, and the highest AN and time up to it."""

    position: int
    offset: int
    an: int
    time_us: int


class Segment(NamedTuple):
    first_position: int
    path: Path


def segment_path(directory: Path, first_position: int) -> Path:
    return directory / f"{first_position:020d}{SUFFIX}"


def list_segments(directory: Path) -> list[Segment]:
    """The segments in order. What is not named like one is not looked at."""
    found = []
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        raise PacketLogError(f"there is no packet log in {directory}") from None
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix == SUFFIX and len(stem) == 20 and stem.isascii() and stem.isdigit():
            found.append(Segment(int(stem), directory / name))
    return sorted(found)


def read_header(segment: Segment) -> SegmentHeader:
    with segment.path.open("rb") as file:
        header = decode_segment_header_untrusted(file.read(SEGMENT_HEADER_BYTES))
    if header.first_position != segment.first_position:
        raise Damage(0, cut=False, what=f"{segment.path.name} says it begins at {header.first_position}")
    return header


def build_index(data: bytes, first_position: int) -> list[IndexEntry]:
    """The sparse index of a segment's bytes, up to where good records end."""
    entries: list[IndexEntry] = []
    next_at = 0
    time_us = -(1 << 63)
    reached = decode_segment_header_untrusted(data).last_an  # late packets come after the ANs that they belong before
    try:
        for offset, _, position, entry in scan(data, SEGMENT_HEADER_BYTES, first_position):
            time_us = max(time_us, entry.time_us)
            reached = max(reached, last_an_of(entry))
            if offset >= next_at:
                entries.append(IndexEntry(position, offset, reached, time_us))
                next_at = offset + INDEX_STEP_BYTES
    except Damage as damage:
        if not damage.cut:
            raise
    return entries


def write_index(segment: Path, entries: list[IndexEntry]) -> None:
    """Whole or not at all. It holds nothing that the segment does not, so losing it costs only time."""
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    target = segment.with_suffix(INDEX_SUFFIX)
    temporary = target.with_suffix(".tmp")
    temporary.write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
    temporary.replace(target)


def read_index(segment: Path) -> list[IndexEntry] | None:
    """None when there is none or it is not whole: then the segment itself is read."""
    try:
        content = segment.with_suffix(INDEX_SUFFIX).read_bytes()
    except FileNotFoundError:
        return None
    body = content[4:]
    if len(body) % _ENTRY.size or zlib.crc32(body).to_bytes(4, "big") != content[:4]:
        return None
    return [IndexEntry(*_ENTRY.unpack_from(body, at)) for at in range(0, len(body), _ENTRY.size)]


def index_of(segment: Segment) -> list[IndexEntry]:
    found = read_index(segment.path)
    return found if found is not None else build_index(segment.path.read_bytes(), segment.first_position)


def entry_before(entries: list[IndexEntry], key: str, value: int) -> IndexEntry | None:
    """The last indexed record from which a scan for the first record with `key >= value` may begin."""
    values = [getattr(entry, key) for entry in entries]
    at = bisect_right(values, value - 1) - 1
    return entries[at] if at >= 0 else (entries[0] if entries else None)


def write_stream(directory: Path, stream: str) -> None:
    """Write down whose packets the log holds. PacketLogError if they are another stream's."""
    known = read_stream(directory)
    if known is None:
        (directory / STREAM).write_text(stream + "\n")
    elif known != stream:
        raise PacketLogError(f"{directory} holds packets of {known}: give {stream} a folder of its own")


def read_stream(directory: Path) -> str | None:
    """Whose packets the log holds; None if nobody wrote it down."""
    try:
        with (directory / STREAM).open("rb") as file:
            name = file.read(MAX_STREAM_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return name if name and name.isprintable() else None


def write_mark(directory: Path, position: int) -> None:
    """Records below this position are on the disk. Written in place: 12 bytes with their own checksum."""
    packed = _MARK.pack(position, zlib.crc32(position.to_bytes(8, "big")))
    descriptor = os.open(directory / SYNCED, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, packed, 0)
    finally:
        os.close(descriptor)


def read_mark(directory: Path) -> int:
    """The first position that may not be on the disk yet; 0 when nobody has said."""
    for _ in range(_MARK_READS):
        try:
            content = (directory / SYNCED).read_bytes()
        except FileNotFoundError:
            return 0
        if len(content) == _MARK.size:
            position, crc = _MARK.unpack(content)
            if zlib.crc32(content[:8]) == crc:
                return int(position)
    return 0


def sync_directory(directory: Path) -> None:
    """A new or removed name is durable only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_time(entries: list[Entry]) -> int:
    return max((entry.time_us for entry in entries), default=-(1 << 63))
