"""A durable, append-only, segmented log of packets: one writer, any number of readers while it writes.

The format is in `format`, the files in `files`, the specification in docs/packetlog.md. `Writer`
appends, rotates, syncs and retires; `Reader` (in `reader`) follows. A position counts records from 0 and
never comes again; an AN is data, and the log takes each only once and in order.

What survives: every record for which `append` returned survives the death of the process (kill -9 included); every
record that was synced survives the death of the machine. A sync happens after some bytes or seconds, or on demand.

After a sync that failed, nobody can say what is on the disk: the system may have dropped the pages and report success
the next time. So a writer whose sync failed writes nothing more and marks nothing as synced; the next one writes what
lies behind the mark again before it syncs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from peer.packetlog.files import (
    INDEX_SUFFIX,
    LOCK,
    SYNCED,
    LogDamaged,
    LogFull,
    LogLocked,
    PacketLogError,
    Segment,
    build_index,
    index_of,
    list_segments,
    newest_time,
    read_header,
    read_mark,
    segment_path,
    sync_directory,
    write_index,
    write_mark,
    write_stream,
)
from peer.packetlog.format import (
    SEGMENT_HEADER_BYTES,
    Damage,
    Entry,
    Gap,
    Late,
    SegmentHeader,
    encode_record,
    encode_segment_header,
    last_an_of,
    scan,
)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The bounds of a log."""

    max_segment_bytes: int = 64 << 20
    """A segment is sealed and the next begun when it has reached this."""
    max_log_bytes: int | None = None
    """Oldest sealed segments are removed so that the log stays below this (two segments at least). None: kept."""
    max_age_seconds: float | None = None
    """Sealed segments whose newest record is older than this, by the time of the newest one in the log, are removed."""
    sync_bytes: int = 1 << 20
    """Sync once this much is unsynced. 0: at every append."""
    sync_seconds: float = 1.0
    """Sync at the next append once the oldest unsynced record has waited this long. 0: at every append."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What opening found at the end of the log and cut off: a record that a crash left unfinished."""

    segment: str
    bytes_dropped: int
    position: int


class Writer:
    """The one writer. Opening takes the lock, repairs the tail, and goes on where the log ends.

    `append` takes packets and gaps in order; what is not above `last_an` is a repeat, is not written, and is counted.
    Late packets (`Late`) are written whatever their AN.
    After `LogFull` nothing of the failed call has been written, and it may be tried again.
    """

    def __init__(
        self,
        directory: str | Path,
        config: LogConfig | None = None,
        *,
        stream: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stream`: whose packets these are; a log holds those of one."""
        self.directory = Path(directory)
        self.config = config or LogConfig()
        self._clock = clock
        self.duplicates = 0
        """Entries that were not written because the log had reached their AN already."""
        self.removed_segments = 0
        self.repair: Repair | None = None
        self._unsynced_bytes = 0
        self._unsynced_since = 0.0
        self._newest_us = -(1 << 63)
        self._sealed: list[tuple[Segment, int, int]] = []
        self._file = -1
        self._failure: str | None = None
        """Why this writer must not go on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            if stream is not None:
                write_stream(self.directory, stream)
            self._open()
        except BaseException:
            self.close()
            raise

    # --- opening ---
    def _take_lock(self) -> int:
        descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "?"
            os.close(descriptor)
            raise LogLocked(f"{self.directory} is being written by process {holder}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def _open(self) -> None:
        segments = list_segments(self.directory)
        while segments:
            try:
                read_header(segments[-1])
                break
            except Damage as damage:
                if not damage.cut:
                    raise LogDamaged(f"{segments[-1].path}: {damage}") from None
                # The crash came between making the file and writing its header: there is nothing in it.
                dropped = segments[-1].path.stat().st_size
                self.repair = Repair(segments[-1].path.name, dropped, segments[-1].first_position)
                segments.pop().path.unlink()
        if not segments:
            self.position, self.last_an = 0, -1
            self._begin_segment()
        else:
            for segment in segments[:-1]:
                self._sealed.append((segment, segment.path.stat().st_size, self._newest_in(segment)))
            self._recover(segments[-1])
        self.sync()

    def _recover(self, segment: Segment) -> None:
        """Read the last segment through, and cut off what a crash left unfinished."""
        data = segment.path.read_bytes()
        self.position = segment.first_position
        self.last_an = read_header(segment).last_an
        good, what = SEGMENT_HEADER_BYTES, "the log ends"
        synced, mark = SEGMENT_HEADER_BYTES, read_mark(self.directory)
        try:
            for _, after, position, entry in scan(data, SEGMENT_HEADER_BYTES, segment.first_position):
                good = after
                if position < mark:
                    synced = after
                self.position, self.last_an = position + 1, max(self.last_an, last_an_of(entry))
                self._newest_us = max(self._newest_us, entry.time_us)
        except Damage as damage:
            # After a power cut anything may stand behind the last synced byte, so whatever it is, it is cut off.
            what = damage.what
        if self.position < mark:
            # What was synced may have been read: its positions must not come again with other content.
            raise LogDamaged(
                f"{segment.path}: {what} at position {self.position}, though records up to {mark} "
                "had reached the disk; move the log away and begin a new one"
            )
        self._file = os.open(segment.path, os.O_RDWR)
        self._size = good
        self._segment = segment
        if good < len(data):
            self.repair = Repair(segment.path.name, len(data) - good, self.position)
            os.ftruncate(self._file, good)
        # What an earlier process wrote may not be on the disk yet. It is written again: if its sync failed, the system
        # believes these pages to be clean, and would not write them.
        # The same bytes in the same place: readers that follow see no change.
        try:
            while synced < good:
                synced += os.pwrite(self._file, data[synced:good], synced)
        except OSError as error:
            raise _trouble(f"write {segment.path}", error) from error
        os.lseek(self._file, good, os.SEEK_SET)
        self._unsynced_bytes = 1

    def _newest_in(self, segment: Segment) -> int:
        return max((entry.time_us for entry in index_of(segment)), default=-(1 << 63))

    # --- appending ---
    def append(self, entries: Iterable[Entry]) -> int:
        """Write packets and gaps; returns how many were new. One system call a segment for the whole batch."""
        batch: list[bytes] = []
        kept: list[Entry] = []
        position, last_an, size, repeats = self.position, self.last_an, self._size, 0
        written = 0
        for entry in entries:
            if last_an_of(entry) <= last_an and not isinstance(entry, Late):
                repeats += 1
                continue
            if isinstance(entry, Gap) and entry.after < last_an:
                entry = entry._replace(after=last_an)
            record = encode_record(position, entry)
            if size + len(record) > self.config.max_segment_bytes and size > SEGMENT_HEADER_BYTES:
                self._commit(batch, kept, position, last_an)
                written += len(kept)
                self._rotate()
                batch, kept, size = [], [], self._size
            batch.append(record)
            kept.append(entry)
            size += len(record)
            position, last_an = position + 1, max(last_an, last_an_of(entry))
        self._commit(batch, kept, position, last_an)
        self.duplicates += repeats
        if self._unsynced_bytes and (
            self._unsynced_bytes >= self.config.sync_bytes
            or self._clock() - self._unsynced_since >= self.config.sync_seconds
        ):
            self.sync()
        return written + len(kept)

    def _commit(self, batch: list[bytes], kept: list[Entry], position: int, last_an: int) -> None:
        if not batch:
            return
        self._write(b"".join(batch))
        if not self._unsynced_bytes:
            self._unsynced_since = self._clock()
        self._unsynced_bytes += sum(map(len, batch))
        self._newest_us = max(self._newest_us, newest_time(kept))
        self.position, self.last_an = position, last_an

    def _write(self, data: bytes) -> None:
        """All of it or none: a write that the disk cuts short is undone before the error is raised."""
        if self._file < 0:
            raise ValueError("the log is closed")
        self._check_usable()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            try:
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            except OSError as second:
                self._failure = f"half a record could not be taken back from {self._segment.path}: {second.strerror}"
            raise _trouble(f"write {self._segment.path}", error) from error
        self._size += len(data)

    def sync(self) -> None:
        """Everything appended so far is on the disk when this returns. PacketLogError, and from then on always."""
        self._check_usable()
        if self._file >= 0 and self._unsynced_bytes:
            try:
                os.fsync(self._file)
            except OSError as error:
                self._failure = f"{self._segment.path} could not be synced: {error.strerror}"
                raise _trouble(f"sync {self._segment.path}", error) from error
            self._unsynced_bytes = 0
        try:
            write_mark(self.directory, self.position)
        except OSError as error:
            raise _trouble(f"write {self.directory / SYNCED}", error) from error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise PacketLogError(f"{self._failure}; open the log again")

    # --- segments ---
    def _begin_segment(self) -> None:
        path = segment_path(self.directory, self.position)
        header = encode_segment_header(SegmentHeader(self.position, self.last_an))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise _trouble(f"begin {path}", error) from error
        try:
            if os.write(descriptor, header) != len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
            sync_directory(self.directory)
        except OSError as error:
            os.close(descriptor)
            path.unlink()
            raise _trouble(f"begin {path}", error) from error
        self._file, self._size = descriptor, len(header)
        self._segment = Segment(self.position, path)

    def _rotate(self) -> None:
        """Seal the segment, index it, begin the next, retire what is past the bounds."""
        self.sync()
        sealed, old, size = self._segment, self._file, self._size
        self._begin_segment()
        os.close(old)
        try:
            write_index(sealed.path, build_index(sealed.path.read_bytes(), sealed.first_position))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise PacketLogError(f"cannot index {sealed.path}: {error.strerror}") from error
            # The index is only a short cut: a full disk must not end the recording for it.
        self._sealed.append((sealed, size, self._newest_us))
        self._retire()

    def _retire(self) -> None:
        config = self.config
        while self._sealed:
            segment, _, newest = self._sealed[0]
            # The segment being written counts as full, so that the bound holds until it is sealed too.
            total = config.max_segment_bytes + sum(entry[1] for entry in self._sealed)
            too_large = config.max_log_bytes is not None and total > config.max_log_bytes
            too_old = config.max_age_seconds is not None and newest < self._newest_us - config.max_age_seconds * 1e6
            if not (too_large or too_old):
                return
            try:
                segment.path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
                segment.path.unlink(missing_ok=True)
            except OSError as error:
                raise _trouble(f"remove {segment.path}", error) from error
            self._sealed.pop(0)
            self.removed_segments += 1

    @property
    def first_position(self) -> int:
        """The oldest position that the log still has (its end, when it is empty)."""
        return self._sealed[0][0].first_position if self._sealed else self._segment.first_position

    # --- closing ---
    def close(self) -> None:
        """Sync and let go of the lock. May be called twice. After a failed sync it only lets go, and marks nothing."""
        try:
            if self._file >= 0 and self._failure is None:
                self.sync()
        finally:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _trouble(what: str, error: OSError) -> PacketLogError:
    if error.errno in _NO_ROOM:
        return LogFull(f"no room to {what}: {error.strerror}")
    return PacketLogError(f"cannot {what}: {error.strerror}")


def settle(directory: str | Path) -> None:
    """Sync what a writer that was killed left unsynced, so that durable readers see it. Nothing while one writes."""
    if list_segments(Path(directory)):
        with contextlib.suppress(LogLocked):
            Writer(directory).close()
