"""`goal set`, `goal show` and `status --goal` on a mesh that runs."""

from __future__ import annotations

import json

import pytest

from dht import Identity
from peer.cli.errors import ExitCode
from tests.peer.cli.inprocess import call_here, root_here

pytestmark = [pytest.mark.net, pytest.mark.slow]
GOAL = "minimize average(path sum(link.latency)) subject to fanout <= 6"

PROBLEM = "the goal does not depend on paths, so a peer cannot tell by itself which parent is better"


@pytest.fixture
def keys(tmp_path):
    for name in ("owner", "stranger"):
        Identity.generate().save(tmp_path / f"{name}.key")
    return tmp_path


def test_the_owner_sets_a_goal_while_the_mesh_runs(keys, capfd):
    with root_here("demo", owner=keys / "owner.key") as address:
        where = ("--stream", "asdi", "--bootstrap", address, "--no-beacon")
        assert b"no goal" in call_here(capfd, "goal", "show", *where).out
        refused = call_here(capfd, "goal", "set", *where, "--owner", str(keys / "stranger.key"), GOAL)
        assert refused.code == ExitCode.WRONG_OWNER
        assert "its peers would ignore the goal" in refused.err
        done = call_here(capfd, "goal", "set", *where, "--owner", str(keys / "owner.key"), GOAL, "--json")
        assert done.code == ExitCode.OK, done
        assert json.loads(done.out)["taken"] == 1
        shown = call_here(capfd, "goal", "show", *where)
        assert shown.code == ExitCode.OK
        assert GOAL in shown.out.decode()
        later = "minimize sum(superfluous)"
        assert call_here(capfd, "goal", "set", *where, "--owner", str(keys / "owner.key"), later).code == ExitCode.OK
        answer = json.loads(call_here(capfd, "goal", "show", *where, "--json").out)
        assert answer["goal"] == later
        assert answer["problems"] == [PROBLEM]
        status = json.loads(call_here(capfd, "status", *where, "--goal", "--json").out)
        assert status["goal"]["goal"] == later
        text = call_here(capfd, "status", *where, "--goal").out.decode()
        assert f"problem   {PROBLEM}" in text


def test_a_goal_that_is_wrong_is_refused_before_anybody_is_asked(keys, capfd):
    done = call_here(capfd, "goal", "set", "--stream", "asdi", "--owner", str(keys / "owner.key"), "minimize speed")
    assert done.code == ExitCode.BAD_GOAL
    assert "^" in done.err
