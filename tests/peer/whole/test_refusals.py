"""Every refusal, between whole peers over dcp: who asks hears the reason, and goes where it can be helped."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from peer.core import PeerCore
from peer.coreconfig import CoreConfig
from peer.errors import QueryNotCarried
from peer.mesh.candidates import CandidateRecord
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId, RefuseReason
from peer.queries import NOTHING, token_of
from peer.role import Role
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import complete, packet, short, sound_parents
from xmlswitch import Query

HIGH = Query.parse("/p/c>2")


class Listener:
    """Notes the reason of every refusal that a peer hears."""

    def __init__(self, peer):
        self.reasons = []
        hear = peer.core.mesh.link_refused

        def spy(link, reason, body, *, now):
            self.reasons.append(RefuseReason(reason))
            hear(link, reason, body, now=now)

        peer.core.mesh.link_refused = spy


def pointed_at(sim, seeker, target, *, level=0):
    """The seeker hears of the target from a record that says what it likes."""
    seeker.core.add_candidates(
        [
            CandidateRecord(
                PeerId(b"somebody"),
                target.address,
                level=level,
                hops=0,
                load=0.0,
                free=9,
                free_for_repair=9,
                resilience=255,
                is_root=True,
            )
        ],
        now=sim.network.now,
    )
    sim.network.pump(seeker.address)


@pytest.fixture
def sim():
    sim = PeerSimulation(3)
    sim.add_root("R")
    sim.run_until(0.5)
    return sim


def test_full_and_too_many_joins(sim):
    crowded = replace(MeshConfig(), max_joins_per_second=4.0)
    sim.add_root("small", capacity=1, mesh=crowded)
    sim.forget_records_except()
    sim.run_until(1.5)
    heard = set()
    for i in range(30):
        leaf = sim.add_leaf(f"C{i}", parents=1)
        listener = Listener(leaf)
        pointed_at(sim, leaf, sim.peers["small"])
        sim.network.after(1.0, lambda listener=listener: heard.update(listener.reasons))
    sim.run_until(3.0)
    assert {RefuseReason.FULL, RefuseReason.TOO_MANY_JOINS} <= heard


def test_level(sim):
    """A router that wants a second parent hears that its own child is a root: it is refused, and no cycle closes."""
    top = sim.add_router("top", parents=2, deliver=False)
    sim.run_until(2.0)
    sim.forget_records_except("top")
    below = sim.add_router("below", parents=1, deliver=False)
    sim.run_until(4.0)
    assert [p.peer_id for p in below.core.mesh.parents.links.values()] == [top.core.mesh.peer_id]
    listener = Listener(top)
    pointed_at(sim, top, below)
    sim.run_until(5.0)
    assert RefuseReason.LEVEL in listener.reasons
    assert below.core.mesh.counters["refused_level"] > 0
    assert sound_parents(top) == 1


def test_policy_for_oneself_and_for_a_network_that_may_not(sim):
    router = sim.add_router("I", parents=1, deliver=False, children_from=(ip_network("192.0.2.0/24"),))
    sim.run_until(2.0)
    leaf = sim.add_leaf("C", parents=2)
    listener = Listener(leaf)
    sim.run_until(5.0)
    assert RefuseReason.POLICY in listener.reasons
    assert router.core.mesh.counters["refused_policy"] > 0
    assert sound_parents(leaf) == 1, "the root has it, the router may not"
    itself = Listener(router)
    router.core.mesh.parents.links.clear()
    pointed_at(sim, router, router)
    sim.run_until(6.0)
    assert RefuseReason.POLICY in itself.reasons


@pytest.mark.parametrize("dynamic", [False, True])
def test_query_not_carried(sim, dynamic):
    """A router that carries a part of the stream takes children for that part, and no others."""
    router = sim.add_router("I", parents=1, deliver=False, dynamic=dynamic, carry=HIGH)
    sim.run_until(2.0)
    sim.forget_records_except("I")
    inside = sim.add_leaf("inside", query="/p/c>3", parents=1)
    outside = sim.add_leaf("outside", query="/p/c=1", parents=1)
    listener = Listener(outside)
    pointed_at(sim, outside, router)
    sim.run_until(4.0)
    assert RefuseReason.QUERY_NOT_CARRIED in listener.reasons
    assert sound_parents(inside) == 1
    assert router.core.policy.covers(token_of(HIGH), router.core.subscription), "it asks for no more itself"
    sim.feed(rate=50, until=6.0, make=packet)
    sim.run_until(7.0)
    assert complete(sim) == {"outside": sim.truth.first}, "nobody else was to be found, and it has nothing"
    assert inside.check.packets > 0


def test_a_child_that_comes_to_want_more_than_is_carried_goes_elsewhere(sim):
    """It changes its query: the router lets it go with the reason, the root has it, and no packet is lost."""
    router = sim.add_router("I", parents=1, deliver=False, dynamic=True, carry=HIGH)
    sim.run_until(2.0)
    leaf = sim.add_leaf("C", query="/p/c>3", parents=2)
    sim.run_until(4.0)
    assert sound_parents(leaf) == 2
    sim.feed(rate=50, until=8.0, make=packet)
    sim.run_until(5.0)
    leaf.core.change_query(None, now=sim.network.now)
    sim.network.pump(leaf.address)
    sim.run_until(9.0)
    assert router.core.mesh.counters["dropped_query_not_carried"] == 1
    assert router.core.mesh.counters["refused_query_not_carried"] > 0, "it asks again, in vain"
    assert sound_parents(leaf) == 1
    assert complete(sim) == {}
    assert leaf.check.gaps == []


def test_what_a_candidate_covers_of_our_query(sim):
    leaf = sim.add_leaf("C", query="/p/c>3", parents=1)
    coverage = leaf.core._coverage
    assert coverage(token_of(None)) == 1.0
    assert coverage(token_of(HIGH)) == 1.0
    assert coverage(token_of(NOTHING)) == 0.0
    assert coverage(token_of(Query.parse("/p/c=1"))) == 0.0
    assert coverage(b"no query at all") == 0.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_router_that_has_the_query_already_is_preferred(seed):
    """Of routers alike, the one that carries our part gets the joins: the others would have to ask for more."""
    sim = PeerSimulation(seed)
    sim.add_root("R", capacity=4)  # the routers fill it
    for name in ("other", "has", "idle"):
        sim.add_router(name, parents=1, deliver=False, dynamic=True)
    sim.run_until(2.0)
    for name, query in (("other", "/p/c=1"), ("has", "/p/c>2")):
        first = sim.add_leaf(f"first of {name}", query=query, parents=1)
        pointed_at(sim, first, sim.peers[name])
    sim.run_until(5.0)
    assert {len(sim.peers[name].core.mesh.children) for name in ("other", "has")} == {1}
    for i in range(3):
        sim.add_leaf(f"C{i}", query="/p/c>3", parents=1)
    sim.run_until(8.0)
    assert {name: len(sim.peers[name].core.mesh.children) for name in ("other", "has", "idle")} == {
        "other": 1, "has": 4, "idle": 0,
    }  # fmt: skip


def test_stream_unknown(sim):
    """Somebody serves another stream where a stale record says that ours is."""
    other = sim.add_root("other")
    stranger = PeerCore(CoreConfig(stream="another", role=Role.ROOT), PeerId(b"stranger"), rng=sim.rng)
    other.core = stranger
    sim.network.add(other.address, stranger)
    stranger.start(now=sim.network.now)
    leaf = sim.add_leaf("C", parents=1)
    listener = Listener(leaf)
    pointed_at(sim, leaf, other)
    sim.run_until(3.0)
    assert RefuseReason.STREAM_UNKNOWN in listener.reasons
    assert short(sim) == {}, "and it found the root all the same"


def test_shutting_down_and_not_rooted(sim):
    router = sim.add_router("I", parents=1, deliver=False)
    sim.run_until(2.0)
    sim.forget_records_except("I")
    child = sim.add_leaf("child", parents=1)
    sim.run_until(3.0)
    assert sound_parents(child) == 1
    router.core.leave(now=sim.network.now)
    sim.network.pump(router.address)
    late = sim.add_leaf("late", parents=1)
    listener = Listener(late)
    pointed_at(sim, late, router)
    sim.run_until(3.2)
    assert RefuseReason.SHUTTING_DOWN in listener.reasons
    lonely = sim.add_router("lonely", parents=1, deliver=False)
    sim.forget_records_except()
    lonely.core.mesh.candidates.clear()
    asks = sim.add_leaf("asks", parents=1)
    listener = Listener(asks)
    pointed_at(sim, asks, lonely)
    sim.run_until(3.4)
    assert RefuseReason.NOT_ROOTED in listener.reasons


def test_a_router_whose_own_client_wants_more_than_it_may_carry_is_refused_at_once():
    config = CoreConfig(stream="s", role=Role.ROUTER, query=Query.parse("/p"), carry=HIGH)
    with pytest.raises(QueryNotCarried, match="narrow the query"):
        PeerSimulation(1)._new_core("I", config, None)


def test_a_routers_client_cannot_change_to_what_is_not_carried(sim):
    router = sim.add_router("I", parents=1, query="/p/c>3", carry=HIGH)
    sim.run_until(2.0)
    with pytest.raises(QueryNotCarried):
        router.core.change_query(None, now=sim.network.now)
    router.core.change_query(Query.parse("/p/c=4"), now=sim.network.now)
