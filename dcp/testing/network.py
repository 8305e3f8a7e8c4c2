"""A whole network of machines in one process, in virtual time, exactly repeatable from a seed.

After every input a machine is drained: datagrams go onto the network, events to the
callback, its next deadline onto the heap.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from dcp.links.link import Address
from dcp.testing.clock import VirtualClock
from dcp.testing.conditions import Conditions, Path


class Machine(Protocol):
    """The five methods."""

    def receive_datagram(self, data: bytes, address: Address, *, now: float) -> bool: ...
    def handle_timeout(self, *, now: float) -> None: ...
    def datagrams_to_send(self, *, now: float) -> list[tuple[bytes, Address]]: ...
    def next_timeout(self, *, now: float) -> float | None: ...
    def next_event(self) -> Any: ...


class _Host:
    __slots__ = ("frozen", "held", "machine", "timer")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.timer: float | None = None
        self.frozen = False
        self.held: list[tuple[bytes, Address]] = []


class Network(VirtualClock):
    """`on_event(address, event, now)` is called for every event of every machine, in order; `on_turn(address)` after
    every input of a machine, when it has been drained: the place for checks that must hold at every instant."""

    # Datagrams that wait in a frozen host's socket buffer; the rest is lost, as in life.
    MAX_HELD = 200

    def __init__(
        self,
        seed: int,
        *,
        conditions: Conditions | None = None,
        on_event: Callable[[Address, Any, float], None] | None = None,
        on_turn: Callable[[Address], None] | None = None,
    ) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.timeouts: Counter[Address] = Counter()
        """How often each address's timer has fired: one that spins shows here."""
        self.conditions = conditions or Conditions()
        self._on_event = on_event
        self._on_turn = on_turn
        self._hosts: dict[Address, _Host] = {}
        self._paths: dict[tuple[Address, Address], Path] = {}
        self._cut: set[tuple[Address, Address]] = set()

    # --- hosts --------------------------------------------------------------------------------------------------------

    def add(self, address: Address, machine: Machine) -> None:
        """Put a machine at an address; one that is there already is replaced, as by a restart."""
        self._hosts[address] = _Host(machine)
        self.pump(address)

    def crash(self, address: Address) -> None:
        self._hosts.pop(address, None)

    def freeze(self, address: Address) -> None:
        """As SIGSTOP does: no timers, no reading; the socket buffer fills."""
        self._hosts[address].frozen = True

    def thaw(self, address: Address) -> None:
        host = self._hosts.get(address)
        if host is None or not host.frozen:
            return
        host.frozen = False
        held, host.held = host.held, []
        # What comes first after a thaw, the late timers or the full socket, is the scheduler's whim.
        if self.rng.random() < 0.5:
            host.machine.handle_timeout(now=self.now)
        for data, source in held:
            host.machine.receive_datagram(data, source, now=self.now)
        self.pump(address)

    def is_frozen(self, address: Address) -> bool:
        host = self._hosts.get(address)
        return host is not None and host.frozen

    # --- paths --------------------------------------------------------------------------------------------------------

    def set_conditions(self, conditions: Conditions, source: Address | None = None, to: Address | None = None) -> None:
        """For one direction, or (with neither address) for everything."""
        if source is not None and to is not None:
            self._path(source, to).conditions = conditions
            return
        self.conditions = conditions
        for path in self._paths.values():
            path.conditions = conditions

    def cut(self, a: Address, b: Address) -> None:
        self._cut |= {(a, b), (b, a)}

    def heal(self) -> None:
        self._cut.clear()

    def _path(self, source: Address, to: Address) -> Path:
        path = self._paths.get((source, to))
        if path is None:
            path = self._paths[source, to] = Path(self.conditions, self.rng)
        return path

    # --- the loop -----------------------------------------------------------------------------------------------------

    def pump(self, address: Address) -> None:
        """Drain a machine after an input or a command."""
        host = self._hosts.get(address)
        if host is None or host.frozen:
            return
        machine = host.machine
        while True:
            busy = False
            while batch := machine.datagrams_to_send(now=self.now):
                busy = True
                for data, to in batch:
                    self._send(address, to, data)
            while (event := machine.next_event()) is not None:
                busy = True
                if self._on_event is not None:
                    self._on_event(address, event, self.now)
            if not busy:
                break
        at = machine.next_timeout(now=self.now)
        if at is not None and (host.timer is None or at < host.timer):
            self._arm(address, host, at)
        if self._on_turn is not None:
            self._on_turn(address)

    def _arm(self, address: Address, host: _Host, at: float) -> None:
        host.timer = at

        def fire() -> None:
            if self._hosts.get(address) is not host or host.timer != at:
                return
            host.timer = None
            if host.frozen:
                self._arm(address, host, self.now + 0.01)
                return
            self.timeouts[address] += 1
            host.machine.handle_timeout(now=self.now)
            self.pump(address)

        self.at(at, fire)

    def _send(self, source: Address, to: Address, data: bytes) -> None:
        if (source, to) in self._cut:
            return
        for when, arrived in self._path(source, to).carry(data, self.now):
            self.at(when, self._deliver, source, to, arrived)

    def _deliver(self, source: Address, to: Address, data: bytes) -> None:
        host = self._hosts.get(to)
        if host is None:
            return
        if host.frozen:
            if len(host.held) < self.MAX_HELD:
                host.held.append((data, source))
            return
        host.machine.receive_datagram(data, source, now=self.now)
        self.pump(to)
