"""Children(Q), Parents and status by real inquiries between whole peers; non-uniform n; resilient parents."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dcp import Config, Hub
from dcp.events import InquiryAnswered
from peer.mesh.config import MeshConfig
from peer.mesh.encoding import decode_answer_untrusted, encode_request
from peer.mesh.messages import (
    About,
    AboutRequest,
    ChildrenRequest,
    ParentsRequest,
    Peers,
    State,
    StatusRequest,
    Wanted,
    WantsRequest,
)
from peer.mesh.placement.walk import WalkPlacement
from peer.queries import token_of
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import build, complete, packet, short, sound_parents
from xmlswitch import Query

ASKER = ("10.9.9.9", 4000)


class Asker:
    """A stranger on the same network: a hub and nothing else."""

    def __init__(self, sim):
        self.sim = sim
        self.hub = Hub(Config(), rng=random.Random(1))
        self.answers = {}
        on_event = sim.network._on_event

        def hear(address, event, now):
            if address == ASKER:
                if isinstance(event, InquiryAnswered):
                    self.answers[event.inquiry] = event.body
            else:
                on_event(address, event, now)

        sim.network._on_event = hear
        sim.network.add(ASKER, self.hub)

    def ask(self, name, request):
        sim = self.sim
        number = self.hub.inquire(sim.peers[name].address, encode_request(request), timeout=2.0, now=sim.network.now)
        sim.network.pump(ASKER)
        sim.run_until(sim.network.now + 2.5)
        body = self.answers[number]
        return None if body is None else decode_answer_untrusted(body)


def names(sim, peers):
    by_id = {peer.core.mesh.peer_id: peer.name for peer in sim.peers.values()}
    return {by_id[at.peer_id] for at in peers.peers}


@pytest.fixture
def star():
    """A root with four leaves, each with another query."""
    sim = PeerSimulation(5)
    sim.add_root("R")
    sim.run_until(0.5)
    for name, query in {"all": None, "one": "/p/c=1", "above": "/p/c>2", "four": "/p/c=4"}.items():
        sim.add_leaf(name, query=query, parents=1)
    sim.run_until(3.0)
    assert short(sim) == {}
    return sim


def test_children_of_a_query_are_those_whose_queries_it_covers(star):
    asker = Asker(star)
    everything = asker.ask("R", ChildrenRequest(b""))
    assert isinstance(everything, Peers)
    assert names(star, everything) == {"all", "one", "above", "four"}
    assert all(at.address == star.peers[name].address for at in everything.peers for name in names(star, Peers((at,))))
    some = asker.ask("R", ChildrenRequest(token_of(Query.parse("/p/c>2"))))
    assert names(star, some) == {"above", "four"}
    none = asker.ask("R", ChildrenRequest(token_of(Query.parse("/p/c=2"))))
    assert none == Peers(())


def test_parents_and_status_are_told_to_whoever_asks(star):
    asker = Asker(star)
    parents = asker.ask("one", ParentsRequest())
    assert names(star, parents) == {"R"}
    status = asker.ask("R", StatusRequest())
    assert isinstance(status, State)
    assert (status.level, status.hops, status.children, status.is_rooted) == (0, 0, 4, True)
    status = asker.ask("one", StatusRequest())
    assert (status.parents_held, status.parents_wanted, status.hops, status.capacity) == (1, 1, 1, 0)


def test_what_a_client_asks_for_is_told_to_whoever_asks(star):
    asker = Asker(star)
    assert asker.ask("one", WantsRequest()) == Wanted(star.peers["one"].core.receiver.query)
    assert asker.ask("R", WantsRequest()) == Wanted(None), "a root has no client"


def test_a_peer_says_how_it_is_called_and_what_it_receives():
    sim = PeerSimulation(6)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_leaf("C", parents=1, label="tower")
    sim.run_until(2.0)
    sim.feed(rate=50, until=20.0, make=packet)
    sim.run_until(12.0)
    asker = Asker(sim)
    for name in ("R", "C"):  # each answer takes 2.5 s of the samples
        about = asker.ask(name, AboutRequest())
        assert isinstance(about, About)
        assert about.packets_per_second == pytest.approx(50, rel=0.2)
    assert about.name == "tower"
    assert about.loss == 0.0


def test_an_inquiry_that_is_nonsense_or_to_nobody_is_not_answered(star):
    asker = Asker(star)
    number = asker.hub.inquire(star.peers["R"].address, b"nonsense", timeout=1.0, now=star.network.now)
    star.network.pump(ASKER)
    star.run_until(star.network.now + 1.5)
    assert asker.answers[number] is None
    assert star.peers["R"].core.mesh.counters["malformed"] >= 1
    star.kill("four")
    assert asker.ask("four", StatusRequest()) is None


def test_the_papers_walk_goes_from_a_full_root_down_through_its_children():
    """With no directory but the root's record: a refusal, Children(everything), and a place below."""
    sim = PeerSimulation(6)
    sim.add_root("R", capacity=2)
    sim.run_until(0.5)
    sim.add_router("I", parents=1, deliver=False)
    sim.add_leaf("C0", parents=1)
    sim.run_until(3.0)
    assert sim.peers["R"].core.mesh.children.free == 0
    late = sim.add_leaf("C1", parents=1, placement=WalkPlacement())
    sim.forget_records_except("R")
    sim.run_until(8.0)
    assert sound_parents(late) == 1
    assert late.core.mesh.counters["joins_refused"] > 0
    assert late.core.mesh.counters["inquiries"] > 0
    assert next(iter(late.core.mesh.parents.links.values())).peer_id == sim.peers["I"].core.mesh.peer_id


def test_a_two_resilient_core_carries_one_resilient_clients():
    sim = build(11, roots=2, routers=5, leaves=0)
    for i in range(4):
        sim.add_leaf(f"C{i}", parents=1)
    sim.run_until(sim.network.now + 2)
    assert short(sim) == {}
    now = sim.network.now
    sim.feed(rate=50, until=now + 1, make=packet)
    sim.run_until(now + 2)
    assert complete(sim) == {}
    assert {sim.peers[f"C{i}"].core.mesh.resilience for i in range(4)} == {1}
    assert {peer.core.mesh.resilience for name, peer in sim.peers.items() if name.startswith("I")} == {2}


def test_a_client_that_asks_for_resilient_parents_takes_no_others():
    strict = replace(MeshConfig(), requires_resilient_parents=True)
    sim = PeerSimulation(12)
    for name in ("R0", "R1"):
        sim.add_root(name, capacity=4)
    sim.run_until(0.5)
    for i in range(3):
        sim.add_router(f"weak{i}", parents=1, deliver=False)
        sim.add_router(f"sound{i}", parents=2, deliver=False)
    sim.run_until(3.0)
    sim.add_leaf("strict", mesh=strict)
    sim.add_leaf("easy", parents=1)
    for _ in range(60):
        sim.run_until(sim.network.now + 0.1)
        for parent in sim.peers["strict"].core.mesh.parents.links.values():
            assert parent.resilience >= 2
    assert sound_parents(sim.peers["strict"]) == 2


def test_a_placement_sees_what_dcp_measured_on_each_link():
    sim = build(14, loss=0.05)
    now = sim.network.now
    sim.feed(rate=50, until=now + 2, make=packet)
    sim.run_until(now + 3)
    core = sim.peers["C0"].core
    measured = core.qualities(sim.network.now)
    assert set(measured) == set(core.mesh.parents.links)
    assert sum(quality.first_share for quality in measured.values()) == pytest.approx(1.0, abs=0.1)
    for quality in measured.values():
        assert 0.005 < quality.round_trip < 0.1
        assert 0 <= quality.loss < 0.5
        assert 0 < quality.rate <= quality.bandwidth
        assert 0 <= (quality.lateness or 0.0) < 0.05
    assert min(quality.lateness for quality in measured.values()) < 0.001  # one is nearly always the first
    rates = core.observer.measures()
    assert rates["incoming"] == rates["own_rate"] > 0
    assert rates["superfluous"] == rates["outgoing"] == 0
    router = sim.peers["I0"].core
    assert set(router.qualities(sim.network.now)) == {*router.mesh.parents.links, *router.mesh.children.links}
