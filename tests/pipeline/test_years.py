"""An archive that a recorder writes to for years: what a commit costs, what files there are, who may still read."""

from __future__ import annotations

import functools
import itertools
import json
import time
from datetime import date

import pytest

from asdi.flights import Feed
from pipeline.archive import books
from pipeline.archive.books import DataFile, Job, Manifest, advance
from pipeline.archive.jobs import compact, compact_recent, retain, verify
from pipeline.archive.manifest import Archive, ArchiveError
from pipeline.archive.packet import packet_row
from pipeline.archive.parts import PartWriter, partition_of
from pipeline.ingest.text import ingest
from pipeline.replay import iterate
from pipeline.tables.write import TableWriter
from tests.pipeline.conftest import NOON
from tests.pipeline.test_archive import write

HOURS = 8_334  # 3 million batches of ten seconds
PACKETS = list(Feed().packets(NOON, NOON + 20))
DATASETS = ("packets", "positions", "plans", "departures", "arrivals", "flights")


def hour_file(dataset: str, hour: int, name: str = "x") -> DataFile:
    place = partition_of(dataset, "asdi", NOON + hour * 3600).directory
    us = (NOON + hour * 3600) * 1_000_000
    return DataFile(f"{place}/{name}.parquet", 7_200, 500_000, hour * 7200, hour * 7200 + 7199, us, us + 3_599_000_000)


@functools.cache
def old_books() -> dict[str, str]:
    """The books after three million batches: every hour compacted, but for the last with 60 files of each table."""
    written: dict[str, tuple[DataFile, ...]] = {}
    numbers = itertools.count()
    manifest = Manifest(load=lambda part: written[part.name])
    for hour in range(HOURS + 1):
        names = ["x"] if hour < HOURS else [f"{n:03d}" for n in range(60)]
        job = Job("recorder", "record", "asdi", 0, -1, False, batch=hour * 360)
        added = [hour_file(dataset, hour, name) for dataset in DATASETS for name in names]
        change = advance(manifest, job, added, now=0.0, new_name=lambda: f"part-{next(numbers)}.json")
        written.update(change.written)
        manifest = change.manifest
    texts = {name: books.encode_part(files) for name, files in written.items()}
    return texts | {f"{manifest.version:020d}.json": books.encode(manifest, 2)}


def aged(archive: Archive) -> None:
    folder = archive.path / "_manifest"
    folder.mkdir(parents=True)
    for name, text in old_books().items():
        (folder / name).write_text(text)


def commit_batch(archive: Archive, number: int) -> float:
    """One batch of a recorder; the CPU seconds of the commit."""
    with archive.staging("record") as staging:
        writer = PartWriter(staging, "record")
        us = (NOON + number) * 1_000_000
        rows = [packet_row(number * 1000 + n, us, packet.payload) for n, packet in enumerate(PACKETS)]
        tables = TableWriter(staging, "record", "asdi")
        writer.write(partition_of("packets", "asdi", NOON + number), list(zip(*rows, strict=True)))
        for row in rows:
            tables.add_packet(row)
        files = [*writer.finish(), *tables.finish()]
        job = Job("recorder", "record", "asdi", 0, -1, False, batch=number)
        begun = time.process_time()
        archive.commit(job, [(staging / file.path, file) for file in files])
        return time.process_time() - begun


def test_a_commit_after_three_million_batches(tmp_path):
    """It cost 6.8 s of CPU after 30 days. A ratio, not a time: `python -m bench pipeline` prints the seconds."""
    old, new = Archive(tmp_path / "old"), Archive(tmp_path / "new")
    aged(old)
    head = max((old.path / "_manifest").glob("0*.json"))
    assert head.stat().st_size < 1_000_000
    content = json.loads(head.read_text())
    assert sum(part[1] for part in content["parts"]) + len(content["files"]) == (HOURS + 60) * len(DATASETS)
    assert len(content["files"]) < 2 * books.SEAL_AT
    loaded = []
    old._load = lambda part: loaded.append(part) or ()  # a commit reads no part
    commit_batch(old, HOURS * 360 + 1)
    commit_batch(new, 1)
    assert loaded == []
    assert old.manifest().batches == {"recorder": HOURS * 360 + 1}


def test_files_of_all_parts_are_in_the_archive(tmp_path):
    archive = Archive(tmp_path)
    aged(archive)
    manifest = archive.manifest()
    assert len(manifest.files) == (HOURS + 60) * len(DATASETS)
    us = (NOON + 100 * 3600) * 1_000_000
    assert [file.path for file in manifest.select(from_us=us, to_us=us + 1)] == [hour_file("packets", 100).path]
    assert len(retain_names(archive, date(2026, 12, 1))) > 1_000


def retain_names(archive: Archive, before: date) -> set[str]:
    """Retention reaches into the parts; what it takes out is kept for a while."""
    count = len(archive.manifest().files)
    gone = retain(archive, before)
    manifest = archive.manifest()
    assert len(manifest.files) == count - gone
    assert min(file.part("date") for file in manifest.files) == before.isoformat()
    return {each.path for each in manifest.retired if not each.path.startswith("_manifest")}


def test_a_recorder_keeps_few_files(tmp_path):
    archive = Archive(tmp_path)
    for number in range(40):
        commit_batch(archive, number)
        compact_recent(archive, most=8)
        assert all(len(archive.manifest().select(dataset)) <= 9 for dataset in DATASETS)
    for number in (3_600, 3_601):  # the next hour
        commit_batch(archive, number)
    compact_recent(archive, most=8)
    by_hour = {file.part("hour"): 0 for file in archive.manifest().select()}
    for file in archive.manifest().select():
        by_hour[file.part("hour")] += 1
    assert by_hour == {"12": 1, "13": 2}
    assert verify(None, archive).problems == []
    assert archive.manifest().jobs != ()
    assert archive.manifest().batches == {"recorder": 3_601}


def test_readers_in_flight_survive_compact_and_retain(tmp_path):
    lines = tmp_path / "f"
    lines.write_text("".join(f"{line.text}\n" for line in Feed().lines(NOON, NOON + 7200)))
    archive = Archive(tmp_path / "a")
    ingest(None, [str(lines)], archive.path, day=date(2026, 11, 16), chunk_bytes=60_000)
    expected = [packet.an for packet in iterate(archive.path)]
    reader = iterate(archive.path)
    first = next(reader)
    assert compact(None, archive) > 0
    assert retain(archive, date(2026, 11, 17)) > 0
    assert [first.an, *(packet.an for packet in reader)] == expected
    assert list(iterate(archive.path)) == []
    # Once the grace period is over, the next commit deletes them.
    archive.grace_seconds = 0
    write(archive, "k", 0, 1)
    names = {file.path for file in archive.manifest().files}
    assert {str(path.relative_to(archive.path)) for path in (archive.path / "packets").rglob("*.parquet")} == names
    assert archive.manifest().retired == ()


def test_an_archive_of_format_1_goes_on(tmp_path):
    archive = Archive(tmp_path)
    write(archive, "a", 0, 5)
    path = max((tmp_path / "_manifest").glob("0*.json"))
    content = json.loads(path.read_text())
    names = ["path", "rows", "size", "first_an", "last_an", "first_us", "last_us"]
    jobs = [{key: value for key, value in job.items() if key != "batch"} for job in content["jobs"]]
    old = {
        "format": 1, "version": 1, "files": [dict(zip(names, file, strict=True)) for file in content["files"]],
        "jobs": jobs, "retained_from": {},
    }  # fmt: skip
    path.write_text(json.dumps(old))
    assert archive.manifest().done("a") is not None
    write(archive, "b", 5, 5)
    assert [packet.an for packet in iterate(tmp_path)] == list(range(10))
    assert archive.manifest().whole == {"s": [[0, 9]]}


def test_a_part_that_is_gone_is_one_sentence(tmp_path):
    archive = Archive(tmp_path)
    aged(archive)
    next((tmp_path / "_manifest").glob("part-*.json")).unlink()
    with pytest.raises(ArchiveError, match=r"part-\d+\.json cannot be read: No such file"):
        _ = archive.manifest().files
