"""The records of a packet log, byte by byte."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.packetlog import (
    Gap,
    Packet,
)
from peer.packetlog import format as packetlog_format
from peer.packetlog.format import Damage, decode_record_untrusted, encode_record, scan

GOLDEN = [
    (
        7,
        Packet(an=0x1530, time_us=1_000_000_000_000_000, payload=b"<flight/>"),
        "ec79d7d9 00000009 01 0000000000001530 00038d7ea4c68000 3c666c696768742f3e",
    ),
    (8, Gap(after=5, until=9, time_us=-1), "5f5a97ec 00000008 02 0000000000000009 ffffffffffffffff 0000000000000005"),
]


@pytest.mark.parametrize(("position", "entry", "golden"), GOLDEN)
def test_golden_record(position, entry, golden):
    data = bytes.fromhex(golden)
    assert encode_record(position, entry).hex() == data.hex()
    assert decode_record_untrusted(data, 0, position) == (entry, len(data))


entries = st.one_of(
    st.builds(Packet, st.integers(0, (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=300)),
    st.builds(
        lambda a, n, t: Gap(a, a + n, t), st.integers(0, 1 << 60), st.integers(1, 1 << 60), st.integers(0, 1 << 50)
    ),
)


@given(entries, st.integers(0, 1 << 50), st.binary(max_size=40))
def test_record_round_trip(entry, position, tail):
    data = encode_record(position, entry)
    assert decode_record_untrusted(data + tail, 0, position) == (entry, len(data))
    with pytest.raises(Damage):
        decode_record_untrusted(data, 0, position + 1)


@given(entries, st.data())
def test_every_prefix_and_every_flip_is_damage(entry, data):
    record = encode_record(3, entry)
    for length in range(len(record)):
        with pytest.raises(Damage) as caught:
            decode_record_untrusted(record[:length], 0, 3)
        assert caught.value.cut
    at = data.draw(st.integers(0, len(record) * 8 - 1))
    broken = bytearray(record)
    broken[at // 8] ^= 1 << at % 8
    with pytest.raises(Damage):
        decode_record_untrusted(bytes(broken), 0, 3)


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_damage(data):
    with contextlib.suppress(Damage):
        list(scan(data, 0, 0))
    with contextlib.suppress(Damage):
        packetlog_format.decode_segment_header_untrusted(data)


@pytest.mark.parametrize(
    "entry",
    [Gap(5, 5, 0), Gap(-1, 5, 0), Packet(-1, 0, b""), Packet(1 << 63, 0, b""), Packet(1, 0, bytes(1 << 20) + b"x")],
)
def test_what_cannot_be_stored_is_refused(entry):
    with pytest.raises(ValueError, match=r"gap|AN|limit"):
        encode_record(0, entry)
