"""The archive's books, without Spark: a commit that dies at any step leaves what was there, or what is new."""

from __future__ import annotations

import contextlib
from datetime import date
from pathlib import Path

import pytest

from pipeline.archive import manifest as archive_module
from pipeline.archive.jobs import retain
from pipeline.archive.manifest import Archive, ArchiveError, DataFile, Job
from pipeline.archive.parts import PartWriter, partition_of, read_rows
from pipeline.archive.schema import checksum
from pipeline.replay import iterate
from tests.pipeline.dying import Died, dying_after

NOON = 1_794_830_400


def rows(first: int, count: int, time: int = NOON):
    ans = list(range(first, first + count))
    xml = [b"<p>%d</p>" % an for an in ans]
    crc = [checksum(an, payload) for an, payload in zip(ans, xml, strict=True)]
    nothing = [None] * count
    return [ans, [time * 1_000_000] * count, ["TZ"] * count, nothing, nothing, nothing, nothing, xml, nothing, crc]


def write(archive: Archive, key: str, first: int, count: int, *, replaced=frozenset(), time: int = NOON):
    with archive.staging("test") as staging:
        writer = PartWriter(staging, key)
        writer.write(partition_of("packets", "s", time), rows(first, count, time))
        files = writer.finish()
        job = Job(key, "test", "s", first, first + count - 1, True)
        return archive.commit(job, [(staging / file.path, file) for file in files], replaced=replaced)


def ans(archive: Archive) -> list[int]:
    return [packet.an for packet in iterate(archive.path)]


def test_commit_and_read(tmp_path):
    archive = Archive(tmp_path)
    assert not archive.exists()
    with pytest.raises(ArchiveError, match="is not an archive"):
        archive.require()
    manifest = write(archive, "a", 0, 5)
    assert (manifest.version, manifest.files[0].rows, manifest.files[0].last_an) == (1, 5, 4)
    assert write(archive, "b", 5, 5).version == 2
    assert ans(archive) == list(range(10))
    assert not any((tmp_path / "_staging").iterdir())


def test_a_key_is_taken_once(tmp_path):
    archive = Archive(tmp_path)
    write(archive, "a", 0, 5)
    assert write(archive, "a", 0, 5).version == 1
    assert ans(archive) == list(range(5))


def test_interleaved_files_are_replayed_in_order(tmp_path):
    archive = Archive(tmp_path)
    for key, numbers in (("a", [0, 2, 4, 6]), ("b", [1, 3, 5]), ("c", [8, 9])):
        with archive.staging("test") as staging:
            writer = PartWriter(staging, key)
            for number in numbers:
                writer.write(partition_of("packets", "s", NOON), rows(number, 1))
            staged = [(staging / file.path, file) for file in writer.finish()]
            archive.commit(Job(key, "test", "s", 0, 9, False), staged)
    assert ans(archive) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def on_disk(archive: Archive) -> set[str]:
    return {str(path.relative_to(archive.path)) for path in (archive.path / "packets").rglob("*.parquet")}


STEPS = ["_sync", "rename", "_publish", "unlink"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", range(4))
def test_a_commit_that_dies_is_whole_or_not_there(tmp_path, monkeypatch, step, after):
    """Die at the n-th call of each step of a commit that replaces a file; then look, and do it again."""
    archive = Archive(tmp_path)
    first = write(archive, "a", 0, 5)
    replaced = frozenset(file.path for file in first.files)
    dying = dying_after(after)

    with monkeypatch.context() as patch:
        owner = {"_sync": archive_module, "_publish": Archive}.get(step, Path)
        # Staging is cleaned up by Python's rmtree in a living process; a dead one leaves it, so it is left here, too.
        patch.setattr(archive_module.shutil, "rmtree", lambda *args, **options: None)
        patch.setattr(owner, step, dying(getattr(owner, step)))
        with contextlib.suppress(Died):
            write(archive, "b", 0, 10, replaced=replaced)
    assert ans(archive) in (list(range(5)), list(range(10)))
    # The next job does the work, or finds it done, and sweeps what the dead one left.
    current = archive.manifest()
    if current.done("b") is None:
        write(archive, "b", 0, 10, replaced=replaced)
    write(archive, "c", 10, 1)
    assert ans(archive) == list(range(11))
    assert on_disk(archive) == {file.path for file in archive.manifest().files} | set(replaced)  # for its readers
    archive.grace_seconds = 0
    write(archive, "d", 11, 1)
    assert on_disk(archive) == {file.path for file in archive.manifest().files}
    assert not (tmp_path / "_manifest" / "intent").exists()
    assert not any((tmp_path / "_staging").iterdir())


def test_a_living_job_is_not_swept(tmp_path):
    archive = Archive(tmp_path)
    with archive.staging("one") as one:
        (one / "file").write_text("x")
        with archive.staging("two"):
            assert (one / "file").exists()


def test_a_file_that_another_job_replaced(tmp_path):
    archive = Archive(tmp_path)
    write(archive, "a", 0, 5)
    with pytest.raises(ArchiveError, match="another job changed"):
        write(archive, "b", 0, 5, replaced=frozenset(["packets/stream=s/date=x/hour=1/gone.parquet"]))


def test_another_format_is_refused(tmp_path):
    (tmp_path / "_manifest").mkdir()
    (tmp_path / "_manifest" / "00000000000000000001.json").write_text('{"format": 99}')
    with pytest.raises(ArchiveError, match="format 99"):
        Archive(tmp_path).manifest()


def test_retain(tmp_path):
    archive = Archive(tmp_path)
    write(archive, "a", 0, 5)
    write(archive, "b", 5, 5, time=NOON + 86400)
    assert retain(archive, date(2026, 11, 17)) == 1
    assert archive.manifest().retained_from == {"s": 5}
    assert ans(archive) == list(range(5, 10))
    assert retain(archive, date(2026, 11, 17)) == 0


def test_old_manifests_go(tmp_path):
    archive = Archive(tmp_path)
    for number in range(15):
        write(archive, str(number), number, 1)
    assert len(list((tmp_path / "_manifest").glob("*.json"))) == 10


def test_many_hours_at_once_are_bounded(tmp_path):
    writer = PartWriter(tmp_path, "x")
    for hour in range(100):
        writer.write(partition_of("packets", "s", NOON + hour * 3600), rows(hour, 1, NOON + hour * 3600))
        assert len(writer._open) <= 64
    files = writer.finish()
    assert len(files) == 100
    assert sorted(file.first_an for file in files) == list(range(100))
    batch = next(iter(read_rows([tmp_path / files[0].path], ["an", "xml"])))
    assert batch.num_rows == 1
    assert isinstance(files[0], DataFile)
