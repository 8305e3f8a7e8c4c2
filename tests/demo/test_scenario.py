"""Scenario files: those that come with the demo are right, and wrong ones are refused with the reason."""

from __future__ import annotations

import random

import pytest

from demo.run.member import Member, State
from demo.scenarios.director import Director
from demo.scenarios.headless import plan
from demo.scenarios.scenario import ScenarioError, built_in, load, parse
from demo.scenarios.selectors import names_in, resolve

NAMED_BY_THE_ISSUE = {
    "lying-router",
    "parent-killed",
    "root-killed",
    "freeze",
    "loss-everywhere",
    "rising-loss",
    "partition",
    "join-storm",
    "slow-client",
    "query-change",
    "half-killed",
}


def test_every_built_in_scenario_loads_and_promises_no_loss():
    assert set(built_in()) == NAMED_BY_THE_ISSUE | {"story"}
    for name in built_in():
        scenario = load(name)
        assert scenario.promise.lost == 0
        assert scenario.promise.stall_s is not None
        assert scenario.promise.repaired_within_s is not None
        assert scenario.about
        assert scenario.steps


def test_all_means_every_one_but_the_story():
    assert {scenario.name for scenario in plan(["all"], None)} == NAMED_BY_THE_ISSUE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("title = ", "invalid TOML"),
        ("colour = 1", "a scenario has no colour"),
        ("[[step]]\ndo = 'explode'", "step 1: do must be one of"),
        ("[[step]]\ndo = 'kill'", "kill needs who"),
        ("[[step]]\ndo = 'kill'\nwho = 'the king'", "does not name a peer"),
        ("[[step]]\ndo = 'heal'\nloss = 1", "heal has no loss"),
        ("[[step]]\ndo = 'weather'\nloss = 2", "loss must be a number from 0 to 1"),
        ("[[step]]\ndo = 'weather'\nlink = ['root-1']", "a link has two ends"),
        ("[[step]]\nat = 5\n[[step]]\nat = 4", "in order of time"),
        ("seconds = 1\n[[step]]\nat = 5", "its last step is at 5 s"),
        ("[[step]]\ndo = 'query'\nwho = 'client-1'\ntext = '/a['", "step 1: "),
        ("step = 5", r"steps must be written as \[\[step\]\]"),
        ("[promise]\nluck = 1", "has no luck"),
        ("[promise]\nlost = 'few'", "promise lost must be a number"),
    ],
)
def test_wrong_files_are_refused_with_the_reason(text, reason):
    with pytest.raises(ScenarioError, match=reason):
        parse(text, "mine")


def test_a_name_that_is_neither_file_nor_scenario_is_told_what_there_is():
    with pytest.raises(ScenarioError, match="parent-killed"):
        load("no-such-thing")


class FakeMesh:
    def __init__(self):
        self.members = {}
        for name, role in [("root", "root"), ("router", "router"), ("client", "leaf")]:
            for number in (1, 2, 3):
                member = Member(f"{name}-{number}", role, {"parents": 2}, state=State.RUNNING)
                self.members[member.name] = member
        self.members["router-3"].state = State.DEAD

    def parents_of(self, name):
        return ["router-1", "root-2"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("router-1", {"router-1"}),
        ("a parent of client-1", {"router-1"}),
        ("the parents of client-1", {"router-1", "root-2"}),
        ("the routers", {"router-1", "router-2"}),
        ("the dead", {"router-3"}),
        ("the same", {"client-3"}),
    ],
)
def test_selectors(selector, names):
    assert set(resolve(FakeMesh(), [selector], random.Random(1), ["client-3"])) == names


async def test_a_peer_that_is_not_there_is_missed_before_the_first_step_not_in_the_middle():
    late = "[[step]]\nat = 60\ndo = 'kill'\nwho = 'a parent of client-9'\n"
    link = "[[step]]\nat = 61\ndo = 'weather'\nlink = ['router-7', 'guest-1']\nloss = 0.1\n"
    with pytest.raises(ScenarioError, match="mine needs client-9, router-7: start a larger mesh"):
        await Director(FakeMesh()).play(parse(late + link, "mine"))


def test_every_built_in_scenario_plays_on_a_mesh_with_one_router_and_two_clients():
    for name in built_in():
        called = names_in(text for step in load(name).steps for text in (*step.who, *(step.link or ())))
        assert set(called) <= {"router-1", "client-1", "client-2"}, name


def test_half_of_the_mesh_never_takes_the_last_root():
    mesh = FakeMesh()
    for seed in range(20):
        names = resolve(mesh, ["half of the mesh"], random.Random(seed), [])
        assert sum(name.startswith("root") for name in names) == 2
        assert sum(name.startswith("router") for name in names) == 1
    del mesh.members["root-2"], mesh.members["root-3"]
    assert not any(n.startswith("root-") for n in resolve(mesh, ["half of the mesh"], random.Random(1), []))


def test_a_selector_that_finds_nobody_says_so():
    with pytest.raises(ValueError, match="no peer matches 'guest-9' now"):
        resolve(FakeMesh(), ["guest-9"], random.Random(1), [])
