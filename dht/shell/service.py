"""A node with everything around it: a socket or the peer's, remembered contacts, the beacon, pins, the directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dht.config import DEFAULT_CONFIG, DEFAULT_LIMITS, NodeConfig, StoreLimits
from dht.contacts import load_contacts, save_contacts
from dht.pins import Pins
from dht.shell.beacon import Beacon
from dht.shell.kademlia_directory import KademliaDirectory
from dht.shell.node import Node
from dht.shell.udp import UdpTransport, open_udp

if TYPE_CHECKING:
    from dht.identity import Identity
    from dht.ids import PeerId
    from dht.record import Address
    from dht.shell.protocol import Transport

log = logging.getLogger(__name__)

_FAREWELL = 1.0  # seconds that closing may take to withdraw records; they expire anyway


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """How a directory finds the network, and what it remembers between runs."""

    bootstrap: tuple[Address, ...] = ()  # (host, port); host names are resolved at every attempt
    contacts_file: Path | None = None
    pins_file: Path | None = None
    owners: Mapping[str, PeerId] = field(default_factory=dict)  # stream -> the owner that a person chose; pinned
    beacon: bool = True  # find peers on this LAN and host by multicast
    read_only: bool = False  # ask, store nothing for others, stay out of their tables
    config: NodeConfig = DEFAULT_CONFIG
    limits: StoreLimits = DEFAULT_LIMITS


class DirectoryService:
    """Open with `open`, close with `close`; between them `directory` and `node` are alive."""

    def __init__(self, node: Node, directory: KademliaDirectory, options: DirectoryOptions, address: Address) -> None:
        self.node, self.directory, self.options, self.address = node, directory, options, address
        self._beacon: Beacon | None = None
        self._socket: UdpTransport | None = None
        self._saver: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        identity: Identity,
        options: DirectoryOptions,
        *,
        loop: asyncio.AbstractEventLoop,
        listen: Address | None = None,
        transport: Transport | None = None,
        address: Address | None = None,
    ) -> DirectoryService:
        """Either on a socket of its own at `listen`, or on `transport`, which sends from the local `address`."""
        own_socket = None
        if transport is None:
            if listen is None:
                raise ValueError("a directory needs an address to listen on, or a shared transport")
            transport = own_socket = await open_udp(loop, listen)
            address = own_socket.address
        if address is None:
            raise ValueError("a shared transport needs its local address")
        pins = Pins(options.pins_file)
        for stream, owner in options.owners.items():
            pins.choose(stream, owner)
        node = Node(
            identity.node_id,
            transport=transport,
            loop=loop,
            bootstrap=options.bootstrap,
            remembered=load_contacts(options.contacts_file) if options.contacts_file is not None else (),
            config=options.config,
            limits=options.limits,
            read_only=options.read_only,
        )
        service = cls(node, KademliaDirectory(node, identity, pins=pins), options, address)
        if own_socket is not None:
            service._socket = own_socket
            own_socket.receive = node.datagram_received
        node.start()
        if options.beacon:
            await service._open_beacon(identity)
        if options.contacts_file is not None:
            service._saver = loop.create_task(service._save_now_and_then())
        return service

    async def close(self) -> None:
        """Say goodbye to those who hold our records, remember contacts, stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.directory.withdraw(), _FAREWELL)
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.gather(self._saver, return_exceptions=True)
            self._save()
        if self._beacon is not None:
            await self._beacon.close()
        await self.directory.close()
        await self.node.close()
        if self._socket is not None:
            self._socket.close()
        await asyncio.sleep(0)  # asyncio closes a socket one step after close() is called

    def crash(self) -> None:
        """Stop without notifying others: for tests and benchmarks of what others see then."""
        if self._socket is not None:
            self._socket.abort()

    def datagram_received(
        self, data: bytes, addr: Any, *, reply: Callable[[bytes], None] | None = None, is_port_ours: bool = True
    ) -> None:
        own_port = None if is_port_ours else self.address[1]
        self.node.datagram_received(data, addr, reply=reply, own_port=own_port)

    async def _open_beacon(self, identity: Identity) -> None:
        config = self.options.config
        beacon = Beacon(
            identity.node_id,
            self.address[1],
            interval=config.beacon_interval,
            rng=self.node.rng,
            on_peer=self.node.hint,
            host=self.address[0],
        )
        if await beacon.open(self.node.loop):
            self._beacon = beacon
        else:
            log.info("this host has no multicast: peers on the LAN are not found automatically")

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.options.config.save_interval)
            self._save()

    def _save(self) -> None:
        assert self.options.contacts_file is not None
        try:
            save_contacts(self.options.contacts_file, self.node.remember())
        except OSError as exc:
            log.warning("cannot save contacts in %s: %s", self.options.contacts_file, exc)
