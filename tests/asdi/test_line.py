"""The ASDI parser: golden packets, tolerance, and that anything else is one named error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

import asdi
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import SHARED

DTD = etree.DTD(str(Path(__file__).resolve().parents[2] / "docs" / "schema" / "asdi.dtd"))
REAL = SHARED / "asdi/asdi_real_excerpt_24lines.txt"


def valid(packet: bytes) -> None:
    root = etree.fromstring(packet)
    assert DTD.validate(root), (packet, DTD.error_log.filter_from_errors())


@pytest.mark.parametrize("line", GOLDEN)
def test_golden_packet(line):
    message = asdi.parse(line)
    assert asdi.to_xml(message).decode() == GOLDEN[line]
    assert asdi.to_text(message) == line
    valid(asdi.to_xml(message))


def test_every_type_has_a_golden_packet():
    assert {asdi.parse(line).type for line in GOLDEN} == {
        "TZ", "FZ", "AF", "UZ", "DZ", "AZ", "RZ", "TO", "HB", "RT", "BZ",
    }  # fmt: skip


@pytest.mark.skipif(not REAL.exists(), reason="the real lines are not on this machine")
def test_real_lines_go_through():
    for line in REAL.read_bytes().splitlines(keepends=True):
        message = asdi.parse(line)
        assert asdi.to_text(message) == line.decode().rstrip()
        valid(asdi.to_xml(message))


FIGURE_12 = "153014022245CCZVTZ UAL1021 512 290 4928N/12003W"
# What a feed may send -> its normal form; a line that stands alone is its own.
TOLERATED = {
    "end of line and blank before it": (b"153014022245CCZVTZ UAL1021 512 290 4928N/12003W \r\n", FIGURE_12),
    "control and foreign bytes": (b"153014022245CCZVTZ UAL1021\x00 512 290\xff 4928N/12003W\n", FIGURE_12),
    "missing hemispheres": (b"153014022245CCZVTZ UAL1021 512 290 4928/12003", FIGURE_12),
    "missing slash": (b"153014022245CCZVTZ UAL1021 512 290 4928N12003W", FIGURE_12),
    "several blanks": (b"153014022245CCZVTZ  UAL1021  512 290   4928N/12003W", FIGURE_12),
    "lower case hex": (b"abcd14022245CCZVHB", "ABCD14022245CCZVHB"),
    "heartbeat with blanks": (b"ABCD14022245CCZVHB   \r\n", "ABCD14022245CCZVHB"),
    "no altitude": "153014022245CCZVTZ UAL1021 512 4928N/12003W",
    "seconds": "153014022245CCZVTZ U1 12 9C 492830S/1200315E",
    "no aircraft": "1530140222450000FZ U1 0110 MVY P1830 040 MVY..OWD",
    "requested too": "153014022245CCZVFZ U1 C172/U 0110 MVY P1830 040 060 MVY..OWD +SOME REMARKS",
    "no arrival estimate": "000331121600KZNYDZ J1 A320/L KJFK D1214 KSFO",
    "arrival without letter": "000431180300KZOAAZ J1 KJFK KSFO 1802",
    "amended remarks": "000131180302KZAKAF J1 KJFK KSFO 08 350 11 TWO WORDS",
    "oceanic ends at the end": (
        "000631180302KZAKTO HAL51 480 31/1800 370 3510N/14000W 31/1900 380 3000N/14700W KJFK -",
        "000631180302KZAKTO HAL51 480 31/1800 370 3510N/14000W KJFK - 31/1900 380 3000N/14700W",
    ),
}


@pytest.mark.parametrize("case", TOLERATED)
def test_tolerates(case):
    entry = TOLERATED[case]
    line, normal = (entry, entry) if isinstance(entry, str) else entry
    message = asdi.parse(line)
    assert asdi.to_text(message) == normal
    valid(asdi.to_xml(message))


@pytest.mark.parametrize(
    ("altitude", "xml"),
    [
        ("042", 'mode="plain">042<'),
        ("42", 'mode="plain">42<'),
        ("240T", 'mode="interim">240<'),
        ("241C", 'mode="modec">241<'),
        ("240B260", 'mode="block" high="260">240<'),
        ("OTP/085", 'mode="otp">085<'),
        ("OTP", 'mode="otp"><'),
        ("VFR/075", 'mode="vfr">075<'),
        ("ABV/600", 'mode="abv">600<'),
    ],
)
def test_altitude_is_a_number_whatever_its_mode(altitude, xml):
    packet = asdi.to_xml(asdi.parse(f"153014022245CCZVTZ UAL1021 512 {altitude} 4928N/12003W"))
    assert f'<altitude type="reported" {xml}/altitude>' in packet.decode()
    valid(packet)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", asdi.Reason.EMPTY),
        ("   \r\n", asdi.Reason.EMPTY),
        ("hello, world", asdi.Reason.NO_HEADER),
        ("153014022245CCZVT", asdi.Reason.NO_HEADER),
        ("153032022245CCZVHB", asdi.Reason.BAD_TIME),
        ("153014242245CCZVHB", asdi.Reason.BAD_TIME),
        ("153000022245CCZVHB", asdi.Reason.BAD_TIME),
        ("153014022245CCZVQQ UAL1021", asdi.Reason.UNKNOWN_TYPE),
        ("153014022245CCZVTZ UAL1021 512 290 9928N/12003W", asdi.Reason.BAD_BODY),
        ("153014022245CCZVTZ UAL1021 512 290", asdi.Reason.BAD_BODY),
        ("153014022245CCZVHB something", asdi.Reason.BAD_BODY),
        ("153014022245CCZVAF UAL1021 KJFK KSFO", asdi.Reason.BAD_BODY),
        ("153014022245CCZVAF UAL1021 KJFK KSFO 08 350 09", asdi.Reason.BAD_AMENDMENT),
        ("153014022245CCZVAF UAL1021 KJFK KSFO 08 B738/L", asdi.Reason.BAD_AMENDMENT),
        ("153014022245CCZVTO UAL1021 480 31/1800 370 3510N/14000W KJFK", asdi.Reason.BAD_BODY),
        ("1" * 5000, asdi.Reason.TOO_LONG),
    ],
)
def test_refuses_with_a_reason(line, reason):
    with pytest.raises(asdi.AsdiError) as caught:
        asdi.parse(line)
    assert caught.value.reason is reason
    assert str(caught.value).startswith(reason.value)


LINES = st.one_of(
    st.binary(max_size=120),
    st.text(max_size=120),
    st.sampled_from(sorted(GOLDEN)).flatmap(
        lambda line: st.tuples(st.integers(0, len(line)), st.text(st.characters(codec="ascii"), max_size=3)).map(
            lambda edit: line[: edit[0]] + edit[1] + line[edit[0] + len(edit[1]) :]
        )
    ),
)


@given(LINES)
def test_any_line_is_a_message_or_the_one_error(line):
    try:
        message = asdi.parse(line)
    except asdi.AsdiError:
        return
    valid(asdi.to_xml(message))
    assert asdi.parse(asdi.to_text(message)) == message
    assert asdi.to_xml(asdi.parse(asdi.to_text(message))) == asdi.to_xml(message)


ids = st.from_regex(r"[A-Z][A-Z0-9]{1,6}", fullmatch=True)
computers = st.just("") | st.from_regex(r"[0-9]{2}[0-9A-Z]", fullmatch=True)
aircraft = st.from_regex(r"(H/|T/|[1-9]/)?[A-Z][A-Z0-9]{1,3}/[A-Z]", fullmatch=True)
speeds = st.from_regex(r"0[0-9]{3}|M[0-9]{3}|SC", fullmatch=True)
altitudes = st.from_regex(r"[0-9]{2,3}[TC]?|[0-9]{2,3}B[0-9]{2,3}|OTP/[0-9]{2,3}", fullmatch=True)
airports = st.from_regex(r"[A-Z]{4}", fullmatch=True)
latitudes = st.from_regex(r"[0-8][0-9][0-5][0-9]([0-5][0-9])?[NS]", fullmatch=True)
longitudes = st.from_regex(r"0[0-9]{2}[0-5][0-9]([0-5][0-9])?[EW]", fullmatch=True)
fixes = st.from_regex(r"[A-Z]{3,5}|[A-Z]{3}[0-3][0-9]{2}[0-9]{3}", fullmatch=True)
times = st.from_regex(r"[PED][0-2][0-9][0-5][0-9]", fullmatch=True)
routes = st.lists(fixes, min_size=2, max_size=9).map("..".join)
reports = st.builds(
    asdi.Report, st.from_regex(r"[0-2][1-9]/1[0-9][0-5][0-9]", fullmatch=True), altitudes, latitudes, longitudes
)
changes = st.one_of(
    st.tuples(st.just("03"), aircraft), st.tuples(st.just("05"), speeds), st.tuples(st.just("06"), fixes),
    st.tuples(st.just("07"), times), st.tuples(st.sampled_from(["08", "09"]), altitudes),
    st.tuples(st.just("10"), routes),
)  # fmt: skip
ground = st.from_regex(r"[0-9]{3}", fullmatch=True)
pairs = st.lists(changes, min_size=1, max_size=5).map(tuple)
positions = st.lists(reports, min_size=1, max_size=3).map(tuple)
texts = st.from_regex(r"[A-Z0-9<&>\"' ]{0,20}", fullmatch=True).map(str.strip)
maybe = st.just("")
BODIES = {
    "TZ": st.builds(asdi.Track, ids, computers, ground, altitudes, latitudes, longitudes),
    "FZ": st.builds(
        asdi.Plan, ids, computers, aircraft, speeds, fixes, times, altitudes, maybe | altitudes, routes, maybe
    ),
    "AF": st.builds(asdi.Amendment, ids, computers, airports, airports, pairs),
    "UZ": st.builds(asdi.Boundary, ids, computers, aircraft, speeds, fixes, times, altitudes, routes),
    "DZ": st.builds(asdi.Departure, ids, computers, aircraft, airports, times, airports, maybe | st.just("1200")),
    "AZ": st.builds(asdi.Arrival, ids, computers, airports, airports, times),
    "RZ": st.builds(asdi.Cancellation, ids, computers, airports, airports),
    "TO": st.builds(asdi.Oceanic, ids, computers, st.just("480"), airports, airports, positions),
    "HB": st.just(asdi.Heartbeat()),
    "RT": st.builds(asdi.Opaque, texts),
}
MESSAGES = st.sampled_from(sorted(BODIES)).flatmap(
    lambda kind: st.builds(
        asdi.Message, st.integers(0, 65535), st.integers(1, 31), st.integers(0, 86399), airports, st.just(kind),
        BODIES[kind],
    )
)  # fmt: skip


@given(MESSAGES)
def test_text_round_trip(message):
    assert asdi.parse(asdi.to_text(message)) == message
    assert asdi.parse((asdi.to_text(message) + " \r\n").encode()) == message
    valid(asdi.to_xml(message))
