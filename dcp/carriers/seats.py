"""Which of the connections that others open to us are kept. Pure.

Anyone can open a connection and say nothing, so those that carry a link come first: a newcomer takes the place of the
oldest connection without one, of its own host where that host has its full share, else of the host with the most. A
connection that carries a link is never cut for a newcomer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dcp.admission import network_of
from dcp.links.address import SocketAddress

MAX_ACCEPTED = 512
MAX_ACCEPTED_PER_HOST = 32
"""A host is an IPv4 address or an IPv6 /64; peers behind one address translator are one host."""
UNPROVED_SECONDS = 10.0
"""How long an accepted connection may be there before a link, or a request of the directory, was answered over it."""
IDLE_SECONDS = 30.0
"""How long one is kept that carries no link any more, or that only brought requests of the directory."""


@dataclass(slots=True)
class _Seat:
    host: bytes
    since: float
    """When it came, or when it was last of use."""
    is_linked: bool = False
    was_of_use: bool = False


class Seats:
    def __init__(self, most: int = MAX_ACCEPTED, most_per_host: int = MAX_ACCEPTED_PER_HOST) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._seats: dict[SocketAddress, _Seat] = {}
        self.refused = 0
        """Newcomers for whom there was no room."""
        self.cut = 0
        """Connections without a link that gave way to a newcomer."""
        self.expired = 0
        """Connections that were closed because they carried no link for too long."""

    def __len__(self) -> int:
        return len(self._seats)

    def take(self, address: SocketAddress, now: float) -> tuple[bool, SocketAddress | None]:
        """A connection has come: whether it stays, and which one has to go for it."""
        host = network_of(address[0])
        if address in self._seats:  # its peer uses the port again, so the old connection is dead, whatever we think
            self._seats[address] = _Seat(host, now)
            return True, address
        counts = Counter(seat.host for seat in self._seats.values())
        victim: SocketAddress | None = None
        if counts[host] >= self._most_per_host:
            victim = self._oldest_without_link(host)
        elif len(self._seats) >= self._most:
            fullest = (other for other, _ in counts.most_common())
            victim = next((found for other in fullest if (found := self._oldest_without_link(other))), None)
        else:
            self._seats[address] = _Seat(host, now)
            return True, None
        if victim is None:
            self.refused += 1
            return False, None
        del self._seats[victim]
        self.cut += 1
        self._seats[address] = _Seat(host, now)
        return True, victim

    def _oldest_without_link(self, host: bytes) -> SocketAddress | None:
        found = [(seat.since, a) for a, seat in self._seats.items() if seat.host == host and not seat.is_linked]
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def leave(self, address: SocketAddress) -> None:
        self._seats.pop(address, None)

    def was_of_use(self, address: SocketAddress, now: float) -> None:
        """A request of another protocol was answered over it."""
        seat = self._seats.get(address)
        if seat is not None:
            seat.since, seat.was_of_use = now, True

    def overdue(self, linked: set[SocketAddress], now: float) -> list[SocketAddress]:
        """The connections to close now, given those that carry a link."""
        overdue = []
        for address, seat in self._seats.items():
            seat.is_linked = address in linked
            if seat.is_linked:
                seat.since, seat.was_of_use = now, True
            elif now - seat.since > (IDLE_SECONDS if seat.was_of_use else UNPROVED_SECONDS):
                overdue.append(address)
        self.expired += len(overdue)
        return overdue
