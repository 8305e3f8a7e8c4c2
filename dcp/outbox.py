"""Datagrams that wait for the socket: bounded in number and in bytes. What finds no room is dropped and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dcp.links.link import SocketAddress


class Outbox:
    """Only for what is said again by a timer anyway."""

    __slots__ = ("_datagrams", "_most", "_most_bytes", "bytes", "dropped")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._datagrams: deque[tuple[bytes, SocketAddress]] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._datagrams)

    def add(self, datagram: bytes, address: SocketAddress) -> bool:
        if len(self._datagrams) >= self._most or self.bytes + len(datagram) > self._most_bytes:
            self.dropped += 1
            return False
        self._datagrams.append((datagram, address))
        self.bytes += len(datagram)
        return True

    def add_all(self, datagrams: Iterable[tuple[bytes, SocketAddress]]) -> None:
        for datagram, address in datagrams:
            self.add(datagram, address)

    def take(self, most: int) -> list[tuple[bytes, SocketAddress]]:
        waiting = self._datagrams
        if not waiting:
            return []
        taken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        self.bytes -= sum([len(datagram) for datagram, _ in taken])
        return taken
