"""What a bad actor can send, each as a test: honest records stay readable, memory stays bounded, the process lives."""

from __future__ import annotations

import asyncio
import random

import pytest

from dht.config import StoreLimits
from dht.directory import CandidateQuery
from dht.errors import Refusal
from dht.identity import Identity, node_id_of
from dht.keys import candidate_key_of, roots_key
from dht.record import MAX_RECORD_BYTES, PeerRecord, Role, sign_record
from dht.shell.node import Node
from dht.testing import SimulatedTransport, run_virtual
from dht.wire import (
    FindNode,
    FindValue,
    Found,
    Ping,
    Store,
    encode_answer,
    encode_request,
)
from tests.dht.attackers import (
    Attacker,
    Liar,
    check_bounds,
    near,
    publish_root,
    readable,
    refusals,
    root_record,
    swarm_of,
)


def test_forged_replayed_and_misplaced_records_change_nothing():
    async def main(loop):
        swarm = await swarm_of(loop, 20)
        honest, _ = await publish_root(swarm, 3, version=10)
        attacker = Attacker(swarm)
        key = roots_key("asdi")
        now = loop.wall_time()
        address = list(swarm.nodes)[3]
        forged = bytearray(root_record(honest, address, now, version=99))
        forged[-1] ^= 1
        replayed = root_record(honest, address, now, version=9)
        for target in swarm.nodes:
            answer = await attacker.store(target, key, [bytes(forged), replayed])
            assert answer.codes[0] == Refusal.BAD_SIGNATURE
            assert answer.codes[1] in (0, Refusal.STALE)  # where nothing newer is held it is no replay
            mine = root_record(Identity.from_seed(bytes(32)), attacker.address, now)
            misplaced = await attacker.store(target, candidate_key_of(record_under(honest, address), depth=0), [mine])
            assert misplaced.codes == bytes([Refusal.WRONG_KEY])
        assert await readable(swarm, honest) == 20
        result = await swarm.nodes[address].read(key)
        assert result.records[honest.peer_id].record.version == 10
        check_bounds(swarm)

    def record_under(who, address):
        return PeerRecord("other", who.peer_id, (address,), level=5000, free_slots=1)

    run_virtual(main)


def test_a_store_needs_a_token_that_only_its_source_address_was_given():
    async def main(loop):
        swarm = await swarm_of(loop, 3)
        attacker, other = Attacker(swarm), Attacker(swarm)
        target = next(iter(swarm.nodes))
        key = roots_key("asdi")
        wire = root_record(Identity.from_seed(bytes(32)), attacker.address, loop.wall_time())
        stolen = (await other.ask(target, FindNode(None, key))).token
        for token in (stolen, bytes(8)):
            assert (await attacker.store(target, key, [wire], token=token)).codes == bytes([Refusal.BAD_TOKEN])
        old = (await attacker.ask(target, FindNode(None, key))).token
        assert (await attacker.store(target, key, [wire], token=old)).codes == b"\0"
        await asyncio.sleep(3 * swarm.config.token_lifetime)
        assert (await attacker.store(target, key, [wire], token=old)).codes == bytes([Refusal.BAD_TOKEN])

    run_virtual(main)


def test_a_flood_of_records_under_one_key_from_one_source_leaves_room_for_others():
    async def main(loop):
        swarm = await swarm_of(loop, 20)
        early, _ = await publish_root(swarm, 3, expires_at=int(loop.wall_time()) + 600)
        attacker = Attacker(swarm)
        key = roots_key("asdi")
        for number in range(1, 41):
            who = Identity.from_seed(number.to_bytes(32, "big"))
            wire = root_record(who, attacker.address, loop.wall_time())
            for target in list(swarm.nodes)[:10]:
                await attacker.store(target, key, [wire])
        late, result = await publish_root(swarm, 5)
        assert result.replicas >= 15
        assert await readable(swarm, early) == await readable(swarm, late) == 20
        limit = swarm.limits.max_per_source_per_key
        assert all(len(node.store) <= limit + 2 for node in swarm.nodes.values())
        assert refusals(swarm)[Refusal.SOURCE_QUOTA] > 100
        check_bounds(swarm)

    run_virtual(main)


def test_a_flood_from_many_sources_fills_a_key_but_readers_and_publishers_go_deeper():
    from dht.shell.kademlia_directory import KademliaDirectory

    async def main(loop):
        swarm = await swarm_of(loop, 20, limits=StoreLimits(max_records_per_key=8, max_per_source_per_key=4))
        now = loop.wall_time()
        flooders = [Attacker(swarm) for _ in range(16)]
        for number, flooder in enumerate(flooders, start=1):
            who = Identity.from_seed(number.to_bytes(32, "big"))
            record = PeerRecord("asdi", who.peer_id, (flooder.address,), Role.ROUTER, 700, free_slots=9, version=1)
            signed = sign_record(record.stamped(version=1, expires_at=int(now) + 500), who)
            for target in swarm.nodes:
                await flooder.store(target, candidate_key_of(record, depth=0), [signed.wire])
        address = list(swarm.nodes)[2]
        identity = swarm.identities[address]
        directory = KademliaDirectory(swarm.nodes[address], identity)
        await directory.publish(
            PeerRecord("asdi", identity.peer_id, (address,), Role.ROUTER, 700, capacity=4, free_slots=4)
        )
        reader_address = list(swarm.nodes)[9]
        reader = KademliaDirectory(swarm.nodes[reader_address], swarm.identities[reader_address])
        found = 0
        for _ in range(12):  # a reader draws a shard at each call; its cache keeps what it found
            found = len(
                await reader.candidates(
                    "asdi", CandidateQuery(covering=lambda record: record.peer_id == identity.peer_id)
                )
            )
            if found:
                break
        assert found == 1
        check_bounds(swarm)

    run_virtual(main)


def test_oversized_values_and_datagrams_are_dropped():
    async def main(loop):
        swarm = await swarm_of(loop, 3)
        attacker = Attacker(swarm)
        target = next(iter(swarm.nodes))
        node = swarm.nodes[target]
        key = roots_key("asdi")
        token = (await attacker.ask(target, FindNode(None, key))).token
        assert await attacker.ask(target, Store(None, key, token, False, (bytes(MAX_RECORD_BYTES + 1),))) is None
        assert node.protocol.counters["bad_request"] == 1
        swarm.network.send(b"\x00" + bytes(2000), attacker.address, target)
        swarm.network.send(b"\x00" + bytes(65000), attacker.address, target)
        await asyncio.sleep(1.0)
        assert node.protocol.counters["oversized"] == 2
        assert len(node.store) == 0

    run_virtual(main)


def test_a_request_is_answered_with_at_most_three_times_its_size():
    """Or anybody could point us at a victim by forging the source address."""

    async def main(loop):
        swarm = await swarm_of(loop, 30)
        for index in range(12):
            await publish_root(swarm, index)
        attacker = Attacker(swarm)
        largest = {0: 0, 467: 0}
        for target in swarm.nodes:
            for padded_to in (0, 467):
                attacker.answers.clear()
                request = encode_request(bytes(20), FindValue(None, roots_key("asdi"), bytes(20)), padded_to=padded_to)
                swarm.network.send(request, attacker.address, target)
                await asyncio.sleep(0.3)
                for answer in attacker.answers:
                    assert len(answer) <= 3 * len(request)
                    largest[padded_to] = max(largest[padded_to], len(answer))
        assert 0 < largest[0] < largest[467]

    run_virtual(main)


def test_sybils_near_a_key_do_not_hide_an_honest_record():
    """One address, hundreds of ids ground to lie near the key, all answering and none storing or telling the truth."""

    async def main(loop):
        swarm = await swarm_of(loop, 40)
        key = roots_key("asdi")
        honest, _ = await publish_root(swarm, 3)
        host = swarm.new_address()[0]
        sybils = [Liar(swarm, near(key, bits=24, number=number), (host, 5000 + number)) for number in range(200)]
        for sybil in sybils:
            sybil.accomplices = sybils
            for target in random.Random(sybil.address[1]).sample(list(swarm.nodes), 10):
                sybil.say_hello(target)
            await asyncio.sleep(0.05)
        await asyncio.sleep(30.0)
        assert await readable(swarm, honest) == 40
        again, result = await publish_root(swarm, 7)
        assert result.replicas >= swarm.config.k // 2
        assert await readable(swarm, again) == 40
        for node in swarm.nodes.values():
            crowd = sum(one.address[0] == host for one in node.contacts)
            assert crowd <= 2 * swarm.config.k < len(sybils)
        check_bounds(swarm)

    run_virtual(main)


@pytest.mark.parametrize("invent", [False, True], ids=["accomplices", "invented"])
def test_peers_that_answer_lookups_with_lies_slow_nothing_to_a_stop(invent):
    """A fifth of the network lies, each liar with an address of its own."""

    async def main(loop):
        swarm = await swarm_of(loop, 40)
        rng = random.Random(4)
        liars = []
        for _ in range(10):
            node_id = node_id_of(Identity.from_seed(rng.randbytes(32)).peer_id)
            liars.append(Liar(swarm, node_id, swarm.new_address(), invent=invent))
        for liar in liars:
            liar.accomplices = liars
            for target in rng.sample(list(swarm.nodes), 20):
                liar.say_hello(target)
        await asyncio.sleep(30.0)
        honest, result = await publish_root(swarm, 3)
        assert result.replicas >= 8
        latencies = []
        for node in list(swarm.nodes.values()):
            started = loop.time()
            found = await node.read(roots_key("asdi"), everything=True)
            latencies.append(loop.time() - started)
            assert honest.peer_id in found.records
            assert found.queries <= swarm.config.max_lookup_queries + 3 * 16
        assert sum(liar.lies for liar in liars) > 100
        assert max(latencies) < 15.0
        check_bounds(swarm)

    run_virtual(main)


@pytest.mark.parametrize("claimed", [2**64 - 1, 2**50])
def test_a_publisher_is_not_driven_to_the_end_of_the_version_numbers(claimed):
    from dht.shell.kademlia_directory import KademliaDirectory

    async def main(loop):
        swarm = await swarm_of(loop, 12)
        key = roots_key("asdi")
        liar = Liar(swarm, near(key, bits=30, number=1), swarm.new_address())
        liar.claimed_version = claimed
        for target in swarm.nodes:
            liar.say_hello(target)
        await asyncio.sleep(5.0)
        address = list(swarm.nodes)[4]
        identity = swarm.identities[address]
        directory = KademliaDirectory(swarm.nodes[address], identity)
        for _ in range(3):
            await directory.publish(PeerRecord("asdi", identity.peer_id, (address,), Role.ROOT))
        result = await swarm.nodes[address].read(key)
        assert result.records[identity.peer_id].record.version < 2**45
        assert liar.lies > 10

    run_virtual(main)


def test_a_request_flood_from_one_source_is_limited_and_others_are_served():
    async def main(loop):
        swarm = await swarm_of(loop, 3)
        attacker, other = Attacker(swarm), Attacker(swarm)
        target = next(iter(swarm.nodes))
        node = swarm.nodes[target]
        for _ in range(5000):
            node.datagram_received(encode_request(attacker.rng.randbytes(20), Ping(None)), attacker.address)
        assert node.protocol.counters["rate_limited"] >= 4500
        assert await other.ask(target, Ping(None)) is not None

    run_virtual(main)


def test_a_flood_of_stores_from_one_source_costs_few_signature_checks():
    async def main(loop):
        swarm = await swarm_of(loop, 3)
        attacker = Attacker(swarm)
        target = next(iter(swarm.nodes))
        node = swarm.nodes[target]
        key = roots_key("asdi")
        token = (await attacker.ask(target, FindNode(None, key))).token
        checks = [0]
        real = node.store.put

        def put(*args, **options):
            checks[0] += 1
            return real(*args, **options)

        node.store.put = put
        forged = tuple(bytes(160) for _ in range(8))
        datagram = encode_request(bytes(20), Store(None, key, token, False, forged))
        for _ in range(1_000):
            swarm.network.send(datagram, attacker.address, target)
        await asyncio.sleep(1.0)
        assert checks[0] <= swarm.config.request_burst + swarm.config.request_rate
        assert node.protocol.counters["store_rate_limited"] > 0

    run_virtual(main)


def test_forged_sources_do_not_enter_the_table():
    async def main(loop):
        swarm = await swarm_of(loop, 5)
        target = next(iter(swarm.nodes))
        node = swarm.nodes[target]
        rng = random.Random(3)
        before = {contact.address for contact in node.contacts}
        for _ in range(500):
            forged = (f"22.{rng.randrange(250)}.{rng.randrange(250)}.1", 4700)
            request = encode_request(rng.randbytes(20), FindNode(rng.randbytes(20), bytes(20)), padded_to=467)
            node.datagram_received(request, forged)
        await asyncio.sleep(10.0)
        assert {contact.address for contact in node.contacts} == before

    run_virtual(main)


def test_answers_nobody_asked_for_or_from_elsewhere_are_dropped():
    async def main(loop):
        swarm = await swarm_of(loop, 2)
        first, second = swarm.nodes
        node = swarm.nodes[first]
        node.datagram_received(encode_answer(bytes(20), Found(bytes(20)), kind=Ping), second)
        assert node.protocol.counters["unsolicited"] == 1
        future = node.protocol.ask(second, Ping(None))
        (message_id,) = node.protocol._outstanding
        node.datagram_received(encode_answer(message_id, Found(bytes(20)), kind=Ping), ("20.9.9.9", 4700))
        assert node.protocol.counters["wrong_source"] == 1
        assert (await future).node_id == swarm.nodes[second].id

    run_virtual(main)


def test_a_node_that_only_reads_enters_nobodys_table():
    async def main(loop):
        swarm = await swarm_of(loop, 5)
        honest, _ = await publish_root(swarm, 1)
        address = swarm.new_address()
        reader = Node(
            bytes(20),
            transport=SimulatedTransport(swarm.network, address),
            loop=loop,
            bootstrap=[list(swarm.nodes)[2]],
            clock=loop.wall_time,
            rng=random.Random(1),
            read_only=True,
        )
        swarm.network.attach(address, reader.datagram_received)
        assert await reader.join()
        assert honest.peer_id in (await reader.read(roots_key("asdi"))).records
        await asyncio.sleep(60.0)
        for node in swarm.nodes.values():
            assert address not in {contact.address for contact in node.contacts}
        await reader.close()

    run_virtual(main)
