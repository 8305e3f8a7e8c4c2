"""What one peer needs to decide for itself: weights, benefits from sums, hysteresis, locks."""

from __future__ import annotations

import random
import statistics

import pytest

from peer.goals.syntax import Function
from peer.mesh.lock import LOCK_SECONDS, Lock
from peer.optimizer.benefits import Below, Moments, benefit, change_below_bottleneck, weights
from peer.optimizer.layout import Move
from peer.optimizer.locks import LockTable
from peer.optimizer.proposing import Hysteresis, Offer, Proposed, Slot, Way, best_move
from tests.peer.optimizer.test_coordinator import LATENCY, spaced
from tests.peer.optimizer.worlds import grown

WAYS = [Way("near", 0.100, 2), Way("far", 0.200, 2)]


def offer(name: str, cost: float, *, hops: int = 2, room: bool = True, **slots: list[Slot[str]]) -> Offer[str]:
    return Offer(Way(name, cost, hops), room, slots)


def ways_of(layout, costs, world):
    return {(p, x): costs[p] + world.latency(p, x) for x in layout.peers for p in layout.parents[x]}


def test_weights_never_overestimate_a_single_move():
    """Rule O5. Counting dependents overestimated 37 % of them."""
    world = spaced(120, roots=2)
    layout = grown(world, 2, 7)
    evaluator, rng, errors = world.evaluator(LATENCY), random.Random(1), []
    costs, order = evaluator.node_costs(layout), layout.order()
    found = weights(layout.parents, order, ways_of(layout, costs, world), roots=2)
    while len(errors) < 200:
        peer, new = rng.choice(layout.peers), rng.randrange(layout.size)
        saved = layout.apply([Move(peer, rng.choice(layout.parents[peer]), new)])
        if saved is None:
            continue
        after = evaluator.node_costs(layout)
        layout.undo(saved)
        gain, real = costs[peer] - after[peer], sum(costs) - sum(after)
        if abs(real) > 0.01:
            assert found[peer] * gain <= real + 1e-9
            errors.append(abs(found[peer] * gain - real) / abs(real))
    assert statistics.mean(errors) < 0.2


def test_a_variance_needs_only_three_sums():
    """Rule O6, on a tree: exact, without the cost of every peer."""
    world = spaced(80)
    layout = grown(world, 1, 4, capacity=99)
    evaluator = world.evaluator("minimize variance(path sum(link.latency))")
    costs = evaluator.node_costs(layout)
    moments = Moments(79, sum(costs[1:]), sum(c * c for c in costs[1:]))
    assert moments.spread(Function.VARIANCE) == pytest.approx(statistics.variance(costs[1:]))
    assert moments.spread(Function.STD) == pytest.approx(statistics.stdev(costs[1:]))
    for peer in layout.peers:
        (parent,) = layout.parents[peer]
        if not layout.parents[parent]:
            continue
        (above,) = layout.parents[parent]
        below = {peer}
        for other in layout.order():
            if layout.parents[other] and layout.parents[other][0] in below:
                below.add(other)
        sums = Below(len(below), sum(costs[x] for x in below), max(costs[x] for x in below))
        change = costs[above] + world.latency(above, peer) - costs[peer]
        expected = benefit(Function.VARIANCE, change, sums, members=79, moments=moments, system=0.0)
        saved = layout.apply([Move(peer, parent, above)])
        after = evaluator.value(layout)[1]
        layout.undo(saved)
        assert expected == pytest.approx(statistics.variance(costs[1:]) - after, abs=1e-9)


def test_a_benefit_is_positive_for_every_function():
    """The paper counts it negative in equation 1 and positive in 2 and 3."""
    below = Below(4.0, 10.0, 5.0)
    assert benefit(Function.SUM, -0.5, below, members=10, moments=None, system=0) == 2.0
    assert benefit(Function.AVERAGE, -0.5, below, members=10, moments=None, system=0) == 0.2
    assert benefit(Function.MAX, -0.5, below, members=10, moments=None, system=5.0) == 0.5
    assert benefit(Function.MAX, -0.5, below, members=10, moments=None, system=7.0) == 0.0
    assert benefit(Function.MAX, 3.0, below, members=10, moments=None, system=7.0) == -1.0
    assert benefit(Function.PRODUCT, -0.5, below, members=10, moments=None, system=0) == 0.2
    assert Moments(1, 1, 1).spread(Function.STD) == 0.0


def test_the_change_below_a_bottleneck_is_exact():
    """Gamma and omega in one; in omega's last condition the paper wrote alpha for alpha'."""
    rng = random.Random(1)
    for _ in range(200):
        between = [rng.randint(1, 9) for _ in range(6)]
        before, after = rng.randint(1, 9), rng.randint(1, 9)
        counts = {float(value): float(between.count(value)) for value in between}
        real = sum(min(after, v) for v in between) - sum(min(before, v) for v in between)
        assert change_below_bottleneck(before, after, counts) == real


def test_the_best_move_leaves_the_parent_that_gains_most():
    found = best_move(WAYS, [offer("a", 0.150), offer("b", 0.050)], weight=3.0)
    assert found == Proposed(pytest.approx(3 * (0.13 - 0.065)), "far", "b", None)


def test_small_gains_are_not_worth_a_move():
    assert best_move(WAYS, [offer("a", 0.185)], weight=3.0) is None
    assert best_move(WAYS, [offer("a", 0.185)], weight=3.0, rules=Hysteresis(0.0, 0.0)) is not None
    assert best_move(WAYS, [], weight=3.0) is None


def test_a_path_does_not_become_longer_than_twelve_hops():
    assert best_move(WAYS, [offer("a", 0.010, hops=9)], weight=1.0, height=3) is None
    assert best_move(WAYS, [offer("a", 0.010, hops=8)], weight=1.0, height=3) is not None
    deep = [Way("near", 0.1, 12), Way("far", 0.2, 12)]
    assert best_move(deep, [offer("a", 0.010, hops=12)], weight=1.0, height=5) is not None  # no longer than it is


def test_a_full_candidate_is_taken_by_an_exchange_if_both_together_gain():
    cheap, dear = Slot("leaf", 1.0, 0.010), Slot("router", 9.0, 0.020)
    full = offer("b", 0.050, room=False, far=[dear, cheap], near=[cheap])
    found = best_move(WAYS, [full], weight=1.0)
    assert (found.old, found.new, found.gives_way) == ("far", "b", "leaf")
    assert found.gain == pytest.approx(0.065 - 0.010)
    assert best_move(WAYS, [offer("b", 0.050, room=False, far=[dear])], weight=1.0) is None
    assert best_move(WAYS, [offer("b", 0.050, room=False)], weight=1.0) is None


def test_a_lock_is_granted_to_one_and_expires():
    lock = Lock()
    assert lock.grant("a", 0.0)
    assert lock.grant("a", 1.0)
    assert not lock.grant("b", 1.0)
    assert lock.grant("b", LOCK_SECONDS)
    lock.release("a")
    assert not lock.grant("a", LOCK_SECONDS)
    lock.release("b")
    assert lock.grant("a", LOCK_SECONDS)


def test_locks_are_granted_all_or_none():
    table = LockTable()
    assert table.grant([1, 2, 3], "x", 0.0)
    assert not table.grant([4, 3], "y", 0.5)
    assert table.grant([4, 5], "z", 0.5)
    table.release([1, 2, 3], "x")
    assert table.grant([3], "y", 0.6)
