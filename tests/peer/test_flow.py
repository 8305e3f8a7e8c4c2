"""Flow control: the join experiments as a machine, and slow and deaf clients in simulated meshes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import Config
from peer import flow
from peer.flow import Decision, FlowConfig, JoinExperiments
from peer.mesh import events as meshevents
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import complete, gaps, packet
from xmlswitch import Query

CONFIG = FlowConfig()


def decisions(experiments, shares, *, start=0.0):
    """(time, decision) of every look that decided something."""
    found = []
    for index, share in enumerate(shares):
        now = start + index * CONFIG.look_interval
        decision = experiments.look(share, now)
        if decision is not Decision.STAY:
            found.append((now, decision))
    return found


def test_a_full_queue_is_warned_of_then_stepped_down_then_given_up():
    found = decisions(JoinExperiments(CONFIG, 2, random.Random(1)), [1.0] * 80)
    assert found[:2] == [(0.0, Decision.WARN), (CONFIG.patience, Decision.STEP_DOWN)]
    assert found[2] == (CONFIG.patience + CONFIG.give_up_after, Decision.GIVE_UP)


def test_a_queue_that_shrinks_is_left_alone():
    shares = [1.0 - 0.01 * n for n in range(45)]
    assert decisions(JoinExperiments(CONFIG, 3, random.Random(1)), shares) == [(0.0, Decision.WARN)]


def test_a_failed_experiment_waits_twice_as_long():
    experiments = JoinExperiments(CONFIG, 2, random.Random(1))
    tries, waits, calm_since = 0, [], 0.0
    now = 0.0
    share = 1.0
    while tries < 4:
        decision = experiments.look(share, now)
        if decision is Decision.STEP_DOWN:
            share, calm_since = 0.0, now
        elif decision is Decision.TRY_WIDER:
            waits.append(now - calm_since)
            share = 1.0
            tries += 1
        now += CONFIG.look_interval
    assert experiments.trials_failed == 3
    for shorter, longer in pairwise(waits):
        assert longer > 1.1 * shorter


def test_a_wider_query_that_goes_well_is_kept():
    experiments = JoinExperiments(CONFIG, 2, random.Random(1))
    decisions(experiments, [1.0] * 6)
    assert experiments.rung == 1
    assert [d for _, d in decisions(experiments, [0.0] * 200, start=3.0)] == [Decision.RECOVERED, Decision.TRY_WIDER]
    assert experiments.rung == 0


@given(st.integers(1, 5), st.lists(st.floats(0, 2), max_size=300), st.integers(0, 2**32))
def test_the_rung_stays_on_the_ladder_and_moves_one_at_a_time(rungs, shares, seed):
    experiments = JoinExperiments(CONFIG, rungs, random.Random(seed))
    before = 0
    for index, share in enumerate(shares):
        decision = experiments.look(share, index * CONFIG.look_interval)
        assert 0 <= experiments.rung < rungs
        step = {Decision.STEP_DOWN: 1, Decision.TRY_WIDER: -1}.get(decision, 0)
        assert experiments.rung == before + step
        before = experiments.rung


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="high"):
        FlowConfig(high=0.0)
    with pytest.raises(ValueError, match="rise in this order"):
        FlowConfig(patience=60.0)


def small_mesh(**options):
    """A root and a router with two children: one that is slow, as the options say, and its sibling."""
    small = Config(max_ready_packets=64, max_log_packets=2_000)
    sim = PeerSimulation(3)
    sim.add_root("R", dcp=small)
    sim.add_router("I", deliver=False, parents=1, dcp=small)
    sim.run_until(1.0)
    sim.add_leaf("slow", parents=1, dcp=small, **options)
    sim.add_leaf("sibling", parents=1, dcp=small)
    sim.run_until(2.0)
    told = []
    sim.listeners.append(lambda name, event: told.append(event) if name == "slow" else None)
    return sim, told


def kinds(told):
    return [type(event) for event in told if isinstance(event, flow.FlowEvent)]


def test_a_slow_client_falls_back_to_less_and_loses_nothing_of_it():
    quick = FlowConfig(patience=1.0, retry=3.0, trial=2.0)
    sim, told = small_mesh(fallbacks=(Query.parse("/p/c=1"),), flow=quick)
    sim.peers["slow"].takes_a_second = 50
    sim.feed(rate=100, until=14.0, make=packet)
    sim.run_until(14.0)
    found = kinds(told)
    assert found[:2] == [flow.FallingBehind, flow.QueryNarrowed]
    assert flow.KeepingUp in found
    assert flow.QueryWidened in found, "it tried again"
    assert found.count(flow.QueryNarrowed) >= 2, "and stepped down again"
    sim.peers["slow"].takes_a_second = float("inf")
    sim.run_until(20.0)
    assert complete(sim) == {}
    assert gaps(sim) == {}


def test_a_deaf_client_is_disconnected_and_can_come_back():
    sim, told = small_mesh(flow=FlowConfig(give_up_after=4.0))
    slow = sim.peers["slow"]
    slow.takes = False
    sim.feed(rate=100, until=12.0, make=packet)
    sim.run_until(9.0)
    assert kinds(told) == [flow.FallingBehind, flow.Disconnected]
    assert slow.core.disconnected == "the application is not consuming packets"
    assert len(slow.core.mesh.parents) == 0
    assert slow.core.links_mapped == 0
    slow.takes = True
    sim.run_until(9.5)
    with_what_it_had = slow.check.packets
    assert with_what_it_had >= 60
    slow.core.rejoin(now=sim.network.now)
    sim.network.pump(slow.address)
    sim.run_until(14.0)
    assert complete(sim) == {}
    assert gaps(sim) == {}, "the parents' logs reached back to where it stood"


def test_a_disconnected_client_can_leave_for_good():
    sim, told = small_mesh(flow=FlowConfig(give_up_after=2.0))
    slow = sim.peers["slow"]
    slow.takes = False
    sim.feed(rate=100, until=6.0, make=packet)
    sim.run_until(7.0)
    assert slow.core.disconnected is not None
    slow.core.leave(now=sim.network.now)
    sim.network.pump(slow.address)
    assert told[-1] == meshevents.Left()
    assert slow.core.next_timeout(now=sim.network.now) is None
    with pytest.raises(ValueError, match="is not disconnected"):
        sim.peers["sibling"].core.rejoin(now=sim.network.now)


def test_a_routers_own_deaf_client_does_not_hold_up_its_children():
    small = Config(max_ready_packets=64, max_log_packets=300)
    sim = PeerSimulation(3)
    sim.add_root("R", dcp=small)
    router = sim.add_router("I", parents=1, dcp=small)
    sim.run_until(1.0)
    sim.add_leaf("C", parents=1)
    sim.network.cut(sim.peers["C"].address, sim.peers["R"].address)
    sim.run_until(4.0)
    router.takes = False
    sim.feed(rate=100, until=10.0, make=packet)
    sim.run_until(11.0)
    assert sim.peers["C"].check.missing_at_end() is None, (
        "the child has everything although its parent's client is deaf"
    )
    assert gaps(sim) == {}
    router.takes = True
    sim.run_until(11.5)
    assert complete(sim) == {}
    evicted = [gap for gap in router.check.gaps if gap.until - gap.after > 100]
    assert len(evicted) == len(router.check.gaps) == 1, "what the log had lost by then, as one gap"
    assert router.check.packets >= 64 + 200
