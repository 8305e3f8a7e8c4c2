"""Goals computed on meshes that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from peer.goals import VOCABULARY, parse_goal, register_combination, register_metric
from peer.optimizer.blending import blend, shares
from peer.optimizer.costs import Evaluator
from tests.peer.optimizer.worlds import SmallWorld

CHAIN = "1<0 2<1 3<2"
WORLD = SmallWorld(4, latency=lambda a, b: float(b), bandwidth=lambda a, b: 10.0 - b, own={1: 1, 2: 2, 3: 4 | 2})


@pytest.mark.parametrize(
    ("goal", "cost"),
    [
        ("minimize sum(path sum(link.latency))", 1 + 3 + 6),
        ("minimize average(path sum(link.latency))", 10 / 3),
        ("minimize max(path sum(link.latency))", 6),
        ("minimize min(path max(link.latency))", 1),
        ("minimize average(path average(link.latency))", (1 + 1.5 + 2) / 3),
        ("maximize min(path min(link.bandwidth))", 7),
        ("minimize product(path sum(link.latency))", 18),
        ("minimize variance(path sum(link.latency))", ((1 - 10 / 3) ** 2 + (3 - 10 / 3) ** 2 + (6 - 10 / 3) ** 2) / 2),
        ("minimize std(node.hops)", 1.0),
        ("minimize sum(children sum(link.latency))", 2 + 3),
        ("minimize sum(children max(node.hops))", 2 + 3),
        ("minimize sum(path sum(link.latency + node.cpu))", (1 + 0.5) + (3 + 1) + (6 + 1.5)),
        ("minimize sum(path sum(link.latency) * path min(link.bandwidth))", 1 * 9 + 3 * 8 + 6 * 7),
        ("minimize sum(larger(path sum(link.latency), path max(link.latency) + path max(link.latency)))", 2 + 4 + 6),
        ("minimize sum(link.latency)", 1 + 2 + 3),
        ("minimize sum(fanout)", 2),
        ("minimize sum(superfluous)", 2 + 1 + 0),
        ("minimize sum(incoming)", 3 + 2 + 2),
        ("minimize sum(incoming - own_rate)", 2 + 1 + 0),
        ("minimize sum(children sum(link.rate))", 2 + 2),
        ("minimize sum(outgoing)", 2 + 2),
        ("minimize sum(hops / (hops - hops))", math.inf),
    ],
)
def test_costs_of_a_chain(goal, cost):
    assert WORLD.evaluator(goal).evaluation(WORLD.layout(CHAIN)).cost == pytest.approx(cost)


def test_only_the_members_of_the_set_count():
    world = SmallWorld(4, latency=lambda a, b: float(b), clients=[3])
    value = world.evaluator("minimize average(path sum(link.latency)) over clients").value(world.layout(CHAIN))
    assert value == (0.0, 6.0)


def test_maximizing_is_minimizing_the_negative():
    assert WORLD.evaluator("maximize min(path min(link.bandwidth))").value(WORLD.layout(CHAIN)) == (0.0, -7.0)


def test_two_parents_cost_the_expected_first_copy():
    world = SmallWorld(4, latency=lambda a, b: 10.0 if (a, b) == (2, 3) else 1.0)
    layout = world.layout("1<0 2<0 3<1,2", wanted=2)
    costs = world.evaluator("minimize sum(path sum(link.latency))").node_costs(layout)
    assert costs[3] == pytest.approx(0.7 * 2 + 0.3 * 11)
    without = world.evaluator("minimize sum(path sum(link.latency))", odds=0.0).node_costs(layout)
    assert without[3] == 2


def test_bandwidth_takes_the_widest_path():
    world = SmallWorld(4, bandwidth=lambda a, b: {(0, 1): 5.0, (1, 3): 9.0}.get((a, b), 4.0))
    layout = world.layout("1<0 2<0 3<1,2", wanted=2)
    assert world.evaluator("maximize min(path min(link.bandwidth))").node_costs(layout)[3] == 5.0


def test_shares_of_first_copies_add_up_to_one():
    for count in range(1, 6):
        assert sum(shares(count, 0.3)) == pytest.approx(1.0)
    assert blend([5.0, 1.0, 3.0], 0.3) == pytest.approx(0.7 * 1 + 0.21 * 3 + 0.09 * 5)
    assert shares(0) == []


def test_a_broken_constraint_names_itself_and_its_peer():
    evaluator = WORLD.evaluator("minimize sum(fanout) subject to path sum(link.latency) <= 4 s, average(hops) <= 1")
    found = evaluator.evaluation(WORLD.layout(CHAIN))
    assert [(b.constraint, b.peer, b.excess) for b in found.broken] == [
        ("average(node.hops) over peers <= 1", None, pytest.approx(1.0)),
        ("path sum(link.latency) <= 4 s", 3, pytest.approx(0.5)),
    ]
    assert found.violation == pytest.approx(1.5)
    assert evaluator.value(WORLD.layout(CHAIN))[0] == pytest.approx(1.5)


def test_twelve_hops_are_always_a_limit():
    world = SmallWorld(15)
    layout = world.layout(" ".join(f"{x}<{x - 1}" for x in range(1, 15)))
    found = world.evaluator("minimize sum(fanout)").evaluation(layout)
    assert [(b.constraint, b.peer) for b in found.broken] == [("node.hops <= 12", 14), ("node.hops <= 12", 13)]


def test_words_of_an_application_are_computed():
    words = VOCABULARY.copy()
    register_metric("rank", read=lambda view, peer: float(view.layout.size - peer), vocabulary=words)
    register_metric("tax", scope="link", read=lambda view, parent, child: 2.0, vocabulary=words)
    register_combination("weighted", lambda a, b: a + 10 * b, vocabulary=words, arity=2)
    goal = parse_goal("minimize sum(weighted(path sum(link.tax), path sum(node.rank)))", words)
    evaluator = Evaluator(goal, WORLD, vocabulary=words)
    assert evaluator.value(WORLD.layout(CHAIN))[1] == (2 + 40) + (4 + 70) + (6 + 90)


def test_a_peer_without_a_path_is_never_the_best():
    layout = WORLD.layout(CHAIN)
    layout.remove(1)
    evaluator = WORLD.evaluator("minimize sum(path sum(link.latency))")
    assert evaluator.value(layout)[0] > 0
    assert WORLD.evaluator("maximize min(path min(link.bandwidth))").evaluation(layout).cost == 0.0
