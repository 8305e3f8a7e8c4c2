"""Dynamic routers ask their parents for the queries of their children, one by one, and for nothing else."""

from __future__ import annotations

import pytest

from peer.queries import token_of
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import complete
from xmlswitch import Query, QuerySet


def packet(number: int) -> bytes:
    return b"<p><n>%d</n><c>%d</c></p>" % (number, number % 100)


@pytest.fixture
def sim():
    """A root, a router below it, and one below that."""
    sim = PeerSimulation(5)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_router("I", parents=1, deliver=False, dynamic=True, capacity=64)
    sim.run_until(1.5)
    sim.forget_records_except("I")
    sim.add_router("J", parents=1, deliver=False, dynamic=True, capacity=64)
    sim.run_until(3.0)
    sim.forget_records_except("J")
    return sim


def asked(sim, name: str) -> frozenset[Query]:
    core = sim.peers[name].core
    return core.policy.set_of(core.receiver.query).queries


def test_routers_of_forty_clients_get_what_these_want_and_no_more(sim):
    """2,048 characters of one disjunction were all that a router could ask for: from 20 queries on, everything."""
    for number in range(40):
        sim.add_leaf(f"C{number}", query=f"/p/c = {number} and /p/n > {number}", parents=1)
        sim.run_until(sim.network.now + 0.1)
    sim.run_until(sim.network.now + 20)
    assert asked(sim, "I") == {Query.parse(f"/p/c = {number} and /p/n > {number}") for number in range(40)}
    log = sim.peers["I"].core.sender.log
    for _ in range(200):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(sim.network.now + 3)
    assert complete(sim) == {}
    assert len(log) == sum(n % 100 < 40 and n > n % 100 for n in range(1, 201)), "nothing else came"


def test_a_query_that_another_covers_costs_nothing_upstream(sim):
    sim.add_leaf("wide", query="/p/c > 10", parents=1)
    sim.run_until(sim.network.now + 3)
    epoch = sim.peers["J"].core.receiver.change.epoch
    for number in (20, 30, 40):
        sim.add_leaf(f"C{number}", query=f"/p/c > {number} and /p/n", parents=1)
    sim.run_until(sim.network.now + 3)
    assert asked(sim, "J") == asked(sim, "I") == {Query.parse("/p/c > 10")}
    assert sim.peers["J"].core.receiver.change.epoch == epoch, "not even a message"
    shown = sim.peers["J"].core.asked
    assert (shown["asked"], shown["widened"]) == (1, 0)
    sim.kill("wide")
    sim.run_until(sim.network.now + 20)
    for _ in range(100):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(sim.network.now + 3)
    assert complete(sim) == {}
    assert asked(sim, "I") == {Query.parse("/p/c > 20 and /p/n")}


def test_clients_come_and_go_under_traffic(sim):
    sim.feed(rate=60, until=sim.network.now + 14, make=packet)
    for number in range(12):
        sim.add_leaf(f"C{number}", query=f"/p/c = {number}", parents=1)
        sim.run_until(sim.network.now + 0.3)
        if number % 3 == 2:
            sim.kill(f"C{number - 1}")
        if number % 4 == 3:
            sim.peers[f"C{number}"].core.change_query(Query.parse(f"/p/c > {90 + number}"), now=sim.network.now)
            sim.network.pump(sim.peers[f"C{number}"].address)
    sim.run_until(sim.network.now + 25)
    assert complete(sim) == {}
    alive = {
        token_of(peer.core.config.query if number % 4 != 3 else Query.parse(f"/p/c > {90 + number}"))
        for number in range(12)
        if (peer := sim.peers[f"C{number}"]).alive
    }
    router = sim.peers["I"].core
    assert router.policy.covers(router.receiver.query, QuerySet(map(Query.decode_untrusted, alive)).encode())
    assert Query.parse("/p/c = 1") not in asked(sim, "I"), "who has left is forgotten after a while"
