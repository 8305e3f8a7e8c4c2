"""A real UDP socket that loses datagrams at random on the way in: for whole peers in processes on loopback."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from dcp.links.link import Address
from dcp.udp import UdpSocket


class LossyUdpSocket(UdpSocket):
    """Both ends of a link lose what comes to them, so that each direction of it loses `loss`."""

    loss = 0.0
    lost = 0
    dice = random.Random()

    def receive_now(self, most: int) -> list[tuple[bytes, Address]]:
        batch = super().receive_now(most)
        kept = [datagram for datagram in batch if self.dice.random() >= self.loss]
        self.lost += len(batch) - len(kept)
        return kept


def lossy(loss: float, dice: random.Random) -> Callable[[tuple[str, int]], Awaitable[UdpSocket]]:
    """A `bind` for `peer.node.open_peer`."""

    async def bind(address: tuple[str, int]) -> UdpSocket:
        socket = await LossyUdpSocket.bind(address)
        assert isinstance(socket, LossyUdpSocket)
        socket.loss, socket.dice = loss, dice
        return socket

    return bind
