"""A peer's UDP socket: inside, every address is (host, port), by whichever family it came.

The system names an IPv6 sender with four items, and an IPv4 sender on an IPv6 socket as `::ffff:192.0.2.1`. Records and
messages of the mesh know neither, and an answer is believed only when it comes from the address that was asked.
"""

from __future__ import annotations

import socket
from functools import lru_cache

from dcp.links.link import SocketAddress
from dcp.udp import UdpSocket

MAX_REMEMBERED = 8_192
"""Addresses whose other form is remembered: more than the links and contacts of a peer."""


class PeerSocket(UdpSocket):
    """On an IPv4 socket nothing is changed, and nothing is spent."""

    def __init__(self, sock: socket.socket, *, segmentation: bool = True) -> None:
        super().__init__(sock, segmentation=segmentation)
        self._is_ipv6 = sock.family == socket.AF_INET6
        self._outside = lru_cache(maxsize=MAX_REMEMBERED)(self._find_outside)

    def receive_now(self, most: int) -> list[tuple[bytes, SocketAddress]]:
        batch = super().receive_now(most)
        return [(data, _inside(address)) for data, address in batch] if self._is_ipv6 else batch

    def send_now(self, batch: list[tuple[bytes, SocketAddress]]) -> int:
        if self._is_ipv6:
            batch = [(data, self._outside(address)) for data, address in batch]
        return super().send_now(batch)

    def _find_outside(self, address: SocketAddress) -> SocketAddress:
        try:
            return self.canonical(address)
        except (ValueError, OSError):
            return address  # the system refuses it, and that is counted


@lru_cache(maxsize=MAX_REMEMBERED)
def _inside(address: SocketAddress) -> SocketAddress:
    host, port, *rest = address
    if len(rest) == 2 and rest[1]:
        return address  # link-local: without its scope it could not be answered
    return host.removeprefix("::ffff:") if "." in host else host, port
