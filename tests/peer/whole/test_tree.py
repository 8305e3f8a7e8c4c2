"""Whole peers placed by the reference tree: faults, and a directory that is stale, lies or is gone, as packets flow."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from dcp.testing import Conditions
from dht.places import place_of
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.mesh.placement.tree import TreePlacement
from peer.mesh.reftree import Holders, ReferenceTree, Rules, crown_of, expected_parents
from peer.role import Role
from peer.testing.peersim import STREAM, PeerSimulation
from tests.peer.whole.simulated import Havoc, complete, gaps, of_role, packet, short

PLACE = partial(place_of, STREAM)
TREE = MeshConfig().for_tree()


class TreeSimulation(PeerSimulation):
    """Its directory answers by place. `stale`, `lies`: how many of its answers are old, or about peers it made up."""

    def __init__(self, seed, *, stale=0.0, lies=0.0, **options):
        super().__init__(seed, **options)
        self.stale, self.lies = stale, lies
        self.is_gone = False
        self._before = {}

    def _new_core(self, name, config, placement, make):
        peer_id = PeerId(random.Random(f"{self.seed} {name}").randbytes(20))
        tree = TreePlacement(peer_id, PLACE, is_leaf=config.role is Role.LEAF)
        return super()._new_core(name, config, tree, make)

    def _publish_record(self, peer, core, record):
        before = self._records.get(core.mesh.peer_id)
        super()._publish_record(peer, core, record)
        if before is not None:
            self._before[core.mesh.peer_id] = before
        said = self._records[core.mesh.peer_id]
        placed = replace(said, is_placed=not said.is_root, capacity=record.capacity)
        self._records[core.mesh.peer_id] = placed

    def _answer(self, peer, core, wanted):
        if self.is_gone:
            return
        super()._answer(peer, core, wanted)
        if not peer.alive or peer.core is not core or self.network.is_frozen(peer.address):
            return
        told = []
        for record in self._records.values():
            if record.is_placed and record.peer_id != core.mesh.peer_id:
                is_old = self.rng.random() < self.stale
                told.append(self._before.get(record.peer_id, record) if is_old else record)
        for record in list(told):
            if self.rng.random() < self.lies:
                told += self.made_up(record)
        core.add_candidates(told, now=self.network.now)
        self.network.pump(peer.address)

    def made_up(self, record):
        """Nobody with a place near the top, and somebody who is there with a level that is not its own."""
        nobody = PeerId(self.rng.randbytes(20))
        yield replace(record, peer_id=nobody, address=("10.9.9.9", 4000), level=self.rng.randint(1, 2_000), version=1)
        yield replace(record, level=self.rng.randint(1, 9_000), free=6, version=record.version + 1)


def mesh(seed, *, routers=6, leaves=4, **options):
    sim = TreeSimulation(seed, conditions=Conditions(delay=0.005, jitter=0.003, loss=0.02), **options)
    for number in range(2):
        sim.add_root(f"R{number}", capacity=12)
    for number in range(routers):
        sim.network.at(0.1 + 0.1 * number, lambda number=number: sim.add_router(f"I{number}", mesh=TREE))
    for number in range(leaves):
        sim.network.at(1.0 + 0.1 * number, lambda number=number: sim.add_leaf(f"C{number}", mesh=TREE))
    sim.run_until(8.0)
    return sim


def out_of_place(sim):
    """Routers whose parents are not those that the list of ids gives."""
    by_place = {PLACE(peer.core.mesh.peer_id): peer for peer in of_role(sim, Role.ROUTER)}
    roots = sorted(of_role(sim, Role.ROOT), key=lambda root: root.core.mesh.peer_id)
    names = {-1 - number: root for number, root in enumerate(roots)} | by_place
    crown = crown_of(sum(root.config.mesh.capacity * 3 // 4 for root in roots), 2)
    up = expected_parents(Holders(ReferenceTree(2), by_place), Rules(2, 6, crown), [-1, -2])
    return {
        names[place].name: [names[parent].name for parent in parents]
        for place, parents in up.items()
        if {names[parent].core.mesh.peer_id for parent in parents}
        != {parent.peer_id for parent in names[place].core.mesh.parents.links.values()}
    }


@pytest.mark.slow
def test_moving_into_place_loses_and_repeats_nothing():
    sim = mesh(1)
    sim.feed(rate=10, until=50.0, make=packet)
    sim.network.at(20.0, lambda: sim.kill("I2"))
    sim.run_until(55.0)
    assert (complete(sim), gaps(sim), short(sim)) == ({}, {}, {})
    assert out_of_place(sim) == {}


@pytest.mark.slow
def test_a_directory_that_makes_peers_up_costs_no_parent_and_no_packet():
    sim = mesh(2, stale=0.3, lies=0.5)
    sim.feed(rate=10, until=25.0, make=packet)
    sim.network.at(15.0, lambda: sim.kill("I1"))
    sim.run_until(28.0)
    assert (complete(sim), gaps(sim), short(sim)) == ({}, {}, {})


@pytest.mark.slow
def test_without_a_directory_what_is_known_is_enough_to_repair():
    sim = mesh(3)
    sim.feed(rate=10, until=25.0, make=packet)
    sim.run_until(16.0)
    sim.is_gone = True
    sim.kill("I0")
    sim.run_until(21.0)
    assert short(sim) == {}
    sim.is_gone = False
    sim.run_until(28.0)
    assert (complete(sim), gaps(sim), short(sim)) == ({}, {}, {})


@pytest.mark.slow
def test_faults_break_no_promise():
    run_havoc(1)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 1_000, 20))
def test_faults_break_no_promise_at_length(first):
    for seed in range(first, first + 20):
        run_havoc(seed)


def run_havoc(seed):
    sim = mesh(seed, routers=5, stale=0.3, lies=0.2 * (seed % 2))
    Havoc(sim, until=25.0)
    routers = [peer.name for peer in of_role(sim, Role.ROUTER)]
    sim.network.at(14.0, lambda: sim.partition(routers[:2], routers[2:]))
    sim.network.at(18.0, sim.network.heal)
    sim.feed(rate=10, until=27.0, make=packet)
    sim.run_until(40.0)
    assert short(sim) == {}
