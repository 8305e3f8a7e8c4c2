"""Writing, reading and the bounds of a packet log."""

from __future__ import annotations

import contextlib
import errno
import os

import pytest

from peer.packetlog import (
    Gap,
    LogConfig,
    LogFull,
    LogLocked,
    LogTruncated,
    Packet,
    PacketLogError,
    Reader,
    Writer,
)
from peer.packetlog import files as packetlog_files
from peer.packetlog import format as packetlog_format
from peer.packetlog.format import encode_record
from tests.peer.packetlog.logs import EAGER, SMALL, content, packets


# --- writing and reading ---
def test_append_and_read(tmp_path):
    written = [*packets(10, 3), Gap(12, 20, 5), *packets(21, 2)]
    with Writer(tmp_path) as writer:
        assert writer.append(written) == 6
        assert (writer.position, writer.last_an) == (6, 22)
    assert content(tmp_path) == written
    assert Reader(tmp_path).read(2, limit=2) == [(2, written[2]), (3, written[3])]
    assert Reader(tmp_path).verify() == {"segments": 1, "records": 6, "packets": 5, "gaps": 1, "payload_bytes": 50}


def test_each_an_is_taken_once_and_in_order(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append(packets(5, 3))
        assert writer.append([*packets(4, 5), Gap(3, 8, 0), Gap(6, 10, 0)]) == 2
        assert writer.duplicates == 5
    # What of a gap was there already is not claimed to be missing.
    assert content(tmp_path) == [*packets(5, 4), Gap(8, 10, 0)]


def test_resumes_where_it_was(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append(packets(5, 3))
    with Writer(tmp_path) as writer:
        assert (writer.position, writer.last_an, writer.repair) == (3, 7, None)
        writer.append(packets(6, 4))
        assert writer.duplicates == 2
    assert content(tmp_path) == packets(5, 5)


def test_rotates_and_finds(tmp_path):
    with Writer(tmp_path, SMALL) as writer:
        writer.append(packets(100, 50))
        writer.append(packets(150, 50))
    segments = packetlog_files.list_segments(tmp_path)
    assert len(segments) > 5
    assert all(segment.path.stat().st_size <= 400 for segment in segments)
    assert content(tmp_path) == packets(100, 100)
    for with_index in (True, False):
        if not with_index:
            for path in tmp_path.glob("*.idx"):
                path.unlink()
        reader = Reader(tmp_path)
        for an in [0, 100, 101, 137, 150, 199]:
            assert reader.find_an(an) == max(0, an - 100)
            assert reader.find_time(an * 1_000_000) == max(0, an - 100)
        assert reader.find_an(200) == 100
        assert reader.read(77, limit=1) == [(77, packets(177, 1)[0])]


def test_a_damaged_index_is_not_believed(tmp_path):
    with Writer(tmp_path, SMALL) as writer:
        writer.append(packets(0, 30))
    for path in tmp_path.glob("*.idx"):
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert Reader(tmp_path).find_an(17) == 17


def test_only_one_writer(tmp_path):
    with Writer(tmp_path), pytest.raises(LogLocked, match=str(os.getpid())):
        Writer(tmp_path)
    Writer(tmp_path).close()


def test_readers_follow_a_writer(tmp_path):
    reader = Reader(tmp_path, durable=False)
    seen: list = []
    with Writer(tmp_path, SMALL) as writer:
        for start in range(0, 60, 3):
            writer.append(packets(start, 3))
            got = reader.read(len(seen), limit=2)
            seen += [entry for _, entry in got]
        seen += [entry for _, entry in reader.iterate(len(seen))]
    assert seen == packets(0, 60)


def test_durable_readers_see_what_is_synced(tmp_path):
    clock = [0.0]
    config = LogConfig(sync_bytes=10_000, sync_seconds=5)
    with Writer(tmp_path, config, clock=lambda: clock[0]) as writer:
        writer.append(packets(0, 3))
        assert content(tmp_path) == []
        assert content(tmp_path, durable=False) == packets(0, 3)
        clock[0] = 4.9
        writer.append(packets(3, 1))
        assert Reader(tmp_path).end_position() == 0
        clock[0] = 5.0
        writer.append(packets(4, 1))
        assert content(tmp_path) == packets(0, 5)
        writer.append(packets(5, 1, size=9_990))
        assert Reader(tmp_path).end_position() == 6
        writer.append(packets(6, 1))
        writer.sync()
        assert Reader(tmp_path).end_position() == 7


def test_sync_at_every_append(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(fd))
    with Writer(tmp_path, EAGER) as writer:
        synced.clear()
        writer.append(packets(0, 3))
        writer.append(packets(3, 3))
        assert len(synced) == 2


# --- bounds ---
def test_retention_by_size(tmp_path):
    config = LogConfig(max_segment_bytes=400, max_log_bytes=2_000)
    with Writer(tmp_path, config) as writer:
        writer.append(packets(0, 300))
        assert writer.removed_segments > 0
        assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 2_000
        first = writer.first_position
    assert content_from(tmp_path, first) == packets(first, 300 - first)
    with pytest.raises(LogTruncated) as caught:
        Reader(tmp_path).read(0)
    assert caught.value.first == first
    with Writer(tmp_path, config) as writer:
        assert (writer.position, writer.last_an, writer.first_position) == (300, 299, first)


def content_from(directory, position):
    return [entry for _, entry in Reader(directory).iterate(position)]


def test_retention_by_age(tmp_path):
    config = LogConfig(max_segment_bytes=400, max_age_seconds=20)
    with Writer(tmp_path, config) as writer:
        writer.append(packets(0, 100))
        assert writer.removed_segments > 0
        kept = content_from_first(tmp_path, writer)
    assert kept[0].an <= 80
    assert kept[0].an >= 60


def content_from_first(directory, writer):
    writer.sync()
    return content_from(directory, writer.first_position)


def test_the_last_an_survives_retention_of_everything_else(tmp_path):
    with Writer(tmp_path, LogConfig(max_segment_bytes=60, max_log_bytes=1)) as writer:
        writer.append(packets(0, 10))
    segment = packetlog_files.list_segments(tmp_path)[-1]
    os.truncate(segment.path, packetlog_format.SEGMENT_HEADER_BYTES)
    (tmp_path / packetlog_files.SYNCED).unlink()
    with Writer(tmp_path) as writer:
        assert writer.last_an == 8


def test_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    writer = Writer(tmp_path)
    writer.append(packets(0, 3))
    room = [40]
    real = os.write

    def write(descriptor, data):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = real(descriptor, bytes(data)[: room[0]])
        room[0] -= part
        return part

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(LogFull, match="No space left"):
        writer.append(packets(3, 5))
    monkeypatch.setattr(os, "write", real)
    assert (writer.position, writer.last_an) == (3, 2)
    writer.append(packets(3, 5))
    writer.close()
    assert content(tmp_path) == packets(0, 8)


def test_full_disk_at_rotation(tmp_path, monkeypatch):
    writer = Writer(tmp_path, SMALL)
    writer.append(packets(0, 10))
    real = os.write

    def write(descriptor, data):
        if len(data) == packetlog_format.SEGMENT_HEADER_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(LogFull):
        writer.append(packets(10, 10))
    monkeypatch.setattr(os, "write", real)
    writer.append(packets(writer.last_an + 1, 10))
    writer.close()
    assert content(tmp_path) == packets(0, len(content(tmp_path)))
    assert Reader(tmp_path).verify()["records"] == len(content(tmp_path))


@pytest.fixture
def failing(monkeypatch):
    """Make the n-th call of a function of `os` fail, once."""

    def fail(name: str, *, at: int = 1, code: int = errno.EIO) -> None:
        real = getattr(os, name)
        calls = [0]

        def call(*args, **options):
            calls[0] += 1
            if calls[0] == at:
                raise OSError(code, os.strerror(code))
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    return fail


def test_after_a_failed_fsync_closing_does_not_mark_lost_data_as_synced(tmp_path, failing):
    writer = Writer(tmp_path, LogConfig(sync_seconds=1e9))
    writer.append(packets(0, 3))
    writer.sync()
    writer.append(packets(3, 3))
    failing("fsync")
    with pytest.raises(PacketLogError, match="cannot sync"):
        writer.sync()
    for use in (writer.sync, lambda: writer.append(packets(6, 1))):
        with pytest.raises(PacketLogError, match="open the log again"):
            use()
    writer.close()
    writer.close()
    assert packetlog_files.read_mark(tmp_path) == 3
    assert content(tmp_path, durable=True) == packets(0, 3)


def test_what_a_failed_fsync_left_is_written_again_by_the_next_writer(tmp_path, failing, monkeypatch):
    writer = Writer(tmp_path, LogConfig(sync_seconds=1e9))
    writer.append(packets(0, 3))
    writer.sync()
    writer.append(packets(3, 3))
    failing("fsync")
    with pytest.raises(PacketLogError):
        writer.close()
    rewritten = []
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: rewritten.append(bytes(data)) or real(file, data, at))
    with Writer(tmp_path) as later:
        assert later.last_an == 5
        behind = b"".join(encode_record(number, entry) for number, entry in enumerate(packets(0, 6)) if number >= 3)
        assert behind in rewritten
        later.append(packets(6, 1))
    assert content(tmp_path, durable=True) == packets(0, 7)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("name", ["open", "write", "fsync", "pwrite", "unlink", "ftruncate"])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_disk_that_fails_at_any_step_loses_nothing_that_was_marked(tmp_path, failing, monkeypatch, name, at, code):
    """Whatever fails, and when: one typed error, no mark above what is there, and the next writer goes on."""
    config = LogConfig(max_segment_bytes=400, max_log_bytes=1_600, sync_bytes=100)
    real = getattr(os, name)
    written = 0
    with contextlib.suppress(PacketLogError):
        writer = Writer(tmp_path, config)
        failing(name, at=at, code=code)
        try:
            for first in range(0, 60, 3):
                writer.append(packets(first, 3))
                written = first + 3
        finally:
            with contextlib.suppress(PacketLogError):
                writer.close()
    monkeypatch.setattr(os, name, real)
    mark = packetlog_files.read_mark(tmp_path)
    with Writer(tmp_path, config) as later:
        assert later.position >= mark
        later.append(packets(later.last_an + 1, 3))
        assert later.last_an >= written - 1
    reader = Reader(tmp_path)
    entries = [entry for _, entry in reader.iterate(reader.first_position())]
    assert entries == packets(entries[0].an, len(entries))


def test_a_log_knows_its_stream_and_takes_no_other(tmp_path):
    with Writer(tmp_path, stream="asdi") as log:
        log.append([Packet(1, 5, b"<a/>")])
    assert Reader(tmp_path).stream == "asdi"
    with Writer(tmp_path, stream="asdi") as log:
        assert log.last_an == 1
    with pytest.raises(PacketLogError, match="holds packets of asdi: give runways a folder of its own"):
        Writer(tmp_path, stream="runways")
    with Writer(tmp_path):  # the failed one has left no lock behind
        pass
    (tmp_path / "STREAM").write_bytes(b"\x1b[2J" * 1_000)
    assert Reader(tmp_path).stream is None
