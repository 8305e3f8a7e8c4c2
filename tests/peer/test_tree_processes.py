"""Real processes with `--selection tree`: they come to the topology that the ids give, and again after deaths."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack

import pytest

from tests.peer.cli.command import PATIENCE, call, root, running

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("tree")]


DEGREE = 4


def tree(place: str) -> tuple[int, list[dict]]:
    done = call("status", "asdi", "--no-beacon", "--bootstrap", place, "--tree", "--json")
    found = json.loads(done.stdout) if done.stdout else {"degree": 0, "tree": []}
    return found["degree"], found["tree"]


def wait_in_place(place: str, count: int) -> list[dict]:
    """Until `count` peers answer, each with the parents that the tree of the owner's policy gives it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        degree, rows = tree(place)
        if degree == DEGREE and len(rows) == count and all(row["in_place"] for row in rows):
            return rows
        assert time.monotonic() < deadline, rows


def come_into_place(routers: int, deaths: int, owner) -> None:
    policy = ("keys", "policy", "--owner", str(owner), "--stream", "asdi", "--tree-degree", str(DEGREE))
    call("keys", "new", str(owner))
    call(*policy, str(owner.with_suffix(".policy")))
    owned = ("--owner", str(owner), "--policy", str(owner.with_suffix(".policy")))
    with ExitStack() as stack:
        _, place = stack.enter_context(root("--feed", "demo:20", "--capacity", "12", *owned))
        reach = ("--no-beacon", "--bootstrap", place)
        others = ("--feed", "demo:20", "--capacity", "12", *owned)
        second = stack.enter_context(running("root", "--roots-key", "asdi", "--listen", "127.0.0.1:0", *reach, *others))
        second.says("skymesh: root of")
        join = ("join", "asdi", "--selection", "tree", "--format", "none", "--listen", "127.0.0.1:0", *reach)
        join += ("--capacity", "9")  # 1.5 times two parents times three children (docs/tree.md)
        peers = [stack.enter_context(running(*join, "--name", f"router-{n}")) for n in range(routers)]
        before = wait_in_place(place, routers)
        for peer in peers[:deaths]:
            peer.stop(signal.SIGKILL)
        after = wait_in_place(place, routers - deaths)
        named = {row["name"] for row in after}
        assert named == {f"router-{n}" for n in range(deaths, routers)}
        assert {row["name"] for row in before} > named


def test_a_small_mesh_comes_into_place_and_again_after_a_death(tmp_path):
    come_into_place(4, 1, tmp_path / "owner.key")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_twelve_routers_come_into_place_and_again_after_three_deaths(tmp_path):
    come_into_place(12, 3, tmp_path / "owner.key")


def test_a_stream_without_a_tree_says_how_to_make_one():
    with root("--feed", "demo:20") as (_, place):
        done = call("status", "asdi", "--no-beacon", "--bootstrap", place, "--tree")
    assert done.returncode == 1
    assert "no peer is in the reference tree (skymesh join --selection tree)" in str(done.stdout)
