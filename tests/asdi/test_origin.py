"""A packet's line, carried behind its root element."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from asdi import MAX_LINE_CHARS
from asdi.origin import MAX_ORIGIN_BYTES, Original, split_origin_untrusted, with_origin
from tests.asdi.lines import GOLDEN

PACKET = b'<?xml version="1.0"?><flight><id>UAL1021</id></flight>'


@given(st.binary(max_size=200), st.integers(0, 4_000_000_000))
def test_any_line_comes_back_and_the_packet_stays_xml(line, time):
    whole = with_origin(PACKET, time, line)
    assert split_origin_untrusted(whole) == Original(PACKET, time, line)
    root = etree.fromstring(whole)
    assert root.xpath("string(/flight/id)") == "UAL1021"
    assert len(whole) - len(PACKET) <= MAX_ORIGIN_BYTES


def test_golden_bytes():
    line = b"153016120000CCZVTZ UAL1021 512 290 4928N/12003W "
    assert with_origin(b"<a/>", 1_794_830_400, line) == b"<a/><?skymesh-asdi 1794830400 " + line + b"?>"
    assert with_origin(b"<a/>", 0, b"?>%\xe9") == b"<a/><?skymesh-asdi 0 %3F>%25%E9?>"


def test_what_is_not_whole_is_part_of_the_packet():
    for line in GOLDEN:
        whole = with_origin(PACKET, 1_794_830_400, line.encode())
        for cut in range(len(whole)):
            assert split_origin_untrusted(whole[:cut]) == (whole[:cut], None, None)
    for wrong in (b"<?skymesh-asdi x y?>", b"<?skymesh-asdi 999999999999 y?>", b"<?skymesh-asdi 1 %zz?>"):
        assert split_origin_untrusted(PACKET + wrong) == (PACKET + wrong, None, None)
    longest = with_origin(PACKET, 1, b"x" * MAX_LINE_CHARS)
    assert split_origin_untrusted(longest).line == b"x" * MAX_LINE_CHARS
    longer = with_origin(PACKET, 1, b"x" * (MAX_LINE_CHARS + 1))
    assert split_origin_untrusted(longer).line is None


def test_mutations_raise_nothing():
    chance = Random(7)
    whole = with_origin(PACKET, 1_794_830_400, b"153016120000CCZVTZ UAL1021 512 290 4928N/12003W ?%")
    for _ in range(2_000):
        bytes_ = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        payload, time, line = split_origin_untrusted(bytes(bytes_))
        assert (time is None) == (line is None)
        assert bytes(bytes_).startswith(payload)
