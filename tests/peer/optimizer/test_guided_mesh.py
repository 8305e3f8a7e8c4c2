"""Whole meshes that follow a goal, in virtual time: chaos breaks nothing, the goal reaches everybody, and it is met."""

from __future__ import annotations

import pytest

from peer.optimizer.proposing import Hysteresis
from peer.testing.campaign import run_campaign
from peer.testing.guided import RESTLESS, STRANGER, Guided, Spread, signed

SLICE = range(4)
SOAK = range(1_000)


def run_guided(seed: int) -> Guided:
    """The standing campaign, with peers that move whenever anything seems better. Raises if a promise breaks."""
    guided = Guided(signed(), RESTLESS)
    run_campaign(seed, placement=guided, knobs={"replace_interval": 3.0})
    return guided


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLICE)
def test_chaos_breaks_no_promise_while_peers_optimize(seed):
    run_guided(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_chaos_breaks_no_promise_while_peers_optimize_at_length(seed):
    run_guided(seed)


@pytest.mark.slow
def test_a_goal_brings_packets_sooner_than_no_goal():
    ratios = []
    for seed in (2,):
        ends = {}
        for name, guided in (("goal", Guided(signed(), Hysteresis(dwell=10.0))), ("none", Guided())):
            mesh = Spread(seed, guided=guided, peers=16)
            mesh.run(20.0)
            start = mesh.mean_path()
            mesh.run(90.0)
            mesh.check_settled()
            ends[name] = mesh.mean_path()
            if name == "goal":
                assert ends[name] < start
                assert sum(p.moves for p in guided.made) > 3
        ratios.append(ends["goal"] / ends["none"])
    assert sum(ratios) / len(ratios) < 0.95, ratios


@pytest.mark.slow
def test_a_goal_that_is_set_at_one_peer_reaches_all():
    guided = Guided()
    mesh = Spread(5, guided=guided, peers=10)
    mesh.run(20.0)
    assert not any(placement.is_active for placement in guided.made)
    leaf = max(mesh.live(), key=lambda p: p.mesh.level)
    offer = b"\x01\x23" + len(signed()).to_bytes(2, "big") + signed()
    assert leaf.mesh.answer_inquiry(offer, ("10.9.9.9", 1), now=mesh.now) is not None
    mesh.run(40.0)
    assert all(placement.goal_data == signed() for placement in guided.made)
    late = mesh.add()
    mesh.run(60.0)
    assert guided.made[-1].goal_data == signed()
    assert late.mesh.counters["goals_taken"] == 1
    assert sum(peer.mesh.counters["malformed"] for peer in mesh.peers) == 0


def test_a_newer_goal_replaces_an_older_one_and_a_forged_one_nothing():
    placement = Guided(signed(version=5))()
    assert not placement.take_goal(signed(version=5))
    assert not placement.take_goal(signed("minimize max(path sum(link.latency))", version=4))
    assert not placement.take_goal(signed(version=9, owner=STRANGER))
    assert not placement.take_goal(signed(version=9, stream="other"))
    broken = bytearray(signed(version=9))
    broken[-1] ^= 1
    assert not placement.take_goal(bytes(broken))
    assert placement.held.version == 5
    assert placement.take_goal(signed("minimize max(path sum(link.latency))", version=6))
    assert str(placement.held.goal) == "minimize max(path sum(link.latency)) over peers"
    placement.follow("asdi", bytes(STRANGER.peer_id))
    assert not placement.is_active


def test_without_a_goal_nothing_is_sent_for_one():
    guided = Guided()
    mesh = Spread(6, guided=guided, peers=8)
    mesh.run(60.0)
    assert sum(peer.mesh.counters["probes"] for peer in mesh.peers) == 0
