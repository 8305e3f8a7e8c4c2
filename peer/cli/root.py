"""`root`: a feed into the mesh."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import trio

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.running import beside, note, peer_options, run
from peer.feeds.first_look import check_feed
from peer.feeds.options import FeedOptions
from peer.feeds.plan import plan_feed
from peer.feeds.serve import RootFeed
from peer.feeds.stamp import STAMP_BYTES, stamp
from peer.feeds.state import default_folder
from peer.node import Peer
from peer.role import Role

CATCH_UP_SECONDS = 10.0
"""How long a root whose feed has ended waits for its children to have everything."""


def root(settings: Settings) -> int:
    if settings["owner"] is not None and settings["grant"] is not None:
        raise CliError("--owner and --grant are mutually exclusive", ExitCode.USAGE)
    plan = plan_feed(FeedOptions(source=settings["feed"], **settings.fields(FeedOptions)))
    check_feed(plan)
    check_owner(settings)
    options = peer_options(settings, Role.ROOT, numbers=default_folder(os.environ))

    async def command() -> int:
        opened = trio.Event()

        def introduce(peer: Peer) -> None:
            _introduce(peer, settings)
            opened.set()

        feed = RootFeed(
            options,
            plan,
            transform=(lambda payload: stamp(payload, time.time())) if settings["stamp"] else bytes,
            overhead=STAMP_BYTES if settings["stamp"] else 0,
            find_timeout=0.0 if settings["first"] else min(3.0, settings["find_timeout"]),
            sync_timeout=settings["sync_timeout"],
            on_listening=lambda host, port: note(f"feed listens on {endpoint_text((host, port))}"),
            on_open=introduce,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.run)
            await opened.wait()
            assert feed.peer is not None
            await beside(feed.peer, settings, nursery, live=True, feed=feed)
            await feed.ended.wait()
            if feed.is_barren:
                seen = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in feed.errors.items()) or "nothing"
                raise CliError(f"the feed {plan.name} has ended without a packet; it brought: {seen}", ExitCode.FEED)
            if not settings["exit_at_end"]:
                note(f"the feed has ended after {feed.published} packets; serving its history (Ctrl-C ends)")
                await trio.sleep_forever()
            with trio.move_on_after(CATCH_UP_SECONDS):
                await feed.peer.wait_children_caught_up()
            nursery.cancel_scope.cancel()
        return ExitCode.OK

    return run(settings, command)


def _introduce(peer: Peer, settings: Settings) -> None:
    from dht import id_text

    host, port = peer.address
    reach = endpoint_text(("127.0.0.1" if host in ("0.0.0.0", "::") else host, port))
    note(f"root of {settings['roots_key']} on {reach}, owner {id_text(peer.owner)}")
    note(f"join it with: skymesh join {settings['roots_key']} --bootstrap {shlex.quote(reach)}")


def check_owner(settings: Settings) -> None:
    """Create the owner's key file on first use, and refuse one that does not own the stream."""
    from dht import Identity
    from dht.streams import owner_of_name

    path: Path | None = settings["owner"]
    if path is None:
        return
    is_new = not path.exists()
    owner = Identity.load_or_create(path)
    if is_new:
        note(
            f"made the owner key {path}: give it, or grants by it, to every other root of {settings['roots_key']} "
            f"(a stream named {settings['roots_key'].partition('.')[0]}.{owner.fingerprint} can have no other owner)"
        )
    named = owner_of_name(settings["roots_key"]) if "." in settings["roots_key"] else None
    if named is not None and named != owner.peer_id:
        raise CliError(
            f"{path} is the key of {owner.fingerprint}, and {settings['roots_key']} belongs to another owner",
            ExitCode.WRONG_OWNER,
        )
