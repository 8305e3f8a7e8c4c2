"""XML streams out over plain TCP, for programs that don't speak DCP: each reader gets what arrives from then on.

A slow reader hurts only itself: each has a bounded queue, and one that is full ends that reader's connection, which is
counted. The stream, and the other readers, never wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from peer.plaintext import framed_by_bytes

log = logging.getLogger(__name__)

MAX_READERS = 64
"""Programs that may be connected at once; further ones are closed at once and counted."""
MAX_QUEUE_BYTES = 16 << 20
SEND_BATCH_BYTES = 64 << 10


@dataclass(slots=True)
class TcpStatistics:
    readers: int = 0
    accepted: int = 0
    refused: int = 0
    """Connections closed at once: there were MAX_READERS already."""
    too_slow: int = 0
    """Connections closed because their queue was full."""
    packets: int = 0
    """Packets queued, over all readers."""


class _Reader:
    """One connection: what waits for it."""

    def __init__(self, max_packets: int) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._max_packets = max_packets
        self._news = trio.Event()
        self.is_too_slow = False
        self.too_slow = trio.Event()

    def put(self, packet: bytes) -> None:
        """Never waits; a queue that is full makes the reader `is_too_slow`, for good."""
        if self.is_too_slow:
            return
        if len(self._waiting) >= self._max_packets or self._bytes + len(packet) > MAX_QUEUE_BYTES:
            self.is_too_slow = True
            self.too_slow.set()
            self._waiting.clear()
        else:
            self._waiting.append(packet)
            self._bytes += len(packet)
        self._news.set()

    async def take(self) -> bytes:
        """What waits, up to a batch; empty when the reader was too slow."""
        while not self._waiting:
            if self.is_too_slow:
                return b""
            self._news = trio.Event()
            await self._news.wait()
        parts, size = [], 0
        while self._waiting and size < SEND_BATCH_BYTES:
            packet = self._waiting.popleft()
            size += len(packet)
            parts.append(packet)
        self._bytes -= size
        return b"".join(parts)


class TcpOut:
    """The server. `serve` runs it; `send` gives it packets."""

    def __init__(self, *, separator: bytes = b"\n", max_queue: int = 4_096, max_readers: int = MAX_READERS) -> None:
        if max_queue < 1 or max_readers < 1:
            raise ValueError("a queue and a server hold at least one")
        self.statistics = TcpStatistics()
        self._separator = separator
        self._max_queue = max_queue
        self._max_readers = max_readers
        self._readers: set[_Reader] = set()

    def send(self, payloads: Iterable[bytes]) -> None:
        """To everybody who is connected now. A payload must not hold the separator where it matters: see docs."""
        for payload in payloads:
            payload = framed_by_bytes(payload)
            if self._separator == b"\n":
                payload = _one_line(payload)
            for reader in self._readers:
                reader.put(payload + self._separator)
            self.statistics.packets += len(self._readers)

    async def serve(
        self,
        host: str,
        port: int,
        task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until cancelled; OSError when the address can't be had. Starts with the address that was bound."""
        listeners = await trio.open_tcp_listeners(port, host=host or None)
        task_status.started(listeners[0].socket.getsockname()[:2])
        await trio.serve_listeners(self._serve_one, listeners)

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        async with stream:
            if len(self._readers) >= self._max_readers:
                self.statistics.refused += 1
                return
            reader = _Reader(self._max_queue)
            self._readers.add(reader)
            self.statistics.accepted += 1
            self.statistics.readers = len(self._readers)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._push, stream, reader, nursery.cancel_scope)
                    nursery.start_soon(self._watch, stream, nursery.cancel_scope)
                    await reader.too_slow.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self._readers.discard(reader)
                self.statistics.readers = len(self._readers)
            if reader.is_too_slow:
                self.statistics.too_slow += 1
                log.warning("a TCP reader was too slow, and was disconnected")

    async def _push(self, stream: trio.SocketStream, reader: _Reader, scope: trio.CancelScope) -> None:
        try:
            while data := await reader.take():
                await stream.send_all(data)
        except trio.BrokenResourceError:
            scope.cancel()

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """What readers send is thrown away; that they have gone is noticed here even when nothing is sent."""
        try:
            while await stream.receive_some(4_096):
                pass
        except trio.BrokenResourceError:
            pass
        # A reader may close its sending half and read on (`nc < /dev/null`): only a broken connection ends it.
        else:
            return
        scope.cancel()


def _one_line(payload: bytes) -> bytes:
    """Line ends are white space between tags in XML; a document a line is what `nc | while read` expects."""
    return payload.replace(b"\r\n", b" ").replace(b"\n", b" ") if b"\n" in payload else payload
