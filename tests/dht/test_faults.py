"""An unexpected exception at a border of the DHT ends nothing: it is counted, dropped, and logged once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dht import faults
from dht.keys import roots_key
from dht.testing import run_virtual
from dht.wire import FindNode
from tests.dht.attackers import Attacker, publish_root, readable, swarm_of


@pytest.fixture(autouse=True)
def _lenient(monkeypatch):
    monkeypatch.setenv("SKYMESH_STRICT", "0")
    monkeypatch.setattr(faults, "_handler", faults.count_and_log)
    monkeypatch.setattr(faults, "_logged", set())
    faults.counts.clear()


def boom(*_args, **_options):
    raise RecursionError("a stranger\x1b[2J found this" + "x" * 1_000)


def test_a_datagram_that_raises_is_counted_dropped_and_logged_once(monkeypatch, caplog):
    async def main(loop):
        swarm = await swarm_of(loop, 3)
        target = next(iter(swarm.nodes))
        protocol = swarm.nodes[target].protocol
        attacker = Attacker(swarm)
        with monkeypatch.context() as patch:
            patch.setattr(type(protocol), "rpc_find_node", boom)
            for _ in range(5):
                swarm.network.send(b"\x00" + bytes(20), attacker.address, target)
                assert await attacker.ask(target, FindNode(None, roots_key("asdi"))) is None
        assert protocol.counters["fault"] >= 5
        assert await attacker.ask(target, FindNode(None, roots_key("asdi"))) is not None

    with caplog.at_level(logging.DEBUG, "dht.faults"):
        run_virtual(main)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "\x1b" not in warning.getMessage()
    assert len(warning.getMessage()) < 400
    assert faults.counts["dht datagram"] >= 5


def test_an_answer_that_raises_does_not_stop_a_lookup(monkeypatch):
    async def main(loop):
        swarm = await swarm_of(loop, 8)
        honest, _ = await publish_root(swarm, 3)
        address = list(swarm.nodes)[5]
        node = swarm.nodes[address]
        real, calls = node.protocol.settle, [0]

        def settle(contact, answer):
            calls[0] += 1
            if calls[0] % 3 == 0:
                boom()
            real(contact, answer)

        monkeypatch.setattr(node.protocol, "settle", settle)
        async with asyncio.timeout(60):
            result = await node.read(roots_key("asdi"))
        assert honest.peer_id in result.records
        assert node.protocol.counters["fault"] >= 1

    run_virtual(main)


def test_upkeep_that_raises_goes_on(monkeypatch):
    async def main(loop):
        swarm = await swarm_of(loop, 4)
        node = next(iter(swarm.nodes.values()))
        with monkeypatch.context() as patch:
            patch.setattr(node, "find_nodes", boom)
            patch.setattr(node.store, "unrefreshed", boom)
            await asyncio.sleep(400.0)
        assert faults.counts["dht upkeep"] >= 3
        honest, _ = await publish_root(swarm, 2)
        assert await readable(swarm, honest) == 4

    run_virtual(main)


def test_bugs_are_loud_where_they_should_be(monkeypatch):
    monkeypatch.setenv("SKYMESH_STRICT", "1")
    with pytest.raises(RecursionError), faults.border("test"):
        boom()
    seen = []
    faults.set_handler(lambda kind, error: seen.append((kind, type(error))))
    with faults.border("test"):
        boom()
    assert seen == [("test", RecursionError)]
