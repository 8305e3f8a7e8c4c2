"""Openings that wait for their owner's answer: bounded in number, in bytes and in time."""

from __future__ import annotations

from dataclasses import dataclass

from dcp import handshake
from dcp.links.link import SocketAddress

MAX_TICKETS = 256
# Queries and hellos of all of them together. An owner answers at once; what waits here is what it has not seen yet.
MAX_TICKET_BYTES = 4 << 20


@dataclass(slots=True)
class Ticket:
    request: handshake.OpenRequest
    address: SocketAddress
    at: float

    @property
    def bytes(self) -> int:
        return len(self.request.query) + len(self.request.hello) + len(self.request.stream)


class Tickets:
    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self._of_nonce: dict[bytes, int] = {}
        self._next = 1
        self.bytes = 0
        self.dropped = 0
        """Openings that found no room. The child asks again."""

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, nonce: bytes) -> bool:
        return nonce in self._of_nonce

    def add(self, request: handshake.OpenRequest, address: SocketAddress, now: float) -> int | None:
        """The number under which its owner answers; None when too many wait."""
        ticket = Ticket(request, address, now)
        if len(self._tickets) >= MAX_TICKETS or self.bytes + ticket.bytes > MAX_TICKET_BYTES:
            self.dropped += 1
            return None
        number = self._next
        self._next += 1
        self._tickets[number] = ticket
        self._of_nonce[request.nonce] = number
        self.bytes += ticket.bytes
        return number

    def take(self, number: int) -> Ticket | None:
        ticket = self._tickets.pop(number, None)
        if ticket is not None:
            del self._of_nonce[ticket.request.nonce]
            self.bytes -= ticket.bytes
        return ticket

    def older_than(self, when: float) -> list[int]:
        return [number for number, ticket in self._tickets.items() if ticket.at < when]

    def oldest_at(self) -> float | None:
        first = next(iter(self._tickets.values()), None)  # they are in the order in which they came
        return None if first is None else first.at
