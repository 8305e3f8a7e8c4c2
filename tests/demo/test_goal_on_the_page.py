"""What a page is told about the goal of the mesh, and each move as it happens."""

from __future__ import annotations

import pytest

from demo.check.observed import ObservedMesh
from demo.page.view import goal
from demo.run.member import Member, State
from demo.run.settings import DemoSettings
from tests.demo.feeds import truth

LATENCY = "minimize average(path sum(link.latency))"


def observed() -> ObservedMesh:
    mesh = ObservedMesh(DemoSettings(goal=LATENCY), 100.0)
    mesh.truth = truth()
    for name, role in (("root-1", "root"), ("router-1", "router"), ("router-2", "router")):
        mesh.members[name] = Member(name, role, {"parents": 2}, state=State.RUNNING)
    return mesh


def says(mesh: ObservedMesh, name: str, **standing) -> None:
    status = {"k": "stat", "at": 110.0, "up": [], "sound": 2, "cpu": 0.0}
    mesh.heard(mesh.members[name], status | {"goal": {"cost": None, "moves": 0, "broken": ""} | standing})


def test_a_page_is_told_the_goal_its_cost_and_who_breaks_it():
    mesh = observed()
    assert goal(mesh) is None
    mesh.goal = LATENCY
    assert goal(mesh)["cost"] is None
    says(mesh, "root-1", cost=0.0)
    says(mesh, "router-1", cost=0.010, moves=2)
    says(mesh, "router-2", cost=0.030, broken="node.fanout <= 1")
    told = goal(mesh)
    assert (told["cost"], told["shown"], told["moves"]) == (pytest.approx(0.020), "20 ms", 2)
    assert told["broken"] == [["router-2", "node.fanout <= 1"]]


def test_each_move_is_an_event_and_a_restart_is_none():
    mesh = observed()
    says(mesh, "router-1", moves=3)
    says(mesh, "router-1", moves=3)
    assert list(mesh.events) == []
    says(mesh, "router-1", moves=4)
    assert [(event["who"], event["text"]) for event in mesh.events] == [
        ("router-1", "moved to a better parent, towards the goal")
    ]


def test_a_goal_that_is_wrong_is_refused_at_the_start():
    with pytest.raises(ValueError, match="unknown word"):
        DemoSettings(goal="minimize sum(speed)")
