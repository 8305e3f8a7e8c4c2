"""The language of goals: what it accepts, what it refuses and where, and what an application can add to it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peer.goals import (
    MAX_GOAL_BYTES,
    VOCABULARY,
    GoalError,
    parse_goal,
    parse_goal_untrusted,
    register_combination,
    register_local,
    register_metric,
)
from peer.goals.syntax import Along, Function, NodeAggregate, Over, Scope, Sense, Value
from peer.goals.units import RATE, TIME, shown
from peer.goals.vocabulary import MAX_WORDS, RESERVED, product_of_dimensions

# The four examples of the paper's section 2.3, and Figure 1's other words.
ACCEPTED = {
    "minimize average(path sum(link.latency)) over brokers": ("minimize average(path sum(link.latency)) over routers"),
    "MAXIMIZE MIN(path MIN(link.bandwidth)) over routers": "maximize min(path min(link.bandwidth)) over routers",
    "minimize sum(superfluous)": "minimize sum(node.superfluous) over peers",
    "minimize average(path sum(link.latency) * path min(link.bandwidth))": (
        "minimize average(path sum(link.latency) * path min(link.bandwidth)) over peers"
    ),
    "minimize average(children sum(link.rate))\n subject to fanout <= 6 , path sum(link.latency) <= 0200.50 ms": (
        "minimize average(children sum(link.rate)) over peers subject to node.fanout <= 6, "
        "path sum(link.latency) <= 200.5 ms"
    ),
    "minimize std(link.latency) over clients subject to max(path sum(link.latency)) over clients < 1 s": (
        "minimize std(link.latency) over clients subject to max(path sum(link.latency)) over clients < 1 s"
    ),
    "minimize product(children max(link.loss)) subject to variance(hops) != 4": (
        "minimize product(children max(link.loss)) over peers subject to variance(node.hops) over peers != 4"
    ),
    "minimize variance(path average(link.latency + node.cpu)) subject to "
    "variance(path average(link.latency + node.cpu)) > 4 ms^2, link.bandwidth >= 8 kbit/s": (
        "minimize variance(path average(link.latency + node.cpu)) over peers subject to "
        "variance(path average(link.latency + node.cpu)) over peers > 4 ms^2, link.bandwidth >= 8 kbit/s"
    ),
    "minimize sum(larger(path sum(link.latency), children max(link.latency)))": (
        "minimize sum(larger(path sum(link.latency), children max(link.latency))) over peers"
    ),
    "minimize sum((node.incoming - own_rate) * 2)": "minimize sum((node.incoming - node.own_rate) * 2) over peers",
    "minimize sum(cpu - (cpu - cpu) / 2)": "minimize sum(node.cpu - ((node.cpu - node.cpu) / 2)) over peers",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_goals_have_one_canonical_text(text):
    goal = parse_goal(text)
    assert str(goal) == ACCEPTED[text]
    assert str(parse_goal(str(goal))) == str(goal)
    assert parse_goal_untrusted(text.encode()) == goal


def test_a_goal_is_a_tree_of_values():
    goal = parse_goal("minimize average(path sum(link.latency)) over clients subject to bandwidth >= 1 Mbit/s")
    assert (goal.sense, goal.cost.function, goal.cost.over) == (Sense.MINIMIZE, Function.AVERAGE, Over.CLIENTS)
    assert goal.cost.cost == NodeAggregate(Function.SUM, Value(Scope.LINK, "latency", TIME), Along.PATH, TIME)
    (constraint,) = goal.constraints
    assert constraint.threshold.value == 125_000
    assert constraint.metric == Value(Scope.LINK, "bandwidth", RATE)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "unexpected the end; expected 'minimize' or 'maximize'"),
        ("improve average(hops)", 0, "unexpected 'improve'; expected 'minimize' or 'maximize'"),
        ("minimize hops", 9, "expected 'min', 'max', 'sum', 'average', 'product', 'variance' or 'std'"),
        ("minimize sum(link.latencie)", 18, "unknown metric link.latencie; expected latency, lateness, loss"),
        ("minimize sum(link latency)", 18, "expected '.'"),
        ("minimize sum(link.)", 18, "unexpected ')'; expected latency"),
        ("minimize sum(hops", 17, "unexpected the end; expected ')'"),
        (
            "minimize sum(hops) over brokers-clients",
            31,
            "unexpected '-'; expected 'subject to', 'decided by' or the end",
        ),
        ("minimize sum(hops) over all", 24, "expected 'routers', 'brokers', 'clients' or 'peers'"),
        ("minimize sum(path variance(hops))", 18, "expected 'min', 'max', 'sum' or 'average'"),
        ("minimize sum(path sum(path sum(hops)))", 22, "an aggregate cannot be inside an aggregate"),
        ("minimize sum(sum(hops))", 13, "'sum' needs something to aggregate over; expected 'path sum('"),
        ("minimize sum(sum)", 13, "'sum' aggregates over a path or children here"),
        ("minimize sum(path sum(3))", 13, "an aggregate needs a metric"),
        ("minimize sum(hops + cpu)", 18, "node.hops and node.cpu have different units"),
        ("minimize sum(larger(hops, cpu))", 13, "larger: its arguments must have the same unit"),
        ("minimize sum(excess(hops))", 13, "excess takes 2 arguments, got 1"),
        ("minimize sum(nearest(hops))", 13, "unknown function 'nearest'; expected excess, larger"),
        ("minimize sum(hops) subject fanout < 3", 27, "expected 'to'"),
        ("minimize sum(hops) subject to fanout = 3", 37, "unexpected '='"),
        ("minimize sum(hops) subject to fanout 3", 37, "expected '<', '>', '<=', '>=' or '!='"),
        ("minimize sum(hops) subject to fanout <= x", 40, "unexpected 'x'; expected a number"),
        ("minimize sum(hops) subject to fanout <= 3 ms", 40, "node.fanout has no unit"),
        ("minimize sum(hops) subject to cpu <= 3", 37, "does not fit 3; expected a number of us, a number of ms"),
        ("minimize sum(hops) subject to cpu <= 3 KB/s", 37, "does not fit 3 KB/s"),
        ("minimize sum(hops) subject to variance(cpu) <= 3 ms", 47, "expected a number of us^2"),
        ("minimize sum(hops) subject to cpu <= 3 parsec", 39, "unknown unit 'parsec'"),
        ("minimize sum(hops) subject to 3 <= 3", 30, "a constraint needs a metric"),
        ("minimize sum(hops) subject to fanout < 3 4", 41, "unexpected '4'; expected ',', 'decided by' or the end"),
        ("minimize sum(hops) subject to fanout < 1.2.3", 39, "a number has too many digits or points"),
        ("minimize sum(hops) subject to fanout < 1234567890123", 39, "a number has too many digits or points"),
        ("minimize sum(höps)", 14, "a goal is ASCII text, got 'ö'"),
        ("minimize sum(" + "(" * 20, 25, "a goal is nested at most 12 deep"),
        ("minimize sum(hops) subject to " + ", ".join(["hops < 3"] * 9), 108, "a goal has at most 8 constraints"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text, position, reason):
    with pytest.raises(GoalError) as caught:
        parse_goal(text)
    assert reason in str(caught.value)
    assert caught.value.position == position


def test_a_goal_has_at_most_512_bytes():
    text = "minimize sum(hops)"
    assert parse_goal(text + " " * (MAX_GOAL_BYTES - len(text)))
    with pytest.raises(GoalError, match="at most 512 bytes, got 513"):
        parse_goal(text + " " * (MAX_GOAL_BYTES - len(text) + 1))
    with pytest.raises(GoalError, match="at most 512 bytes"):
        parse_goal_untrusted(b"x" * 10_000_000)
    with pytest.raises(GoalError, match="ASCII"):
        parse_goal_untrusted(b"minimize sum(\xff)")


_WORDS = (
    *sorted(RESERVED), *VOCABULARY.functions, *(name for _, name in VOCABULARY.metrics),
    *("<", ">", "<=", ">=", "!=", "(", ")", ",", ".", "+", "-", "*", "/", "3", "0.5", "ms", "KB/s", "%", "ms^2"),
)  # fmt: skip


@given(st.lists(st.sampled_from(_WORDS), max_size=60).map(" ".join) | st.text(max_size=80))
@example("minimize sum(hops / 0)")
def test_any_text_is_a_goal_or_a_goal_error(text):
    try:
        goal = parse_goal(text)
    except GoalError as error:
        position = error.position
    else:
        assert parse_goal(str(goal)) == goal
        position = 0
    assert 0 <= position <= len(text)


@given(st.binary(max_size=600))
def test_any_bytes_are_a_goal_or_a_goal_error(data):
    with pytest.raises(GoalError):
        parse_goal_untrusted(b"?" + data)


def test_applications_add_metrics_local_functions_and_combinations():
    words = VOCABULARY.copy()
    register_metric("battery", better="high", vocabulary=words, read=lambda view, peer: 0.5)
    register_metric("price", scope="link", vocabulary=words)
    register_local("squared", lambda a: a * a, dimension=lambda d: d.squared(), vocabulary=words)
    register_combination("both", lambda a, b: a * b, arity=2, dimension=product_of_dimensions, vocabulary=words)
    text = (
        "minimize sum(both(path sum(squared(link.price)), path sum(link.latency))) over peers "
        "subject to node.battery > 0.1"
    )
    assert str(parse_goal(text, words)) == text
    with pytest.raises(GoalError, match="unknown function 'both'"):
        parse_goal(text)
    with pytest.raises(GoalError, match="both combines node costs, not local values"):
        parse_goal("minimize sum(both(hops, hops))", words)
    with pytest.raises(GoalError, match="squared is a function of local values, not of node costs"):
        parse_goal("minimize sum(squared(path sum(hops)))", words)
    register_metric("latency", vocabulary=words)
    with pytest.raises(GoalError, match=r"latency is a metric of links and of nodes; expected link.latency or node"):
        parse_goal("minimize sum(path sum(latency))", words)


@pytest.mark.parametrize("name", ["", "path", "Sum", "a-b", "1st", "x" * 33, "minimize"])
def test_names_that_a_goal_could_not_use_are_refused(name):
    with pytest.raises(ValueError, match="expected a name of 1 to 32"):
        register_metric(name, vocabulary=VOCABULARY.copy())


def test_a_name_is_registered_once():
    words = VOCABULARY.copy()
    with pytest.raises(ValueError, match="already registered"):
        register_metric("cpu", vocabulary=words)
    with pytest.raises(ValueError, match="already registered"):
        register_local("larger", max, vocabulary=words)
    for number in range(MAX_WORDS - len(words.metrics) - len(words.functions)):
        register_metric(f"m{number}", vocabulary=words)
    with pytest.raises(ValueError, match="at most 256"):
        register_metric("one_more", vocabulary=words)


@pytest.mark.parametrize(
    ("comparison", "value", "excess"),
    [("<=", 3, 0), ("<=", 5, 2), (">=", 1, 2), (">=", 3, 0), ("<", 2, 0), (">", 4, 0), ("!=", 3, 1), ("!=", 4, 0)],
)
def test_how_far_a_value_breaks_a_constraint(comparison, value, excess):
    (constraint,) = parse_goal(f"minimize sum(hops) subject to fanout {comparison} 3").constraints
    assert constraint.excess(value) == excess


def test_at_the_limit_a_strict_constraint_is_broken():
    strict = parse_goal("minimize sum(hops) subject to fanout < 3, fanout > 3").constraints
    assert all(0 < constraint.excess(3) < 1e-6 for constraint in strict)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [(0.0123, TIME, "12.3 ms"), (2.5, TIME, "2.5 s"), (0.0, TIME, "0 us"), (1500, RATE, "1.5 KB/s"),
     (4e-6, TIME.squared(), "4 ms^2"), (3.0, TIME.times(RATE).per(TIME.times(RATE)), "3")],
)  # fmt: skip
def test_values_are_shown_in_a_unit_that_suits(value, dimension, text):
    assert shown(value, dimension) == text


def test_a_goal_says_who_decides():
    text = "minimize sum(path sum(link.latency)) over peers"
    assert parse_goal(text).by == parse_goal(f"{text} decided by peers").by == "peers"
    rooted = parse_goal(f"{text} subject to fanout <= 6 decided by root")
    assert rooted.by == "root"
    assert parse_goal(str(rooted)) == rooted
    with pytest.raises(GoalError, match="expected 'peers' or 'root'"):
        parse_goal(f"{text} decided by me")
