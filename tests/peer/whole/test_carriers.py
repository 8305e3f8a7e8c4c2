"""Whole peers over connections and multicast groups, in virtual time: the promises hold whatever carries the links."""

from __future__ import annotations

import random

import pytest

from dcp import Config
from dcp.links.address import carrier_of
from peer.role import Role
from tests.peer.whole.simulated import Havoc, build, complete, gaps, of_role, packet, short

BOTH = Config(transports=("udp", "tcp"))
ALL = Config(transports=("udp", "tcp"), multicast=True)


def carriers(peer) -> set[str]:
    return {carrier_of(link.address) for link in peer.core.receiver.links.values()}


@pytest.mark.parametrize("seed", range(4))
def test_peers_whose_udp_is_blocked_hold_their_parents_over_connections(seed):
    sim = build(seed, dcp=BOTH, settled_at=0.5, routers=3, leaves=0)
    blocked = sim.add_leaf("B", dcp=BOTH)
    for name, peer in sim.peers.items():
        if name != "B":
            sim.network.cut(blocked.address, peer.address)
    sim.run_until(6.0)
    assert short(sim) == {}
    assert carriers(blocked) == {"tcp"}
    sim.feed(rate=50, until=12.0, make=packet)
    sim.run_until(14.0)
    assert complete(sim) == {}
    assert gaps(sim) == {}


@pytest.mark.slow
def test_stories_with_resets_and_blocked_paths():
    assert sum(story(seed) for seed in range(2)), "connections were used, and reset"


def story(seed: int) -> int:
    """Kills, freezes, restarts, query changes; UDP cut and healed, connections reset. Levels are checked throughout."""
    sim = build(seed, dcp=ALL, routers=5, leaves=5, loss=0.02)
    dice = random.Random(seed)
    sim.feed(rate=30, until=20.0, make=packet)
    Havoc(sim, until=14.0)

    def strike() -> None:
        if sim.network.now > 15.0:
            sim.network.heal()
            sim.network.deaf.clear()
            return
        sim.network.after(dice.uniform(0.1, 0.5), strike)
        one, other = dice.sample(list(sim.peers.values()), 2)
        draw = dice.random()
        if draw < 0.3:
            sim.network.cut(one.address, other.address)
        elif draw < 0.5:
            sim.network.heal()
        elif draw < 0.6:
            sim.network.deaf.add(one.address)
        elif tubes := sim.network.tubes.open:
            sim.network.tubes.reset(dice.choice(tubes))

    sim.network.after(0.2, strike)
    sim.run_until(28.0)
    assert complete(sim) == {}
    assert short(sim) == {}
    return sim.network.tubes.resets


def test_leaves_of_one_router_on_one_lan_share_a_group():
    sim = build(1, dcp=ALL, roots=1, routers=0, leaves=0, parents=(1,))
    for number in range(4):
        sim.add_leaf(f"L{number}", dcp=ALL, parents=1)
    sim.feed(rate=50, until=10.0, make=packet)
    sim.run_until(12.0)
    assert complete(sim) == {}
    (root,) = of_role(sim, Role.ROOT)
    assert root.core.sender.groups.listening == 4
