"""The newest goal survives a stop of all peers, and a file is believed no more than a neighbour."""

from __future__ import annotations

import pytest
import trio

from dht import Identity
from peer.api import root
from peer.goal_file import goal_path, keep_goal
from peer.goals.signed import sign_goal
from peer.testing.guided import OWNER, STRANGER, Guided, signed

pytestmark = pytest.mark.filterwarnings("error")


async def kept(placement, path, until) -> None:
    """Run until this is so; a thread reads and writes, so only the real clock will do."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_goal, placement, path)
            while not until():  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def test_a_goal_is_written_and_read_again(tmp_path):
    path = goal_path(tmp_path, "asdi")
    await kept(Guided(signed(version=5))(), path, path.exists)
    assert path.stat().st_mode & 0o777 == 0o600
    later = Guided()()
    await kept(later, path, lambda: later.held is not None)
    assert later.held.version == 5


async def test_a_newer_goal_of_a_neighbour_counts_and_is_written(tmp_path):
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(signed(version=5))
    placement = Guided(signed(version=6))()
    await kept(placement, path, lambda: path.read_bytes() == signed(version=6))
    assert placement.held.version == 6


@pytest.mark.parametrize("data", [b"x" * 300, signed(version=9, owner=STRANGER)])
async def test_a_file_that_holds_no_goal_of_the_owner_changes_nothing(tmp_path, data, monkeypatch):
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(data)
    placement, offered = Guided()(), []
    take = placement.take_goal
    monkeypatch.setattr(placement, "take_goal", lambda data: offered.append(data) or take(data))
    await kept(placement, path, lambda: offered)
    assert placement.held is None


async def test_a_goal_waits_until_the_owner_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr("peer.goal_file.INTERVAL", 0.01)
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(signed(version=5))
    placement, offered = Guided()(), []
    placement.follow("asdi", b"")
    take = placement.take_goal
    monkeypatch.setattr(placement, "take_goal", lambda data: offered.append(data) or take(data))
    await kept(placement, path, lambda: len(offered) > 2)
    assert placement.held is None
    placement.follow("asdi", bytes(OWNER.peer_id))
    await kept(placement, path, lambda: placement.held is not None)
    assert placement.held.version == 5


@pytest.mark.net
@pytest.mark.slow
async def test_a_root_has_its_goal_again_after_a_restart(tmp_path):
    owner = Identity.generate()
    owner.save(tmp_path / "owner.key")
    text = "minimize average(path sum(link.latency))"
    goal_path(tmp_path, "asdi").write_bytes(sign_goal(text, "asdi", owner, 7))
    with trio.fail_after(30):
        async with root("asdi", owner=tmp_path / "owner.key", beacon=False, state=tmp_path) as source:
            while source.goal() is None:
                await source.wait_turn()
            assert source.goal().version == 7
