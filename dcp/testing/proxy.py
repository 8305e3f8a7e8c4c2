"""A bad network between real UDP sockets: loss, delay, rate limits and the rest on loopback.

    async with open_proxy(server.address, Conditions(loss=0.2, delay=0.01)) as proxy:
        subscription = endpoint.subscribe("asdi", [proxy.address])

Every client that speaks to the proxy gets a socket of its own towards the server, so that the server sees as many
addresses as there are clients, and a pair of paths of its own: rates and bursts are those of one link.

Delays count from the moment the kernel took the datagram in, not from when Python came to read it: on a busy machine
the time a datagram waited to be read is part of its delay. What is due is sent within half a millisecond of its time
as long as the process gets the processor at all.
"""

from __future__ import annotations

import heapq
import random
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import trio

from dcp.links.link import SocketAddress
from dcp.testing.conditions import Conditions, Path

# From linux/socket.h: the kernel notes when a datagram came. Elsewhere the time of reading has to do.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
# Epoll waits in whole milliseconds, rounded up: aiming half of one too early centres the error.
SLACK = 0.0005
DRAIN = 64
RECEIVE_BYTES = 65_535
BUFFER_BYTES = 4 << 20

MAX_CLIENTS = 1_024
MAX_WAITING = 65_536
"""Datagrams on their way at once; more are dropped, and counted as `overflow`."""


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """What became of the datagrams of all clients in one direction."""

    passed: int
    dropped: int
    """By loss, burst or a full queue, as the conditions say."""


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    to_server: DirectionStatistics
    to_client: DirectionStatistics
    clients: int
    waiting: int
    """On their way now."""
    refused_clients: int
    """Datagrams of clients beyond `MAX_CLIENTS`."""
    overflow: int
    send_errors: int


class _Client:
    """One client: its socket towards the server, and its two paths."""

    __slots__ = ("address", "back", "sock", "there")

    def __init__(self, address: SocketAddress, sock: socket.socket, there: Path, back: Path) -> None:
        self.address = address
        self.sock = sock
        self.there = there
        self.back = back


class LossyProxy:
    """Get one from `open_proxy`."""

    def __init__(
        self, front: socket.socket, server: SocketAddress, to_server: Conditions, to_client: Conditions, seed: int
    ) -> None:
        self._front = front
        self._server = server
        self._to_server = to_server
        self._to_client = to_client
        self._seed = seed
        self._clients: dict[SocketAddress, _Client] = {}
        self._waiting: list[tuple[float, int, socket.socket, bytes, SocketAddress]] = []
        self._number = 0
        self._timer = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()
        self._refused = 0
        self._overflow = 0
        self._send_errors = 0

    @property
    def address(self) -> SocketAddress:
        """Where clients send to."""
        address: SocketAddress = self._front.getsockname()
        return address

    def set_conditions(
        self,
        both: Conditions | None = None,
        *,
        to_server: Conditions | None = None,
        to_client: Conditions | None = None,
    ) -> None:
        """From now on. What is on its way already arrives as it would have."""
        self._to_server = to_server or both or self._to_server
        self._to_client = to_client or both or self._to_client
        for client in self._clients.values():
            client.there.conditions = self._to_server
            client.back.conditions = self._to_client

    def statistics(self) -> ProxyStatistics:
        clients = self._clients.values()
        return ProxyStatistics(
            to_server=_sum([client.there for client in clients]),
            to_client=_sum([client.back for client in clients]),
            clients=len(clients),
            waiting=len(self._waiting),
            refused_clients=self._refused,
            overflow=self._overflow,
            send_errors=self._send_errors,
        )

    async def wait_settled(self, *, to_server: int = 0, to_client: int = 0) -> ProxyStatistics:
        """Until it has decided about this many datagrams in each direction since it began, and none is on its way."""
        while True:
            counts = self.statistics()
            there, back = counts.to_server, counts.to_client
            if (
                there.passed + there.dropped >= to_server
                and back.passed + back.dropped >= to_client
                and not counts.waiting
            ):
                return counts
            await self._changed.park()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._release)
            await self._read_front(nursery)

    def close(self) -> None:
        for sock in (self._front, *(client.sock for client in self._clients.values())):
            trio.lowlevel.notify_closing(sock)
            sock.close()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _read_front(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._front)
            for data, arrived, source in _drain(self._front):
                client = self._clients.get(source)
                if client is None:
                    if len(self._clients) >= MAX_CLIENTS:
                        self._refused += 1
                        continue
                    client = self._add_client(source)
                    nursery.start_soon(self._read_back, client)
                self._carry(client.there, data, arrived, client.sock, self._server)
            self._changed.unpark_all()

    async def _read_back(self, client: _Client) -> None:
        while True:
            await trio.lowlevel.wait_readable(client.sock)
            for data, arrived, source in _drain(client.sock):
                if source[:2] == self._server[:2]:
                    self._carry(client.back, data, arrived, self._front, client.address)
            self._changed.unpark_all()

    def _add_client(self, address: SocketAddress) -> _Client:
        # Each path throws its own dice: what one client does changes nothing for another.
        rng = random.Random(f"{self._seed}/{len(self._clients)}")
        there = Path(self._to_server, random.Random(rng.getrandbits(64)))
        back = Path(self._to_client, random.Random(rng.getrandbits(64)))
        client = _Client(address, _bound(self._front.family, self._front.getsockname()[0]), there, back)
        self._clients[address] = client
        return client

    # --- out ----------------------------------------------------------------------------------------------------------

    def _carry(self, path: Path, data: bytes, arrived: float, sock: socket.socket, to: SocketAddress) -> None:
        for when, damaged in path.carry(data, arrived):
            if len(self._waiting) >= MAX_WAITING:
                self._overflow += 1
                continue
            self._number += 1
            heapq.heappush(self._waiting, (when, self._number, sock, damaged, to))
        if self._waiting:
            due = self._waiting[0][0]
            if due <= trio.current_time() + SLACK:
                self._send_due()
            elif due - SLACK < self._timer.deadline:
                self._timer.deadline = due - SLACK

    async def _release(self) -> None:
        while True:
            deadline = self._waiting[0][0] - SLACK if self._waiting else float("inf")
            with trio.CancelScope(deadline=deadline) as self._timer:
                await trio.sleep_forever()
            self._send_due()
            self._changed.unpark_all()

    def _send_due(self) -> None:
        until = trio.current_time() + SLACK
        waiting = self._waiting
        while waiting and waiting[0][0] <= until:
            _, _, sock, data, to = heapq.heappop(waiting)
            try:
                sock.sendto(data, to)
            except OSError:
                self._send_errors += 1  # a full socket, or nobody there: the datagram is lost, as on any network


@asynccontextmanager
async def open_proxy(
    server: SocketAddress,
    conditions: Conditions | None = None,
    *,
    to_server: Conditions | None = None,
    to_client: Conditions | None = None,
    seed: int = 0,
) -> AsyncIterator[LossyProxy]:
    """Run a proxy in front of `server`, on a free port of loopback, until the block ends.

    `conditions` hold both ways unless a direction has its own. The dice are seeded, one pair for each client in the
    order in which they came: the same datagrams meet the same fate.
    """
    is_ipv6 = ":" in server[0]
    front = _bound(socket.AF_INET6 if is_ipv6 else socket.AF_INET, "::1" if is_ipv6 else "127.0.0.1")
    default = conditions or Conditions()
    proxy = LossyProxy(front, server, to_server or default, to_client or default, seed)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxy.run)
            try:
                yield proxy
            finally:
                nursery.cancel_scope.cancel()
    finally:
        proxy.close()


def _bound(family: socket.AddressFamily | int, host: str) -> socket.socket:
    # Plain, not trio's: we wait once for the socket, then drain it without a checkpoint per datagram.
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    with suppress(OSError):  # without it the time of reading is taken for the time of arrival
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    try:
        sock.bind((host, 0))
    except OSError:
        sock.close()
        raise
    return sock


def _drain(sock: socket.socket) -> list[tuple[bytes, float, SocketAddress]]:
    """What lies in the socket, each with trio's time at which the kernel took it in."""
    now, wall = trio.current_time(), time.time()
    found: list[tuple[bytes, float, SocketAddress]] = []
    for _ in range(DRAIN):
        try:
            data, ancillary, _, source = sock.recvmsg(RECEIVE_BYTES, 64)
        except BlockingIOError:
            break
        except OSError:
            continue  # an echo of something that we sent to nobody
        found.append((data, now - _age(ancillary, wall), source))
    return found


def _age(ancillary: list[tuple[int, int, bytes]], wall: float) -> float:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            # Older than a second, or from the future: the wall clock was set, and says nothing.
            age: float = wall - (seconds + nanoseconds * 1e-9)
            return age if 0 < age < 1 else 0.0
    return 0.0


def _sum(paths: list[Path]) -> DirectionStatistics:
    return DirectionStatistics(sum(path.passed for path in paths), sum(path.dropped for path in paths))
