"""A UDP socket of one's own on an asyncio loop: for a bare node, the command line and tests.

A peer has one socket for DCP and the DHT, and gives the directory that socket's `send` instead of this.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from dht.addresses import canonical, endpoint_text, is_ip_literal
from dht.errors import DhtError

if TYPE_CHECKING:
    from dht.record import Address


class UdpTransport(asyncio.DatagramProtocol):
    """`dht.shell.protocol.Transport` over a socket. Errors of sending are counted: UDP promises nothing anyway."""

    def __init__(self, sock: socket.socket) -> None:
        self.address = canonical(sock.getsockname())
        self.send_errors = 0
        self.receive: Callable[[bytes, Any], None] = lambda data, addr: None
        self._is_ipv6 = sock.family == socket.AF_INET6
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since before Python 3.12 the selector's transport is no DatagramTransport by descent.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.receive(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.send_errors += 1  # ICMP says that a port is dead; the timeout deals with it

    def sendto(self, data: bytes, addr: Address) -> None:
        host, port = addr
        if self._is_ipv6 and ":" not in host:
            host = f"::ffff:{host}"
        if self._transport is None or self._transport.is_closing() or (":" in host) != self._is_ipv6:
            self.send_errors += 1
            return
        try:
            self._transport.sendto(data, (host, port))
        except (OSError, ValueError):
            self.send_errors += 1

    def abort(self) -> None:
        """Close at once, whatever waits to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def open_udp(loop: asyncio.AbstractEventLoop, listen: Address) -> UdpTransport:
    """Bind a socket; DhtError when the address cannot be had. `::` takes IPv4 as well."""
    host, port = listen
    if not is_ip_literal(host):
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as exc:
            raise DhtError(f"cannot listen on {host}: {exc}") from exc
        host = str(infos[0][4][0])
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if ":" in host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise DhtError(f"cannot listen on {endpoint_text((host, port))}: {exc.strerror or exc}") from exc
    _, protocol = await loop.create_datagram_endpoint(lambda: UdpTransport(sock), sock=sock)
    return protocol
