"""The one loop between a pure machine and a UDP socket.

Wait once, drain the socket, hand everything to the machine, send what is pending in batches, re-arm one timer. Nothing
waits in order to batch: what lies there together goes out together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio

from dcp.carriers.multicast import GroupSockets
from dcp.carriers.pool import Pool
from dcp.guard import fault, guard
from dcp.hub import Hub
from dcp.links.address import UDP, is_connection, is_group
from dcp.links.link import SocketAddress
from dcp.udp import UdpSocket

RECEIVE_BATCH = 256
# After this many batches in a row that changed nothing, the next is read a little later: waking up for each garbage
# datagram costs ten times what looking at it does. Honest datagrams that come in between are late by no more than this.
FRUITLESS_BATCHES = 8
FRUITLESS_PAUSE = 1e-3
# After a timer's work has failed unexpectedly no timer fires for this long: it may be due again at once.
FAULT_PAUSE = 0.1


class Machine(Protocol):
    """The five methods; see `dcp.hub`."""

    def receive_datagram(self, data: bytes, address: SocketAddress, *, now: float) -> bool: ...
    def handle_timeout(self, *, now: float) -> None: ...
    def datagrams_to_send(self, *, now: float) -> list[tuple[bytes, SocketAddress]]: ...
    def next_timeout(self, *, now: float) -> float | None: ...
    def next_event(self) -> Any: ...


class Driver:
    """Runs a machine on a socket. `on_event` is called for each event; `on_turn` after every input was dealt with.

    Datagrams whose first byte is not DCP's go to `on_other`: one port serves the DHT too.

    With `carriers`, datagrams also come and go over connections (`dcp.carriers`), and `hub` says which of them carry
    links. Where UDP is not one of its transports, the socket only holds its port: what comes there is dropped.

    This is a border (`dcp.guard`): what the machine or a callback raises unexpectedly costs one datagram, event or
    timer, and is counted; it does not end the loop.
    """

    def __init__(
        self,
        machine: Machine,
        udp: UdpSocket,
        *,
        on_event: Callable[[Any], None],
        on_turn: Callable[[], None] = lambda: None,
        on_other: Callable[[bytes, SocketAddress], None] | None = None,
        carriers: Pool | None = None,
        hub: Hub | None = None,
    ) -> None:
        self.machine = machine
        self.udp = udp
        self.carriers = carriers
        self.groups = GroupSockets() if hub is not None and hub.config.multicast else None
        self._memberships = hub.memberships if hub is not None else None
        self._memberships_seen = 0
        self._connections = hub.connections if hub is not None else None
        self._uses_udp = hub is None or UDP in hub.config.transports
        self._foreign = 0
        self._ignored = 0
        self._on_event = on_event
        self._on_turn = on_turn
        self._on_other = on_other
        self._unsent: list[tuple[bytes, SocketAddress]] = []
        self._timer = trio.CancelScope()
        self._writer = trio.lowlevel.ParkingLot()
        self._flusher = trio.lowlevel.ParkingLot()
        self._flush_wanted = False
        self._turned_at = -math.inf
        self._timers_from = -math.inf
        self._turning = False

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._sleep)
            nursery.start_soon(self._write)
            nursery.start_soon(self._flush)
            if self.carriers is not None:
                nursery.start_soon(self._carry, self.carriers)
            if self.groups is not None:
                nursery.start_soon(self.groups.run, self._take)

    async def _carry(self, carriers: Pool) -> None:
        used = self._connections.used if self._connections is not None else set
        await carriers.run(deliver=self._deliver, lost=self._lost, used=used)

    @property
    def dropped(self) -> dict[str, int]:
        """Datagrams that never reached the machine or the network, by reason, as in `HubStatistics.dropped`."""
        counts = {"foreign": self._foreign, "truncated": self.udp.truncated, "send error": self.udp.send_errors}
        if self._ignored:
            counts["UDP is off"] = self._ignored
        if self.carriers is not None:
            counts |= self.carriers.statistics().dropped
        if self.groups is not None:
            counts |= self.groups.dropped
        return {reason: count for reason, count in counts.items() if count}

    # --- what the owner calls -----------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The machine was given something: send what it has to say now, hand out its events, re-arm its timer."""
        self._flush_wanted = False
        if self._turning:
            return  # called by an event handler: the turn that is under way sees to it
        self._turning = True
        try:
            self._turn()
        finally:
            self._turning = False

    def _turn(self) -> None:
        while True:
            busy = self._transmit()
            while (event := self.machine.next_event()) is not None:
                busy = True
                try:
                    self._on_event(event)
                except Exception as error:
                    fault("event", error)
            if not busy:
                break
        try:
            self._on_turn()
        except Exception as error:
            fault("turn", error)
        if self.groups is not None:
            self._listen_to_groups(self.groups)
        now = trio.current_time()
        self._turned_at = now
        try:
            at = self.machine.next_timeout(now=now)
        except Exception as error:
            at = now + FAULT_PAUSE
            fault("timer", error)
        self._timer.deadline = math.inf if at is None else max(at, self._timers_from)

    def _listen_to_groups(self, groups: GroupSockets) -> None:
        memberships = self._memberships
        if memberships is not None and memberships.revision != self._memberships_seen:
            self._memberships_seen = memberships.revision
            groups.listen_to(memberships.wanted)

    def turn_soon(self) -> None:
        """The same, but in a burst of calls only once, as soon as this task yields; a single call is done at once."""
        if self._flush_wanted:
            return
        if trio.current_time() - self._turned_at > 1e-3:
            self.turn()
            return
        self._flush_wanted = True
        self._flusher.unpark()

    def close(self) -> None:
        """Give the ports back, when `run` has ended."""
        self.udp.close()
        if self.carriers is not None:
            self.carriers.close()

    async def flush(self) -> None:
        """Give what waits for connections a moment to go out, whatever is cancelled meanwhile."""
        if self.carriers is not None:
            with trio.CancelScope(shield=True):
                await self.carriers.flush()

    def send_other(self, data: bytes, address: SocketAddress, *, is_question: bool = False) -> None:
        """Send a datagram of another protocol through the same port. It is dropped when the socket is full."""
        if is_connection(address):
            if self.carriers is not None:
                self.carriers.send(data, address, asks=is_question)
        elif self._uses_udp and not self._unsent:
            self.udp.send_now([(data, address)])

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        fruitless = 0
        while True:
            if fruitless >= FRUITLESS_BATCHES:
                await trio.sleep(FRUITLESS_PAUSE)
            await self.udp.wait_readable()
            batch = self.udp.receive_now(RECEIVE_BATCH)
            if not self._uses_udp:
                self._ignored += len(batch)
                batch = []
            fruitless = 0 if self._take(batch) else fruitless + 1

    def _deliver(self, datagrams: Sequence[bytes], address: SocketAddress) -> bool:
        """What came over a connection."""
        return self._take([(data, address) for data in datagrams])

    def _lost(self, address: SocketAddress) -> None:
        if self._connections is not None:
            self._connections.lost(address)
            self._on_timer()  # the machine's own work about what has changed
            self.turn()

    def _take(self, batch: list[tuple[bytes, SocketAddress]]) -> bool:
        """Give the machine what came; whether that changed anything."""
        now = trio.current_time()
        changed = False
        for data, address in batch:
            try:
                if data and data[0] >> 4 in (1, 15):
                    changed |= self.machine.receive_datagram(data, address, now=now)
                elif self._on_other is not None:
                    self._on_other(data, address)
                else:
                    self._foreign += 1
            except Exception as error:
                fault("datagram", error)
                changed = True
        if changed:  # a turn costs far more than garbage: what changed nothing must not buy one
            self.turn()
        elif self._on_other is not None:
            with guard("turn"):  # of another protocol: its owner may be waiting for what that says
                self._on_turn()
        return changed

    async def _sleep(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._timer.deadline) as self._timer:
                await trio.sleep_forever()
            self._on_timer()
            self._timer.deadline = math.inf
            self.turn()

    def _on_timer(self) -> None:
        now = trio.current_time()
        try:
            self.machine.handle_timeout(now=now)
        except Exception as error:
            self._timers_from = now + FAULT_PAUSE
            fault("timer", error)

    async def _write(self) -> None:
        """Only while the socket is full."""
        while True:
            if not self._unsent:
                await self._writer.park()
            await self.udp.wait_writable()
            self.turn()

    async def _flush(self) -> None:
        while True:
            if not self._flush_wanted:
                await self._flusher.park()
            await trio.lowlevel.checkpoint()  # let the burst go on until its task yields
            self.turn()

    def _transmit(self) -> bool:
        sent_any = False
        while True:
            if not self._unsent:
                batch: list[tuple[bytes, SocketAddress]] = []
                try:
                    batch = self.machine.datagrams_to_send(now=trio.current_time())
                except Exception as error:
                    fault("send", error)
                if not batch:
                    return sent_any
                self._unsent = self._for_udp(batch) if self._has_more_than_udp else batch
                sent_any = sent_any or len(self._unsent) < len(batch)
            sent = self.udp.send_now(self._unsent)
            sent_any = sent_any or sent > 0
            if sent < len(self._unsent):
                del self._unsent[:sent]
                self._writer.unpark()
                return False
            self._unsent = []

    @property
    def _has_more_than_udp(self) -> bool:
        return self.carriers is not None or self.groups is not None

    def _for_udp(self, batch: list[tuple[bytes, SocketAddress]]) -> list[tuple[bytes, SocketAddress]]:
        """The datagrams for the socket; the others go to their connections at once, full socket or not."""
        ours = []
        for datagram in batch:
            if len(datagram[1]) != 3:
                if self._uses_udp:
                    ours.append(datagram)
            elif self.groups is not None and is_group(datagram[1]):
                self.groups.send(*datagram)
            elif self.carriers is not None:
                self.carriers.send(*datagram)
        return ours
