"""A real UDP socket whose paths can be made worse while it runs: `Conditions` and cuts, for each sender's address.

What comes in is treated, not what goes out: with both ends doing so, each direction of a link has the conditions.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from heapq import heappop, heappush
from itertools import count

import trio

from dcp.links.link import SocketAddress
from dcp.testing.conditions import Conditions, Path
from dcp.udp import UdpSocket

MAX_HELD = 50_000
"""Datagrams on their way at once; beyond it they are lost, as in any full queue."""
HostPort = tuple[str, int]


class FaultySocket(UdpSocket):
    """Fair until `set_conditions` says otherwise; `lost` and `passed` count by sender while it is not."""

    def __init__(self, sock: socket.socket, *, segmentation: bool = True) -> None:
        super().__init__(sock, segmentation=segmentation)
        self.lost: Counter[HostPort] = Counter()
        self.passed: Counter[HostPort] = Counter()
        self.dice: random.Random = random.Random()
        self._held: list[tuple[float, int, bytes, SocketAddress]] = []
        self._numbers = count()
        self.set_conditions(None)

    def set_conditions(
        self,
        everywhere: Conditions | None,
        links: Mapping[HostPort, Conditions] | None = None,
        cut: frozenset[HostPort] = frozenset(),
    ) -> None:
        """From now on; `links` are senders with conditions of their own, `cut` those from whom nothing arrives."""
        self._everywhere, self._links, self._cut = everywhere or Conditions(delay=0.0), dict(links or {}), cut
        self._paths: dict[HostPort, Path] = {}
        self._is_fair = everywhere is None and not links and not cut

    async def wait_readable(self) -> None:
        if not self._held:
            await super().wait_readable()
            return
        with trio.move_on_at(self._held[0][0]):
            await super().wait_readable()

    def receive_now(self, most: int) -> list[tuple[bytes, SocketAddress]]:
        batch = super().receive_now(most)
        if self._is_fair and not self._held:
            return batch
        now = trio.current_time()
        arrived: list[tuple[bytes, SocketAddress]] = []
        for data, address in batch:
            self._carry(data, address, now, arrived)
        while self._held and self._held[0][0] <= now:
            _, _, data, address = heappop(self._held)
            arrived.append((data, address))
        return arrived

    def _carry(
        self, data: bytes, address: SocketAddress, now: float, arrived: list[tuple[bytes, SocketAddress]]
    ) -> None:
        source = (address[0], address[1])
        path = self._paths.get(source)
        if path is None:
            path = self._paths[source] = Path(self._links.get(source, self._everywhere), self.dice)
        came = [] if source in self._cut else path.carry(data, now)
        if not came:
            self.lost[source] += 1
            return
        self.passed[source] += 1
        for at, copy in came:
            if at <= now:
                arrived.append((copy, address))
            elif len(self._held) < MAX_HELD:
                heappush(self._held, (at, next(self._numbers), copy, address))


def lossy(loss: float, dice: random.Random) -> Callable[[HostPort], Awaitable[UdpSocket]]:
    """A `bind` for peers that lose this share of what comes in, and nothing else."""

    async def bind(address: HostPort) -> UdpSocket:
        sock = await FaultySocket.bind(address)
        assert isinstance(sock, FaultySocket)
        sock.dice = dice
        sock.set_conditions(Conditions(delay=0.0, loss=loss))
        return sock

    return bind
