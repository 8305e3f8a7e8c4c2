"""XPath 2.0 to 3.1 in a mesh that carries XPath 1.0 only: parents get what the query needs, the client the rest."""

from __future__ import annotations

import pytest

from peer.items import QuerySwitched
from peer.queries import token_of
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import packet
from xmlswitch import Query

THIRD = "some $c in /p/c satisfies $c = 3 or xs:integer($c) = 4"
EVEN = "xs:integer(/p/n) mod 2 = 0 and exists(/p/c)"


def wanted(text: str, first: int, last: int) -> list[int]:
    query = Query.parse(text)
    return [n for n in range(first, last + 1) if query.matches(packet(n))]


class Client:
    """Takes everything that its peer hands out: the oracle of the simulation knows XPath 1.0 only."""

    def __init__(self, sim, name, add, **options):
        self.sim = sim
        self.peer = add(name, parents=1, **options)
        self.peer.check = None
        self.items = []
        take = self.peer.core.next_content

        def noting():
            item = take()
            if item is not None:
                self.items.append(item)
            return item

        self.peer.core.next_content = noting

    @property
    def packets(self):
        return [item.an for item in self.items if hasattr(item, "payload")]

    def change(self, text):
        self.peer.core.change_query(Query.parse(text) if text else None, now=self.sim.network.now)
        self.sim.network.pump(self.peer.address)


@pytest.fixture
def sim():
    sim = PeerSimulation(21)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_router("I", parents=1, deliver=False, dynamic=True)
    sim.run_until(1.5)
    sim.forget_records_except("I")
    return sim


@pytest.mark.parametrize("kind", ["leaf", "router"])
def test_a_client_gets_exactly_what_its_query_matches(sim, kind):
    add, options = (sim.add_leaf, {}) if kind == "leaf" else (sim.add_router, {"dynamic": True})
    client = Client(sim, "C", add, query=THIRD, **options)
    sim.run_until(4.0)
    for _ in range(40):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(6.0)
    assert client.packets == wanted(THIRD, 1, 40)
    assert client.peer.core.receiver.query == token_of(Query.parse(THIRD)), "parents are asked for what it needs"
    sent = sim.peers["I"].core.sender.statistics(sim.network.now)
    assert all(
        Query.decode_untrusted(c.query).version == "1.0"
        for c in sim.peers["I"].core.sender.children.values()
        if c.query
    )
    assert sent.packets <= 40


@pytest.mark.parametrize("kind", ["leaf", "router"])
def test_the_query_changes_between_versions_at_a_position_that_is_told(sim, kind):
    add, options = (sim.add_leaf, {}) if kind == "leaf" else (sim.add_router, {"dynamic": True})
    client = Client(sim, "C", add, query="/p/c = 1", **options)
    sim.run_until(4.0)
    sim.feed(rate=50, until=16.0, make=packet)
    sim.run_until(6.0)
    for moment, text in ((8.0, THIRD), (10.0, EVEN), (12.0, "/p/c = 2"), (14.0, "")):
        sim.run_until(moment)
        client.change(text)
    sim.run_until(20.0)
    switches = [item for item in client.items if isinstance(item, QuerySwitched)]
    assert len(switches) == 4
    edges = [switch.position for switch in switches]
    assert edges == sorted(edges)
    expected, start = [], 0
    for text, end in zip(["/p/c = 1", THIRD, EVEN, "/p/c = 2", "true()"], [*edges, sim.truth.last], strict=True):
        expected += wanted(text, start + 1, end)
        start = end
    assert client.packets == expected
    asked = [Query.parse(THIRD), Query.parse(EVEN), Query.parse("/p/c = 2"), None]
    assert [switch.query for switch in switches] == asked, "a program sees queries, not tokens"


@pytest.mark.parametrize("kind", ["leaf", "router"])
def test_two_queries_that_need_the_same_switch_at_once(sim, kind):
    add, options = (sim.add_leaf, {}) if kind == "leaf" else (sim.add_router, {"dynamic": True})
    one, other = "empty(/p/c[. > 2])", "every $c in /p/c satisfies $c > 2"
    assert token_of(Query.parse(one)) == token_of(Query.parse(other)), "both need everything"
    client = Client(sim, "C", add, query=one, **options)
    sim.run_until(4.0)
    for _ in range(20):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(5.0)
    client.change(other)
    sim.run_until(6.0)
    for _ in range(20):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(7.0)
    (switch,) = [item for item in client.items if isinstance(item, QuerySwitched)]
    assert switch.position == 20
    assert client.packets == wanted(one, 1, 20) + wanted(other, 21, 40)


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_of_changes_between_versions_skips_nothing(seed):
    """There and back again, faster than parents follow: whatever the last switch says holds for what comes after it."""
    sim = PeerSimulation(seed)
    sim.add_root("R")
    sim.run_until(0.5)
    client = Client(sim, "C", sim.add_leaf, query="/p/c = 1")
    sim.run_until(3.0)
    sim.feed(rate=100, until=12.0, make=packet)
    texts = ["/p/c = 1", THIRD, "/p/c = 1", "empty(/p/c[. > 2])", "every $c in /p/c satisfies $c > 2", EVEN, ""]
    at = 3.5
    while at < 10.0:
        sim.run_until(at)
        client.change(sim.rng.choice(texts))
        at += sim.rng.choice((0.001, 0.01, 0.05, 0.5))
    client.change(EVEN)
    sim.run_until(45.0)  # epochs are not used again for 30 s
    for _ in range(50):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(47.0)
    assert client.peer.core.client.query == Query.parse(EVEN)
    last = [item for item in client.items if isinstance(item, QuerySwitched)][-1]
    assert [an for an in client.packets if an > last.position] == wanted(EVEN, last.position + 1, sim.truth.last)
    assert client.packets == sorted(set(client.packets))
