"""Who attacks in the tests, and what must hold after any attack."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from dht.keys import roots_key
from dht.record import PeerRecord, Role, sign_record
from dht.testing import Swarm
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

if TYPE_CHECKING:
    from dht.errors import Refusal
    from dht.identity import Identity
    from dht.results import WriteResult


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
        self.claimed_version = 2**64 - 1
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
                answer = Stored(self.id, bytes(len(wires)), self.claimed_version)
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
