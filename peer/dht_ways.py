"""The directory's datagrams over whichever carrier reaches a node: a peer behind a firewall that drops UDP must find
parents too.

Requests go the way that `dcp.links.ways` says; the nodes that the user named may be dialled at once, others only where
UDP seems blocked. A request that came over a connection is answered over it; its sender enters no table, since nobody
else could reach it there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dcp.links.address import is_accepted, is_connection

if TYPE_CHECKING:
    from dcp.driver import Driver
    from dcp.links.address import SocketAddress
    from dcp.links.ways import Ways
    from dht.shell.trio_directory import TrioDirectory

REQUEST, ANSWER = b"\x00", b"\x01"
"""The first byte of the directory's datagrams."""


class DirectoryWays:
    def __init__(self, ways: Ways, now: Callable[[], float]) -> None:
        self.directory: TrioDirectory | None = None
        self.driver: Driver | None = None
        """What moves the datagrams: it needs us first, to give us those that are not its own."""
        self._ways = ways
        self._now = now

    def send(self, data: bytes, address: tuple[str, int]) -> None:
        """What the directory sends, from its own side: the address is a node's."""
        driver = self.driver
        if driver is None:
            return
        if data[:1] != REQUEST:
            driver.send_other(data, address)
            return
        # As long as it knows no node, those that it asks were named by the user, or remembered.
        is_stranger = self.directory is not None and not self.directory.knows_nobody
        for way in self._ways.ask(address, self._now(), is_stranger=is_stranger):
            driver.send_other(data, way, is_question=True)

    def receive(self, data: bytes, address: SocketAddress) -> None:
        """Anything that is not DCP, from anybody."""
        directory = self.directory
        if directory is None:
            return
        if is_accepted(address):
            if data[:1] == REQUEST:
                directory.datagram_received(data, address[:2], reply=partial(self._reply, address))
        elif is_connection(address):
            if data[:1] == ANSWER:
                self._ways.answered(address, self._now())
                directory.datagram_received(data, address[:2], is_port_ours=False)
        else:
            if data[:1] == ANSWER:
                self._ways.answered(address, self._now())
            directory.datagram_received(data, address)

    def _reply(self, address: SocketAddress, data: bytes) -> None:
        driver = self.driver
        if driver is not None and driver.carriers is not None:
            driver.send_other(data, address)
            driver.carriers.was_of_use(address)
