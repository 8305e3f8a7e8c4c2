"""Real peers on loopback with a goal: it reaches a client through its parent, and the client says how it does."""

from __future__ import annotations

import pytest
import trio

from dht import Identity
from peer.api import join, root
from peer.goals.signed import sign_goal
from peer.observe.status import describe

TEXT = "minimize average(path sum(link.latency + node.cpu)) subject to path sum(link.latency) <= 1 us"


@pytest.mark.net
@pytest.mark.slow
async def test_a_client_gets_the_goal_and_says_which_constraint_it_cannot_meet(tmp_path):
    owner = Identity.generate()
    owner.save(tmp_path / "owner.key")
    with trio.fail_after(60):
        async with root("asdi", owner=tmp_path / "owner.key", beacon=False) as source:
            assert source.goal() is None
            source._placement.take_goal(sign_goal(TEXT, "asdi", owner, 5))
            async with join("asdi", bootstrap=[source.address], beacon=False, parents=1) as client:
                while (goal := client.goal()) is None or goal.cost is None:
                    await client.wait_turn()
                assert (goal.text, goal.version, goal.problem) == (TEXT, 5, "")
                assert 0 < goal.cost < 1
                assert goal.broken == "path sum(link.latency) <= 1 us"
                assert describe(client)["goal"]["broken"] == goal.broken
                await source.send(b"<a/>")
                async for item in client:
                    if getattr(item, "payload", b"") == b"<a/>":
                        break
