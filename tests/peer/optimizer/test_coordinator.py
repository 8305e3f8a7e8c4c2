"""The mode in which the root decides: critical units, one or several transformations per period, random ones."""

from __future__ import annotations

import random

import pytest

from peer.optimizer.coordinator import Coordinator, Scope, critical_peers, is_better, peers_of
from peer.optimizer.statistics import ApproximatedCosts
from peer.optimizer.transformations import BUILT_IN, OF_THE_PAPER, PROMOTE
from tests.peer.optimizer.worlds import SmallWorld, grown

LATENCY = "minimize sum(path sum(link.latency))"


def spaced(size: int, roots: int = 1, seed: int = 3) -> SmallWorld:
    rng = random.Random(seed)
    at = [(rng.random(), rng.random()) for _ in range(size)]
    wide = [rng.random() for _ in range(size)]
    return SmallWorld(
        size,
        roots,
        latency=lambda a, b: abs(at[a][0] - at[b][0]) + abs(at[a][1] - at[b][1]) + 0.01,
        bandwidth=lambda a, b: min(wide[a] + (a == 0), wide[b]),
    )


@pytest.mark.parametrize("concurrent", [False, True])
def test_without_limits_latency_leads_to_the_star(concurrent):
    world = spaced(20)
    layout = grown(world, 1, 2, capacity=99)
    evaluator = world.evaluator(LATENCY)
    coordinator = Coordinator(layout, evaluator, random.Random(1), OF_THE_PAPER, concurrent=concurrent)
    periods = list(coordinator.run(40))
    assert layout.children[0] == set(layout.peers)
    assert all(len(done) == 1 for done in periods) or concurrent
    assert sum(map(len, periods)) <= 20


def test_concurrent_transformations_share_no_peer():
    world = spaced(40, roots=2)
    layout = grown(world, 2, 4)
    coordinator = Coordinator(layout, world.evaluator(LATENCY), random.Random(1), concurrent=True)
    most = 0
    for done in coordinator.run(2):
        touched = [peers_of(moves) for moves in done]
        assert sum(map(len, touched)) == len(set().union(*touched))
        assert layout.violations() == 0
        most = max(most, len(done))
    assert most > 1


def test_every_period_improves_and_the_limits_hold():
    world = spaced(20, roots=2)
    layout = grown(world, 2, 5)
    evaluator = world.evaluator(LATENCY + " subject to fanout <= 4")
    before = evaluator.value(layout)
    assert before[0] > 0  # the start breaks the constraint
    for _ in Coordinator(layout, evaluator, random.Random(1)).run(30):
        value = evaluator.value(layout)
        assert value < before
        before = value
    assert before[0] == 0
    assert max(len(children) for children in layout.children[2:]) <= 4


def test_only_units_around_the_narrow_link_are_critical():
    world = SmallWorld(7, bandwidth=lambda a, b: 1.0 if (a, b) == (3, 6) else 5.0)
    layout = world.layout("1<0 2<1 3<1 4<2 5<2 6<3")
    evaluator = world.evaluator("maximize min(path min(link.bandwidth))")
    assert critical_peers(layout, evaluator) == {6}
    coordinator = Coordinator(layout, evaluator, random.Random(1), BUILT_IN)
    assert coordinator.owners() == [1, 3]
    coordinator.scope = Scope.OPPORTUNISTIC
    assert coordinator.owners() == [0, 1, 2, 3]
    assert len(coordinator.period()) == 1
    assert evaluator.evaluation(layout).cost == 5.0


def test_the_path_of_the_slowest_peer_is_critical():
    world = SmallWorld(7, latency=lambda a, b: 9.0 if b == 6 else 1.0)
    layout = world.layout("1<0 2<1 3<1 4<2 5<2 6<3")
    assert critical_peers(layout, world.evaluator("minimize max(path sum(link.latency))")) == {6, 3, 1}
    assert critical_peers(layout, world.evaluator(LATENCY)) is None


def test_while_a_constraint_is_broken_everybody_is_critical():
    world = spaced(10)
    layout = grown(world, 1, 1)
    evaluator = world.evaluator("minimize max(path sum(link.latency)) subject to hops <= 1")
    assert critical_peers(layout, evaluator) is None


def test_opportunistic_units_help_themselves_where_the_system_gains_nothing():
    """The slowest peer can't be helped, and others can."""
    latencies = {(0, 1): 50.0, (0, 2): 1.0, (2, 3): 1.0, (3, 4): 9.0, (2, 4): 1.0}
    world = SmallWorld(5, latency=lambda a, b: latencies.get((min(a, b), max(a, b)), 100.0))
    goal = "minimize max(path sum(link.latency))"
    for scope, better in ((Scope.BOTTLENECK, False), (Scope.OPPORTUNISTIC, True)):
        layout = world.layout("1<0 2<0 3<2 4<3")
        coordinator = Coordinator(layout, world.evaluator(goal), random.Random(1), (PROMOTE,), scope=scope)
        list(coordinator.run(5))
        assert (layout.parents[4] == [2]) is better


def test_a_random_transformation_that_led_nowhere_is_taken_back():
    world = spaced(12)
    layout = grown(world, 1, 2, capacity=2)
    evaluator = world.evaluator(LATENCY)
    coordinator = Coordinator(layout, evaluator, random.Random(1))
    list(coordinator.run(50))
    best = evaluator.value(layout)
    for _ in range(10):
        assert coordinator.shake()
        list(coordinator.run(50))
    coordinator.settle()
    assert evaluator.value(layout) <= best
    assert layout.violations() == 0


def test_constraints_come_first():
    assert is_better((0.0, 9.0), (1.0, 1.0))
    assert not is_better((1.0, 1.0), (0.0, 9.0))
    assert is_better((0.0, 1.0), (0.0, 2.0))
    assert not is_better((0.0, 1.0), (0.0, 1.0))


def test_statistics_that_are_told_rarely_still_lead_downwards():
    world = spaced(60)
    sent = {}
    for p in (0, 2):
        layout = grown(world, 1, 3, capacity=99)
        evaluator = world.evaluator("minimize variance(path sum(link.latency))", max_hops=99)
        start = evaluator.value(layout)[1]
        told = ApproximatedCosts(layout, evaluator, p=p)
        coordinator = Coordinator(layout, evaluator, random.Random(1), OF_THE_PAPER[:3], judge=told)
        for _ in coordinator.run(8):
            told.moved(layout)
            told.broadcast(layout)
        assert evaluator.value(layout)[1] < start / 2
        sent[p] = told.sent / told.phase
    assert sent[2] < 0.1 * sent[0]
