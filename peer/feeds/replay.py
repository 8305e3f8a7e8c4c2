"""Packets that were numbered once already: a packet log that `record` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from peer.errors import FeedError
from peer.feeds.sequencer import Numbered
from peer.packetlog import Packet, PacketLogError, Reader


def log_packets(path: str) -> Iterator[Numbered]:
    """What `record` wrote, gaps as gaps."""
    if not Path(path).is_dir():
        raise FeedError(f"{path} is not a packet log: no such folder")
    reader = Reader(path, durable=False)  # what a recorder wrote is there, though it may still be writing
    contiguous = True
    found = False
    try:
        for _, entry in reader.iterate(reader.first_position()):
            found = True
            if isinstance(entry, Packet):
                yield Numbered(entry.an, entry.payload, contiguous, entry.time_us / 1e6)
                contiguous = True
            else:
                contiguous = False
    except PacketLogError as error:
        raise FeedError(str(error)) from None
    if not found:
        raise FeedError(f"{path} has no packets: it is not a packet log, or nothing has been recorded yet")
