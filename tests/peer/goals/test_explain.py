"""What a goal is said to mean and cost, and `skymesh goal check`."""

from __future__ import annotations

import json

import pytest

from peer.cli.errors import ExitCode
from peer.goals import explain_goal, parse_goal
from tests.peer.cli.inprocess import call_here


@pytest.mark.parametrize(
    ("text", "aggregation", "state"),
    [
        ("minimize average(path sum(link.latency))", "I", "first-copy shares"),
        ("maximize sum(path min(link.bandwidth))", "II", "which bottleneck"),
        ("minimize max(path sum(link.latency))", "III", "the worst cost below"),
        ("maximize min(path min(link.bandwidth))", "IV", "the narrowest link below"),
        ("minimize variance(path sum(link.latency))", "V", "sum of squares"),
        ("minimize std(path min(link.bandwidth))", "VI", "sum of squares"),
        ("minimize product(path sum(link.latency))", "V", "formula 4"),
        ("minimize sum(superfluous)", None, "sample of 200 logged packets"),
        ("minimize sum(path sum(link.latency) * path min(link.bandwidth))", None, "formula 4"),
    ],
)
def test_goals_have_the_type_and_the_state_of_the_papers_tables(text, aggregation, state):
    explanation = explain_goal(parse_goal(text))
    assert explanation.aggregation == aggregation
    assert any(state in line for line in explanation.state)
    assert explanation.bytes_per_link_second > 0
    assert explanation.constraints[:2] == ("node.fanout <= capacity", "node.hops <= 12")


@pytest.mark.parametrize(
    ("text", "dependents"),
    [
        ("minimize average(path sum(link.latency))", "the peers below"),
        ("minimize average(children sum(link.rate))", "the peers on the paths to the roots"),
        ("minimize sum(superfluous)", "the peers on the paths to the roots"),
        ("minimize max(fanout)", "the peer itself"),
    ],
)
def test_who_is_affected_when_a_peer_moves(text, dependents):
    assert explain_goal(parse_goal(text)).dependents == dependents


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("minimize variance(path sum(link.latency))", "equally slow"),
        ("minimize std(path sum(link.latency)) subject to fanout < 9", "equally slow"),
        ("minimize std(path sum(link.latency)) subject to average(path sum(link.latency)) <= 90 ms", None),
        ("minimize std(path sum(link.latency)) subject to path sum(link.latency) <= 90 ms", None),
        ("minimize min(path min(link.bandwidth))", "more of it is better"),
        ("maximize average(path sum(link.latency))", "less of it is better"),
        ("minimize average(path sum(link.latency))", None),
    ],
)
def test_goals_that_can_be_won_the_wrong_way_come_with_a_warning(text, warning):
    warnings = explain_goal(parse_goal(text)).warnings
    assert (warning is None and not warnings) or (warning is not None and warning in warnings[0])


def test_a_goal_is_checked_on_the_command_line(capfd):
    text = "minimize average(path sum(link.latency)) over clients subject to fanout <= 6"
    done = call_here(capfd, "goal", "check", text)
    assert done.code == ExitCode.OK
    assert b"type I: additive" in done.out
    assert b"peers       follow it" in done.out
    later = call_here(capfd, "goal", "check", "minimize sum(superfluous)").out
    assert b"as without a goal: the goal does not depend on paths" in later
    answer = json.loads(call_here(capfd, "goal", "check", text, "--json").out)
    assert answer["accepted"] is True
    assert answer["aggregation"] == "I"
    assert answer["constraints"][-1] == "node.fanout <= 6"


def test_a_bad_goal_is_pointed_at(capfd):
    text = "minimize average(path sum(link.latenzy))"
    done = call_here(capfd, "goal", "check", text)
    assert done.code == ExitCode.BAD_GOAL
    lines = done.err.splitlines()
    assert "unknown metric link.latenzy; expected latency" in lines[0]
    assert lines[1:] == ["  " + text, "  " + " " * 31 + "^"]
    refused = json.loads(call_here(capfd, "goal", "check", text, "--json").out)
    assert (refused["accepted"], refused["position"]) == (False, 32)
    assert "latency" in refused["expected"]
