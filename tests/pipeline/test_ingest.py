"""Raw text to archive: the same packets for any cut, nothing lost, nothing twice."""

from __future__ import annotations

import gzip
import random
import shutil
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

import pytest

import asdi
from asdi.flights import Feed
from pipeline.archive.jobs import compact, read, retain, verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.text import ingest
from pipeline.session import PipelineError
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import NOON, SHARED

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
]


def rows(spark, path, dataset="packets", **options):
    return sorted(tuple(row) for row in read(spark, Archive(path), dataset=dataset, **options).collect())


def test_packets_are_those_of_the_live_feed(spark, raw_hours, archive_path):
    """Byte for byte, time and order: the parser alone, the live feed and the archive are one."""
    midnight = 1_796_083_200
    live = list(Feed().packets(midnight - 3600, midnight + 3600))
    stored = read(spark, Archive(archive_path)).orderBy("an").collect()
    assert [bytes(row.xml) for row in stored] == [packet.payload for packet in live]
    assert [int(row.time.replace(tzinfo=UTC).timestamp()) for row in stored] == [packet.time for packet in live]
    assert [row.sequence for row in stored] == [packet.an % 65_536 for packet in live]
    assert [bytes(row.xml) for row in stored] == [asdi.to_xml(asdi.parse(row.raw)) for row in stored]
    assert {row.date for row in stored} == {"2026-11-30", "2026-12-01"}


def test_the_given_first_an_makes_numbers_equal_too(spark, raw_hours, tmp_path):
    first = Feed().first_an(1_796_083_200 - 3600)
    done = ingest(None, [str(raw_hours)], tmp_path / "a", first_an=first)
    live = [packet.an for packet in Feed().packets(1_796_083_200 - 3600, 1_796_083_200 + 3600)]
    assert [row[0] for row in rows(spark, tmp_path / "a")] == live
    assert (done.first_an, done.last_an) == (live[0], live[-1])


def test_any_number_of_pieces_gives_the_same(spark, raw_hours, archive_path, tmp_path):
    expected = rows(spark, archive_path)
    ingest(None, [str(raw_hours)], tmp_path / "whole", chunk_bytes=1 << 30)
    assert rows(spark, tmp_path / "whole") == expected
    ingest(None, [str(raw_hours)], tmp_path / "many", chunk_bytes=90_001)
    assert rows(spark, tmp_path / "many") == expected
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in raw_hours.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    ingest(None, [str(packed)], tmp_path / "gz")
    assert rows(spark, tmp_path / "gz") == expected


def test_golden_lines_and_garbage(spark, tmp_path):
    """All types through the pipeline, byte-equal; what is no message is in the quarantine with all that is needed."""
    raw = tmp_path / "feed.txt"
    bad = ["hello, world", "153014022245CCZVQQ UAL1021", "153014022245CCZVTZ UAL1021 512 290"]
    lines = [*GOLDEN, "", bad[0], bad[1], "  ", bad[2]]
    raw.write_text("\r\n".join(lines) + "\r\n")
    done = ingest(None, [str(raw)], tmp_path / "a", day=date(2001, 1, 31), first_an=1000)
    assert done.packets == len(GOLDEN)
    assert done.quarantined == {"no-header": 1, "unknown-type": 1, "bad-body": 1}
    assert done.blank == 2
    stored = {row.raw.rstrip(): bytes(row.xml).decode() for row in read(spark, Archive(tmp_path / "a")).collect()}
    assert stored == GOLDEN
    refused = read(spark, Archive(tmp_path / "a"), dataset="quarantine").orderBy("an").collect()
    assert [(row.raw.strip(), row.line, row.reason) for row in refused] == [
        (bad[0], len(GOLDEN) + 2, "no-header"),
        (bad[1], len(GOLDEN) + 3, "unknown-type"),
        (bad[2], len(GOLDEN) + 5, "bad-body"),
    ]
    assert all(row.file == str(raw) for row in refused)
    found = verify(None, Archive(tmp_path / "a"))
    assert (found.problems, found.quarantined, found.missing) == ([], 3, 0)


@pytest.mark.skipif(not SHARED.exists(), reason="the real lines are not on this machine")
def test_real_lines_leave_the_quarantine_empty(spark, tmp_path):
    files = sorted((SHARED / "asdi").glob("*.txt"))
    done = ingest(None, [str(path) for path in files], tmp_path / "a", day=date(2001, 1, 14))
    assert done.quarantined == {}
    lines = [line for path in files for line in path.read_bytes().splitlines() if line.strip()]
    assert done.packets == len(lines) > 0
    stored = read(spark, Archive(tmp_path / "a")).orderBy("an").collect()
    assert {bytes(row.xml) for row in stored} == {asdi.to_xml(asdi.parse(line)) for line in lines}
    assert [row.time for row in stored] == sorted(row.time for row in stored)


def test_other_content_under_the_same_numbers_is_refused(spark, raw_hours, tmp_path):
    first, second = sorted(raw_hours.iterdir())
    ingest(None, [str(first)], tmp_path / "a", first_an=5)
    before = Archive(tmp_path / "a").manifest()
    with pytest.raises(PipelineError, match="in the archive with other content"):
        ingest(None, [str(second)], tmp_path / "a", first_an=5)
    assert Archive(tmp_path / "a").manifest() == before


def test_verify_compact_retain(spark, archive_path, tmp_path):
    path = tmp_path / "a"
    shutil.copytree(archive_path, path)
    archive = Archive(path)
    expected = rows(spark, path)
    found = verify(None, archive)
    assert (found.problems, found.packets, found.duplicates, found.missing) == ([], len(expected), 0, 0)
    assert compact(None, archive) > 0
    assert len(archive.manifest().select()) == 2
    assert rows(spark, path) == expected
    assert verify(None, archive).problems == []
    assert compact(None, archive) == 0
    assert retain(archive, date(2026, 12, 1)) > 1
    assert rows(spark, path) == [row for row in expected if row[1] >= datetime(2026, 12, 1)]
    assert verify(None, archive).problems == []


def test_verify_tells_what_is_wrong(spark, archive_path, tmp_path):
    path = tmp_path / "a"
    shutil.copytree(archive_path, path)
    files = sorted((path / "packets").rglob("*.parquet"))
    files[0].unlink()
    shutil.copy(files[2], files[1])
    found = verify(None, Archive(path))
    text = "\n".join(found.problems)
    assert "cannot be read" in text
    assert "appear twice" in text


def test_verify_tells_what_is_missing_of_lines_that_were_counted(raw_hours, tmp_path):
    ingest(None, [str(raw_hours)], tmp_path / "a", first_an=0, chunk_bytes=100_000)
    archive = Archive(tmp_path / "a")
    assert verify(None, archive).problems == []
    (archive.path / archive.manifest().select()[1].path).unlink()
    assert any("are missing" in problem for problem in verify(None, archive).problems)


def test_time_ranges_read_only_what_they_need(spark, archive_path):
    archive = Archive(archive_path)
    midnight_us = 1_796_083_200_000_000
    later = read(spark, archive, from_us=midnight_us)
    assert {row.date for row in later.select("date").distinct().collect()} == {"2026-12-01"}
    assert later.count() + read(spark, archive, to_us=midnight_us).count() == read(spark, archive).count()
    assert len(archive.manifest().select(from_us=midnight_us)) < len(archive.manifest().files)
    assert read(spark, archive, stream="none").count() == 0


def test_every_line_of_a_broken_corpus_is_accounted_for(spark, tmp_path):
    """Lines are packets, quarantined or blank, whatever the file is; one that breaks off is quarantined.

    So is one of a kind that is not read: a UTF-16 file ended the whole job, with `--bad-files quarantine` too.
    """
    good = [line.text.encode() for line in islice(Feed().lines(NOON, NOON + 600), 40)]
    raw = tmp_path / "raw"
    (raw / "below").mkdir(parents=True)
    contents = {
        "binary": random.Random(1).randbytes(5_000).replace(b"\r", b"x") + b"\n",
        "nul": b"\0" * 3_000 + b"\n" + good[0] + b"\n",
        "crlf": b"\r\n".join(good[1:4]) + b"\r\n\r\n",
        "cr": b"\r".join(good[4:7]) + b"\r",
        "long": b"x" * (40 << 20) + b"\n" + good[7],
        "utf-16": b"\n".join(good[30:33]).decode().encode("utf-16"),
        "packed.zip": b"PK\x03\x04" + bytes(200),
        "blank": b"\n \n\t\n",
        "below/deep": b"\n".join(good[8:12]),
        "packed.gz": gzip.compress(b"\n".join(good[12:20])),
        "cut.gz": gzip.compress(b"\n".join(good[20:30]) * 200)[:-300],
        "cut-late.gz": gzip.compress(random.Random(2).randbytes(300_000).hex().encode() + b"\n" * 5_000)[:-8],
    }
    for name, content in contents.items():
        (raw / name).write_bytes(content)
    for name, said in (("cut.gz", r"cannot read .*cut\.gz"), ("utf-16", "is UTF-16"), ("packed.zip", "zip file")):
        with pytest.raises(PipelineError, match=said):
            ingest(None, [str(raw / name)], tmp_path / "a", day=date(2026, 11, 16))
    done = ingest(None, [str(raw)], tmp_path / "a", day=date(2026, 11, 16), keep_bad_files=True)
    found = {str(Path(each.path).relative_to(raw)): each for each in done.inputs}
    assert set(found) == set(contents)
    for each in found.values():
        assert each.lines == each.packets + each.quarantined + each.blank + each.skipped
        assert each.bytes == len(contents[str(Path(each.path).relative_to(raw))])
    assert {name: each.packets for name, each in found.items() if each.packets} == {
        "nul": 1, "crlf": 3, "cr": 3, "long": 1, "below/deep": 4, "packed.gz": 8,
    }  # fmt: skip
    for name, skipped in (("cut.gz", 756), ("cut-late.gz", 5_000), ("utf-16", 0), ("packed.zip", 0)):
        assert (found[name].quarantined, found[name].skipped) == (1, skipped), name
    assert found["blank"].blank == found["blank"].lines == 3
    assert done.quarantined["unreadable"] == 4
    assert 0 < done.bad_share < 1
    archive = Archive(tmp_path / "a")
    assert read(spark, archive).count() == done.packets == 20
    assert verify(None, archive).problems == []


def test_a_thousand_small_files_become_one_file_an_hour(spark, tmp_path):
    """They took a task and a Parquet file each, and 111 s."""
    lines = [line.text for line in islice(Feed().lines(NOON, NOON + 3_000), 600)]
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(300):
        (raw / f"{number:03}").write_text("\n".join(lines[2 * number : 2 * number + 2]))
    done = ingest(None, [str(raw)], tmp_path / "a", day=date(2026, 11, 16))
    assert done.packets == 600
    assert done.files == 1
    assert len(done.inputs) == 300
