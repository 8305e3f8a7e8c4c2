"""Whole peers that follow a goal while packets flow: moves lose and repeat nothing, with faults and without."""

from __future__ import annotations

import random

import pytest

from dcp.testing import Conditions
from peer.mesh.config import MeshConfig
from peer.testing.guided import RESTLESS, Guided, signed
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import Havoc, complete, gaps, packet, short

MOVING = MeshConfig(replace_interval=3.0)
"""Peers look for a better place every few seconds: for races, not for use."""


def spread(seed: int, *, routers: int = 6, leaves: int = 6) -> tuple[PeerSimulation, Guided]:
    """Two roots, and paths of 2 to 60 ms between any two peers. Settled at 8 s; `StreamCheck` watches every leaf."""
    guided = Guided(signed(), RESTLESS)
    sim = PeerSimulation(seed, conditions=Conditions(delay=0.005, jitter=0.002))
    rng = random.Random(seed)
    names = [f"R{n}" for n in range(2)] + [f"I{n}" for n in range(routers)] + [f"C{n}" for n in range(leaves)]
    for name in names:
        options = {"mesh": MOVING, "placement": guided()}
        if name[0] == "R":
            sim.add_root(name, capacity=6, **options)
        elif name[0] == "I":
            sim.add_router(name, deliver=False, capacity=6, **options)
        else:
            sim.add_leaf(name, **options)
    for one in sim.peers.values():
        for other in sim.peers.values():
            if one is not other:
                path = Conditions(delay=rng.uniform(0.002, 0.06), jitter=0.002, loss=0.01)
                sim.network.set_conditions(path, one.address, other.address)
    sim.run_until(8.0)
    return sim, guided


def moves(sim: PeerSimulation) -> int:
    return sum(peer.core.mesh.counters["moved_nearer"] for peer in sim.peers.values())


@pytest.mark.slow
def test_moves_lose_and_repeat_nothing():
    sim, guided = spread(4)
    sim.feed(rate=30, until=30.0, make=packet)
    sim.run_until(33.0)
    assert moves(sim) > 3
    assert sum(peer.core.mesh.counters["trades_done"] for peer in sim.peers.values()) > 0
    assert sum(placement.moves for placement in guided.made) > 0
    assert complete(sim) == {}
    assert gaps(sim) == {}
    assert short(sim) == {}


@pytest.mark.slow
def test_faults_while_peers_move_break_no_promise():
    run_havoc(1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000))
def test_faults_while_peers_move_break_no_promise_at_length(seed):
    run_havoc(seed)


def run_havoc(seed: int) -> None:
    sim, _ = spread(seed, routers=5, leaves=4)
    Havoc(sim, until=28.0)
    sim.feed(rate=30, until=30.0, make=packet)
    sim.run_until(45.0)
    assert short(sim) == {}
