"""The usual line, read as columns: 95 of 100 are positions in plain form, and none of them becomes a Python object.

Every other line, and every line that is unusual in any way, goes through the parser; a test compares the two on both
sides of every border. Here a block of lines costs one regular expression and a few operations of Arrow and numpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = (
    r"^[0-9A-Fa-f]{4}(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9][A-Z0-9]{4}TZ "
    r"[A-Z0-9]{2,7}(?:/[A-Z0-9]{1,4})? [0-9]{2,4} [0-9]{1,3}[CT]? "
    r"(?:[0-8][0-9]|90)[0-5][0-9][NS]/(?:0[0-9][0-9]|1[0-7][0-9]|180)[0-5][0-9][EW] *\r?\n?$"
)
_HEAD, _WORDS, _PLACE = 18, 5, 12
"""Bytes of the header and of the position, and words of a line."""
_MODES = pa.array(["plain", "modec", "interim"])
_MODE_OF = np.zeros(256, np.int64)
_MODE_OF[[ord("C"), ord("T")]] = 1, 2
_HEX = np.zeros(256, np.int64)
_HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]
_OPENING = '<?xml version="1.0"?><flight><id'


class Tracks(NamedTuple):
    """What `asdi.parse`, `asdi.to_xml` and `pipeline.tables.rows` say of such lines, a column each."""

    sequence: np.ndarray[Any, Any]
    day: np.ndarray[Any, Any]
    second: np.ndarray[Any, Any]
    facility: pa.Array
    flight: pa.Array
    computer: pa.Array
    raw: pa.Array
    xml: pa.Array
    latitude: np.ndarray[Any, Any]
    longitude: np.ndarray[Any, Any]
    altitude_ft: pa.Array
    speed_kt: pa.Array


def lines_of(text: bytes) -> pa.Array:
    """The lines of a text, each with its LF, without a copy."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends, [len(text)]]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def is_plain(lines: pa.Array) -> np.ndarray[Any, Any]:
    """Which of these lines `read_tracks` can read; one that is null can not be."""
    found = pc.fill_null(pc.match_substring_regex(lines, _PLAIN), False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def read_tracks(lines: pa.Array) -> Tracks:
    """Plain lines, and no others."""
    number = len(lines)
    raw = pc.ascii_rtrim(lines.cast(pa.string()), "\r\n")
    words = pc.split_pattern(pc.ascii_rtrim(raw, " "), " ").flatten()
    first = np.arange(0, _WORDS * number, _WORDS)
    identity, speed, altitude, place = (words.take(pa.array(first + word)) for word in range(1, _WORDS))
    parts = pc.split_pattern(identity, "/")
    at = parts.offsets.to_numpy()
    has_no_computer = np.diff(at) == 1
    names = parts.flatten()
    flight = names.take(pa.array(at[:-1]))
    computer = names.take(pa.array(np.where(has_no_computer, 0, at[:-1] + 1), mask=has_no_computer))
    digits = pc.ascii_rtrim(altitude, "CT")
    mode = _MODES.take(pa.array(_MODE_OF[_bytes(altitude)[_offsets(altitude)[1:] - 1]]))
    known_computer = pc.fill_null(pc.binary_join_element_wise(' computer="', computer, '"', ""), "")
    xml = pc.binary_join_element_wise(
        _OPENING, known_computer, ">", flight, '</id><flightleg status="active"><speed type="ground">', speed,
        '</speed><altitude type="reported" mode="', mode, '">', digits, "</altitude><coordinate><lat>",
        pc.replace_substring(place, "/", "</lat><lon>"), "</lon></coordinate></flightleg></flight>", "",
    )  # fmt: skip
    heads = _bytes(pc.binary_slice(lines, 0, _HEAD))[: _HEAD * number].reshape(number, _HEAD)
    clock = [_decimal(heads, column, 2) for column in (4, 6, 8, 10)]
    places = _bytes(place)[: _PLACE * number].reshape(number, _PLACE)
    return Tracks(
        _HEX[heads[:, :4]] @ np.array([4096, 256, 16, 1]),
        clock[0],
        clock[1] * 3600 + clock[2] * 60 + clock[3],
        pc.binary_slice(lines, 12, 16).cast(pa.string()),
        flight,
        computer,
        raw,
        xml.cast(pa.binary()),
        _degrees(places, 0, 2, "S"),
        _degrees(places, 6, 3, "W"),
        pc.multiply(digits.cast(pa.int32()), pa.scalar(100, pa.int32())),
        speed.cast(pa.int32()),
    )


def _offsets(array: pa.Array) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _bytes(array: pa.Array) -> np.ndarray[Any, Any]:
    """All values behind each other; the offsets of an array that was just made begin at 0."""
    return np.frombuffer(array.buffers()[2], np.uint8)


def _decimal(rows: np.ndarray[Any, Any], column: int, digits: int) -> np.ndarray[Any, Any]:
    value = np.zeros(len(rows), np.int64)
    for place in range(column, column + digits):
        value = value * 10 + (rows[:, place] - ord("0"))
    return value


def _degrees(rows: np.ndarray[Any, Any], column: int, digits: int, negative: str) -> np.ndarray[Any, Any]:
    """As `pipeline.tables.units.degrees`, to the last bit."""
    value = _decimal(rows, column, digits) + _decimal(rows, column + digits, 2) / 60
    return np.where(rows[:, column + digits + 2] == ord(negative), -value, value)


def _crc_table() -> np.ndarray[Any, Any]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table


_CRC = _crc_table()


def checksums(ans: np.ndarray[Any, Any], payloads: Iterable[bytes]) -> np.ndarray[Any, Any]:
    """`pipeline.archive.schema.checksum` of many packets: that of the ANs for all of them at once."""
    crc = np.full(len(ans), 0xFFFFFFFF, np.uint32)
    for column in ans.astype(">i8").view(np.uint8).reshape(-1, 8).T:
        crc = _CRC[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    begun = (~crc).tolist()
    return np.fromiter(map(zlib.crc32, payloads, begun), np.int64, len(ans))
