"""Blocks of lines read as columns say what the parser says of each line."""

from __future__ import annotations

from datetime import date
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asdi
from asdi.flights import Feed
from asdi.time import Unwrapper, header
from pipeline.archive.packet import exact
from pipeline.archive.parts import PartWriter
from pipeline.archive.schema import checksum
from pipeline.ingest.convert import convert
from pipeline.ingest.inputs import Chunk
from pipeline.ingest.numbering import Begin
from pipeline.ingest.plain import is_plain, lines_of
from pipeline.tables.rows import rows_of
from pipeline.tables.write import TableWriter
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import NOON

DAY = date(2026, 11, 16)


def expected(text: bytes, first_an: int | None) -> dict[str, list[tuple]]:
    """Line by line, and by the parser alone."""
    found: dict[str, list[tuple]] = {"packets": [], "positions": [], "quarantine": []}
    calendar, numbers = asdi.Calendar(DAY), Unwrapper(at_rest=True)
    an, time, blank = -1 if first_an is None else first_an - 1, 0, 0
    for place, raw in enumerate(text.split(b"\n"), 1):
        if not raw or raw.isspace():
            blank += 1
            continue
        try:
            message, problem = asdi.parse(raw), None
            head = (message.sequence, message.day, message.second)
        except asdi.AsdiError as error:
            message, problem, head = None, error, header(raw)
        if head is not None:
            time = calendar.seconds(*head[1:])
        if first_an is not None:
            an += 1
        elif head is not None:
            an = numbers.number(head[0], time)
        us = time * 1_000_000
        if message is None:
            kept = raw[:8192].decode("utf-8", "backslashreplace")
            found["quarantine"].append((an, us, kept, "f", place, problem.reason.value, problem.detail))
            continue
        xml, said = asdi.to_xml(message), (message.type, message.facility, message.flight, message.sequence)
        found["packets"].append((an, us, *said, exact(raw), xml, None, checksum(an, xml)))
        found["positions"] += [row for table, row in rows_of(message, an, time) if table == "positions"]
    found["blank"] = [(blank,)]
    return found


def read(text: bytes, folder: Path, first_an: int | None) -> dict[str, list[tuple]]:
    text += b"\n"
    (folder / "f").write_bytes(text)
    writer, tables = PartWriter(folder / "out", "w"), TableWriter(folder / "out", "t", "asdi")
    begin = Begin(Chunk(str(folder / "f"), 0, len(text), 0), 0, first_an if first_an is not None else -1, DAY,
                  is_counting=first_an is not None)  # fmt: skip
    report = convert(begin, writer, tables, "asdi")
    found: dict[str, list[tuple]] = {"packets": [], "positions": [], "quarantine": []}
    for file in [*writer.finish(), *tables.finish()]:
        if file.dataset in found:
            table = pq.read_table(folder / "out" / file.path, partitioning=None)
            columns = [
                column.cast("int64") if str(column.type).startswith("timestamp") else column for column in table.columns
            ]
            found[file.dataset] += zip(*(column.to_pylist() for column in columns), strict=True)
    found["quarantine"] = [(*row[:3], "f", *row[4:]) for row in found["quarantine"]]
    found["blank"] = [(report["blank"],)]
    return found


def check(lines: list[bytes], tmp_path_factory) -> None:
    text = b"\n".join(lines)
    for first_an in (None, 1000):
        wanted = expected(text, first_an)
        found = read(text, tmp_path_factory.mktemp("plain"), first_an)
        assert {name: sorted(rows, key=repr) for name, rows in found.items()} == {
            name: sorted(rows, key=repr) for name, rows in wanted.items()
        }


def test_most_lines_of_the_feed_are_plain_and_all_are_as_the_parser_says(tmp_path_factory):
    lines = [line.text.encode() + b" \r" for line in islice(Feed(copies=5).lines(NOON), 3_000)]
    tracks = [line for line in lines if line[16:18] == b"TZ"]
    assert is_plain(lines_of(b"\n".join(tracks))).sum() == len(tracks) > 2_500
    check(lines, tmp_path_factory)
    check([line.encode() for line in GOLDEN], tmp_path_factory)


_some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_field = st.one_of(
    st.text("0123456789", max_size=5), st.text("ABMNSEWTC/0123456789", max_size=8),
    st.sampled_from(["290", "241C", "007T", "4928N/12003W", "4928S/00000E", "9059N/18059E", "492800N/1200300W",
                     "4928/12003", "512", "0000", "M081", "SC", " ", ""]),
)  # fmt: skip
_similar = st.builds(
    lambda sequence, clock, facility, kind, flight, fields, end: (
        f"{sequence}{clock}{facility}{kind} {flight} {' '.join(fields)}{end}".encode()
    ),
    st.text("0123456789abcdefABCDEF", min_size=4, max_size=4),
    st.from_regex(r"[0-3]\d[0-2]\d[0-6]\d[0-6]\d", fullmatch=True),
    st.sampled_from(["KZNY", "CCZV", "kzny"]), st.sampled_from(["TZ", "TZ", "TZ", "UZ"]),
    st.sampled_from(["UAL1021", "EIN135/742", "N1/A", "U", "UAL1021/", "UAL10215", "A/B/C"]),
    st.one_of(st.lists(_field, max_size=5), st.tuples(
        st.sampled_from(["512", "0450", "9", "12345"]), st.sampled_from(["290", "5", "241C", "350T", "C", "290A"]),
        st.sampled_from(["4928N/12003W", "0000S/00000E", "9159N/12003W", "4960N/12003W", "4928N/18100W"]))),
    st.sampled_from(["", " ", "  ", " \r", "\r", "\r\r", "\t", "\x00", "\xe9"]),
)  # fmt: skip
_plain = st.builds(
    lambda sequence, second, end: b"%04X16%02d%02d%02dCCZVTZ UAL1021/123 512 290C 4928N/12003W%b" % (
        sequence % 65_536, second // 3600, second // 60 % 60, second % 60, end),
    st.one_of(st.integers(0, 40), st.integers(65_500, 65_600), st.integers(0, 65_535)),
    st.one_of(st.integers(43_200, 43_260), st.integers(0, 86_399)), st.sampled_from([b"", b" ", b" \r"]),
)  # fmt: skip
_changed = st.builds(
    lambda line, place, value: line[: place % len(line)] + bytes([value]) + line[place % len(line) + 1 :],
    _plain, st.integers(0, 70), st.integers(0, 255).filter(lambda value: value != 10),
)  # fmt: skip
_any = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))


@_some
@given(st.lists(st.one_of(_similar, _plain, _plain, _changed, _any), min_size=1, max_size=40))
def test_any_lines_in_any_order(tmp_path_factory, lines):
    """Plain and unusual lines, repeats, jumps of time and number, lines without a header, blanks."""
    check([b"g" + lines[0], *lines], tmp_path_factory)  # never by chance the magic of a compressed file


@_some
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=2, max_size=300), st.integers(0, 65_535))
def test_rising_numbers_over_ticks_and_wraps(tmp_path_factory, steps, first):
    """What a feed really looks like: runs within a tick, a late line now and then."""
    number, second, lines = first, 43_200, []
    for more, wait in steps:
        number, second = number + more, second + (17 if wait == 9 else wait == 8)
        lines.append(b"%04X16%02d%02d%02dCCZVTZ UAL1 512 290 4928N/12003W" % (
            number % 65_536, second // 3600, second // 60 % 60, second % 60))  # fmt: skip
    check(lines, tmp_path_factory)
