"""The peer for programs, under trio. Everything here is public and listed in `peer.__all__`.

async with peer.join("asdi", query="/flight/flightleg/altitude > 300", parents=2) as stream:
    async for item in stream:
        match item:
            case peer.Packet(an, payload): ...
            case peer.Gap(after, until): ...

async with peer.root("ticks", owner=Path("ticks.key")) as publisher:
    await publisher.send(b"<tick/>")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from dcp import Start
from peer.core import Role
from peer.node import DEFAULT_CAPACITY, Peer, PeerOptions, open_peer

if TYPE_CHECKING:
    from peer.feeds_serve import RootFeed

Address = tuple[str, int]


def join(
    stream: str,
    *,
    query: str | None = None,
    namespaces: Mapping[str, str] | None = None,
    parents: int = 2,
    capacity: int = DEFAULT_CAPACITY,
    start: str | int = "now",
    dynamic: bool = False,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    identity: Path | None = None,
    state: Path | None = None,
    dictionary: bytes | None = None,
) -> AbstractAsyncContextManager[Peer]:
    """Take part in a stream: an async iterator of `Packet`, `Gap`, `Started` and `QuerySwitched`.

    `capacity` 0 makes a leaf, which carries nobody. `start` is "now", "oldest", or the AN of the first packet wanted.
    A bad query raises `xmlswitch.QueryError` before anything is opened.
    """
    begin, position = start_of(start)
    return open_peer(
        PeerOptions(
            stream=stream,
            role=Role.ROUTER if capacity else Role.LEAF,
            query=query,
            namespaces=namespaces or {},
            parents=parents,
            capacity=capacity,
            start=begin,
            position=position,
            dynamic=dynamic,
            bootstrap=bootstrap,
            listen=listen,
            beacon=beacon,
            identity=identity,
            state=state,
            dictionary=dictionary,
        )
    )


def root(
    stream: str,
    *,
    owner: Path | None = None,
    grant: Path | None = None,
    capacity: int = DEFAULT_CAPACITY,
    compress: str = "none",
    dictionary: bytes | None = None,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    identity: Path | None = None,
    state: Path | None = None,
) -> AbstractAsyncContextManager[Peer]:
    """Be a root: `await publisher.send(payload, an=...)` gives the mesh its next packet.

    Two roots of one stream must give the same AN to the same packet, and need one owner: the same key file, or a grant.
    The owner's key file is made when it is not there.
    """
    return open_peer(
        _root_options(
            stream,
            owner=owner,
            grant=grant,
            capacity=capacity,
            compress=compress,
            dictionary=dictionary,
            bootstrap=bootstrap,
            listen=listen,
            beacon=beacon,
            identity=identity,
            state=state,
        )
    )


@asynccontextmanager
async def root_from(
    stream: str,
    feed: str,
    *,
    rate: float | None = None,
    speed: float | None = None,
    loop: bool = False,
    owner: Path | None = None,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    state: Path | None = None,
) -> AsyncIterator[RootFeed]:
    """Be a root that is fed by a source, as on the command line: a file, `tcp://...`, `asdi:FILE`, `demo` and so on.

    The block runs beside the feed; `ended` of what it is given is set when the feed has ended. FeedError.
    """
    from peer.feeds import FeedOptions, plan_feed
    from peer.feeds_serve import RootFeed

    plan = plan_feed(FeedOptions(source=feed, rate=rate, speed=speed, loop=loop))
    options = _root_options(stream, owner=owner, bootstrap=bootstrap, listen=listen, beacon=beacon, state=state)
    serving = RootFeed(options, plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.run)
        yield serving
        nursery.cancel_scope.cancel()


def _root_options(
    stream: str,
    *,
    owner: Path | None = None,
    grant: Path | None = None,
    capacity: int = DEFAULT_CAPACITY,
    compress: str = "none",
    dictionary: bytes | None = None,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    identity: Path | None = None,
    state: Path | None = None,
) -> PeerOptions:
    if owner is not None:
        from dht import Identity

        Identity.load_or_create(owner)
    return PeerOptions(
        stream=stream,
        role=Role.ROOT,
        owner=owner,
        grant=grant,
        capacity=capacity,
        compress=compress,
        dictionary=dictionary,
        bootstrap=bootstrap,
        listen=listen,
        beacon=beacon,
        identity=identity,
        state=state,
    )


def start_of(start: str | int) -> tuple[Start, int | None]:
    """Where to begin, in dcp's words; ValueError for anything but "now", "oldest" or an AN."""
    if start == "now":
        return Start.NEW, None
    if start == "oldest":
        return Start.OLDEST, None
    if isinstance(start, str) and not start.isdecimal():
        raise ValueError(f'start is "now", "oldest" or an AN, not {start!r}')
    # The caller names the first packet wanted; a position is what lies before it.
    return Start.POSITION, max(0, int(start) - 1)
