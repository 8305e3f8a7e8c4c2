"""Damage, killed writers, and any order of events."""

from __future__ import annotations

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
    PacketLogError,
    Reader,
    Writer,
    settle,
)
from peer.packetlog import files as packetlog_files
from peer.packetlog import format as packetlog_format
from peer.packetlog.format import encode_record, scan
from tests.peer.packetlog.logs import EAGER, content, packets


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
