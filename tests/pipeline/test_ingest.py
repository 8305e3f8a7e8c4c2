"""Raw text to archive: the same packets for any cut, nothing lost, nothing twice."""

from __future__ import annotations

import gzip
import shutil
from datetime import UTC, date, datetime

import pytest

import asdi
from asdi.flights import Feed
from pipeline.archive.jobs import compact, read, retain, verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.text import ingest
from pipeline.session import PipelineError
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import SHARED

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
    assert [row.an - stored[0].an for row in stored] == list(range(len(live)))
    assert [bytes(row.xml) for row in stored] == [asdi.to_xml(asdi.parse(row.raw)) for row in stored]
    assert {row.date for row in stored} == {"2026-11-30", "2026-12-01"}


def test_the_given_first_an_makes_numbers_equal_too(spark, raw_hours, tmp_path):
    first = Feed().first_an(1_796_083_200 - 3600)
    done = ingest(spark, [str(raw_hours)], tmp_path / "a", first_an=first)
    live = [packet.an for packet in Feed().packets(1_796_083_200 - 3600, 1_796_083_200 + 3600)]
    assert [row[0] for row in rows(spark, tmp_path / "a")] == live
    assert (done.first_an, done.last_an) == (live[0], live[-1])


def test_any_number_of_pieces_gives_the_same(spark, raw_hours, archive_path, tmp_path):
    expected = rows(spark, archive_path)
    ingest(spark, [str(raw_hours)], tmp_path / "whole", chunk_bytes=1 << 30)
    assert rows(spark, tmp_path / "whole") == expected
    ingest(spark, [str(raw_hours)], tmp_path / "many", chunk_bytes=90_001)
    assert rows(spark, tmp_path / "many") == expected
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in raw_hours.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    ingest(spark, [str(packed)], tmp_path / "gz")
    assert rows(spark, tmp_path / "gz") == expected


def test_golden_lines_and_garbage(spark, tmp_path):
    """All types through the pipeline, byte-equal; what is no message is in the quarantine with all that is needed."""
    raw = tmp_path / "feed.txt"
    bad = ["hello, world", "153014022245CCZVQQ UAL1021", "153014022245CCZVTZ UAL1021 512 290"]
    lines = [*GOLDEN, "", bad[0], bad[1], "  ", bad[2]]
    raw.write_text("\r\n".join(lines) + "\r\n")
    done = ingest(spark, [str(raw)], tmp_path / "a", day=date(2001, 1, 31), first_an=1000)
    assert done.packets == len(GOLDEN)
    assert done.quarantined == {"no-header": 1, "unknown-type": 1, "bad-body": 1}
    assert done.blank == 2
    stored = {row.raw: bytes(row.xml).decode() for row in read(spark, Archive(tmp_path / "a")).collect()}
    assert stored == GOLDEN
    refused = read(spark, Archive(tmp_path / "a"), dataset="quarantine").orderBy("an").collect()
    assert [(row.raw.strip(), row.line, row.reason) for row in refused] == [
        (bad[0], len(GOLDEN) + 2, "no-header"),
        (bad[1], len(GOLDEN) + 3, "unknown-type"),
        (bad[2], len(GOLDEN) + 5, "bad-body"),
    ]
    assert all(row.file == str(raw) for row in refused)
    found = verify(spark, Archive(tmp_path / "a"))
    assert (found.problems, found.quarantined, found.missing) == ([], 3, 0)


@pytest.mark.skipif(not SHARED.exists(), reason="the real lines are not on this machine")
def test_real_lines_leave_the_quarantine_empty(spark, tmp_path):
    files = sorted((SHARED / "asdi").glob("*.txt"))
    done = ingest(spark, [str(path) for path in files], tmp_path / "a", day=date(2001, 1, 14))
    assert done.quarantined == {}
    lines = [line for path in files for line in path.read_bytes().splitlines() if line.strip()]
    assert done.packets == len(lines) > 0
    stored = read(spark, Archive(tmp_path / "a")).orderBy("an").collect()
    assert [bytes(row.xml) for row in stored] == [asdi.to_xml(asdi.parse(line)) for line in lines]


def test_the_same_input_twice_changes_nothing(spark, raw_hours, archive_path, tmp_path):
    shutil.copytree(archive_path, tmp_path / "a")
    before = Archive(tmp_path / "a").manifest()
    assert ingest(spark, [str(raw_hours)], tmp_path / "a", chunk_bytes=100_000).unchanged
    assert Archive(tmp_path / "a").manifest() == before


def test_an_input_that_overlaps_adds_only_what_is_new(spark, raw_hours, archive_path, tmp_path):
    first, second = sorted(raw_hours.iterdir())
    ingest(spark, [str(first)], tmp_path / "a")
    ingest(spark, [str(first), str(second)], tmp_path / "a")
    assert rows(spark, tmp_path / "a") == rows(spark, archive_path)
    assert verify(spark, Archive(tmp_path / "a")).problems == []


def test_other_content_under_the_same_numbers_is_refused(spark, raw_hours, tmp_path):
    first, second = sorted(raw_hours.iterdir())
    ingest(spark, [str(first)], tmp_path / "a", first_an=5)
    before = Archive(tmp_path / "a").manifest()
    with pytest.raises(PipelineError, match="in the archive with other content"):
        ingest(spark, [str(second)], tmp_path / "a", first_an=5)
    assert Archive(tmp_path / "a").manifest() == before


def test_verify_compact_retain(spark, archive_path, tmp_path):
    path = tmp_path / "a"
    shutil.copytree(archive_path, path)
    archive = Archive(path)
    expected = rows(spark, path)
    found = verify(spark, archive)
    assert (found.problems, found.packets, found.duplicates, found.missing) == ([], len(expected), 0, 0)
    assert compact(spark, archive) > 0
    assert len(archive.manifest().files) == 2
    assert len(list((path / "packets").rglob("*.parquet"))) == 2
    assert rows(spark, path) == expected
    assert verify(spark, archive).problems == []
    assert compact(spark, archive) == 0
    assert retain(archive, date(2026, 12, 1)) == 1
    assert rows(spark, path) == [row for row in expected if row[1] >= datetime(2026, 12, 1)]
    assert verify(spark, archive).problems == []
    assert len(list((path / "packets").rglob("*.parquet"))) == 1


def test_verify_tells_what_is_wrong(spark, archive_path, tmp_path):
    path = tmp_path / "a"
    shutil.copytree(archive_path, path)
    files = sorted((path / "packets").rglob("*.parquet"))
    files[0].unlink()
    shutil.copy(files[2], files[1])
    found = verify(spark, Archive(path))
    text = "\n".join(found.problems)
    assert "cannot be read" in text
    assert "appear twice" in text
    assert "are missing" in text


def test_time_ranges_read_only_what_they_need(spark, archive_path):
    archive = Archive(archive_path)
    midnight_us = 1_796_083_200_000_000
    later = read(spark, archive, from_us=midnight_us)
    assert {row.date for row in later.select("date").distinct().collect()} == {"2026-12-01"}
    assert later.count() + read(spark, archive, to_us=midnight_us).count() == read(spark, archive).count()
    assert len(archive.manifest().select(from_us=midnight_us)) < len(archive.manifest().files)
    assert read(spark, archive, stream="none").count() == 0
