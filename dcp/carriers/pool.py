"""All connections of one peer: dialled when something is asked over one, accepted within limits, closed when idle.

The driver gives datagrams to `send`, which never waits: a connection that is full or stalled loses its own datagrams
and holds up nobody else.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from dcp import handshake, wire
from dcp.carriers.connection import Connection
from dcp.carriers.seats import IDLE_SECONDS, Seats
from dcp.carriers.transport import Conduit, Listening, Transport
from dcp.guard import fault, guard
from dcp.links.address import SocketAddress, accepted_over, carrier_of, is_accepted

log = logging.getLogger(__name__)

MAX_DIALLED = 128
"""Connections that we open, those that are still being opened included."""
MAX_HELD = 8
"""Datagrams kept for a connection that is being opened: questions, which are repeated anyway."""
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0
MAX_FAILED = 1_024
"""Addresses that could not be dialled and are left alone for a moment, doubled for each time in a row."""
SWEEP_SECONDS = 1.0
FAREWELL_SECONDS = 0.5


@dataclass(slots=True)
class CarrierStatistics:
    accepted: int = 0
    dialled: int = 0
    failed: int = 0
    """Connections that could not be opened."""
    refused: int = 0
    """Connections of others for which there was no room."""
    cut: int = 0
    """Connections without a link that gave way to newcomers."""
    ended: Counter[str] = field(default_factory=Counter)
    """Connections by why they ended."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Datagrams that did not go out, by reason."""
    open: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Connections now, by carrier and direction, "in" or "out"."""


@dataclass(slots=True)
class _Failed:
    until: float
    times: int


class Pool:
    def __init__(self, transports: Mapping[str, Transport], *, seats: Seats | None = None) -> None:
        self.seats = seats or Seats()
        self._transports = dict(transports)
        self._listening: dict[str, Listening] = {}
        self._connections: dict[SocketAddress, Connection] = {}
        self._held: dict[SocketAddress, deque[bytes]] = {}
        self._idle_since: dict[SocketAddress, float] = {}
        self._failed: dict[SocketAddress, _Failed] = {}
        self._counts = CarrierStatistics()
        self._nursery: trio.Nursery | None = None
        self._deliver: Callable[[Sequence[bytes], SocketAddress], bool] = lambda datagrams, address: False
        self._lost: Callable[[SocketAddress], None] = lambda address: None
        self._used: Callable[[], set[SocketAddress]] = set

    async def listen(self, host: str, port: int) -> None:
        """Take the port for every transport; OSError when one can't have it."""
        for name, transport in self._transports.items():
            self._listening[name] = await transport.listen(host, port)

    @property
    def listens(self) -> bool:
        return bool(self._listening)

    # --- what the driver calls ----------------------------------------------------------------------------------------

    async def run(
        self,
        *,
        deliver: Callable[[Sequence[bytes], SocketAddress], bool],
        lost: Callable[[SocketAddress], None],
        used: Callable[[], set[SocketAddress]],
    ) -> None:
        """Until cancelled. What comes goes to `deliver`, the end of a connection to `lost`; `used` are those with a
        link."""
        self._deliver, self._lost, self._used = deliver, lost, used
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for name, listening in self._listening.items():
                nursery.start_soon(self._listen, name, listening)
            try:
                await self._sweep()
            finally:
                self._nursery = None  # before it closes: others may still send, and nothing is dialled for them

    def close(self) -> None:
        """Give the ports back."""
        for listening in self._listening.values():
            listening.close()
        self._listening.clear()

    async def flush(self) -> None:
        """Give what is queued a moment to go out: the goodbyes at the end."""
        with trio.move_on_after(FAREWELL_SECONDS):
            for connection in list(self._connections.values()):
                await connection.flush()

    def send(self, data: bytes, address: SocketAddress, *, asks: bool | None = None) -> None:
        """Over the connection with this address. Without one, a question opens it, and anything else is dropped.

        Only what we ask ourselves is a question (`asks`, for what is not DCP): otherwise a stranger could make us dial
        somebody.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            if not connection.put(data):
                self._counts.dropped["queue full"] += 1
            return
        held = self._held.get(address)
        if held is None:
            opens = is_question(data) if asks is None else asks
            if is_accepted(address) or not opens or not self._dial(address):
                self._counts.dropped["no connection"] += 1
                return
            held = self._held[address]
        held.append(data)

    def was_of_use(self, address: SocketAddress) -> None:
        """Something that is not DCP was answered over it."""
        self.seats.was_of_use(address, trio.current_time())

    def statistics(self) -> CarrierStatistics:
        counts = self._counts
        counts.refused, counts.cut = self.seats.refused, self.seats.cut
        counts.open = Counter(
            (carrier_of(address), "in" if is_accepted(address) else "out")
            for address, connection in self._connections.items()
            if connection.is_open
        )
        return counts

    # --- dialling -----------------------------------------------------------------------------------------------------

    def _dial(self, address: SocketAddress) -> bool:
        now = trio.current_time()
        failed = self._failed.get(address)
        if self._nursery is None or (failed is not None and now < failed.until):
            return False
        if sum(not is_accepted(other) for other in self._connections) + len(self._held) >= MAX_DIALLED:
            self._counts.dropped["too many connections"] += 1
            return False
        transport = self._transports.get(carrier_of(address))
        if transport is None:
            return False
        self._held[address] = deque(maxlen=MAX_HELD)
        self._nursery.start_soon(self._open, transport, address)
        return True

    async def _open(self, transport: Transport, address: SocketAddress) -> None:
        conduit: Conduit | None = None
        try:
            with trio.move_on_after(CONNECT_SECONDS):
                conduit = await transport.connect(address[0], address[1])
        except OSError:
            pass
        except Exception as error:  # of a transport that is not ours, perhaps
            fault("connect", error)
        finally:
            held = self._held.pop(address)
        if conduit is None:
            self._note_failure(address)
            return
        self._failed.pop(address, None)
        self._counts.dialled += 1
        connection = Connection(address)
        for datagram in held:
            connection.put(datagram)
        self._idle_since[address] = trio.current_time()
        await self._carry(connection, conduit)

    def _note_failure(self, address: SocketAddress) -> None:
        self._counts.failed += 1
        before = self._failed.pop(address, None)
        times = before.times + 1 if before is not None else 0
        wait = min(RETRY_SECONDS * 2.0 ** min(times, 10), MAX_RETRY_SECONDS)
        self._failed[address] = _Failed(trio.current_time() + wait, times)
        if len(self._failed) > MAX_FAILED:
            del self._failed[next(iter(self._failed))]

    # --- accepting ----------------------------------------------------------------------------------------------------

    async def _listen(self, name: str, listening: Listening) -> None:
        async def serve(conduit: Conduit, source: tuple[str, int]) -> None:
            await self._accept(name, conduit, source)

        try:
            await listening.run(serve)
        except Exception as error:  # of a transport that is not ours, perhaps: the peer goes on without it
            fault("listen", error)

    async def _accept(self, name: str, conduit: Conduit, source: tuple[str, int]) -> None:
        address = accepted_over(name, source)
        stays, goes = self.seats.take(address, trio.current_time())
        if goes is not None and (old := self._connections.get(goes)) is not None:
            old.close("gave way")
        if not stays:
            await conduit.aclose()
            return
        self._counts.accepted += 1
        await self._carry(Connection(address), conduit)

    async def _carry(self, connection: Connection, conduit: Conduit) -> None:
        address = connection.address
        self._connections[address] = connection
        try:
            await connection.run(conduit, self._deliver)
        finally:
            self._counts.ended[connection.why or "shut down"] += 1
            if self._connections.get(address) is connection:  # else another one has taken its place
                del self._connections[address]
                self._idle_since.pop(address, None)
                self.seats.leave(address)
                with guard("connection"):
                    self._lost(address)

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Close what carries no link for too long."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            now = trio.current_time()
            used = self._used()
            for address in self.seats.overdue(used, now):
                self._close(address, "no link")
            for address in list(self._idle_since):
                if address in used:
                    self._idle_since[address] = now
                elif now - self._idle_since[address] > IDLE_SECONDS:
                    self._close(address, "idle")

    def _close(self, address: SocketAddress, why: str) -> None:
        if (connection := self._connections.get(address)) is not None:
            connection.close(why)


def is_question(data: bytes) -> bool:
    """A request or an inquiry of our own."""
    is_opening = len(data) > wire.HEADER.size and bool(data[1] & wire.OPEN)
    return is_opening and data[wire.HEADER.size] in (handshake.OpenType.REQUEST, handshake.OpenType.INQUIRE)
