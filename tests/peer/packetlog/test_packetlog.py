"""The packet log: what goes in comes out, whatever the end of the writer was."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from peer.packetlog import (
    Gap,
    LogConfig,
    LogDamaged,
    LogFull,
    LogLocked,
    LogTruncated,
    Packet,
    PacketLogError,
    Reader,
    Writer,
    settle,
)
from peer.packetlog import files as packetlog_files
from peer.packetlog import format as packetlog_format
from peer.packetlog.format import Damage, decode_record_untrusted, encode_record, scan

SMALL = LogConfig(max_segment_bytes=400)
EAGER = LogConfig(sync_bytes=0)


def packets(first: int, count: int, size: int = 10) -> list[Packet]:
    return [Packet(an, 1_000_000 * an, bytes([an % 256]) * size) for an in range(first, first + count)]


def content(directory, **options) -> list:
    return [entry for _, entry in Reader(directory, **options).iterate()]


# --- format ---
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


# --- damage ---
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10_000))
def test_a_torn_tail_is_repaired_at_start(tmp_path, cut):
    directory = tmp_path / "log"
    shutil.rmtree(directory, ignore_errors=True)
    with Writer(directory) as writer:
        writer.append(packets(0, 20))
    path = packetlog_files.list_segments(directory)[0].path
    size = path.stat().st_size
    keep = cut % size
    os.truncate(path, keep)
    (directory / packetlog_files.SYNCED).unlink()  # as if nothing of it had been synced
    with Writer(directory) as writer:
        whole = writer.position
        assert (writer.repair is None) == (keep in boundaries())
        writer.append(packets(whole, 5))
    assert content(directory) == packets(0, whole + 5)
    Reader(directory).verify()


def boundaries() -> set[int]:
    record = len(encode_record(0, packets(0, 1)[0]))
    return {packetlog_format.SEGMENT_HEADER_BYTES + n * record for n in range(21)}


def test_garbage_behind_the_last_record_is_cut_off(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append(packets(0, 5))
    path = packetlog_files.list_segments(tmp_path)[0].path
    with path.open("ab") as file:
        file.write(bytes(1000))
    with Writer(tmp_path) as writer:
        assert writer.repair is not None
        assert writer.repair.bytes_dropped == 1000
        assert writer.position == 5


@pytest.mark.parametrize("at", [35 + 30, 35 + 5])  # in a payload; in a length, so that it points behind the end
def test_damage_in_what_was_synced_is_told_not_repaired(tmp_path, at):
    with Writer(tmp_path) as writer:
        writer.append(packets(0, 10))
    path = packetlog_files.list_segments(tmp_path)[0].path
    data = bytearray(path.read_bytes())
    data[packetlog_format.SEGMENT_HEADER_BYTES + at] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="at position 1, though records up to 10 had reached the disk"):
        Writer(tmp_path)
    with pytest.raises(LogDamaged, match="position 1"):
        Reader(tmp_path).verify()
    with pytest.raises(LogDamaged, match="position 1"):
        Reader(tmp_path).read(0)
    assert path.read_bytes() == bytes(data)


def test_a_log_shorter_than_what_was_synced_is_told(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append(packets(0, 10))
    path = packetlog_files.list_segments(tmp_path)[0].path
    os.truncate(path, packetlog_format.SEGMENT_HEADER_BYTES)
    with pytest.raises(LogDamaged, match="though records up to 10 had reached the disk"):
        Writer(tmp_path)


def test_no_log_is_one_sentence(tmp_path):
    with pytest.raises(PacketLogError, match="there is no packet log in"):
        Reader(tmp_path / "nothing", durable=False).read(0)


def kill(writer: Writer) -> None:
    """What the death of the process leaves: the kernel closes its files, and nothing is synced or marked."""
    os.close(writer._file)
    os.close(writer._lock)
    writer._file = writer._lock = -1


def test_the_tail_of_a_killed_writer_is_seen_once_it_is_settled(tmp_path):
    log = tmp_path / "log"
    writer = Writer(log)
    writer.append(packets(0, 5))
    settle(log)
    assert content(log) == []  # a writer that lives sees to its own tail
    kill(writer)
    assert content(log) == []
    with next(log.glob("*.seg")).open("ab") as segment:
        segment.write(b"half a record")
    settle(log)
    assert content(log) == packets(0, 5)
    with Writer(log) as writer:
        assert writer.position == 5


def test_a_mark_that_is_read_while_it_is_written_is_read_again(tmp_path, monkeypatch):
    """It was taken for none: a query that asked for what the log has now would have ended with nothing."""
    with Writer(tmp_path, EAGER) as writer:
        writer.append(packets(0, 5))
    whole = (tmp_path / packetlog_files.SYNCED).read_bytes()
    reads = [b"", bytes([whole[0] ^ 1]) + whole[1:], whole]
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.pop(0))
    assert packetlog_files.read_mark(tmp_path) == 5
    assert reads == []


def test_settling_begins_no_log(tmp_path):
    settle(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- any order of events ---
class LogMachine(RuleBasedStateMachine):
    """Appending, rotating, crashing at any byte, reopening and reading, against a plain list."""

    @initialize()
    def start(self):
        self.directory = Path(tempfile.mkdtemp())
        self.model: list = []
        self.next_an = 0
        self.writer = Writer(self.directory, LogConfig(max_segment_bytes=300, sync_bytes=200))
        self.reader = Reader(self.directory, durable=False)
        self.seen: list = []

    def teardown(self):
        if hasattr(self, "writer"):
            self.writer.close()
            shutil.rmtree(self.directory)

    @rule(count=st.integers(0, 12), size=st.integers(0, 60), skip=st.integers(0, 3))
    def append(self, count, size, skip):
        first = self.next_an + skip
        batch = packets(first, count, size)
        self.writer.append(batch)
        self.model += batch
        self.next_an = max(self.next_an, first + count)

    @rule(length=st.integers(1, 50))
    def gap(self, length):
        gap = Gap(self.next_an, self.next_an + length, 1)
        self.writer.append([gap])
        self.model.append(gap)
        self.next_an += length + 1

    @rule(back=st.integers(1, 5))
    def repeat(self, back):
        before = self.writer.position
        self.writer.append(list(self.model[-back:]))
        assert self.writer.position == before

    @rule(cut=st.integers(0, 120))
    def crash(self, cut):
        """The process dies, and the machine loses some of what was not synced."""
        durable = Reader(self.directory).end_position()
        self.writer._unsynced_bytes = 0  # the dead do not sync
        kill(self.writer)
        if durable < len(self.model):
            path = packetlog_files.list_segments(self.directory)[-1].path
            floor = self._offset_of(path, durable)
            os.truncate(path, max(floor, path.stat().st_size - cut))
        self.writer = Writer(self.directory, LogConfig(max_segment_bytes=300, sync_bytes=200))
        assert durable <= self.writer.position <= len(self.model)
        self.model = self.model[: self.writer.position]
        # A reader that looked past what was synced may have seen what is gone now; durable ones never do.
        self.seen = self.seen[: self.writer.position]
        self.reader = Reader(self.directory, durable=False)

    def _offset_of(self, path, position):
        first = int(path.stem)
        offset = packetlog_format.SEGMENT_HEADER_BYTES
        for _, after, found, _ in scan(path.read_bytes(), offset, first):
            if found < position:
                offset = after
        return offset

    @rule(limit=st.integers(1, 9))
    def read(self, limit):
        self.seen += [entry for _, entry in self.reader.read(len(self.seen), limit=limit)]

    @invariant()
    def matches(self):
        if hasattr(self, "writer"):
            assert self.writer.position == len(self.model)
            assert self.seen == self.model[: len(self.seen)]
            assert content(self.directory, durable=False) == self.model


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=25, stateful_step_count=25)
