"""The sockets of multicast groups: one for each group that we listen to, one for each interface that we send over.

A group is reached over the interface that leads to one of its peers; the system is asked which one that is. Where there
is no multicast, groups are not heard, and packets come over the links as always.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import trio

from dcp.guard import fault
from dcp.links.address import SocketAddress, near_of, to_group

MAX_SENDING = 8
"""Interfaces that we send over."""
RECEIVE_BATCH = 64
RECEIVE_BYTES = 65_535
BUFFER_BYTES = 1 << 20
HOPS = 1
"""A group never leaves its LAN."""

_INTERFACES = Path("/proc/net/if_inet6")

Take = Callable[[list[tuple[bytes, SocketAddress]]], bool]


class GroupSockets:
    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        """Datagrams that did not go out, and groups that could not be joined."""
        self._sending: dict[str, socket.socket | None] = {}
        self._listening: dict[SocketAddress, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self._take: Take = lambda batch: False

    async def run(self, take: Take) -> None:
        """Until cancelled; what comes goes to `take`, from addresses that say it came from a group."""
        self._take = take
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None  # before it closes: the hub may still ask for groups
        finally:
            for sending in self._sending.values():
                if sending is not None:
                    sending.close()
            self._sending.clear()

    def send(self, data: bytes, group: SocketAddress) -> None:
        """Never waits: what the socket does not take is lost, as on the network."""
        near = near_of(group)
        if near not in self._sending:
            if len(self._sending) >= MAX_SENDING:
                self._forget_oldest()
            self._sending[near] = _sending_socket(near)
        sock = self._sending[near]
        try:
            if sock is None:
                raise OSError(errno.ENETUNREACH, "no multicast here")
            sock.sendto(data, group[:2])
        except OSError:
            self.dropped["multicast"] += 1

    def _forget_oldest(self) -> None:
        oldest = self._sending.pop(next(iter(self._sending)))
        if oldest is not None:
            oldest.close()

    def listen_to(self, wanted: set[SocketAddress]) -> None:
        """To these groups and no others."""
        for group in [group for group in self._listening if group not in wanted]:
            self._listening.pop(group).cancel()
        for group in wanted - self._listening.keys():
            if self._nursery is None:
                return
            scope = self._listening[group] = trio.CancelScope()
            self._nursery.start_soon(self._listen, group, scope)

    async def _listen(self, group: SocketAddress, scope: trio.CancelScope) -> None:
        try:
            sock = _listening_socket(group)
        except OSError:
            self.dropped["no multicast"] += 1
            return
        with scope, sock:
            while True:
                await trio.lowlevel.wait_readable(sock)
                if batch := _received(sock):
                    try:
                        self._take(batch)
                    except Exception as error:
                        fault("group", error)


def _received(sock: socket.socket) -> list[tuple[bytes, SocketAddress]]:
    batch: list[tuple[bytes, SocketAddress]] = []
    with contextlib.suppress(OSError):
        while len(batch) < RECEIVE_BATCH:
            data, source = sock.recvfrom(RECEIVE_BYTES)
            batch.append((data, to_group(source[0], source[1], "")))
    return batch


def _local_address(near: str) -> tuple[str, int]:
    """Our address on the way to a peer, and for IPv6 the number of its interface. OSError when there is no way."""
    family = socket.AF_INET6 if ":" in near else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        info = socket.getaddrinfo(near, 9, family, socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        sock.connect(info[0][4])  # sends nothing
        local = sock.getsockname()
    if family == socket.AF_INET:
        return str(local[0]), 0
    return str(local[0]), int(local[3]) or _interface_of(str(local[0]))


def _interface_of(address: str) -> int:
    """The number of the interface that has an IPv6 address. OSError."""
    wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
    for line in _INTERFACES.read_text().splitlines():
        packed, index, *_ = line.split()
        if packed == wanted:
            return int(index, 16)
    raise OSError(errno.ENODEV, f"no interface has {address}")


def _sending_socket(near: str) -> socket.socket | None:
    try:
        local, interface = _local_address(near)
        sock = socket.socket(socket.AF_INET6 if ":" in near else socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        sock.setblocking(False)
        if ":" in near:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOPS)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, HOPS)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
    except OSError:
        sock.close()
        return None
    return sock


def _listening_socket(group: SocketAddress) -> socket.socket:
    host, port = group[:2]
    local, interface = _local_address(near_of(group))
    is_v6 = ":" in host
    sock = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other peers of this host listen too
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        # Bound to the group itself: what comes to the port in any other way is not for us.
        if is_v6:
            sock.bind((host, port, 0, interface))
            membership = socket.inet_pton(socket.AF_INET6, host) + struct.pack("@I", interface)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
        else:
            sock.bind((host, port))
            membership = socket.inet_aton(host) + socket.inet_aton(local)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        sock.close()
        raise
    return sock
