"""Real peers of a signed stream: its head is known at every hop, and a single parent that omits packets is found."""

from __future__ import annotations

import pytest
import trio

from dcp import Packet
from dht.identity import Identity
from peer.mesh import events as meshevents
from peer.role import Role
from tests.peer.trust.test_encrypted_links import mesh

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]


async def consume(peer, got):
    async for item in peer:
        if isinstance(item, Packet):
            got.append(item.an)


async def test_the_signed_head_is_known_at_every_hop(tmp_path):
    Identity.load_or_create(tmp_path / "owner.key")
    async with mesh() as start:
        root = await start(Role.ROOT, owner=tmp_path / "owner.key", capacity=2)
        root.core.sender.publish_hole(0)
        router = await start(Role.ROUTER, deliver=False)
        await router.wait_parents(1)
        leaf = await start(Role.LEAF)
        await leaf.wait_parents(1)
        got: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, leaf, got)
            for number in range(1, 2_001):
                await root.send(b"<p>%d</p>" % number)
            while leaf.trust.head() != 2_000 or router.trust.head() != 2_000 or len(got) < 2_000:
                await leaf.wait_turn()
            nursery.cancel_scope.cancel()
        assert leaf.core.doors.book.refused == 0
        assert leaf.core.receiver.statistics(leaf.now()).beyond_reach == 0


async def test_a_single_parent_that_leaves_a_packet_out_is_unmasked_by_the_count(tmp_path, monkeypatch):
    """The only tool where there is no second parent: nobody contradicts it."""
    monkeypatch.setattr("peer.trust.counting.PATIENCE", 0.1)
    monkeypatch.setattr("peer.trust.beats.INTERVAL", 0.1)
    Identity.load_or_create(tmp_path / "owner.key")
    async with mesh() as start:
        root = await start(Role.ROOT, owner=tmp_path / "owner.key")
        root.core.sender.publish_hole(0)
        leaf = await start(Role.LEAF)
        await leaf.wait_parents(1)
        publish = root.core.sender.publish
        root.core.sender.publish = lambda payload, *, an, contiguous: (
            None if an == 50 else publish(payload, an=an, contiguous=contiguous)
        )
        events = leaf.events()
        got: list[int] = []
        found: list[meshevents.Incomplete] = []
        async with trio.open_nursery() as nursery:

            async def listen():
                async for event in events:
                    if isinstance(event, meshevents.Incomplete):
                        found.append(event)
                        nursery.cancel_scope.cancel()

            nursery.start_soon(consume, leaf, got)
            nursery.start_soon(listen)
            for number in range(1, 3_000):
                await root.send(b"<p>%d</p>" % number, an=number)
                await leaf.wait_turn()
    assert 50 not in got
    [event] = found
    assert event.after < 50 <= event.until
    assert event.missing == 1
