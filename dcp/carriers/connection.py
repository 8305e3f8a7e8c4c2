"""One connection under trio: a bounded queue in front of it, a task that writes and one that reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio

from dcp.carriers.transport import Conduit
from dcp.errors import MalformedDatagram
from dcp.guard import fault
from dcp.links.address import SocketAddress

MAX_QUEUE_BYTES = 512 << 10
"""What may wait for one connection. Datagrams that find it full are dropped, as a router drops them; DCP's window
reacts to loss, and so keeps it from being full for long."""
MAX_BATCH_BYTES = 64 << 10
STALL_SECONDS = 10.0
"""A connection that does not take a batch for this long is closed: its peer has stopped reading, or has gone."""
# As for the UDP socket (`dcp.driver`): after so many reads in a row that changed nothing, read a little later.
FRUITLESS_READS = 8
FRUITLESS_PAUSE = 1e-3


class Connection:
    def __init__(self, address: SocketAddress) -> None:
        self.address = address
        self.dropped = 0
        """Datagrams that found the queue full."""
        self.sent = 0
        self.received = 0
        self.why = ""
        """Why it has ended."""
        self.is_open = False
        self.scope = trio.CancelScope()
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._writer = trio.lowlevel.ParkingLot()
        self._flushers = trio.lowlevel.ParkingLot()

    def put(self, datagram: bytes) -> bool:
        """Queue it for sending; never waits. False when the queue is full."""
        if self._bytes + len(datagram) > MAX_QUEUE_BYTES:
            self.dropped += 1
            return False
        self._queue.append(datagram)
        self._bytes += len(datagram)
        self._writer.unpark()
        return True

    async def flush(self) -> None:
        """Until everything that waits has gone out, or the connection has ended."""
        while self.is_open and self._bytes:
            await self._flushers.park()

    def close(self, why: str) -> None:
        """End its tasks soon."""
        self.why = self.why or why
        self.scope.cancel()

    async def run(self, conduit: Conduit, deliver: Callable[[Sequence[bytes], SocketAddress], bool]) -> None:
        """Until either end closes it, or it breaks. `deliver` takes what comes: whether that changed anything."""
        self.is_open = True
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, conduit)
                    await self._read(conduit, deliver)
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            self.why = self.why or "broken"
        except* MalformedDatagram as group:
            first = group.exceptions[0]
            self.why = first.reason if isinstance(first, MalformedDatagram) else "frame"
        except* trio.TooSlowError:
            self.why = self.why or "stalled"
        except* Exception as group:  # of a transport that is not ours, perhaps: it costs this connection
            self.why = "fault"
            fault("connection", group)
        finally:
            self.is_open = False
            self._flushers.unpark_all()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                await conduit.aclose()

    async def _read(self, conduit: Conduit, deliver: Callable[[Sequence[bytes], SocketAddress], bool]) -> None:
        fruitless = 0
        while datagrams := await conduit.receive():
            self.received += len(datagrams)
            fruitless = 0 if deliver(datagrams, self.address) else fruitless + 1
            if fruitless >= FRUITLESS_READS:
                await trio.sleep(FRUITLESS_PAUSE)
        self.why = self.why or "closed"

    async def _write(self, conduit: Conduit) -> None:
        while True:
            if not self._queue:
                await self._writer.park()
            await self._send_batch(conduit)

    async def _send_batch(self, conduit: Conduit) -> None:
        batch: list[bytes] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0]) <= MAX_BATCH_BYTES):
            datagram = self._queue.popleft()
            batch.append(datagram)
            size += len(datagram)
        if batch:
            with trio.fail_after(STALL_SECONDS):
                await conduit.send(batch)
            self.sent += len(batch)
            self._bytes -= size
            self._flushers.unpark_all()
