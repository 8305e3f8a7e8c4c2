"""Routers listed by place: both directories answer alike, and full lists split."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from dht.config import DEFAULT_LIMITS
from dht.identity import Identity
from dht.keys import keys_of, place_key_of
from dht.places import MAX_PLACE_DEPTH, PLACES, edges, nearest, place_of, prefix_of
from dht.record import PeerRecord, Role
from dht.shell.kademlia_directory import KademliaDirectory
from dht.testing import Swarm, run_virtual
from tests.dht.test_directory_contract import in_world  # noqa: F401


async def publish_six(world) -> list:
    """Six routers listed by place, one of them without room, and one that is not listed; ids in the order of places."""
    for number in range(6):
        record = world.record(number, free_slots=0 if number == 2 else 2)
        await world.directories[number].publish(record, placed=True)
    await world.publish(6)
    return sorted(world.ids(*range(6)), key=lambda peer_id: place_of("asdi", peer_id))


async def ids_near(world, near: int, *count: int) -> list:
    return [record.peer_id for record in await world.directories[7].places("asdi", near, *count)]


def test_routers_are_found_on_both_sides_of_a_place_with_or_without_room(in_world):  # noqa: F811
    async def scenario(world):
        order = await publish_six(world)
        near = place_of("asdi", order[3])
        assert await ids_near(world, near, 2) == order[1:5]
        assert await ids_near(world, near + 1, 1) == order[3:5]
        assert await ids_near(world, 0, 9) == order
        assert await ids_near(world, PLACES - 1, 2) == order[4:]

    in_world(scenario)


def test_who_leaves_or_is_no_longer_listed_is_not_found(in_world):  # noqa: F811
    async def scenario(world):
        order = await publish_six(world)
        numbers = {world.identities[number].peer_id: number for number in range(6)}
        await world.directories[numbers[order[0]]].withdraw("asdi")
        await world.publish(numbers[order[1]])
        assert await ids_near(world, 0) == order[2:]

    in_world(scenario)


def test_a_root_is_not_listed_and_an_unknown_stream_has_nobody(in_world):  # noqa: F811
    async def scenario(world):
        record = world.record(0, role=Role.ROOT, level=0)
        await world.directories[0].publish(record, placed=True)
        assert await ids_near(world, 5) == []
        assert await world.directories[1].places("nothing", 5) == []

    in_world(scenario)


def test_full_lists_split_and_everybody_is_still_found():
    async def main(loop):
        swarm = Swarm(loop, seed=3)
        limits = replace(DEFAULT_LIMITS, max_records_per_key=4, max_per_source_per_key=4)
        addresses = []
        for _ in range(24):
            addresses.append(swarm.add())
            await asyncio.sleep(0.2)
        await asyncio.sleep(10.0)
        directories = []
        for address in addresses:
            swarm.nodes[address].store.limits = limits
            directories.append(KademliaDirectory(swarm.nodes[address], swarm.identities[address]))
        for directory, address in zip(directories, addresses, strict=True):
            record = PeerRecord(
                "asdi", swarm.identities[address].peer_id, (address,), role=Role.ROUTER, level=600, capacity=4
            )
            await directory.publish(record, placed=True)
        places = sorted(place_of("asdi", swarm.identities[address].peer_id) for address in addresses)
        rng = random.Random(1)
        for near in (0, PLACES - 1, *rng.sample(places, 4), rng.randrange(PLACES)):
            found = [place_of("asdi", r.peer_id) for r in await directories[0].places("asdi", near, 2)]
            wanted = [place for place in places if place < near][-2:] + [place for place in places if place >= near][:2]
            assert found == wanted

    run_virtual(main)


def test_a_record_may_lie_under_the_keys_of_its_own_place_only():
    identity = Identity.generate()
    record = PeerRecord("asdi", identity.peer_id, (("192.0.2.1", 1),), role=Role.ROUTER)
    keys = set(keys_of(record))
    assert keys == {place_key_of(record, depth=depth) for depth in range(MAX_PLACE_DEPTH + 1)}
    assert not set(keys_of(replace(record, role=Role.LEAF)))


@pytest.mark.parametrize("depth", range(MAX_PLACE_DEPTH + 1))
def test_the_lists_of_a_depth_share_the_line(depth):
    place = random.Random(depth).randrange(PLACES)
    low, high = edges(place, depth)
    assert low <= place <= high
    assert prefix_of(low, depth) == prefix_of(high, depth) == prefix_of(place, depth)
    assert low == 0 or prefix_of(low - 1, depth) == prefix_of(place, depth) - 1


def test_nearest_takes_one_at_the_place_as_above():
    ids = [Identity.generate().peer_id for _ in range(5)]
    records = sorted(
        (PeerRecord("asdi", peer_id, (("192.0.2.1", 1),)) for peer_id in ids),
        key=lambda record: place_of("asdi", record.peer_id),
    )
    near = place_of("asdi", records[2].peer_id)
    assert nearest(records, near, 1) == records[1:3]
    assert nearest(records, near, 0) == []
