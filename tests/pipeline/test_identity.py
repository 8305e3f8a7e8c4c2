"""A line is the same line whatever file it comes in: names, dates, cuts and the order of jobs change nothing."""

from __future__ import annotations

import os
import random
from datetime import date
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from asdi.flights import Feed
from asdi.time import Unwrapper
from peer.feeds.sequencer import AsdiSequencer
from pipeline.archive.feed import packets as archive_packets
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.inputs import Chunk
from pipeline.ingest.numbering import begin_all
from pipeline.ingest.repeats import SAME_NUMBER
from pipeline.ingest.text import count, ingest
from pipeline.session import PipelineError
from tests.pipeline.conftest import NOON

DAY = date(2026, 11, 16)


def some_lines(junk: bool = True) -> list[bytes]:
    """Twenty minutes of the feed, over an hour's end, with lines that are not messages in between."""
    lines = [line.text.encode() for line in Feed().lines(NOON - 600, NOON + 600)]
    if junk:
        for place in (700, 300, 40):
            lines.insert(place, b"*** link %d down ***" % place)
        lines[100] = lines[100][:24] + b" nonsense"
    return lines


LINES = some_lines()


def content(archive: Path, dataset: str = "packets") -> list[tuple]:
    """Every row but for what a quarantined line's place in its file says."""
    columns = ["an", "time", "type", "facility", "flight", "sequence", "raw", "xml", "crc"]
    columns = columns if dataset == "packets" else ["raw", "reason", "detail"]
    rows = []
    for file in Archive(archive).manifest().select(dataset):
        table = pq.read_table(Archive(archive).path / file.path, columns=columns, partitioning=None)
        rows += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return sorted(rows, key=repr)


def write(path: Path, lines: list[bytes], moment: float | None = None) -> str:
    path.write_bytes(b"".join(line + b"\r\n" for line in lines))
    if moment is not None:
        os.utime(path, (moment, moment))
    return str(path)


class Rows:
    """Packets and quarantine; hypothesis would print all of a list."""

    def __init__(self, archive: Path) -> None:
        self.both = (content(archive), content(archive, "quarantine"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Rows:
    folder = tmp_path_factory.mktemp("reference")
    ingest(None, [write(folder / "asdi-2026-11-16.txt", LINES)], folder / "a")
    return Rows(folder / "a")


pieces = st.lists(st.integers(0, len(LINES)), max_size=4).map(lambda cuts: sorted({0, *cuts, len(LINES)}))


@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pieces, st.lists(st.tuples(st.integers(0, len(LINES)), st.integers(0, len(LINES))), max_size=3), st.booleans(),
    st.integers(0, 10**6), st.integers(20_000, 200_000),
)  # fmt: skip
def test_any_files_with_the_same_lines_are_the_same_rows(
    tmp_path_factory, reference, cuts, overlaps, together, seed, size
):
    """Split at any line, overlapped, renamed, in any order, in one job or several: the rows of the whole file."""
    folder = tmp_path_factory.mktemp("files")
    parts = [LINES[begin:end] for begin, end in pairwise(cuts)]
    parts += [LINES[min(pair) : max(pair)] for pair in overlaps]
    parts = [part for part in parts if part]
    chance = random.Random(seed)
    chance.shuffle(parts)
    files = [write(folder / f"{chance.randrange(10**6)}-{n}.txt", part) for n, part in enumerate(parts)]
    out = folder / "a"
    if together:
        ingest(None, files, out, day=DAY, chunk_bytes=size)
    else:
        for file in files:
            ingest(None, [file], out, day=DAY, chunk_bytes=size)
    assert (content(out), content(out, "quarantine")) == reference.both
    assert verify(None, Archive(out)).problems == []


def test_touched_renamed_grown_and_concatenated_files_add_nothing_that_is_there(tmp_path, reference):
    """132 packets for 66 lines; quarantine rows repeated; `verify` failed after ordinary use."""
    out, later = tmp_path / "a", 1_900_000_000.0
    half = len(LINES) // 2
    first = write(tmp_path / "asdi-2026-11-16.txt", LINES[:half])
    ingest(None, [first], out)
    os.utime(first, (later, later))
    os.rename(first, tmp_path / "other.txt")
    assert ingest(None, [str(tmp_path / "other.txt")], out).unchanged
    # Grown, without a date in its name, and touched years later: the archive knows its first line.
    done = ingest(None, [write(tmp_path / "other.txt", LINES, later)], out)
    assert done.repeated == half
    assert (content(out), content(out, "quarantine")) == reference.both
    # A part from the middle, alone, under yet another name and date; and everything twice in one file.
    assert ingest(None, [write(tmp_path / "part-2001-01-01", LINES[50:500], later)], out).repeated == 450
    assert ingest(None, [write(tmp_path / "twice", LINES + LINES, later)], out).repeated == 2 * len(LINES)
    assert (content(out), content(out, "quarantine")) == reference.both
    assert verify(None, Archive(out)).problems == []


def test_an_overlap_that_goes_back_over_a_jump_of_the_numbering(tmp_path, reference):
    """Lines of a part that began earlier than the one before it had ended were numbered 65,536 too high."""
    cuts, chance = [0, 848, 1351, 2507, 2618], random.Random(5910)
    parts = [LINES[begin:end] for begin, end in pairwise(cuts)]
    parts += [LINES[196:212], LINES[66:154], LINES[1024:1862]]
    chance.shuffle(parts)
    whole = write(tmp_path / "one", [line for part in parts for line in part])
    files = [write(tmp_path / f"{number}", part) for number, part in enumerate(parts)]
    for name, inputs in (("a", [whole]), ("b", files)):
        ingest(None, inputs, tmp_path / name, day=DAY)
        assert content(tmp_path / name) == reference.both[0]


def test_files_alone_and_their_folder_are_the_same(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(4):
        write(raw / f"{number}.txt", LINES[number * 300 : number * 300 + 300])
    for path in sorted(raw.iterdir()):
        ingest(None, [str(path)], tmp_path / "alone", day=DAY)
    ingest(None, [str(raw)], tmp_path / "folder", day=DAY)
    assert content(tmp_path / "alone") == content(tmp_path / "folder")
    again = ingest(None, [str(raw / "2.txt")], tmp_path / "folder", day=DAY)
    assert again.repeated == 300


def test_numbers_are_those_of_a_root(tmp_path):
    """And a root that replays the archive sees no gap where the numbering jumped ahead."""
    lines = some_lines(junk=False)
    ingest(None, [write(tmp_path / "f", lines)], tmp_path / "a", day=DAY, chunk_bytes=10_000)
    sequencer = AsdiSequencer(DAY, waits=False)
    live = [sequencer.number(line) for line in lines]
    assert [(row[0], row[7]) for row in content(tmp_path / "a")] == [(packet.an, packet.payload) for packet in live]
    assert any(b.an > a.an + 1 for a, b in pairwise(live))
    replayed = list(archive_packets(str(tmp_path / "a")))
    assert [packet[:4] for packet in replayed] == [packet[:4] for packet in live]
    assert all(packet.contiguous for packet in replayed)


def test_two_lines_under_one_number_are_kept_apart(tmp_path):
    """One is the packet; the other is in the quarantine, once, whichever way the two come."""
    lines = some_lines(junk=False)[:50]
    other = lines[20][:18] + b" UAL9 450 350 4100N/07300W"
    out = tmp_path / "a"
    ingest(None, [write(tmp_path / "both", [*lines[:30], other, *lines[30:]])], out, day=DAY)
    assert [(row[0], row[1]) for row in content(out, "quarantine")] == [(other.decode(), SAME_NUMBER)]
    ingest(None, [write(tmp_path / "again", [other])], out, day=DAY)
    assert len(content(out)) == 50
    assert len(content(out, "quarantine")) == 1
    assert verify(None, Archive(out)).problems == []


def test_late_lines_have_their_own_numbers_and_files_stay_in_order(tmp_path):
    lines = some_lines(junk=False)
    shuffled = lines[:]
    chance = random.Random(5)
    for at in range(0, len(shuffled) - 20, 20):  # none is late by more than its tick
        part = shuffled[at + 1 : at + 6]
        chance.shuffle(part)
        shuffled[at + 1 : at + 6] = part
    ingest(None, [write(tmp_path / "in", lines)], tmp_path / "a", day=DAY)
    ingest(None, [write(tmp_path / "late", shuffled)], tmp_path / "b", day=DAY, chunk_bytes=10_000)
    assert {row[6] for row in content(tmp_path / "a")} == {row[6] for row in content(tmp_path / "b")}
    assert verify(None, Archive(tmp_path / "b")).problems == []


def test_raw_is_every_byte_of_the_line(tmp_path):
    line = b"153016120000CCZVTZ UAL1021 512 290 4928N/12003W \xe9\x07 "
    (tmp_path / "f").write_bytes(line + b"\r\n")
    ingest(None, [str(tmp_path / "f")], tmp_path / "a", day=DAY)
    assert [row[6].encode("latin-1") for row in content(tmp_path / "a")] == [line]


def test_a_feed_too_fast_for_its_numbers_is_refused(tmp_path):
    lines = [b"%04X1612%02d%02dKZBWTZ UAL%d 450 350 4100N/07300W" % (n & 0xFFFF, n // 400 // 60, n // 400 % 60, n % 999)
             for n in range(400 * 70)]  # fmt: skip
    with pytest.raises(PipelineError, match="count the lines with --first-an"):
        ingest(None, [write(tmp_path / "f", lines)], tmp_path / "a", day=DAY)
    assert ingest(None, [str(tmp_path / "f")], tmp_path / "a", day=DAY, first_an=0).packets == len(lines)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3000), st.integers(0, 200))
def test_where_a_piece_begins_is_what_one_pass_would_say(tmp_path_factory, size, seed):
    """The driver knows from the ends of the pieces alone; pieces may be less than a tick or many."""
    chance = random.Random(seed)
    lines, number, time = [], chance.randrange(1 << 16), NOON
    for _ in range(400):
        number += chance.choice([1, 1, 1, 2, 30, 900])
        time += chance.choice([0, 0, 1, 3, 20, 150])
        second = time % 86_400
        lines.append(b"%04X16%02d%02d%02dKZBWTZ UAL1 450 350 4100N/07300W" % (
            number & 0xFFFF, second // 3600, second // 60 % 60, second % 60))  # fmt: skip
    path = tmp_path_factory.mktemp("f") / "f"
    text = b"".join(line + b"\n" for line in lines)
    path.write_bytes(text)
    chunks = [Chunk(str(path), at, min(at + size, len(text)), 0) for at in range(0, len(text), size)]
    begins, _ = begin_all(chunks, [count(chunk) for chunk in chunks], [DAY], None)
    expected, numbers = {}, Unwrapper(at_rest=True)
    for at, line in enumerate(lines):
        expected[at] = numbers.position if at else None
        numbers.number(
            int(line[:4], 16), NOON - 43_200 + int(line[6:8]) * 3600 + int(line[8:10]) * 60 + int(line[10:12])
        )
    for begin in begins:
        if begin.line < len(lines) and (wanted := expected[begin.line]) is not None:
            given = begin.position
            assert given.an == wanted.an
            assert given.time == wanted.time
