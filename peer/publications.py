"""Keeps what the directory says about this peer the same as what its mesh machine says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import trio

from peer.own_record import own_record, public_address

if TYPE_CHECKING:
    from dht import Grant, Identity
    from dht.shell.trio_directory import TrioDirectory
    from peer.core import PeerCore
    from peer.mesh.events import PublishRecord
    from peer.mesh.hostport import HostPort
    from peer.options import PeerOptions

log = logging.getLogger(__name__)


class Publishing(Protocol):
    """Of a peer, what its record is made from."""

    @property
    def options(self) -> PeerOptions: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def core(self) -> PeerCore: ...
    @property
    def address(self) -> HostPort: ...
    @property
    def grant(self) -> Grant | None: ...


class Publications:
    """Only the newest record counts; one that could not be published is wanted again by the next one."""

    def __init__(self, peer: Publishing) -> None:
        self._peer = peer
        self._record: PublishRecord | None = None
        self._changed = trio.Event()

    def want(self, record: PublishRecord | None) -> None:
        """None: what was published is withdrawn."""
        self._record = record
        self._changed.set()

    async def run(self, directory: TrioDirectory, may_publish: trio.Event | None = None) -> None:
        """From `may_publish` on, until cancelled."""
        from dht import DhtError

        if may_publish is not None:
            await may_publish.wait()
        peer, options = self._peer, self._peer.options
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                if self._record is None:
                    await directory.withdraw(options.stream)
                else:
                    address = public_address(peer.address, directory.observed_addresses())
                    me = peer.identity.peer_id
                    record = own_record(self._record, peer.core, options.stream, me, address, peer.grant)
                    await directory.publish(record, placed=options.selection == "tree")
            except DhtError as error:
                log.info("directory: %s", error)
