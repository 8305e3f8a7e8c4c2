"""What a bad actor can send, each as a test: honest records stay readable, memory stays bounded, the process lives."""

from __future__ import annotations

import asyncio
import random

import pytest

from dht.config import NodeConfig, StoreLimits
from dht.errors import Refusal
from dht.identity import Identity, node_id_of
from dht.keys import candidate_key_of, keys_of, roots_key
from dht.node import Node, WriteResult
from dht.record import MAX_RECORD_BYTES, PeerRecord, Role, sign_record
from dht.testing import SimulatedTransport, Swarm, run_virtual
from dht.wire import (
    Contact,
    FindNode,
    FindValue,
    Found,
    MalformedMessage,
    Ping,
    Store,
    Stored,
    decode_answer_untrusted,
    decode_request_untrusted,
    encode_answer,
    encode_request,
)


def root_record(who: Identity, address, now: float, **fields) -> bytes:
    defaults = {"role": Role.ROOT, "capacity": 4, "free_slots": 4, "version": 1, "expires_at": int(now) + 180}
    return sign_record(PeerRecord("asdi", who.peer_id, (address,), **{**defaults, **fields}), who).wire


class Attacker:
    """Raw datagrams from addresses of its own, and a way to ask and see the answer."""

    def __init__(self, swarm: Swarm):
        self.swarm = swarm
        self.rng = random.Random(99)
        self.answers: list[bytes] = []
        self.address = swarm.new_address()
        swarm.network.attach(self.address, lambda data, addr: self.answers.append(data))

    async def ask(self, target, request):
        self.answers.clear()
        message_id = self.rng.randbytes(20)
        self.swarm.network.send(encode_request(message_id, request, padded_to=467), self.address, target)
        await asyncio.sleep(0.3)
        for data in self.answers:
            if data[0] == 1 and data[1:21] == message_id:
                return decode_answer_untrusted(data, kind=type(request))
        return None

    async def store(self, target, key, wires, *, token=None, handed=False) -> Stored:
        if token is None:
            token = (await self.ask(target, FindNode(None, key))).token
        return await self.ask(target, Store(None, key, token, handed, tuple(wires)))


async def swarm_of(loop, count: int, **options) -> Swarm:
    swarm = Swarm(loop, seed=11, **options)
    for _ in range(count):
        swarm.add()
        await asyncio.sleep(0.1)
    await asyncio.sleep(10.0)
    return swarm


async def publish_root(swarm: Swarm, index: int, **fields) -> tuple[Identity, WriteResult]:
    address = list(swarm.nodes)[index]
    identity = swarm.identities[address]
    wire = root_record(identity, address, swarm.loop.wall_time(), **fields)
    return identity, await swarm.nodes[address].write(roots_key("asdi"), [wire])


async def readable(swarm: Swarm, identity: Identity, key=None) -> int:
    """From how many of the nodes the identity's record is found."""
    found = 0
    for node in list(swarm.nodes.values()):
        result = await node.read(key or roots_key("asdi"), everything=True)
        found += identity.peer_id in result.records
    return found


def check_bounds(swarm: Swarm) -> None:
    for node in swarm.nodes.values():
        node.store.check_invariants()
        node.protocol.router.check_invariants()
        assert node.protocol.largest_sent <= 1400


def refusals(swarm: Swarm) -> dict[Refusal, int]:
    total: dict[Refusal, int] = {}
    for node in swarm.nodes.values():
        for reason, count in node.store.refused.items():
            total[reason] = total.get(reason, 0) + count
    return total


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
    from dht.kademlia_directory import KademliaDirectory

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
            found = len(await reader.candidates("asdi", covering=lambda record: record.peer_id == identity.peer_id))
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


def near(key: bytes, *, bits: int, number: int) -> bytes:
    """An id that shares its first bits with the key, as grinding keys would give."""
    tail = random.Random(number).getrandbits(160 - bits)
    return ((int.from_bytes(key, "big") >> (160 - bits) << (160 - bits)) | tail).to_bytes(20, "big")


class Liar:
    """Answers every lookup at once: no records, and accomplices (or invented nodes) as the nearest there are."""

    def __init__(self, swarm: Swarm, node_id: bytes, address, *, invent: bool = False):
        self.swarm, self.id, self.address, self.invent = swarm, node_id, address, invent
        self.accomplices = [self]
        self.rng = random.Random(address[1])
        self.lies = 0
        swarm.network.attach(address, self.receive)

    def say_hello(self, target) -> None:
        self.send(encode_request(self.rng.randbytes(20), FindNode(self.id, self.id), padded_to=467), target)

    def send(self, data, target) -> None:
        self.swarm.network.send(data, self.address, target)

    def receive(self, data, addr) -> None:
        try:
            message_id, request = decode_request_untrusted(data)
        except MalformedMessage:
            return
        if data[0] != 0:
            return
        self.lies += 1
        match request:
            case Ping():
                answer = Found(self.id, addr)
            case Store(wires=wires):
                answer = Stored(self.id, bytes(len(wires)), 2**64 - 1)  # "stored", and "I hold a newer version"
            case FindNode(key=key) | FindValue(key=key):
                answer = Found(self.id, addr, bytes(8), self.false_contacts(key), 10**6, True, self.false_records())
        self.send(encode_answer(message_id, answer, kind=type(request)), addr)

    def false_contacts(self, key):
        if not self.invent:
            chosen = self.rng.sample(self.accomplices, min(8, len(self.accomplices)))
            return tuple(Contact(one.id, one.address) for one in chosen)
        return tuple(
            Contact(near(key, bits=60, number=self.rng.getrandbits(32)), (f"21.{n}.{self.rng.randrange(250)}.7", 4700))
            for n in range(8)
        )

    def false_records(self):
        return (self.rng.randbytes(160), self.rng.randbytes(300))


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


def test_a_publisher_is_not_driven_to_the_end_of_the_version_numbers():
    from dht.kademlia_directory import KademliaDirectory

    async def main(loop):
        swarm = await swarm_of(loop, 12)
        key = roots_key("asdi")
        liar = Liar(swarm, near(key, bits=30, number=1), swarm.new_address())
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


def mutations(seed: int, count: int) -> None:
    """Throw mutated, truncated and random datagrams at a live node; afterwards it serves as before."""

    async def main(loop):
        config = NodeConfig(request_rate=1e9, request_burst=1e9)
        swarm = await swarm_of(loop, 6, config=config)
        honest, _ = await publish_root(swarm, 1)
        address = next(iter(swarm.nodes))
        node = swarm.nodes[address]
        rng = random.Random(seed)
        samples = seen_datagrams(swarm, node, rng)
        for number in range(count):
            data = mutate(rng.choice(samples), rng)
            sender = (f"23.{rng.randrange(4)}.0.{rng.randrange(200)}", rng.randrange(1, 65536))
            node.datagram_received(data, sender)
            if number % 500 == 0:
                await asyncio.sleep(0.5)
        await asyncio.sleep(30.0)
        assert await readable(swarm, honest) == 6
        assert len(node.protocol._outstanding) <= config.max_outstanding
        assert len(node.protocol._limiter) <= config.max_sources
        assert len(node.contacts) < 12
        dropped = sum(
            node.protocol.counters[name]
            for name in ("short", "undecodable", "bad_request", "not_ours", "unsolicited", "oversized", "wrong_source")
        )
        assert dropped > count / 3
        check_bounds(swarm)

    run_virtual(main)


def seen_datagrams(swarm: Swarm, node: Node, rng: random.Random) -> list[bytes]:
    who = Identity.from_seed(bytes(31) + b"\7")
    address = ("23.1.0.1", 4700)
    wire = root_record(who, address, swarm.loop.wall_time())
    (key, *_) = keys_of(PeerRecord("asdi", who.peer_id, (address,), Role.ROOT))
    contacts = tuple(Contact(rng.randbytes(20), address) for _ in range(8))
    found = Found(rng.randbytes(20), address, bytes(8), contacts, 3, False, (wire, wire))
    token = node.protocol._token(address)
    return [
        encode_request(rng.randbytes(20), Ping(rng.randbytes(20))),
        encode_request(rng.randbytes(20), FindNode(rng.randbytes(20), key), padded_to=467),
        encode_request(rng.randbytes(20), FindValue(rng.randbytes(20), key, bytes(20)), padded_to=467),
        encode_request(rng.randbytes(20), Store(rng.randbytes(20), key, token, False, (wire, wire))),
        *(encode_answer(rng.randbytes(20), found, kind=kind) for kind in (Ping, FindNode, FindValue)),
        encode_answer(rng.randbytes(20), Stored(rng.randbytes(20), b"\0\6", 7), kind=Store),
        b"\x80" + bytes(40),
        b"",
    ]


def mutate(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    match rng.randrange(6):
        case 0:
            return bytes(changed[: rng.randrange(len(changed) + 1)])
        case 1:
            return rng.randbytes(rng.randrange(1500))
        case 2:
            return bytes([rng.randrange(2)]) + rng.randbytes(20 + rng.randrange(60))
        case 3 if len(changed) > 22:
            start = rng.randrange(21, len(changed))
            changed[start : start + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
        case _:
            for _ in range(rng.randrange(1, 6)):
                if changed:
                    changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_garbage_and_truncated_datagrams(seed):
    mutations(seed, 10_000)


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
