"""Finding peers on the same LAN or host without any configuration: a small multicast datagram now and then.

A beacon is a hint, never more: who hears one asks the sender's address for neighbours, and believes what it answers.
Scope is the local network (TTL 1, an administratively scoped group of RFC 2365), and IPv4: a network without any IPv4
needs a bootstrap address. A peer on this host's IPv6 loopback, which has no multicast, is announced over IPv4's, by a
beacon that says so.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dht.addresses import canonical
from dht.faults import border
from dht.ids import ID_BYTES, NodeId
from dht.ratelimit import SourceLimiter

if TYPE_CHECKING:
    from dht.record import Address

GROUP = "239.255.77.109"
PORT = 47109
_MAGIC = b"skymesh beacon 1\0"
_MAGIC_V6_LOOPBACK = b"skymesh beacon 6\0"  # at ::1 of the sender's host; for peers of the same host alone
_BEACON = struct.Struct(f">{len(_MAGIC)}s{ID_BYTES}sH")
_EAGER_DELAYS = (0.0, 1.0, 3.0)  # a network that starts together should not wait for the steady rhythm
_LOOPBACK = "127.0.0.1"


def encode_beacon(node_id: NodeId, port: int, *, on_v6_loopback: bool = False) -> bytes:
    return _BEACON.pack(_MAGIC_V6_LOOPBACK if on_v6_loopback else _MAGIC, node_id, port)


def decode_beacon_untrusted(data: bytes) -> tuple[NodeId, int, bool] | None:
    """Who, its port, and whether it is on its host's IPv6 loopback."""
    if len(data) != _BEACON.size:
        return None
    magic, node_id, port = _BEACON.unpack(data)
    if magic not in (_MAGIC, _MAGIC_V6_LOOPBACK) or not port:
        return None
    return NodeId(node_id), port, magic == _MAGIC_V6_LOOPBACK


class Beacon(asyncio.DatagramProtocol):
    """Says where our DHT port is, and hands on where others' are."""

    def __init__(
        self,
        node_id: NodeId,
        port: int,
        *,
        interval: float,
        rng: random.Random,
        on_peer: Callable[[Address], None],
        host: str = "",
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._node_id, self._port, self._interval, self._rng, self._on_peer = node_id, port, interval, rng, on_peer
        self._on_v6_loopback = host == "::1"
        self._reaches_v6 = ":" in host
        # One host's whole mesh shares an address, so the limit is on all beacons together.
        self._limiter = SourceLimiter(rate=2.0, burst=20.0, max_sources=1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, loop: asyncio.AbstractEventLoop, *, group_port: int = PORT) -> bool:
        """Return False if this host has no multicast: then there is no discovery, and no error."""
        self._loop = loop
        try:
            sock = _multicast_socket(group_port)
        except OSError:
            return False
        self._socket = sock
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=sock)
        self._task = loop.create_task(self._send_for_ever(group_port))
        return True

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        with border("dht beacon"):
            self._receive(data, addr)

    def _receive(self, data: bytes, addr: Any) -> None:
        beacon = decode_beacon_untrusted(data)
        if beacon is None:
            self.counters["malformed"] += 1
            return
        node_id, port, on_v6_loopback = beacon
        if node_id == self._node_id:
            return
        source = canonical(addr)[0]
        if (on_v6_loopback and not (self._reaches_v6 and source.startswith("127."))) or (
            self._on_v6_loopback and not on_v6_loopback
        ):
            self.counters["out_of_reach"] += 1
            return
        assert self._loop is not None
        if not self._limiter.allows("", now=self._loop.time()):
            self.counters["rate_limited"] += 1
            return
        self.counters["heard"] += 1
        self._on_peer(("::1" if on_v6_loopback else source, port))

    def error_received(self, exc: Exception) -> None:
        self.counters["socket_error"] += 1

    async def _send_for_ever(self, group_port: int) -> None:
        data = encode_beacon(self._node_id, self._port, on_v6_loopback=self._on_v6_loopback)
        for delay in _EAGER_DELAYS:
            await asyncio.sleep(delay * self._rng.uniform(0.75, 1.25))
            self._send(data, group_port)
        while True:
            await asyncio.sleep(self._interval * self._rng.uniform(0.75, 1.25))
            self._send(data, group_port)

    def _send(self, data: bytes, group_port: int) -> None:
        """Over the default interface for the LAN, and over loopback for a host without a network."""
        assert self._socket is not None
        for interface in (_LOOPBACK,) if self._on_v6_loopback else ("0.0.0.0", _LOOPBACK):
            try:
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
                self._socket.sendto(data, (GROUP, group_port))
                self.counters["sent"] += 1
            except OSError:
                self.counters["not_sent"] += 1


def _multicast_socket(group_port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("", group_port))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        joined = 0
        for interface in ("0.0.0.0", _LOOPBACK):
            try:
                membership = socket.inet_aton(GROUP) + socket.inet_aton(interface)
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
                joined += 1
            except OSError:
                continue
        if not joined:
            raise OSError("no interface supports multicast")
    except OSError:
        sock.close()
        raise
    return sock
