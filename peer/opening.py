"""Opening a peer: its key, sockets, directory and tasks, and closing them again in order.

async with open_peer(PeerOptions(stream="asdi", parents=2)) as peer:
    async for item in peer:
        ...
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from dcp.carriers.opening import open_carriers
from dcp.plain_errors import with_plain_errors
from dcp.udp import UdpSocket
from peer.directory import directory_options, grant_of
from peer.errors import StreamUnavailable
from peer.feeds.numbers import Numbers, numbers_of
from peer.listening import default_listen
from peer.mesh.hostport import HostPort
from peer.node import Peer
from peer.options import PeerOptions
from peer.ownership import checked_owner, owner_check
from peer.role import Role
from peer.sockets import PeerSocket


async def _expect_parent(peer: Peer, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await peer.wait_parents(1)
        return
    raise StreamUnavailable(f"no parent for {peer.options.stream} was found in {seconds:g} s")


@with_plain_errors
@asynccontextmanager
async def open_peer(
    options: PeerOptions,
    *,
    rng: random.Random | None = None,
    bind: Callable[[HostPort], Awaitable[UdpSocket]] = PeerSocket.bind,
    keeps_numbers: bool = True,
) -> AsyncIterator[Peer]:
    """Run a peer until the block ends; it leaves the mesh with a word to everybody.

    `bind` is for tests that lose; `keeps_numbers` is False for feeds, which see to their numbers themselves.
    """
    from dht import Identity, open_directory

    identity = Identity.load_or_create(options.identity) if options.identity is not None else Identity.generate()
    udp, carriers = await open_carriers(options.listen or default_listen(options.bootstrap), options.carriers(), bind)
    numbers: Numbers | None = None
    try:
        grant = grant_of(options, identity)
        own_owner = grant.owner if grant is not None else identity.peer_id
        owner = checked_owner(options, own_owner)
        numbers = await trio.to_thread.run_sync(numbers_of, options) if keeps_numbers else None
        peer = Peer(
            options, identity, udp, rng or random.SystemRandom(), carriers=carriers, grant=grant, numbers=numbers
        )
        async with (
            trio.open_nursery() as nursery,
            open_directory(
                identity, directory_options(options, owner), send=peer.dht_ways.send, address=peer.address
            ) as directory,
        ):
            peer.dht_ways.directory = directory
            nursery.start_soon(peer.driver.run)
            nursery.start_soon(peer.lookups.run, directory)
            nursery.start_soon(peer.run_statistics)
            nursery.start_soon(peer.run_numbers)
            nursery.start_soon(peer.run_policy)
            nursery.start_soon(peer.run_goal)
            check = owner_check(options, own_owner, directory)
            nursery.start_soon(peer.publications.run, directory, check.may_publish if check is not None else None)
            peer.start()
            try:
                # A nursery of its own: a root that is refused has to take its record back, with everything running.
                async with trio.open_nursery() as watching:
                    if check is not None:
                        watching.start_soon(check.run)
                    if options.timeout is not None and options.role is not Role.ROOT:
                        watching.start_soon(_expect_parent, peer, options.timeout)
                    yield peer
                    watching.cancel_scope.cancel()
            finally:
                with trio.move_on_after(options.mesh.leave_grace + 1.0, shield=True):
                    await peer.leave()
                    await directory.withdraw(options.stream)
                    await peer.driver.flush()
                peer.end_events()
                nursery.cancel_scope.cancel()
    finally:
        udp.close()
        if carriers is not None:
            carriers.close()
        if numbers is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(numbers.close)
