"""What happened to a peer, as JSON lines for `python -m pipeline analyze mesh`: `join --trace FILE`.

docs/pipeline.md has the fields. Off by default. Lines are kept back and written together, in a thread; a file grows to
a bound and no further, and what came after that is counted in its last line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio

from dcp import Gap, Omitted, Packet
from peer.feeds.stamp import stamp_of
from peer.items import Content
from peer.mesh import events as meshevents
from peer.node import Peer
from peer.role import Role

log = logging.getLogger(__name__)

PROTOCOL = "dcp"
MAX_BYTES = 256 << 20
"""Of a file: some two million packets. Then nothing more is written but how much was left out."""
WRITE_INTERVAL = 1.0
LOOK_INTERVAL = 0.1
SHORTEST_STALL = 0.2
"""Shorter waits are the retransmission's usual work."""
_END_BYTES = 256  # kept free for the last line


class Trace:
    """Collects events of one peer and appends them to a file. `OSError` when the file can't be opened."""

    def __init__(self, path: Path, peer: Peer, *, max_bytes: int = MAX_BYTES) -> None:
        from dht import id_text

        self._peer = peer
        self._name = id_text(peer.identity.peer_id)
        self._file = path.open("ab")
        self._room = max_bytes - self._file.tell() - _END_BYTES
        self._pending: list[bytes] = []
        self._mesh_events = peer.events(buffer=1024)
        self.left_out = 0
        """Events that did not fit in the file."""
        self._has_been_whole = False
        self._duplicates = self._nacks = 0
        self._copies: dict[str, tuple[int, int]] = {}
        self._position: int | None = None
        self._waiting_since: float | None = None

    def deliver(self, items: Iterable[Content]) -> None:
        """Packets and gaps that the program was handed just now."""
        now = time.time()
        for item in items:
            if isinstance(item, Packet):
                sent = stamp_of(item.payload)
                latency = {} if sent is None else {"latency_ms": round((now - sent) * 1_000, 3)}
                self._add(now, "deliver", an=item.an, **latency)
            elif isinstance(item, Omitted):
                self._add(now, "omitted", an=item.an)
            elif isinstance(item, Gap):
                self._add(now, "gap", after=item.after, until=item.until)

    async def run(self) -> None:
        """Look at the peer and write, until cancelled; then write what is left and close."""
        try:
            written_at = trio.current_time()
            while True:
                await trio.sleep(LOOK_INTERVAL)
                self.look(trio.current_time())
                if trio.current_time() - written_at >= WRITE_INTERVAL:
                    self._count()
                    await trio.to_thread.run_sync(self._write)
                    written_at = trio.current_time()
        finally:
            self.close()

    def look(self, now: float) -> None:
        """Stalls and repairs since the last look. `now` is on any clock that only goes forward."""
        if self._peer.options.role is not Role.ROOT:
            got = self._peer.statistics()
            # Something later is here already, or nobody is there to bring anything: a packet is due.
            is_due = got.position is not None and (got.buffered > 0 or self._peer.parents == 0)
            if got.position != self._position or not is_due:
                self._end_stall(now)
            if is_due and self._waiting_since is None:
                self._waiting_since = now
            self._position = got.position
        while True:
            try:
                event = self._mesh_events.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return
            if isinstance(event, meshevents.Restored):
                # The first time is not a repair: the peer has just joined.
                self._add(time.time(), "repair" if self._has_been_whole else "joined", seconds=round(event.after, 3))
                self._has_been_whole = True

    def _end_stall(self, now: float) -> None:
        since, self._waiting_since = self._waiting_since, None
        if since is not None and now - since >= SHORTEST_STALL:
            self._add(time.time(), "stall", seconds=round(now - since, 3))

    def _count(self) -> None:
        """Duplicates, NACKs and each parent's copies are many: written as counts since the last time."""
        got = self._peer.statistics()
        duplicates, nacks = got.duplicates - self._duplicates, got.nacks - self._nacks
        if duplicates > 0:
            self._add(time.time(), "duplicate", count=duplicates)
        if nacks > 0:
            self._add(time.time(), "nack", count=nacks)
        self._duplicates, self._nacks = got.duplicates, got.nacks
        copies = {parent.peer: (parent.first_copies, parent.copies) for parent in got.parents}
        for parent, (first, whole) in copies.items():
            # A parent that came back counts from nothing again.
            before = self._copies.get(parent, (0, 0))
            first, whole = (first - before[0], whole - before[1]) if whole >= before[1] else (first, whole)
            if whole > 0:
                self._add(time.time(), "copies", parent=parent, first=first, count=whole)
        self._copies = copies

    def _add(self, now: float, event: str, **fields: Any) -> None:
        document = {
            "time": round(now, 6), "peer": self._name, "event": event, "protocol": PROTOCOL,
            "level": self._peer.level, "parents": self._peer.parents, **fields,
        }  # fmt: skip
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        if self.left_out or len(line) > self._room:
            self.left_out += 1
            return
        self._room -= len(line)
        self._pending.append(line)

    def _write(self) -> None:
        taken, self._pending = self._pending, []
        try:
            self._file.write(b"".join(taken))
            self._file.flush()
        except OSError as error:  # a full disk ends the trace, not the peer
            log.warning("cannot write the trace %s: %s", self._file.name, error.strerror)
            self._room = 0

    def close(self) -> None:
        if self._file.closed:
            return
        self._end_stall(trio.current_time())
        self._count()
        if self.left_out:
            end = {"time": round(time.time(), 6), "peer": self._name, "event": "full", "count": self.left_out}
            self._pending.append(json.dumps(end, separators=(",", ":")).encode() + b"\n")
        self._write()
        with contextlib.suppress(OSError):  # reported when it was written
            self._file.close()
