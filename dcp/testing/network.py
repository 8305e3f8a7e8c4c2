"""A whole network of machines in one process, in virtual time, exactly repeatable from a seed.

After every input a machine is drained: datagrams go onto the network, events to the
callback, its next deadline onto the heap.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from dcp.links.address import SocketAddress, is_connection, is_group, to_group
from dcp.testing.clock import VirtualClock
from dcp.testing.conditions import Conditions, Datagram, Path
from dcp.testing.tubes import Tubes


class Machine(Protocol):
    """The five methods."""

    def receive_datagram(self, data: Datagram, address: SocketAddress, *, now: float) -> bool: ...
    def handle_timeout(self, *, now: float) -> None: ...
    def datagrams_to_send(self, *, now: float) -> list[tuple[Datagram, SocketAddress]]: ...
    def next_timeout(self, *, now: float) -> float | None: ...
    def next_event(self) -> Any: ...


class _Host:
    __slots__ = ("frozen", "held", "machine", "timer")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.timer: float | None = None
        self.frozen = False
        self.held: list[tuple[Datagram, SocketAddress]] = []


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
        on_event: Callable[[SocketAddress, Any, float], None] | None = None,
        on_turn: Callable[[SocketAddress], None] | None = None,
    ) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.timeouts: Counter[SocketAddress] = Counter()
        """How often each address's timer has fired: one that spins shows here."""
        self.conditions = conditions or Conditions()
        self._on_event = on_event
        self._on_turn = on_turn
        self._hosts: dict[SocketAddress, _Host] = {}
        self._paths: dict[tuple[SocketAddress, SocketAddress], Path] = {}
        self._cut: set[tuple[SocketAddress, SocketAddress]] = set()
        self.tubes = Tubes(
            at=self.at,
            now=lambda: self.now,
            machine_at=lambda address: host.machine if (host := self._hosts.get(address)) is not None else None,
            deliver=self._deliver,
            pump=self.pump,
            is_awake=self.is_awake,
        )
        """Connections, for machines whose `Config.transports` has more than UDP."""
        self.deaf: set[SocketAddress] = set()
        """Hosts that no multicast reaches."""

    # --- hosts --------------------------------------------------------------------------------------------------------

    def add(self, address: SocketAddress, machine: Machine) -> None:
        """Put a machine at an address; one that is there already is replaced, as by a restart."""
        if address in self._hosts:
            self.crash(address)
        self._hosts[address] = _Host(machine)
        self.pump(address)

    def crash(self, address: SocketAddress) -> None:
        self._hosts.pop(address, None)
        self.tubes.host_gone(address)

    def freeze(self, address: SocketAddress) -> None:
        """As SIGSTOP does: no timers, no reading; the socket buffer fills."""
        self._hosts[address].frozen = True

    def thaw(self, address: SocketAddress) -> None:
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

    def is_awake(self, address: SocketAddress, machine: Machine) -> bool:
        """Whether this very machine runs there: not a later one, and not frozen."""
        host = self._hosts.get(address)
        return host is not None and host.machine is machine and not host.frozen

    def is_frozen(self, address: SocketAddress) -> bool:
        host = self._hosts.get(address)
        return host is not None and host.frozen

    # --- paths --------------------------------------------------------------------------------------------------------

    def set_conditions(
        self, conditions: Conditions, source: SocketAddress | None = None, to: SocketAddress | None = None
    ) -> None:
        """For one direction, or (with neither address) for everything."""
        if source is not None and to is not None:
            self._path(source, to).conditions = conditions
            return
        self.conditions = conditions
        for path in self._paths.values():
            path.conditions = conditions

    def cut(self, a: SocketAddress, b: SocketAddress) -> None:
        self._cut |= {(a, b), (b, a)}

    def cut_one_way(self, source: SocketAddress, to: SocketAddress) -> None:
        self._cut.add((source, to))

    def heal(self) -> None:
        self._cut.clear()

    def _path(self, source: SocketAddress, to: SocketAddress) -> Path:
        path = self._paths.get((source, to))
        if path is None:
            path = self._paths[source, to] = Path(self.conditions, self.rng)
        return path

    # --- the loop -----------------------------------------------------------------------------------------------------

    def pump(self, address: SocketAddress) -> None:
        """Drain a machine after an input or a command."""
        host = self._hosts.get(address)
        if host is None or host.frozen:
            return
        machine = host.machine
        has_more = True
        while has_more:
            while batch := machine.datagrams_to_send(now=self.now):
                for data, to in batch:
                    self.send(address, to, data)
            has_more = False
            while (event := machine.next_event()) is not None:
                has_more = True  # whoever is called with it may have made the machine send
                if self._on_event is not None:
                    self._on_event(address, event, self.now)
        at = machine.next_timeout(now=self.now)
        if at is not None and (host.timer is None or at < host.timer):
            self._arm(address, host, at)
        if self._on_turn is not None:
            self._on_turn(address)

    def _arm(self, address: SocketAddress, host: _Host, at: float) -> None:
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

    def send(self, source: SocketAddress, to: SocketAddress, data: Datagram) -> None:
        if is_group(to):
            self._send_to_group(source, to, data)
            return
        if is_connection(to):
            self.tubes.send(source, to, data)
            return
        if (source, to) in self._cut:
            return
        for when, arrived in self._path(source, to).carry(data, self.now):
            self.at(when, self._deliver, source, to, arrived)

    def _send_to_group(self, source: SocketAddress, to: SocketAddress, data: Datagram) -> None:
        """To every machine that listens to the group, over the path that unicast takes."""
        name = to_group(source[0], source[1], "")
        for address, host in self._hosts.items():
            memberships = getattr(getattr(host.machine, "hub", host.machine), "memberships", None)
            if memberships is None or (source, address) in self._cut or address in self.deaf:
                continue
            if any(group[:2] == to[:2] for group in memberships.wanted):
                for when, arrived in self._path(source, address).carry(data, self.now):
                    self.at(when, self._deliver, name, address, arrived)

    def _deliver(self, source: SocketAddress, to: SocketAddress, data: Datagram) -> None:
        host = self._hosts.get(to)
        if host is None:
            return
        if host.frozen:
            if len(host.held) < self.MAX_HELD:
                host.held.append((data, source))
            return
        host.machine.receive_datagram(data, source, now=self.now)
        self.pump(to)
