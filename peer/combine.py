"""Several streams under one name: each keeps its numbers, so that any two combiners agree (docs/decisions).

The combined stream NAME of the sources A and B is the set of the streams NAME--A and NAME--B. A combiner is a client of
each source and a root of each sub-stream; a client joins the sub-streams, and is handed each source in its order.

    async with open_combiner("air", [Source(stream="asdi"), Source(stream="runways")], options):
        await trio.sleep_forever()

    async with open_combined("air", None, options) as stream:
        async for source, item in stream: ...

A combiner is also a root of the stream NAME, which has no packets: whoever joins that asks its root for the sources.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import trio

from dcp import Gap, Omitted, Packet, Started
from dcp.plain_errors import with_plain_errors
from peer.items import Content, QuerySwitched
from peer.listening import default_listen
from peer.mesh.encoding import MAX_SOURCES_BYTES
from peer.mesh.hostport import HostPort
from peer.node import Peer
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

SEPARATOR = "--"
MAX_SOURCES = 16
"""Each costs a client n links of its own."""
LOOK_INTERVAL = 0.2
QUEUE = 256
"""Items of all sources that a client has not taken; beyond, each source waits in its peer's own queue."""


def sub_stream(combined: str, source: str) -> str:
    """The stream that carries one source of a combined one; an owner's fingerprint stays at the end."""
    name, dot, fingerprint = combined.partition(".")
    return f"{name}{SEPARATOR}{source.partition('.')[0]}{dot}{fingerprint}"


class FromSource(NamedTuple):
    """The next item of one source: positions and numbers are that source's own."""

    source: str
    item: Content


class Publisher(Protocol):
    """What a combiner needs of a root (`dcp.sender.Sender`, `peer.core.PeerCore`'s sender)."""

    def publish(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int: ...
    def publish_hole(self, until: int) -> None: ...
    def publish_late(self, payload: bytes, *, an: int) -> None: ...


class SourceRelay:
    """What a combiner does with one source. Pure: every combiner that is handed the same source publishes the same.

    Invariant: a packet's AN is the source's, and whatever this combiner does not have is a hole, never a claim.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._head: int | None = None
        self.packets = 0
        self.repeated = 0
        """Packets at or below what was published already: of an input that came back, or whose numbers began again."""
        self.holes = 0
        self.late = 0
        """Packets that a parent of the source had left out: put in their place, and sent to the children past it."""

    def take(self, item: Content) -> None:
        if isinstance(item, Started):
            if self._head is None or item.position > self._head:
                self._hole(item.position)
        elif isinstance(item, Packet):
            if self._head is None:
                raise ValueError(f"{item.an} came before the start of its source")
            if item.an > self._head:
                self._publisher.publish(item.payload, an=item.an)
                self._head = item.an
                self.packets += 1
            else:
                self.repeated += 1
        elif isinstance(item, Gap):
            if self._head is None or item.until > self._head:
                self._hole(item.until)
        elif isinstance(item, Omitted):
            if self._head is not None:
                self._publisher.publish_late(item.payload, an=item.an)
                self.late += 1
        elif isinstance(item, QuerySwitched):
            raise ValueError("the query of a combiner is part of what its stream means, and does not change")

    def _hole(self, until: int) -> None:
        self._publisher.publish_hole(until)
        self._head = until
        self.holes += 1


# The shell: one peer for each end of each source.


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream to combine, and the part of it that is wanted: the same at every combiner."""

    stream: str
    query: str | None = None
    namespaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Combiner:
    """Running: a client and a root for every source, and a root that stands for all of them."""

    index: Peer
    inputs: dict[str, Peer]
    outputs: dict[str, Peer]
    relays: dict[str, SourceRelay]


@with_plain_errors
@asynccontextmanager
async def open_combiner(combined: str, sources: Sequence[Source], options: PeerOptions) -> AsyncIterator[Combiner]:
    """Combine until the block ends. `options` are for all of its peers; stream, role, query and port are set here."""
    if not 1 <= len(sources) <= MAX_SOURCES:
        raise ValueError(f"a combined stream has 1 to {MAX_SOURCES} sources, not {len(sources)}")
    labels = [source.stream.partition(".")[0] for source in sources]
    if len(set(labels)) != len(labels):
        raise ValueError("two sources have the same name: their sub-streams could not be told apart")
    if len(" ".join(labels).encode()) > MAX_SOURCES_BYTES:
        raise ValueError(f"the names of the sources have more than {MAX_SOURCES_BYTES} bytes in all")
    standing_for = replace(options, stream=combined, role=Role.ROOT, query=None, raw=True, sources=tuple(labels))
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        index = await stack.enter_async_context(open_peer(standing_for, keeps_numbers=False))
        combiner = Combiner(index, {}, {}, {})
        for label, source in zip(labels, sources, strict=True):
            receiving = replace(
                options, stream=source.stream, role=Role.LEAF, query=source.query, namespaces=source.namespaces
            )
            serving = replace(options, stream=sub_stream(combined, label), role=Role.ROOT, query=None, raw=True)
            combiner.inputs[label] = await stack.enter_async_context(open_peer(receiving.on_any_port()))
            combiner.outputs[label] = await stack.enter_async_context(open_peer(serving.on_any_port()))
            relay = SourceRelay(_Output(combiner.outputs[label]))
            combiner.relays[label] = relay
            nursery.start_soon(_relay, combiner.inputs[label], relay)
        yield combiner
        nursery.cancel_scope.cancel()


class _Output:
    """A root's `send` without the wait: the relay publishes in the turn in which it received."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def publish(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        return self._peer.publish_now(payload, an=an, contiguous=contiguous)

    def publish_hole(self, until: int) -> None:
        self._peer.publish_hole(until)

    def publish_late(self, payload: bytes, *, an: int) -> None:
        self._peer.publish_late(payload, an=an)


async def _relay(source: Peer, relay: SourceRelay) -> None:
    async for item in source:
        relay.take(item)


@with_plain_errors
@asynccontextmanager
async def open_combined(
    combined: str, sources: Sequence[str] | None, options: PeerOptions
) -> AsyncIterator[trio.MemoryReceiveChannel[FromSource]]:
    """A client of a combined stream: what comes of any source, each in its own order, until the block ends.

    `sources` may name a part of it; None is all that its roots name, however long it takes to find one.
    """
    if sources is None:
        sources = await find_sources(combined, options)
    send, receive = trio.open_memory_channel[FromSource](QUEUE)
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        for source in sources:
            label = source.partition(".")[0]
            wanted = replace(options, stream=sub_stream(combined, label), role=Role.LEAF)
            peer = await stack.enter_async_context(open_peer(wanted.on_any_port()))
            nursery.start_soon(_follow, peer, label, send.clone())
        send.close()
        yield receive
        nursery.cancel_scope.cancel()


async def find_sources(combined: str, options: PeerOptions, *, near: HostPort | None = None) -> tuple[str, ...]:
    """What a combined stream consists of. Waits for a root of that name; empty if it is not a combined one."""
    from dht import DirectoryUnavailable
    from peer.observe.crawl import open_crawler

    bootstrap = options.bootstrap if near is None else (near, *options.bootstrap)
    listen = options.listen or default_listen(bootstrap)
    visitor = open_crawler((listen[0], 0), bootstrap, beacon=options.beacon, transport=options.transport)
    async with visitor as crawler:
        assert crawler.directory is not None
        while True:
            try:
                if await crawler.directory.roots(combined):
                    return await crawler.sources(combined)
            except DirectoryUnavailable:
                pass  # not yet
            await trio.sleep(LOOK_INTERVAL)


async def _follow(peer: Peer, label: str, send: trio.MemorySendChannel[FromSource]) -> None:
    async with send:
        async for item in peer:
            await send.send(FromSource(label, item))
