"""Placement by the reference tree, in simulated meshes: it becomes the one that the list of ids gives."""

from __future__ import annotations

from functools import partial

import pytest

from dht.places import place_of
from peer.mesh.config import MeshConfig
from peer.mesh.messages import UNPLACED
from peer.mesh.placement.tree import LEVELS_PER_RANK, TreeLevels, TreePlacement
from peer.mesh.reftree import Holders, ReferenceTree, Rules, crown_of, expected_parents
from peer.testing.directory import STREAM
from peer.testing.meshsim import MeshSimulation, hostile

PLACE = partial(place_of, STREAM)
PARENTS = 2
CAPACITY = 6


def tree_mesh(seed: int, *, degree=lambda: 3, capacity: int = CAPACITY, **options) -> MeshSimulation:
    config = MeshConfig(parents_wanted=PARENTS, capacity=capacity).for_tree()

    def placement(peer_id, config):
        return TreePlacement(peer_id, PLACE, degree=degree, is_leaf=not config.capacity)

    return MeshSimulation(seed, config=config, placement=placement, lists_places=True, **options)


def run(sim: MeshSimulation, seconds: float) -> None:
    sim.network.run_until(sim.now + seconds, max_steps=10**9)


def routers(sim: MeshSimulation) -> list:
    return [peer for peer in sim.peers if peer.is_alive and not peer.is_root and peer.config.capacity]


def share_in_place(sim: MeshSimulation, arity: int = 2) -> float:
    """Of the routers, those whose parents are the expected ones."""
    by_place = {PLACE(peer.peer_id): peer for peer in routers(sim)}
    roots = sorted((peer for peer in sim.peers if peer.is_alive and peer.is_root), key=lambda peer: peer.peer_id)
    slots = sum(peer.config.capacity * 3 // 4 for peer in roots)
    names = {-1 - number: root for number, root in enumerate(roots)}
    rules = Rules(PARENTS, sim.config.capacity, crown_of(slots, PARENTS, arity))
    up = expected_parents(Holders(ReferenceTree(arity), by_place), rules, sorted(names, reverse=True))
    exact = 0
    for place, expected in up.items():
        wanted = {(names[other] if other < 0 else by_place[other]).peer_id for other in expected}
        exact += {parent.peer_id for parent in by_place[place].mesh.parents.links.values()} == wanted
    return exact / len(up)


def all_have_their_parents(sim: MeshSimulation) -> bool:
    return all(len(peer.mesh.parents.sound()) >= PARENTS for peer in sim.peers if peer.is_alive and not peer.is_root)


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_becomes_the_one_that_the_ids_give_and_again_after_three_deaths(seed):
    sim = tree_mesh(seed)
    sim.populate(roots=2, peers=12, root_capacity=12)
    run(sim, 60)
    assert share_in_place(sim) == 1.0
    assert all_have_their_parents(sim)
    for peer in sim.rng.sample(routers(sim), 3):
        sim.crash(peer)
    run(sim, 5)
    assert all_have_their_parents(sim), "a missing parent is urgent"
    run(sim, 40)
    assert share_in_place(sim) == 1.0


def test_the_mesh_follows_a_degree_that_the_owner_changes():
    degree = [3]
    sim = tree_mesh(2, degree=lambda: degree[0], capacity=9)
    sim.populate(roots=2, peers=12, root_capacity=12)
    run(sim, 60)
    assert share_in_place(sim) == 1.0
    assert share_in_place(sim, arity=3) < 1.0
    degree[0] = 4
    run(sim, 60)
    assert all_have_their_parents(sim)
    assert share_in_place(sim, arity=3) == 1.0


def test_a_larger_mesh_is_mostly_in_place_within_a_minute():
    sim = tree_mesh(4, walks_up=False)
    sim.populate(roots=3, peers=60, root_capacity=12)
    run(sim, 60)
    assert all_have_their_parents(sim)
    assert share_in_place(sim) >= 0.85
    assert max(len(peer.mesh.children) for peer in routers(sim)) <= CAPACITY


def test_leaves_displace_nobody():
    sim = tree_mesh(5)
    sim.populate(roots=2, peers=8, root_capacity=12)
    run(sim, 40)
    before = {peer.index: {p.peer_id for p in peer.mesh.parents.links.values()} for peer in routers(sim)}
    for _ in range(6):
        sim.add(capacity=0)
    run(sim, 40)
    assert {peer.index: {p.peer_id for p in peer.mesh.parents.links.values()} for peer in routers(sim)} == before
    assert all_have_their_parents(sim)


def trouble(seed: int) -> None:
    """Loss, copies and reordering, a stale directory, deaths and newcomers; the simulation checks levels and cycles."""
    sim = tree_mesh(seed, network=hostile(0.05), stale_share=0.5)
    sim.populate(roots=2, peers=14, root_capacity=12)
    for _ in range(6):
        run(sim, 4)
        sim.crash(sim.rng.choice(routers(sim)))
        sim.add()
    run(sim, 30)
    assert all_have_their_parents(sim)


def test_trouble_breaks_no_level():
    trouble(6)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 1_000, 20))
def test_long_campaign_of_trees(first):
    for seed in range(first, first + 20):
        trouble(seed)


def test_a_level_says_the_rank_unless_the_parents_are_above_that():
    levels = TreeLevels()
    levels.rank = 3
    assert levels.place([10, 20], None) == 4 * LEVELS_PER_RANK
    assert levels.place([9_000], None) == 9_001
    assert levels.lowered(UNPLACED, [10], None) == 4 * LEVELS_PER_RANK
    assert levels.lowered(4 * LEVELS_PER_RANK, [10], None) is None
