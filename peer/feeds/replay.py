"""Packets that were numbered once already: a packet log that `record` wrote."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from pathlib import Path

from peer.errors import FeedError
from peer.feeds.sequencer import Numbered
from peer.packetlog import Entry, Gap, Late, LogTruncated, PacketLogError, Reader

LOOK_AHEAD = 1_024
"""Entries read ahead of the one that is published."""


def log_packets(path: str) -> Iterator[Numbered]:
    """What `record` wrote, gaps as gaps."""
    if not Path(path).is_dir():
        raise FeedError(f"{path} is not a packet log: no such folder")
    reader = Reader(path, durable=False)  # what a recorder wrote is there, though it may still be writing
    order = _Order()
    found = False
    try:
        for _, entry in reader.iterate(reader.first_position()):
            found = True
            yield from order.put(entry)
        yield from order.rest()
    except PacketLogError as error:
        raise FeedError(str(error)) from None
    if not found:
        raise FeedError(f"{path} has no packets: it is not a packet log, or nothing has been recorded yet")


class _Order:
    """Puts late packets where they belong: a root publishes in the order of ANs.

    Late ones come within seconds. One that comes after more than LOOK_AHEAD others can't be published any more; in
    front of the next packet there is a gap then, so that nobody believes that it never was.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Entry]] = []
        self._reached = -1
        self._contiguous = True

    def put(self, entry: Entry) -> Iterator[Numbered]:
        an = entry.until if isinstance(entry, Gap) else entry.an
        if isinstance(entry, Late) and an <= self._reached:
            self._contiguous = False
            return
        insort(self._waiting, (an, entry), key=lambda pair: pair[0])
        while len(self._waiting) > LOOK_AHEAD:
            yield from self._give()

    def rest(self) -> Iterator[Numbered]:
        while self._waiting:
            yield from self._give()

    def _give(self) -> Iterator[Numbered]:
        self._reached, entry = self._waiting.pop(0)
        if isinstance(entry, Gap):
            self._contiguous = False
        else:
            yield Numbered(entry.an, entry.payload, self._contiguous, entry.time_us / 1e6)
            self._contiguous = True


class LogFollower:
    """Reads a log that another process writes, which may not have begun yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: Reader | None = None
        self._position = 0
        self._contiguous = True

    def read(self) -> list[Numbered]:
        """What was synced since the last call, some hundred at a time. FeedError when the log is damaged."""
        try:
            if self._reader is None:
                if not self._path.is_dir():
                    return []
                self._reader = Reader(self._path)
                self._position = self._reader.first_position()
            try:
                found = self._reader.read(self._position, limit=LOOK_AHEAD)
            except LogTruncated as gone:  # nobody waits for a root: what is gone is a gap
                self._position, self._contiguous = gone.first, False
                return []
        except PacketLogError as error:
            raise FeedError(str(error)) from None
        packets = []
        for position, entry in found:
            self._position = position + 1
            if isinstance(entry, Gap):
                self._contiguous = False
            elif not isinstance(entry, Late):
                packets.append(Numbered(entry.an, entry.payload, self._contiguous, entry.time_us / 1e6))
                self._contiguous = True
        return packets
