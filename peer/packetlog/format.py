"""The bytes of the packet log: records and segment headers, encoded and decoded. Pure; docs/packetlog.md is the spec.

Everything is in network order. A record's checksum begins from its position, so a record that lies at another place
than the one it was written for is as bad as a damaged one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

MAGIC = b"SKYLOG\r\n"
VERSION = 1
# No packet of the mesh comes near it (a datagram carries 64 KB); a length above it can only be damage.
MAX_PAYLOAD_BYTES = 1 << 20
MAX_AN = (1 << 63) - 1

# crc32 u32 of (position, all that follows) | payload length u32 | kind u8 | an u64 | time i64, microseconds since 1970
_RECORD = struct.Struct(">IIBQq")
_CHECKED = struct.Struct(">IBQq")
_POSITION = struct.Struct(">Q")
_AFTER = struct.Struct(">Q")
# magic 8s | version u16 | first position u64 | last an before this segment i64 (-1: none) | crc32 u32 of the rest
_SEGMENT = struct.Struct(">8sHQqI")

RECORD_HEADER_BYTES = _RECORD.size
SEGMENT_HEADER_BYTES = _SEGMENT.size


class Kind(IntEnum):
    """Append only: old readers refuse what they do not know, and never guess."""

    PACKET = 0x01
    GAP = 0x02
    LATE = 0x03


class Packet(NamedTuple):
    """A packet as it was received: its number, when (microseconds since 1970), its bytes untouched."""

    an: int
    time_us: int
    payload: bytes


class Gap(NamedTuple):
    """What nobody could supply: the packets after `after` up to and including `until`."""

    after: int
    until: int
    time_us: int


class Late(NamedTuple):
    """A packet that came after later ones: a parent had said that it was not there. Its AN is below those before it."""

    an: int
    time_us: int
    payload: bytes


Entry = Packet | Gap | Late


class Damage(Exception):
    """Bytes that are not a record. `cut` is True when they may simply not be written yet: they reach to the end."""

    def __init__(self, offset: int, *, cut: bool, what: str) -> None:
        super().__init__(f"{what} at byte {offset}")
        self.offset = offset
        self.cut = cut
        self.what = what


class SegmentHeader(NamedTuple):
    first_position: int
    last_an: int
    """The AN up to which earlier segments reach, so that a log whose old segments are gone still knows; -1: none."""


def last_an_of(entry: Entry) -> int:
    """The AN up to which the log reaches with this entry; -1 for a late packet, which moves nothing."""
    if isinstance(entry, Late):
        return -1
    return entry.until if isinstance(entry, Gap) else entry.an


def encode_record(position: int, entry: Entry) -> bytes:
    """One record. `ValueError` for what can't be stored."""
    if isinstance(entry, Gap):
        if not 0 <= entry.after < entry.until:
            raise ValueError(f"a gap must cover something, not ({entry.after}, {entry.until}]")
        kind, an, payload = Kind.GAP, entry.until, _AFTER.pack(entry.after)
    else:
        kind = Kind.LATE if isinstance(entry, Late) else Kind.PACKET
        an, payload = entry.an, entry.payload
    if not 0 <= an <= MAX_AN:
        raise ValueError(f"AN {an} is outside 0 to {MAX_AN}")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a packet of {len(payload)} bytes is over the limit of {MAX_PAYLOAD_BYTES}")
    checked = _CHECKED.pack(len(payload), kind, an, entry.time_us)
    crc = zlib.crc32(payload, zlib.crc32(checked, zlib.crc32(_POSITION.pack(position))))
    return crc.to_bytes(4, "big") + checked + payload


def decode_record_untrusted(data: bytes | memoryview, offset: int, position: int) -> tuple[Entry, int]:
    """The record at an offset, and the offset after it. Raises `Damage` alone."""
    end = len(data)
    if offset + RECORD_HEADER_BYTES > end:
        raise Damage(offset, cut=True, what="a record's header is cut short")
    crc, length, kind, an, time_us = _RECORD.unpack_from(data, offset)
    if length > MAX_PAYLOAD_BYTES:
        raise Damage(offset, cut=False, what=f"a record claims {length} bytes")
    after = offset + RECORD_HEADER_BYTES + length
    if after > end:
        raise Damage(offset, cut=True, what="a record is cut short")
    payload = bytes(data[offset + RECORD_HEADER_BYTES : after])
    checked = bytes(data[offset + 4 : offset + RECORD_HEADER_BYTES])
    if zlib.crc32(payload, zlib.crc32(checked, zlib.crc32(_POSITION.pack(position)))) != crc:
        raise Damage(offset, cut=after == end, what="a record's checksum is wrong")
    if kind == Kind.PACKET:
        return Packet(an, time_us, payload), after
    if kind == Kind.LATE:
        return Late(an, time_us, payload), after
    if kind == Kind.GAP and length == _AFTER.size:
        return Gap(_AFTER.unpack(payload)[0], an, time_us), after
    raise Damage(offset, cut=False, what=f"a record is of an unknown kind ({kind})")


def scan(data: bytes | memoryview, offset: int, position: int) -> Iterator[tuple[int, int, int, Entry]]:
    """(offset, offset after it, position, entry) of every record to the end; raises `Damage` where good records end."""
    end = len(data)
    while offset < end:
        entry, after = decode_record_untrusted(data, offset, position)
        yield offset, after, position, entry
        offset, position = after, position + 1


def encode_segment_header(header: SegmentHeader) -> bytes:
    unchecked = _SEGMENT.pack(MAGIC, VERSION, header.first_position, header.last_an, 0)[:-4]
    return unchecked + zlib.crc32(unchecked).to_bytes(4, "big")


def decode_segment_header_untrusted(data: bytes) -> SegmentHeader:
    """Raises `Damage` alone."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise Damage(0, cut=True, what="a segment's header is cut short")
    magic, version, first, last_an, crc = _SEGMENT.unpack_from(data)
    if magic != MAGIC:
        raise Damage(0, cut=False, what="not a segment of a packet log: wrong first bytes")
    if zlib.crc32(data[: SEGMENT_HEADER_BYTES - 4]) != crc:
        raise Damage(0, cut=False, what="a segment's header has a wrong checksum")
    if version != VERSION:
        raise Damage(0, cut=False, what=f"a segment is of version {version}, and this program reads {VERSION}")
    return SegmentHeader(first, last_an)
