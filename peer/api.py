"""The peer for programs, under trio. Everything here is public and listed in `peer.__all__`.

async with peer.join("asdi", query="/flight/flightleg/altitude > 300", parents=2) as stream:
    async for item in stream:
        match item:
            case peer.Packet(an, payload): ...
            case peer.Gap(after, until): ...

async with peer.root("ticks", owner="ticks.key") as publisher:
    await publisher.send(b"<tick/>")
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

import trio

from dcp.plain_errors import with_plain_errors
from peer.feeds.options import FeedOptions
from peer.feeds.state import default_folder
from peer.node import Peer
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.optionspec import from_keywords, options_of
from peer.role import Role

if TYPE_CHECKING:
    from peer.feeds.serve import RootFeed
    from peer.keywords import JoinKeywords, RootFromKeywords, RootKeywords


def join(stream: str, **keywords: Unpack[JoinKeywords]) -> AbstractAsyncContextManager[Peer]:
    """Take part in a stream: an async iterator of `Packet`, `Gap`, `Started` and `QuerySwitched`.

    docs/options.md lists the keywords. `capacity=0` makes a leaf, which carries no children. A bad query raises
    `QueryError`, and any other bad argument `ValueError`, before anything is opened.
    """
    options = _options(stream, "join", keywords)
    options = options if options.capacity else _as_leaf(options)
    options.core()  # a bad query or start is an error of the call, not of the block
    return open_peer(options)


def root(stream: str, **keywords: Unpack[RootKeywords]) -> AbstractAsyncContextManager[Peer]:
    """Be a root: `await publisher.send(payload, an=...)` gives the mesh its next packet.

    docs/options.md lists the keywords. Two roots of one stream must give the same AN to the same packet, and need one
    owner: the same key file (`owner`), or a grant each. The last AN is kept on disk, so that a root that starts again
    does not repeat numbers, which clients would take for old packets; `keep_numbers=False` leaves that to a program
    that gives every `an` itself.
    """
    options = _root_options(stream, "root", keywords)
    return open_peer(options, keeps_numbers=options.keep_numbers)


@with_plain_errors
@asynccontextmanager
async def root_from(stream: str, feed: str, **keywords: Unpack[RootFromKeywords]) -> AsyncIterator[RootFeed]:
    """Be a root that is fed by a source, as on the command line: a file, `tcp://...`, `asdi:FILE`, `demo` and so on.

    docs/options.md lists the keywords. The block runs beside the feed; `ended` of what it is given is set when the feed
    has ended. FeedError.
    """
    from peer.feeds.first_look import check_feed
    from peer.feeds.plan import plan_feed
    from peer.feeds.serve import RootFeed

    of_feed = {declared.name for declared, _ in options_of(FeedOptions, "root_from", "api")}
    given: Mapping[str, Any] = keywords
    about_feed = {name: value for name, value in given.items() if name in of_feed}
    plan = plan_feed(FeedOptions(source=feed, **from_keywords(FeedOptions, "root_from", about_feed)))
    await trio.to_thread.run_sync(check_feed, plan)
    about_peer = {name: value for name, value in given.items() if name not in of_feed}
    serving = RootFeed(_root_options(stream, "root_from", about_peer), plan)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.run)
        yield serving
        nursery.cancel_scope.cancel()


def _options(stream: str, function: str, keywords: Mapping[str, Any], **more: Any) -> PeerOptions:
    given = {name: value for name, value in keywords.items() if value is not None}  # None is "as if not given"
    return PeerOptions(stream=stream, **from_keywords(PeerOptions, function, given), **more)


def _as_leaf(options: PeerOptions) -> PeerOptions:
    from dataclasses import replace

    return replace(options, role=Role.LEAF)


def _root_options(stream: str, function: str, keywords: Mapping[str, Any]) -> PeerOptions:
    options = _options(stream, function, keywords, role=Role.ROOT, numbers=default_folder(os.environ))
    if options.owner is not None:
        from dht import Identity

        Identity.load_or_create(options.owner)
    return options
