"""The whole peer, dcp and mesh and switch together, in simulated meshes: the promises under kills, freezes and loss."""

from __future__ import annotations

import pytest

from dcp import Start
from dcp.testing import Conditions
from peer.queries import token_of
from peer.role import Role
from tests.peer.whole.simulated import Havoc, build, complete, gaps, of_role, packet, short, sound_parents
from xmlswitch import Query


def havoc(seed):
    sim = build(seed, loss=0.02)
    now = sim.network.now
    sim.feed(rate=80, until=now + 9, make=packet)
    Havoc(sim, until=now + 6)
    sim.run_until(now + 16)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim) == {}, f"seed {seed}: fewer than two parents long after the last fault"


@pytest.mark.parametrize("seed", range(3))
def test_kills_freezes_and_query_changes_lose_nothing(seed):
    havoc(seed)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(50))
def test_kills_freezes_and_query_changes_lose_nothing_1000_times(chunk):
    for seed in range(1_000 + 20 * chunk, 1_020 + 20 * chunk):
        havoc(seed)


def test_every_client_gets_exactly_what_its_query_matches():
    sim = build(11)
    now = sim.network.now
    sim.feed(rate=100, until=now + 2, make=packet)
    sim.run_until(now + 3)
    assert complete(sim) == {}
    assert gaps(sim) == {}
    everything = sim.peers["C0"].check.packets
    assert everything == sim.truth.last
    assert sim.peers["C1"].check.packets == pytest.approx(everything / 5, abs=1)


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_parent_dies_and_its_child_does_not_stall(fault):
    """With two parents one death costs no packet, no gap and no wait beyond a network delay."""
    sim = build(5, leaves=2)
    now = sim.network.now
    sim.feed(rate=100, until=now + 4, make=packet)
    sim.run_until(now + 1)
    leaf = sim.peers["C0"]
    parent_id = next(iter(leaf.core.mesh.parents.links.values())).peer_id
    parent = next(p for p in sim.peers.values() if p.core.mesh.peer_id == parent_id)
    if fault == "kill":
        sim.kill(parent.name)
    else:
        sim.freeze(parent.name, 2.5)
    longest = 0.0
    last, at = leaf.check.packets, sim.network.now
    for _ in range(150):
        sim.run_until(sim.network.now + 0.02, step=0.005)
        if leaf.check.packets != last:
            longest = max(longest, sim.network.now - at)
            last, at = leaf.check.packets, sim.network.now
    assert longest <= 0.06, f"silent for {longest:.3f} s"
    sim.run_until(now + 6)
    assert complete(sim) == {}
    assert gaps(sim) == {}
    assert sound_parents(leaf) == 2


def test_a_root_dies_and_one_root_is_enough():
    sim = build(6)
    now = sim.network.now
    sim.feed(rate=100, until=now + 4, make=packet)
    sim.run_until(now + 1)
    sim.kill("R0")
    sim.run_until(now + 7)
    assert complete(sim) == {}
    assert gaps(sim) == {}
    assert sum(p.cold_restarts for p in sim.peers.values()) == 0, "one death must not start a cascade"


def test_a_leaving_router_lets_its_children_go_first():
    sim = build(7)
    now = sim.network.now
    sim.feed(rate=100, until=now + 4, make=packet)
    sim.run_until(now + 1)
    router = max(of_role(sim, Role.ROUTER), key=lambda p: len(p.core.mesh.children))
    router.core.leave(now=sim.network.now)
    sim.network.pump(router.address)
    sim.run_until(now + 4)
    router.alive = False
    assert len(router.core.mesh.children) == 0
    sim.run_until(now + 6)
    assert complete(sim) == {}
    assert gaps(sim) == {}


def test_a_dynamic_mesh_carries_only_what_is_wanted():
    sim = build(8, dynamic=True, leaves=0)
    sim.add_leaf("C", query="/p/c=1")
    sim.run_until(sim.network.now + 3)
    now = sim.network.now
    sim.feed(rate=100, until=now + 2, make=packet)
    sim.run_until(now + 3)
    assert complete(sim) == {}
    parents = {p.peer_id for p in sim.peers["C"].core.mesh.parents.links.values()}
    routers = [p for p in of_role(sim, Role.ROUTER) if p.core.mesh.peer_id in parents]
    for router in routers:
        received = router.core.receiver.statistics(sim.network.now).packets
        assert received <= sim.truth.last / 5 + 1, f"{router.name} carried {received} of {sim.truth.last}"


def test_a_query_is_changed_under_load_with_no_gap_and_no_repeat():
    sim = build(9, dynamic=True, loss=0.05)
    now = sim.network.now
    sim.feed(rate=100, until=now + 6, make=packet)
    leaf = sim.peers["C1"]
    for number, query in enumerate(["/p/c=2", "/p/c>0", "/p/n>10"]):
        sim.run_until(now + 1.5 * (number + 1))
        leaf.core.change_query(Query.parse(query), now=sim.network.now)
        sim.network.pump(leaf.address)
    sim.run_until(now + 8)
    assert leaf.check.query == token_of(Query.parse("/p/n>10"))
    assert complete(sim) == {}
    assert gaps(sim) == {}


def test_a_late_client_starts_as_far_back_as_its_parents_remember():
    sim = build(10, leaves=0)
    now = sim.network.now
    sim.feed(rate=100, until=now + 2, make=packet)
    sim.run_until(now + 2.5)
    sim.add_leaf("old", start=Start.OLDEST)
    sim.add_leaf("at", start=Start.POSITION, position=100)
    sim.add_leaf("new")
    sim.run_until(now + 6)
    assert complete(sim) == {}
    assert sim.peers["old"].check.packets == sim.truth.last
    assert sim.peers["at"].check.packets == sim.truth.last - 100
    assert sim.peers["new"].check.packets == 0
    assert gaps(sim) == {}


def test_a_partition_heals():
    sim = build(12)
    now = sim.network.now
    sim.feed(rate=50, until=now + 8, make=packet)
    sim.run_until(now + 1)
    names = list(sim.peers)
    sim.partition(names[::2], names[1::2])
    sim.run_until(now + 4)
    sim.network.heal()
    sim.run_until(now + 16)
    assert complete(sim) == {}


def test_half_of_everything_is_lost_and_nothing_is_missing():
    sim = build(13)
    sim.network.set_conditions(Conditions(delay=0.005, loss=0.5))
    now = sim.network.now
    sim.feed(rate=50, until=now + 3, make=packet)
    sim.run_until(now + 8)
    sim.network.set_conditions(Conditions(delay=0.005))
    sim.run_until(now + 14)
    assert complete(sim) == {}
