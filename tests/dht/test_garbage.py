"""A hundred thousand mutated, truncated and random datagrams at a live node."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from dht.config import NodeConfig
from dht.identity import Identity
from dht.keys import keys_of
from dht.record import PeerRecord, Role
from dht.testing import Swarm, run_virtual
from dht.wire import (
    Contact,
    FindNode,
    FindValue,
    Found,
    Ping,
    Store,
    Stored,
    encode_answer,
    encode_request,
)
from tests.dht.attackers import (
    check_bounds,
    publish_root,
    readable,
    root_record,
    swarm_of,
)

if TYPE_CHECKING:
    from dht.shell.node import Node


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
