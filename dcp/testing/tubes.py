"""Connections in virtual time: what TCP does to datagrams, for machines in a `Network`.

A question to (host, port, carrier) opens one, if a machine is there; datagrams come in order and are not lost, until
the connection is reset: then what is under way is gone, and both machines hear of the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dcp.carriers.pool import is_question
from dcp.links.address import SocketAddress, accepted_over, carrier_of, is_accepted

FIRST_PORT = 32_768


@dataclass(slots=True, eq=False)
class Tube:
    dialler: SocketAddress
    """The machine that opened it, and..."""
    far: SocketAddress
    """...its name for it."""
    acceptor: SocketAddress
    near: SocketAddress
    """The acceptor's name for it."""
    is_open: bool = True
    arrives: float = 0.0
    """When the last datagram under way arrives: the next one comes no sooner."""


class Tubes:
    def __init__(
        self,
        *,
        at: Callable[..., None],
        now: Callable[[], float],
        machine_at: Callable[[SocketAddress], Any],
        deliver: Callable[[SocketAddress, SocketAddress, bytes], None],
        pump: Callable[[SocketAddress], None],
        is_awake: Callable[[SocketAddress, Any], bool],
        delay: float = 0.005,
    ) -> None:
        self.delay = delay
        self.resets = 0
        self._at, self._now, self._is_awake = at, now, is_awake
        self._machine_at, self._deliver, self._pump = machine_at, deliver, pump
        self._of: dict[tuple[SocketAddress, SocketAddress], Tube] = {}
        self._next_port = FIRST_PORT

    @property
    def open(self) -> list[Tube]:
        return [tube for tube in dict.fromkeys(self._of.values()) if tube.is_open]

    def send(self, source: SocketAddress, to: SocketAddress, data: bytes) -> None:
        """From the machine at `source`, over its connection `to`."""
        tube = self._of.get((source, to))
        if tube is None:
            target: SocketAddress = (to[0], to[1])
            if is_accepted(to) or not is_question(data) or self._machine_at(target) is None:
                return
            near = accepted_over(carrier_of(to), (source[0], self._next_port))
            self._next_port += 1
            tube = Tube(source, to, target, near)
            self._of[source, to] = self._of[target, near] = tube
        is_outward = source == tube.dialler
        place, name = (tube.acceptor, tube.near) if is_outward else (tube.dialler, tube.far)
        tube.arrives = max(tube.arrives, self._now() + self.delay)
        self._at(tube.arrives, self._arrive, tube, place, name, data)

    def _arrive(self, tube: Tube, place: SocketAddress, name: SocketAddress, data: bytes) -> None:
        if tube.is_open:
            self._deliver(name, place, data)

    def reset(self, tube: Tube) -> None:
        """In the middle of whatever is under way."""
        if not tube.is_open:
            return
        tube.is_open = False
        self.resets += 1
        for place, name in ((tube.dialler, tube.far), (tube.acceptor, tube.near)):
            self._of.pop((place, name), None)
            machine = self._machine_at(place)
            if machine is not None:
                hub = getattr(machine, "hub", machine)  # a peer has one inside
                hub.connections.lost(name)
                if self._is_awake(place, machine):
                    machine.handle_timeout(now=self._now())
                self._pump(place)

    def host_gone(self, address: SocketAddress) -> None:
        """Its process has ended, and the system closes its connections."""
        for tube in self.open:
            if address in (tube.dialler, tube.acceptor):
                self.reset(tube)
