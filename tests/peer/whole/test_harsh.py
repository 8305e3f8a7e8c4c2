"""Harsher weather for whole peers: bursts, partitions, crowds, late and dying roots, wrapping ANs, tiny logs.

Each story is one function of a seed; `make test` runs a seed or two of each, `make soak` a hundred.
"""

from __future__ import annotations

import random

import pytest

from dcp import Config
from dcp.testing import Conditions
from peer.queries import token_of
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import QUERIES, Havoc, build, complete, gaps, packet, short
from xmlswitch import Query


def bursts_of_loss(seed):
    dice = random.Random(seed)
    loss = dice.uniform(0.05, 0.2)
    bad = Conditions(
        delay=0.01,
        jitter=0.02,
        loss=loss,
        burst_enter=0.01,
        burst_leave=0.2,
        reorder=0.02,
        duplicate=0.02,
        corrupt=0.01,
    )
    sim = build(seed, conditions=bad, settled_at=5.0, parents=(2, 3, 1))
    now = sim.network.now
    sim.feed(rate=60, until=now + 7, make=packet)
    Havoc(sim, until=now + 5)
    sim.run_until(now + 8)
    sim.network.set_conditions(Conditions(delay=0.01, loss=0.02))
    sim.run_until(now + 17)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim, most=2) == {}, f"seed {seed}"


def partitions(seed):
    dice = random.Random(seed)
    sim = build(seed, loss=0.02, routers=6)
    now = sim.network.now
    sim.feed(rate=50, until=now + 9, make=packet)
    for at in (1.0, 4.0):
        sim.run_until(now + at)
        names = list(sim.peers)
        dice.shuffle(names)
        cut = dice.randrange(1, len(names))
        sim.partition(names[:cut], names[cut:])
        sim.run_until(now + at + dice.uniform(0.5, 2.8))
        sim.network.heal()
    sim.run_until(now + 22)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim) == {}, f"seed {seed}"


def a_crowd_at_once(seed):
    sim = build(seed, routers=20, leaves=1, loss=0.01, settled_at=4.0)
    now = sim.network.now
    sim.feed(rate=20, until=now + 4, make=packet)
    for i in range(30):
        sim.network.at(now + 0.5, lambda i=i: sim.add_leaf(f"crowd{i}", query=QUERIES[i % len(QUERIES)]))
    sim.run_until(now + 8)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim) == {}, f"seed {seed}"
    assert sum(peer.cold_restarts for peer in sim.peers.values()) == 0


def roots_come_late_and_die(seed):
    """Everybody waits for the first root; the second comes under way; both die, one after the other and together."""
    sim = build(seed, roots=0, routers=4, leaves=3, settled_at=2.5)
    sim.add_root("R0")
    sim.run_until(6.0)
    now = sim.network.now
    sim.feed(rate=50, until=now + 16, make=packet)
    sim.network.at(now + 1, lambda: sim.add_root("R1"))
    for at, what, name in [
        (3.0, sim.kill, "R0"),
        (5.0, sim.restart, "R0"),
        (8.0, sim.kill, "R0"),
        (8.0, sim.kill, "R1"),
        (9.5, sim.restart, "R1"),
        (11.0, sim.restart, "R0"),
    ]:
        sim.network.at(now + at, lambda what=what, name=name: what(name))
    sim.run_until(now + 32)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim) == {}, f"seed {seed}"
    # While both were dead nobody had the feed: that, and only that, may be a gap.
    for name, found in gaps(sim).items():
        assert len(found) <= 3, f"seed {seed}: {name} {found}"


def all_routers_dynamic(seed):
    sim = build(seed, dynamic=True, routers=5, leaves=5, loss=0.03, parents=(2, 1, 3))
    now = sim.network.now
    sim.feed(rate=80, until=now + 8, make=packet)
    Havoc(sim, until=now + 6)
    sim.run_until(now + 18)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim, most=2) == {}, f"seed {seed}"


def numbers_wrap(seed):
    """The feed runs over 2**32: 32 bits on the wire, 64 inside."""
    sim = build(seed, loss=0.03, before=2**32 - 250)
    now = sim.network.now
    sim.feed(rate=80, until=now + 7, make=packet)
    Havoc(sim, until=now + 5)
    sim.run_until(now + 16)
    assert sim.truth.last > 2**32
    assert complete(sim) == {}, f"seed {seed}"


def tiny_logs(seed):
    """Hardly any memory: much is lost for good, and every loss is told."""
    small = Config(max_log_packets=24, max_buffer_packets=16, max_ready_packets=32, max_segments=8)
    sim = build(seed, loss=0.05, dcp=small)
    now = sim.network.now
    sim.feed(rate=80, until=now + 8, make=packet)
    Havoc(sim, until=now + 6)
    sim.run_until(now + 20)
    assert complete(sim) == {}, f"seed {seed}"
    assert short(sim) == {}, f"seed {seed}"


def clients_that_do_not_listen(seed):
    small = Config(max_log_packets=256, max_ready_packets=64)
    sim = build(seed, loss=0.01, dcp=small, leaves=5)
    now = sim.network.now
    sim.feed(rate=100, until=now + 10, make=packet)
    for name, until in (("C0", 3.0), ("C2", 9.0)):
        sim.peers[name].takes = False
        sim.network.at(now + until, lambda name=name: setattr(sim.peers[name], "takes", True))
    sim.run_until(now + 24)
    assert complete(sim) == {}, f"seed {seed}"
    assert {"C1", "C3", "C4"}.isdisjoint(gaps(sim)), f"seed {seed}: siblings noticed"


STORIES = [
    bursts_of_loss,
    partitions,
    a_crowd_at_once,
    roots_come_late_and_die,
    all_routers_dynamic,
    numbers_wrap,
    tiny_logs,
    clients_that_do_not_listen,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_harsh(story):
    story(1)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_harsh_100_times(story, chunk):
    for seed in range(100 + 10 * chunk, 110 + 10 * chunk):
        story(seed)


@pytest.mark.parametrize("offset", [0.0, 0.01, 0.02])
def test_a_child_comes_while_its_parent_narrows(offset):
    """The query in force still covers the child, the one under way does not: widened again before a packet is lost."""
    sim = PeerSimulation(4, conditions=Conditions(delay=0.005))
    sim.add_root("R")
    router = sim.add_router("I", deliver=False, dynamic=True, parents=1, narrow_after=1.0)
    sim.run_until(1.0)
    for name, query in (("wide", "/p/c>0"), ("narrow", "/p/c=1")):
        sim.add_leaf(name, query=query, parents=1)
        sim.network.cut(sim.peers[name].address, sim.peers["R"].address)  # its only parent is the router
    sim.run_until(3.0)
    sim.feed(rate=100, until=7.0, make=packet)
    sim.run_until(3.5)
    sim.peers["wide"].core.leave(now=sim.network.now)
    sim.network.pump(sim.peers["wide"].address)
    while router.core.receiver.change.target != token_of(Query.parse("/p/c=1")):
        sim.run_until(sim.network.now + 0.005, step=0.005)
        assert sim.network.now < 7.0, "never narrowed"
    sim.peers["wide"].alive = False
    sim.run_until(sim.network.now + offset, step=0.005)
    sim.add_leaf("late", query="/p/c=3", parents=1)
    sim.network.cut(sim.peers["late"].address, sim.peers["R"].address)
    sim.run_until(9.0)
    assert complete(sim) == {}
    assert gaps(sim) == {}
    assert sim.peers["late"].check.packets > 0
