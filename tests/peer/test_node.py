"""The real shell on loopback with the real DHT: late join, history, a changed query, leaving, and a slow program."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from dcp import Config, Gap, Packet, Start, Started
from peer import flow
from peer.errors import Overrun
from peer.flow import FlowConfig
from peer.items import QuerySwitched
from peer.mesh import events as meshevents
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from xmlswitch import Query

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]

PATIENCE = 60.0


def packet(number):
    return b"<p><n>%d</n><c>%d</c></p>" % (number, number % 5)


@asynccontextmanager
async def small_mesh(*, dcp=None):
    """A root and a router below it, and a way to open more peers."""
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            root = None

            async def start(role, **options):
                options = {"parents": 1, "beacon": False, "dcp": dcp or Config(), **options}
                if root is not None:
                    options["bootstrap"] = [root.address]
                return await stack.enter_async_context(open_peer(PeerOptions(stream="s", role=role, **options)))

            root = await start(Role.ROOT)
            root.core.sender.publish_hole(0)
            router = await start(Role.ROUTER, deliver=False)
            await router.wait_parents(1)
            yield root, router, start


async def take(peer, count):
    """The numbers of the next packets."""
    numbers = []
    while len(numbers) < count:
        item = await anext(peer)
        assert not isinstance(item, Gap)
        if isinstance(item, Packet):
            assert item.payload == packet(item.an)
            numbers.append(item.an)
    return numbers


async def reached(peer, position):
    while peer.core.receiver.position != position:
        await trio.lowlevel.checkpoint()


def drained(channel):
    events = []
    while channel.statistics().current_buffer_used:
        events.append(channel.receive_nowait())
    return events


async def test_clients_start_now_at_a_number_or_as_far_back_as_there_is():
    async with small_mesh() as (root, router, start):
        for number in range(1, 101):
            await root.send(packet(number))
        await reached(router, 100)
        oldest = await start(Role.LEAF, start=Start.OLDEST)
        at = await start(Role.LEAF, start=Start.POSITION, position=40)
        new = await start(Role.LEAF, query="/p/c=1")
        assert await take(oldest, 100) == list(range(1, 101))
        assert await take(at, 60) == list(range(41, 101))
        assert await anext(new) == Started(100)
        for number in range(101, 111):
            await root.send(packet(number))
        assert await take(new, 2) == [101, 106]
        new.change_query("/p/c=2")
        while not isinstance(switched := await anext(new), QuerySwitched):
            pass
        for number in range(111, 116):
            await root.send(packet(number))
        assert switched.query == Query.parse("/p/c=2")
        # The position says from where on the new query holds: a packet before 111 may already belong to it.
        first = next(number for number in range(switched.position + 1, 116) if number % 5 == 2)
        assert await take(new, 1) == [first]


async def test_the_first_question_to_the_dht_waits_for_the_first_contact(monkeypatch):
    """Asked at once it failed, and every join took half a second longer."""
    monkeypatch.setattr("peer.lookups.FIRST_CONTACT_PATIENCE", PATIENCE)
    async with small_mesh() as (_, router, start):
        leaf = await start(Role.LEAF)
        await leaf.wait_parents(1)
        for peer in (router, leaf):
            assert peer.lookups.ended["unavailable"] == 0


async def test_who_leaves_tells_its_children_and_they_lose_nothing():
    async with small_mesh() as (root, router, start):
        second = await start(Role.ROUTER, deliver=False)
        leaf = await start(Role.LEAF, parents=2, start=Start.OLDEST)
        await leaf.wait_parents(2)
        told = leaf.events()
        numbers = []

        async def feed():
            for number in range(1, 151):
                await root.send(packet(number))
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            numbers += await take(leaf, 30)
            held = {parent.address for parent in leaf.core.mesh.parents.links.values()}
            going = next((peer for peer in (router, second) if peer.address in held), None)
            assert going is not None
            await going.leave()
            numbers += await take(leaf, 120)
        assert numbers == list(range(1, 151))
        lost = [event for event in drained(told) if isinstance(event, meshevents.ParentLost)]
        assert all("silent" not in event.reason for event in lost), "it was told, not left to find out"


async def test_a_program_that_does_not_listen_is_let_go_and_can_come_back():
    small = Config(max_ready_packets=64)
    async with small_mesh(dcp=small) as (root, router, start):
        patience = FlowConfig(look_interval=0.05, patience=0.2, give_up_after=0.5)
        deaf = await start(Role.LEAF, start=Start.OLDEST, flow=patience)
        sibling = await start(Role.LEAF, start=Start.OLDEST)
        told = deaf.events()
        await deaf.wait_parents(1)
        for number in range(1, 301):
            await root.send(packet(number))
        assert await take(sibling, 300) == list(range(1, 301))
        while not isinstance(await told.receive(), flow.Disconnected):
            pass
        numbers = await take(deaf, int(64 * deaf.core.receiver.backlog) - 1)  # one is `Started`
        with pytest.raises(Overrun):
            await take(deaf, 1)
        assert numbers == list(range(1, len(numbers) + 1))
        deaf.rejoin()
        numbers += await take(deaf, 300 - len(numbers))
        assert numbers == list(range(1, 301))
        assert math.isfinite(router.core.receiver.backlog)
