"""Sets of queries that do not fit into a datagram: they cross a link in parts, and change by what changes."""

from __future__ import annotations

import pytest

import dcp.query_parts
from dcp import Config
from dcp.testing import Conditions
from peer.testing.peersim import PeerSimulation
from tests.peer.whole import simulated
from tests.peer.whole.simulated import Havoc, build, complete
from xmlswitch import Query, QuerySet

LONG = [Query.parse(f"/p/c = {number} and /p/n > {7 * number} and not(/p/x = 'y{number}')") for number in range(600)]


def packet(number: int) -> bytes:
    return b"<p><n>%d</n><c>%d</c></p>" % (number, number % 1000)


@pytest.fixture
def sent(monkeypatch):
    """The parts that were sent: (epoch, base epoch, bytes)."""
    found = []
    encode = dcp.query_parts.encode_part

    def noting(part):
        found.append((part.epoch, part.base, len(part.data)))
        return encode(part)

    monkeypatch.setattr(dcp.query_parts, "encode_part", noting)
    return found


def mesh(loss: float = 0.0, *, parents: int = 1) -> PeerSimulation:
    """R, and J below I: J asks for whatever a test gives it."""
    sim = PeerSimulation(3, conditions=Conditions(delay=0.005, loss=loss))
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_router("I", parents=1, deliver=False, dynamic=True)
    sim.run_until(2.5)
    sim.forget_records_except("I")
    sim.add_router("J", parents=parents, deliver=False)
    sim.run_until(5.0)
    return sim


def ask(sim, queries) -> bytes:
    core = sim.peers["J"].core
    token = core.policy.token_of_set(QuerySet(queries))
    core.receiver.change_query(token, now=sim.network.now)
    sim.network.pump(sim.peers["J"].address)
    return token


def children(sim, name: str) -> list[bytes]:
    return [child.query for child in sim.peers[name].core.sender.children.values()]


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_long_query_arrives_in_parts_and_changes_by_a_little(sent, loss):
    sim = mesh(loss)
    token = ask(sim, LONG[:599])
    assert len(token) > 10_000
    sim.run_until(sim.network.now + 25)
    assert children(sim, "I") == [token]
    assert children(sim, "R") == [token], "the router above asks for the same"
    assert len(sent) > 10
    assert all(size <= dcp.query_parts.MAX_PART_BYTES for _, _, size in sent)
    sent.clear()
    token = ask(sim, LONG[1:])
    sim.run_until(sim.network.now + 25)
    assert children(sim, "I") == [token]
    assert sent, "a difference"
    assert all(base != dcp.query_parts.NO_BASE and size < 300 for _, base, size in sent)
    sim.feed(rate=100, until=sim.network.now + 6, make=lambda number: packet(number))
    sim.run_until(sim.network.now + 9)
    wanted = QuerySet(LONG[1:])
    log = sim.peers["J"].core.sender.log
    _, ans, _, _ = log.columns()
    assert list(ans) == [an for an in range(1, sim.truth.last + 1) if wanted.passes(packet(an))]


def test_a_router_that_comes_with_a_long_query_opens_with_nothing_first(sent):
    """A request of 20 KB would be cut up by the network, and lost with any of its pieces."""
    sim = mesh(parents=2)
    token = ask(sim, LONG)
    sim.run_until(sim.network.now + 25)
    change = sim.peers["J"].core.receiver.change
    assert change.opening() == (change.epoch - 8, sim.peers["J"].core.policy.nothing)
    sim.add_router("K", parents=1, deliver=False, dynamic=True)
    sim.feed(rate=50, until=sim.network.now + 30, make=packet)
    sim.run_until(sim.network.now + 3)
    sim.kill("I")
    sim.run_until(sim.network.now + 40)
    links = sim.peers["J"].core.receiver.links
    assert links
    assert all(link.parent.confirmed_epoch == sim.peers["J"].core.receiver.change.epoch for link in links.values())
    assert token in children(sim, "K") + children(sim, "R")
    wanted = QuerySet(LONG)
    _, ans, _, _ = sim.peers["J"].core.sender.log.columns()
    assert list(ans) == [an for an in range(1, sim.truth.last + 1) if wanted.passes(packet(an))]


def test_a_parent_that_does_not_know_the_query_before_gets_all_of_it(sent, monkeypatch):
    sim = mesh()
    ask(sim, LONG[:300])
    sim.run_until(sim.network.now + 15)
    monkeypatch.setattr("dcp.child.Child.query_in", lambda child, epoch: None)
    token = ask(sim, LONG[1:])
    sim.run_until(sim.network.now + 25)
    assert children(sim, "I") == [token]


def test_parts_that_make_another_query_than_was_meant_are_asked_for_again(sent, monkeypatch):
    """The digest is of the whole query: a part that was read otherwise at the other end does not go unnoticed."""
    sim = mesh()
    policy = sim.peers["I"].core.policy
    joined, calls = policy.joined, []

    def wrong(old, parts):
        calls.append(len(parts))
        return joined(old, parts[1:] if len(calls) == 1 else parts)

    monkeypatch.setattr(policy, "joined", wrong)
    token = ask(sim, LONG)
    sim.run_until(sim.network.now + 25)
    assert len(calls) >= 2
    assert children(sim, "I") == [token]


def test_a_flood_of_parts_is_refused(sent):
    sim = PeerSimulation(4)
    sim.add_root("R", dcp=Config(max_queries_per_host=5))
    sim.run_until(0.5)
    sim.add_router("J", parents=1, deliver=False)
    sim.run_until(3.0)
    ask(sim, LONG)
    sim.run_until(sim.network.now + 2)
    assert sim.peers["R"].core.sender.statistics(sim.network.now).query_changes_refused > 0
    assert len(sim.peers["R"].core.sender.children) == 1, "and it is not closed for that"


def under_havoc(seed, monkeypatch):
    """Every set of two queries and more goes in parts, while routers die, freeze and lose datagrams."""
    long = [f"({text}) and not(/p/x = '{'y' * 700}{number}')" for number, text in enumerate(simulated.QUERIES)]
    monkeypatch.setattr(simulated, "QUERIES", long)
    sim = build(seed, dynamic=True, routers=5, leaves=6, loss=0.05, parents=(2, 1, 3))
    now = sim.network.now
    sim.feed(rate=60, until=now + 8, make=simulated.packet)
    Havoc(sim, until=now + 6)
    sim.run_until(now + 20)
    assert complete(sim) == {}, f"seed {seed}"


@pytest.mark.parametrize("seed", [2, 109])
def test_long_queries_under_havoc(seed, monkeypatch, sent):
    """109: a link was opened with "nothing" in the epoch before, and the parent was said to have left out what matched
    the query that the child had had in that epoch."""
    under_havoc(seed, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_long_queries_under_havoc_for_long(seed, monkeypatch):
    under_havoc(seed, monkeypatch)
