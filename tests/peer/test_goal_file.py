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


async def kept(placement, path, seconds: float = 3.0) -> None:
    with trio.move_on_after(seconds):
        await keep_goal(placement, path)


async def test_a_goal_is_written_and_read_again(tmp_path, autojump_clock):
    path = goal_path(tmp_path, "asdi")
    await kept(Guided(signed(version=5))(), path)
    assert path.stat().st_mode & 0o777 == 0o600
    later = Guided()()
    await kept(later, path)
    assert later.held.version == 5


async def test_a_newer_goal_of_a_neighbour_counts_and_is_written(tmp_path, autojump_clock):
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(signed(version=5))
    placement = Guided(signed(version=6))()
    await kept(placement, path)
    assert placement.held.version == 6
    assert path.read_bytes() == signed(version=6)


@pytest.mark.parametrize("data", [b"", b"x" * 300, b"y" * 5_000, signed(version=9, owner=STRANGER)])
async def test_a_file_that_holds_no_goal_of_the_owner_changes_nothing(tmp_path, data, autojump_clock):
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(data)
    placement = Guided()()
    await kept(placement, path)
    assert placement.held is None


async def test_a_goal_waits_until_the_owner_is_known(tmp_path, autojump_clock):
    path = goal_path(tmp_path, "asdi")
    path.write_bytes(signed(version=5))
    placement = Guided()()
    placement.follow("asdi", b"")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_goal, placement, path)
        await trio.sleep(5.0)
        assert placement.held is None
        placement.follow("asdi", bytes(OWNER.peer_id))
        await trio.sleep(2.0)
        nursery.cancel_scope.cancel()
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
