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

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import trio

from dcp import Start
from dcp.plain_errors import with_plain_errors
from dcp.serial import MAX_POSITION
from peer.coreconfig import Role
from peer.feeds.state import default_folder
from peer.node import Peer, open_peer
from peer.options import DEFAULT_CAPACITY, PeerOptions

if TYPE_CHECKING:
    from peer.feeds.serve import RootFeed

Address = tuple[str, int]
StrPath = str | os.PathLike[str]


class JoinOptions(TypedDict, total=False):
    """The keywords of `join`, for the faces that pass them on."""

    query: str | None
    namespaces: Mapping[str, str] | None
    parents: int
    resilient_parents: bool
    selection: str
    network: str
    capacity: int
    start: str | int
    dynamic: bool
    fallbacks: Sequence[str]
    bootstrap: Sequence[Address]
    listen: Address | None
    beacon: bool
    identity: StrPath | None
    state: StrPath | None
    owner_id: str | None
    dictionary: bytes | None


class RootOptions(TypedDict, total=False):
    """The keywords of `root`."""

    owner: StrPath | None
    grant: StrPath | None
    network: str
    capacity: int
    compress: str
    dictionary: bytes | None
    bootstrap: Sequence[Address]
    listen: Address | None
    beacon: bool
    identity: StrPath | None
    state: StrPath | None
    keep_numbers: bool
    owner_id: str | None
    raw: bool


def join(
    stream: str,
    *,
    query: str | None = None,
    namespaces: Mapping[str, str] | None = None,
    parents: int = 2,
    resilient_parents: bool = False,
    selection: str = "scored",
    network: str = "lan",
    capacity: int = DEFAULT_CAPACITY,
    start: str | int = "now",
    dynamic: bool = False,
    fallbacks: Sequence[str] = (),
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    identity: StrPath | None = None,
    state: StrPath | None = None,
    owner_id: str | None = None,
    dictionary: bytes | None = None,
) -> AbstractAsyncContextManager[Peer]:
    """Take part in a stream: an async iterator of `Packet`, `Gap`, `Started` and `QuerySwitched`.

    `capacity` 0 makes a leaf, which carries nobody. `start` is "now", "oldest", or the AN of the first packet wanted.
    `fallbacks` are narrower queries to step down to when the program can't keep up. `owner_id` is the fingerprint of
    the stream's owner, for an open name that several owners serve. A bad query raises `QueryError`, and any other bad
    argument `ValueError`, before anything is opened.
    """
    from xmlswitch import Query

    begin, position = start_of(start)
    for wanted in (query, *fallbacks):
        if wanted is not None:
            Query.parse(wanted, namespaces or {})
    return open_peer(
        PeerOptions(
            stream=stream,
            role=Role.ROUTER if capacity else Role.LEAF,
            query=query,
            namespaces=namespaces or {},
            parents=parents,
            resilient_parents=resilient_parents,
            selection=selection,
            network=network,
            capacity=capacity,
            start=begin,
            position=position,
            dynamic=dynamic,
            fallbacks=fallbacks,
            bootstrap=bootstrap,
            listen=listen,
            beacon=beacon,
            identity=_path(identity),
            state=_path(state),
            owner_id=owner_id,
            dictionary=dictionary,
        )
    )


def root(
    stream: str,
    *,
    owner: StrPath | None = None,
    grant: StrPath | None = None,
    network: str = "lan",
    capacity: int = DEFAULT_CAPACITY,
    compress: str = "none",
    dictionary: bytes | None = None,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    identity: StrPath | None = None,
    state: StrPath | None = None,
    keep_numbers: bool = True,
    owner_id: str | None = None,
    raw: bool = False,
) -> AbstractAsyncContextManager[Peer]:
    """Be a root: `await publisher.send(payload, an=...)` gives the mesh its next packet.

    Two roots of one stream must give the same AN to the same packet, and need one owner: the same key file, or a grant.
    The owner's key file is made when it is not there. The last AN is kept on disk (in `state`, or in a folder of the
    user's), so that a root that is started again does not repeat numbers, which clients would take for old packets:
    `keep_numbers=False` leaves that to a program that gives every `an` itself. `raw=True`: packets need not be XML.
    """
    return open_peer(
        _root_options(
            stream,
            _path(owner),
            grant=_path(grant),
            network=network,
            capacity=capacity,
            compress=compress,
            dictionary=dictionary,
            bootstrap=bootstrap,
            listen=listen,
            beacon=beacon,
            identity=_path(identity),
            state=_path(state),
            numbers=default_folder(os.environ) if keep_numbers else None,
            owner_id=owner_id,
            raw=raw,
        ),
        keeps_numbers=keep_numbers,
    )


@with_plain_errors
@asynccontextmanager
async def root_from(
    stream: str,
    feed: str,
    *,
    rate: float | None = None,
    speed: float | None = None,
    loop: bool = False,
    owner: StrPath | None = None,
    bootstrap: Sequence[Address] = (),
    listen: Address | None = None,
    beacon: bool = True,
    state: StrPath | None = None,
    keep_numbers: bool = True,
    owner_id: str | None = None,
) -> AsyncIterator[RootFeed]:
    """Be a root that is fed by a source, as on the command line: a file, `tcp://...`, `asdi:FILE`, `demo` and so on.

    The block runs beside the feed; `ended` of what it is given is set when the feed has ended. FeedError.
    """
    from peer.feeds.plan import FeedOptions, plan_feed
    from peer.feeds.serve import RootFeed

    plan = plan_feed(FeedOptions(source=feed, rate=rate, speed=speed, loop=loop))
    options = _root_options(
        stream,
        _path(owner),
        bootstrap=bootstrap,
        listen=listen,
        beacon=beacon,
        state=_path(state),
        numbers=default_folder(os.environ) if keep_numbers else None,
        owner_id=owner_id,
    )
    serving = RootFeed(options, plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.run)
        yield serving
        nursery.cancel_scope.cancel()


def _root_options(stream: str, owner: Path | None, **options: Any) -> PeerOptions:
    if owner is not None:
        from dht import Identity

        Identity.load_or_create(owner)
    return PeerOptions(stream=stream, role=Role.ROOT, owner=owner, **options)


def _path(given: StrPath | None) -> Path | None:
    return Path(given) if given is not None else None


def start_of(start: str | int) -> tuple[Start, int | None]:
    """Where to begin, in dcp's words; ValueError for anything but "now", "oldest" or an AN."""
    if start == "now":
        return Start.NEW, None
    if start == "oldest":
        return Start.OLDEST, None
    if isinstance(start, str) and start.isascii() and start.isdecimal() and len(start) <= 19:
        start = int(start)
    if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start <= MAX_POSITION:
        raise ValueError(f'start is "now", "oldest" or the AN of the first packet wanted, from 0 up, not {start!r:.40}')
    # The caller names the first packet wanted; a position is what lies before it.
    return Start.POSITION, max(0, start - 1)
