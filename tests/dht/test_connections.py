"""Requests that came over a connection: answered over it, and nobody is told of an address that can't be dialled."""

from __future__ import annotations

import asyncio

from dht.identity import Identity
from dht.keys import Key
from dht.testing import run_virtual
from dht.wire import Answer, FindNode, Found, Ping, decode_answer_untrusted, encode_answer, encode_request
from tests.dht.attackers import swarm_of

STRANGER = ("23.1.0.9", 50_000)
ID = b"i" * 20


def answer_of(data: bytes) -> Answer:
    return decode_answer_untrusted(data, kind=FindNode)


def test_a_request_over_a_connection_is_answered_over_it_and_its_sender_is_no_contact():
    async def main(loop):
        swarm = await swarm_of(loop, 4)
        node = next(iter(swarm.nodes.values()))
        known = set(node.contacts)
        replies: list[bytes] = []
        sender = Identity.generate()
        request = encode_request(ID, FindNode(sender.node_id, Key(sender.node_id)), padded_to=400)
        node.datagram_received(request, STRANGER, reply=replies.append)
        await asyncio.sleep(5.0)
        assert set(node.contacts) == known
        (reply,) = replies
        found = answer_of(reply)
        assert isinstance(found, Found)
        assert found.contacts
        assert found.observed == STRANGER
        assert node.counters()["answered_over_connection"] == 1

    run_virtual(main)


def test_garbage_over_a_connection_is_counted_and_not_answered():
    async def main(loop):
        swarm = await swarm_of(loop, 2)
        node = next(iter(swarm.nodes.values()))
        replies: list[bytes] = []
        for data in (b"", b"\0", b"\0" + bytes(40), b"\1" + bytes(40), b"\0" + ID + b"\xff" * 60):
            node.datagram_received(data, STRANGER, reply=replies.append)
        assert replies == []

    run_virtual(main)


def test_the_port_of_a_connection_is_not_published_as_ours():
    """An answer names the address that it saw; over a connection its port is one that nobody else can use."""

    async def main(loop):
        swarm = await swarm_of(loop, 2)
        node = next(iter(swarm.nodes.values()))
        protocol = node.protocol
        other = Identity.generate()
        future = protocol.ask(STRANGER, Ping(None))
        (message_id,) = (known for known, waiting in protocol._outstanding.items() if waiting.address == STRANGER)
        seen = encode_answer(message_id, Found(other.node_id, observed=("23.5.5.5", 61_000)), kind=Ping)
        node.datagram_received(seen, STRANGER, own_port=4_700)
        assert future.done()
        assert ("23.5.5.5", 4_700) in protocol.observed_addresses()
        assert ("23.5.5.5", 61_000) not in protocol.observed_addresses()

    run_virtual(main)
