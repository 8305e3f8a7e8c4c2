"""The directory for programs under trio: the asyncio node runs inside, by trio-asyncio, on the program's own socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
import trio_asyncio  # type: ignore[import-untyped]  # it has no types

from dht.directory import ANYONE, NEAR, CandidateQuery
from dht.shell.exploration import explore
from dht.shell.service import DirectoryOptions, DirectoryService

if TYPE_CHECKING:
    from dht.directory import Published, Snapshot, Watch
    from dht.identity import Identity
    from dht.ids import PeerId
    from dht.record import Address, PeerRecord


class _CallbackTransport:
    """The program's own way to send."""

    def __init__(self, send: Callable[[bytes, Address], None]) -> None:
        self._send = send

    def sendto(self, data: bytes, addr: Address) -> None:
        self._send(data, addr)


@dataclass(frozen=True, slots=True)
class DirectoryStats:
    """A snapshot for people and metrics."""

    contacts: int
    is_isolated: bool
    records_held: int
    refused: dict[str, int]  # records that were not stored, by reason
    counters: dict[str, int]  # datagrams and requests, by what became of them
    largest_datagram: int


class TrioDirectory:
    """`dht.directory.Directory`, to be awaited under trio. Cancelling a call is safe at any moment."""

    def __init__(self, service: DirectoryService) -> None:
        self._service = service
        self._directory = service.directory

    @property
    def address(self) -> Address:
        return self._service.address

    def observed_addresses(self) -> list[Address]:
        """Where others see this node, the commonest first: what to publish behind a NAT or when bound to 0.0.0.0."""
        return self._service.node.protocol.observed_addresses()

    def datagram_received(
        self, data: bytes, addr: Any, *, reply: Callable[[bytes], None] | None = None, is_port_ours: bool = True
    ) -> None:
        """A datagram for the DHT (first byte 0x00 or 0x01). Any bytes do; never raises, never blocks.

        `reply` answers a request that came over a connection; its sender can't be reached by `addr`. Without
        `is_port_ours`, the port at which an answer says that it saw us is a connection's, not the one we listen on.
        """
        take = partial(self._service.datagram_received, data, addr, reply=reply, is_port_ours=is_port_ours)
        with self._in_loop():
            self._service.node.loop.call_soon(take)

    @property
    def knows_nobody(self) -> bool:
        """Whether no other node has answered yet, or all of them are gone."""
        return not self._service.node.protocol.router.contacts

    def choose_owner(self, stream: str, owner: PeerId) -> None:
        """A person named the stream's owner: it is pinned. ValueError when the name says otherwise; PinsError."""
        self._directory.pins.choose(stream, owner)

    async def publish(self, record: PeerRecord, *, placed: bool = False) -> Published:
        publish = partial(self._directory.publish, record, placed=placed)
        with self._in_loop():
            published: Published = await trio_asyncio.aio_as_trio(publish)()
        return published

    async def places(self, stream: str, near: int, count: int = NEAR) -> list[PeerRecord]:
        with self._in_loop():
            found: list[PeerRecord] = await trio_asyncio.aio_as_trio(self._directory.places)(stream, near, count)
        return found

    async def withdraw(self, stream: str | None = None) -> None:
        with self._in_loop():
            await trio_asyncio.aio_as_trio(self._directory.withdraw)(stream)

    async def roots(self, stream: str) -> list[PeerRecord]:
        with self._in_loop():
            roots: list[PeerRecord] = await trio_asyncio.aio_as_trio(self._directory.roots)(stream)
        return roots

    async def claimed_roots(self, stream: str) -> list[PeerRecord]:
        with self._in_loop():
            roots: list[PeerRecord] = await trio_asyncio.aio_as_trio(self._directory.claimed_roots)(stream)
        return roots

    async def candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        with self._in_loop():
            chosen: list[PeerRecord] = await trio_asyncio.aio_as_trio(self._directory.candidates)(stream, query)
        return chosen

    async def nodes(self, most: int) -> list[Address]:
        """The addresses of the DHT's nodes, from look-ups in many directions; of a large DHT, a part of them."""
        with self._in_loop():
            found: list[Address] = await trio_asyncio.aio_as_trio(explore)(self._service.node, most)
        return found

    def cached_roots(self, stream: str) -> list[PeerRecord]:
        return self._directory.cached_roots(stream)

    def cached_candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        return self._directory.cached_candidates(stream, query)

    def watch(self, stream: str, callback: Callable[[Snapshot], None], *, below_level: int | None = None) -> Watch:
        with self._in_loop():
            return self._directory.watch(stream, callback, below_level=below_level)

    def forget(self, stream: str, peer_id: PeerId) -> None:
        self._directory.forget(stream, peer_id)

    @contextmanager
    def _in_loop(self) -> Iterator[None]:
        """Calls come from any task of the program, also from those that were started outside `open_directory`."""
        token = trio_asyncio.current_loop.set(self._service.node.loop)
        try:
            yield
        finally:
            trio_asyncio.current_loop.reset(token)

    def stats(self) -> DirectoryStats:
        node = self._service.node
        return DirectoryStats(
            contacts=len(node.contacts),
            is_isolated=node.is_isolated,
            records_held=len(node.store),
            refused={reason.name.lower(): count for reason, count in node.store.refused.items()},
            counters=dict(node.counters()),
            largest_datagram=node.protocol.largest_sent,
        )


@asynccontextmanager
async def open_directory(
    identity: Identity,
    options: DirectoryOptions | None = None,
    *,
    send: Callable[[bytes, Address], None] | None = None,
    address: Address | None = None,
    listen: Address | None = None,
) -> AsyncIterator[TrioDirectory]:
    """A directory under trio, closed with its block.

    With `send` and `address` it shares the program's socket: `send(data, addr)` is called synchronously and must not
    raise; hand what arrives to `datagram_received`. With `listen` it opens a socket of its own.
    """
    async with trio_asyncio.open_loop() as loop:
        service = await trio_asyncio.aio_as_trio(DirectoryService.open)(
            identity,
            options if options is not None else DirectoryOptions(),
            loop=loop,
            listen=listen,
            transport=_CallbackTransport(send) if send is not None else None,
            address=address,
        )
        try:
            yield TrioDirectory(service)
        finally:
            with trio.CancelScope(shield=True):
                await trio_asyncio.aio_as_trio(service.close)()
