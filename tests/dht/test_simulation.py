"""Whole networks in virtual time: churn and loss, partitions, death of everybody known, and that a seed repeats."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys

import pytest

from dht.config import NodeConfig
from dht.directory import CandidateQuery
from dht.keys import candidates_key, roots_key
from dht.record import PeerRecord, Role
from dht.shell.kademlia_directory import KademliaDirectory
from dht.testing import Swarm, run_virtual
from dht.testing.campaign import CampaignPlan, fit_logarithm, run_campaign


async def grown(loop, count, *, seed=3, loss=0.0, **options) -> Swarm:
    swarm = Swarm(loop, seed=seed, loss=loss, **options)
    for _ in range(count):
        swarm.add()
        await asyncio.sleep(0.1)
    await asyncio.sleep(20.0)
    return swarm


def directory_at(swarm: Swarm, index: int) -> KademliaDirectory:
    address = list(swarm.nodes)[index]
    return KademliaDirectory(swarm.nodes[address], swarm.identities[address])


def record_at(swarm: Swarm, index: int, **fields) -> PeerRecord:
    address = list(swarm.nodes)[index]
    defaults = {"role": Role.ROUTER, "level": 700, "capacity": 4, "free_slots": 4}
    return PeerRecord("asdi", swarm.identities[address].peer_id, (address,), **{**defaults, **fields})


@pytest.mark.slow
def test_records_are_found_under_churn_and_loss():
    # Records that live a minute, so that a short run sees many expire; nodes that live a minute, half of them.
    config = NodeConfig(record_lifetime=60.0, republish_interval=20.0, handoff_interval=30.0)
    plan = CampaignPlan(
        seed=7,
        nodes=30,
        duration=120.0,
        half_life=60.0,
        lookups_per_second=4.0,
        settle=5.0,
        publishers=8,
        config=config,
    )
    result = run_campaign(plan)
    assert result.deaths > 30
    assert result.lookups > 300
    assert result.found_share >= 0.999, f"seed 7: {result.found} of {result.lookups}"
    assert result.ghosts_looked_for > 0
    assert result.ghosts_found == 0
    assert result.largest_datagram <= 1400


@pytest.mark.soak
def test_a_thousand_nodes_under_churn_and_loss():
    result = run_campaign(CampaignPlan(seed=1, nodes=1000), lambda text: print(text, file=sys.stderr))
    assert result.found_share >= 0.999
    assert result.ghosts_looked_for > 100
    assert result.ghosts_found == 0
    assert result.largest_datagram <= 1400


@pytest.mark.soak
def test_messages_a_lookup_grow_as_the_logarithm():
    points = []
    for nodes in (10, 100, 1000):
        result = run_campaign(CampaignPlan(seed=1, nodes=nodes, duration=60.0, half_life=float("inf"), loss=0.0))
        points.append((nodes, result.queries_per_lookup))
    _, slope, error = fit_logarithm(points)
    print(points, slope, error)
    assert error < 0.15
    assert points[-1][1] < 2 * points[1][1]


REPEAT = """
import hashlib
from dht.testing.campaign import CampaignPlan, run_campaign
result = run_campaign(CampaignPlan(seed=5, nodes=10, duration=20.0, half_life=30.0, settle=5.0, publishers=4))
print(hashlib.sha256(repr((result.lookups, result.latencies, result.datagrams)).encode()).hexdigest())
"""


def test_a_seed_repeats_exactly_whatever_the_hash_seed():
    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        process = subprocess.run(
            [sys.executable, "-c", REPEAT], env=environment, capture_output=True, text=True, check=True
        )
        return process.stdout.strip()

    first, second = run("1"), run("2")
    assert len(first) == hashlib.sha256().digest_size * 2
    assert first == second


def test_half_the_network_dies_at_once_and_records_stay_readable():
    async def main(loop):
        swarm = await grown(loop, 60, loss=0.02)
        keeper = directory_at(swarm, 0)
        await keeper.publish(record_at(swarm, 0, role=Role.ROOT, level=0))
        for address in list(swarm.nodes)[30:]:
            await swarm.kill(address)
        latencies = []
        for node in list(swarm.nodes.values())[1:]:
            started = loop.time()
            result = await node.read(roots_key("asdi"))
            latencies.append(loop.time() - started)
            assert result.records
        assert sorted(latencies)[len(latencies) // 2] < 2.0

    run_virtual(main)


def test_a_partition_heals_by_itself():
    async def main(loop):
        swarm = await grown(loop, 30)
        west, east = list(swarm.nodes)[:15], list(swarm.nodes)[15:]
        swarm.network.partition(west, east)
        await asyncio.sleep(900.0)
        for side, other in ((west, east), (east, west)):
            for address in side:
                known = {contact.address for contact in swarm.nodes[address].contacts}
                assert not known & set(other)
        swarm.network.partition()
        await asyncio.sleep(240.0)
        publisher = directory_at(swarm, 0)
        await publisher.publish(record_at(swarm, 0, role=Role.ROOT, level=0))
        for address in east:
            assert (await swarm.nodes[address].read(roots_key("asdi"))).records, address

    run_virtual(main)


def test_a_node_rejoins_after_all_its_contacts_died():
    async def main(loop):
        swarm = await grown(loop, 12)
        survivor, *others = list(swarm.nodes)
        address = others[0]
        for other in others:
            await swarm.kill(other)
        await asyncio.sleep(300.0)
        assert swarm.nodes[survivor].is_isolated
        swarm.add(address=address, bootstrap=0)  # somebody is back at an address known from before
        for _ in range(5):
            swarm.add(bootstrap=1)
        await asyncio.sleep(240.0)
        assert not swarm.nodes[survivor].is_isolated
        assert len(swarm.nodes[survivor].contacts) >= 4

    run_virtual(main)


def test_a_lone_publisher_hands_its_record_to_the_first_who_comes():
    async def main(loop):
        swarm = Swarm(loop, seed=3)
        swarm.add()
        publisher = directory_at(swarm, 0)
        assert (await publisher.publish(record_at(swarm, 0, role=Role.ROOT, level=0))).replicas == 1
        address = swarm.add()
        await asyncio.sleep(5.0)
        assert len(swarm.nodes[address].store.records(roots_key("asdi"), now=loop.wall_time())) == 1

    run_virtual(main)


def test_replicas_that_die_are_made_up_for_without_the_publisher():
    """Hand-off: the publisher is gone, its record lives on until it expires, though most that held it died."""

    async def main(loop):
        config = NodeConfig(record_lifetime=500.0, handoff_interval=30.0, k=4)
        swarm = await grown(loop, 30, config=config)
        publisher = directory_at(swarm, 0)
        await publisher.publish(record_at(swarm, 0, role=Role.ROOT, level=0))
        key = roots_key("asdi")
        first = next(iter(swarm.nodes))
        await swarm.kill(first)
        for _ in range(3):
            await asyncio.sleep(100.0)
            holders = [a for a, node in swarm.nodes.items() if node.store.records(key, now=loop.wall_time())]
            assert len(holders) >= 3
            for address in holders[: len(holders) - 1]:
                await swarm.kill(address)
            for _ in range(len(holders) - 1):
                swarm.add()
        await asyncio.sleep(60.0)
        reader = swarm.nodes[list(swarm.nodes)[-1]]
        assert (await reader.read(key)).records

    run_virtual(main)


@pytest.mark.slow
def test_no_key_and_no_datagram_grows_with_the_stream():
    """Sixty candidates in one level bucket of a store that keeps 8 a key: they spread over shards, all readable."""

    async def main(loop):
        from dht.config import StoreLimits

        limits = StoreLimits(max_records_per_key=8, max_per_source_per_key=4)
        swarm = await grown(loop, 60, limits=limits)
        directories = [directory_at(swarm, index) for index in range(60)]
        for index, directory in enumerate(directories):
            await directory.publish(record_at(swarm, index, level=600 + index))
        for node in swarm.nodes.values():
            node.store.check_invariants()
        assert len(swarm.nodes[next(iter(swarm.nodes))].store) < 60
        assert swarm.network.largest <= 1400
        seen = set()
        for reader in directories[:6]:
            for _ in range(8):
                found = await reader.candidates("asdi", CandidateQuery(below_level=1000, limit=16))
                assert len(found) >= 8
                seen |= {record.peer_id for record in found}
        assert len(seen) > 40

    run_virtual(main)


def test_every_root_of_a_large_set_is_read():
    async def main(loop):
        swarm = await grown(loop, 50)
        for index in range(40):
            await directory_at(swarm, index).publish(record_at(swarm, index, role=Role.ROOT, level=0))
        node = swarm.nodes[list(swarm.nodes)[49]]
        result = await node.read(roots_key("asdi"), everything=True)
        assert len(result.records) == 40
        sample = await node.read(candidates_key("asdi", bucket=0, depth=0, shard=0))
        assert len(sample.records) >= 20
        assert swarm.network.largest <= 1400

    run_virtual(main)


def test_a_clock_that_went_back_does_not_silence_a_publisher():
    async def main(loop):
        swarm = await grown(loop, 10)
        address = next(iter(swarm.nodes))
        await directory_at(swarm, 0).publish(record_at(swarm, 0, level=600, expires_at=0))
        node = swarm.nodes[address]
        node.clock = lambda: loop.wall_time() - 30.0  # restarted, with a clock half a minute back
        await directory_at(swarm, 0).publish(record_at(swarm, 0, level=610))
        (found,) = await directory_at(swarm, 5).candidates("asdi")
        assert found.level == 610

    run_virtual(main)


@pytest.mark.parametrize("host", ["192.168.7.7", "20.7.7.7"], ids=["private", "public"])
def test_a_whole_mesh_behind_one_address_works(host):
    """Many peers on one machine of a LAN, or behind one NAT: limits a source must not take the DHT from them."""

    async def main(loop):
        swarm = Swarm(loop, seed=3)
        for port in range(5000, 5030):
            swarm.add(address=(host, port))
            await asyncio.sleep(0.1)
        await asyncio.sleep(20.0)
        for index in range(5):
            await directory_at(swarm, index).publish(record_at(swarm, index, role=Role.ROOT, level=0))
        for index in range(5, 30):
            result = await swarm.nodes[list(swarm.nodes)[index]].read(roots_key("asdi"), everything=True)
            assert len(result.records) == 5

    run_virtual(main)


def test_replicas_that_restarted_are_found_again_at_the_next_change():
    """A publisher that stores where it stored before finds other tokens there, and looks again."""

    async def main(loop):
        swarm = await grown(loop, 8)
        publisher = directory_at(swarm, 0)
        await publisher.publish(record_at(swarm, 0, level=600))
        for address in list(swarm.nodes)[1:]:
            swarm.nodes[address].protocol._secret = b"another"
        published = await publisher.publish(record_at(swarm, 0, level=610))
        assert published.replicas >= 7

    run_virtual(main)
