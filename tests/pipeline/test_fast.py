"""The short way for usual lines says what the parser says, or nothing."""

from __future__ import annotations

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

import asdi
from asdi.flights import Feed
from pipeline.ingest.fast import read_plain
from pipeline.tables.rows import rows_of
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import NOON


def agrees(line: bytes) -> bool:
    """Whether the short way read it; it must say the same as the parser then."""
    plain = read_plain(line)
    if plain is None:
        return False
    message = asdi.parse(line)
    assert plain[:3] == (message.sequence, message.day, message.second)
    assert (plain.facility, plain.flight, "TZ") == (message.facility, message.flight, message.type)
    assert plain.xml == asdi.to_xml(message)
    ((table, row),) = rows_of(message, 7, NOON)
    assert table == "positions"
    assert row == (7, NOON * 1_000_000, plain.flight, plain.computer, plain.facility, "TZ", *plain.place)
    return True


def test_most_lines_of_the_feed_are_read_the_short_way():
    lines = [line.text.encode() + b" \r" for line in islice(Feed(copies=5).lines(NOON), 3_000)]
    tracks = [line for line in lines if line[16:18] == b"TZ"]
    assert sum(map(agrees, lines)) == len(tracks) > 2_500
    for line in GOLDEN:
        agrees(line.encode())


_digits = "0123456789"
_field = st.one_of(
    st.text("0123456789", max_size=5), st.text("ABMNSEWTC/0123456789", max_size=8),
    st.sampled_from(["290", "241C", "4928N/12003W", "492800N/1200300W", "4928/12003", "512", "M081", "SC", " ", ""]),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.text("0123456789abcdefABCDEF", min_size=4, max_size=4),
    st.from_regex(r"[0-3]\d[0-2]\d[0-6]\d[0-6]\d", fullmatch=True),
    st.sampled_from(["KZNY", "CCZV", "kzny"]), st.sampled_from(["TZ", "UZ"]), st.lists(_field, max_size=5),
    st.sampled_from(["", " ", "  ", " \r", "\r", "\t", "\x00"]),
)  # fmt: skip
def test_any_line_that_looks_like_one(sequence, clock, facility, kind, fields, end):
    agrees(f"{sequence}{clock}{facility}{kind} UAL1021 {' '.join(fields)}{end}".encode())


@given(st.binary(max_size=80))
def test_any_bytes(line):
    agrees(line)


@given(st.integers(0, 70), st.integers(0, 255))
def test_one_byte_changed(place, value):
    line = bytearray(b"153014022245CCZVTZ UAL1021/123 512 290 4928N/12003W \r")
    line[place % len(line)] = value
    agrees(bytes(line))
