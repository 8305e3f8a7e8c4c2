"""The one loop between a pure machine and a UDP socket.

Wait once, drain the socket, hand everything to the machine, send what is pending in batches, re-arm one timer. Nothing
waits in order to batch: what lies there together goes out together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import trio

from dcp.guard import fault, guard
from dcp.links.link import Address
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

    def receive_datagram(self, data: bytes, address: Address, *, now: float) -> bool: ...
    def handle_timeout(self, *, now: float) -> None: ...
    def datagrams_to_send(self, *, now: float) -> list[tuple[bytes, Address]]: ...
    def next_timeout(self, *, now: float) -> float | None: ...
    def next_event(self) -> Any: ...


class Driver:
    """Runs a machine on a socket. `on_event` is called for each event; `on_turn` after every input was dealt with.

    Datagrams whose first byte is not DCP's go to `on_other`: one port serves the DHT too.

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
        on_other: Callable[[bytes, Address], None] | None = None,
    ) -> None:
        self.machine = machine
        self.udp = udp
        self._foreign = 0
        self._on_event = on_event
        self._on_turn = on_turn
        self._on_other = on_other
        self._unsent: list[tuple[bytes, Address]] = []
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

    @property
    def dropped(self) -> dict[str, int]:
        """Datagrams that never reached the machine or the network, by reason, as in `HubStatistics.dropped`."""
        counts = {"foreign": self._foreign, "truncated": self.udp.truncated, "send error": self.udp.send_errors}
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
        now = trio.current_time()
        self._turned_at = now
        try:
            at = self.machine.next_timeout(now=now)
        except Exception as error:
            at = now + FAULT_PAUSE
            fault("timer", error)
        self._timer.deadline = math.inf if at is None else max(at, self._timers_from)

    def turn_soon(self) -> None:
        """The same, but in a burst of calls only once, as soon as this task yields; a single call is done at once."""
        if self._flush_wanted:
            return
        if trio.current_time() - self._turned_at > 1e-3:
            self.turn()
            return
        self._flush_wanted = True
        self._flusher.unpark()

    def send_other(self, data: bytes, address: Address) -> None:
        """Send a datagram of another protocol through the same port. It is dropped when the socket is full."""
        if not self._unsent:
            self.udp.send_now([(data, address)])

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        fruitless = 0
        while True:
            if fruitless >= FRUITLESS_BATCHES:
                await trio.sleep(FRUITLESS_PAUSE)
            await self.udp.wait_readable()
            batch = self.udp.receive_now(RECEIVE_BATCH)
            now = trio.current_time()
            changed = False
            for data, address in batch:
                try:
                    if data and data[0] >> 4 == 1:
                        changed |= self.machine.receive_datagram(data, address, now=now)
                    elif self._on_other is not None:
                        self._on_other(data, address)
                    else:
                        self._foreign += 1
                except Exception as error:
                    fault("datagram", error)
                    changed = True
            fruitless = 0 if changed else fruitless + 1
            if changed:  # a turn costs far more than garbage: what changed nothing must not buy one
                self.turn()
            elif self._on_other is not None:
                with guard("turn"):  # of another protocol: its owner may be waiting for what that says
                    self._on_turn()

    async def _sleep(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._timer.deadline) as self._timer:
                await trio.sleep_forever()
            now = trio.current_time()
            try:
                self.machine.handle_timeout(now=now)
            except Exception as error:
                self._timers_from = now + FAULT_PAUSE
                fault("timer", error)
            self._timer.deadline = math.inf
            self.turn()

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
                try:
                    self._unsent = self.machine.datagrams_to_send(now=trio.current_time())
                except Exception as error:
                    fault("send", error)
            if not self._unsent:
                return sent_any
            sent = self.udp.send_now(self._unsent)
            sent_any = sent_any or sent > 0
            if sent < len(self._unsent):
                del self._unsent[:sent]
                self._writer.unpark()
                return False
            self._unsent = []
