"""With one honest parent no lie costs a packet (docs/dcp.md, section 6); and each rule is needed for that.

A slice of the grid that `python -m bench liars` runs as a whole, and an ablation for every rule.
"""

from __future__ import annotations

import pytest

from bench import _lying
from bench._lying import LIARS, RULES, run, without
from dcp import events
from dcp.serial import MAX_POSITION


def harm(outcome):
    return outcome.silent + outcome.gapped + outcome.stuck + outcome.honest_convicted + outcome.repeated


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("liar", LIARS)
def test_with_one_honest_parent_no_lie_costs_a_packet(liar, routers, signed):
    lag, loss = (0.5, 0.05) if routers else (0.02, 0.0)
    outcome = run(LIARS[liar], signed=signed, routers=routers, lag=lag, loss=loss, pause=4.0, seconds=3.0, seed=7)
    if liar == "forge" and not signed:
        # Without signatures a forged packet is taken for the real one of its AN: that alone can't be helped.
        assert outcome.silent <= outcome.wrong
        assert outcome.gapped + outcome.stuck + outcome.honest_convicted + outcome.repeated == 0
        return
    assert harm(outcome) == 0
    assert outcome.wrong == 0
    assert outcome.worst_delay < 1.5
    if not signed:
        assert outcome.liars_convicted == 0
    elif liar != "mute":
        assert outcome.liars_convicted > 0


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("signed", [True, False])
def test_without_a_liar_nobody_is_accused_and_nothing_is_late(routers, signed):
    outcome = run(
        (), honest=("A", "B", "D"), signed=signed, routers=routers, lag=0.3, loss=0.05, seconds=3.0, pause=2.0
    )
    assert harm(outcome) == outcome.late == outcome.wrong == 0
    assert outcome.disputed == set()


@pytest.mark.parametrize("lag", [0.02, 0.1, 0.5])
def test_without_a_liar_the_rules_cost_no_delay_and_few_bytes(lag):
    ours = run((), honest=("A", "B"), lag=lag, rate=400, seconds=2.0)
    with without(*RULES):
        before = run((), honest=("A", "B"), lag=lag, rate=400, seconds=2.0)
    assert ours.p99 == pytest.approx(before.p99, abs=5e-4)
    assert ours.mean == pytest.approx(before.mean, abs=5e-4)
    assert ours.bytes <= 1.04 * before.bytes


# --- each rule is needed ----------------------------------------------------------------------------------------------


def test_with_no_rules_most_of_the_stream_is_lost_in_silence():
    with without(*RULES):
        for liar in ("ahead", "omitall", "forge"):
            assert run(LIARS[liar], lag=0.5, seconds=3.0).silent > 20, liar


def test_without_rule_l1_emptiness_puts_packets_out_of_order():
    assert run(("ahead",), lag=0.5, seconds=3.0).late <= 1
    with without("tail"):
        assert run(("ahead",), lag=0.5, seconds=3.0).late > 5


def test_without_rule_l2_everything_after_a_leap_is_late():
    """With rule L5 alone nothing is lost, but nothing comes in order any longer, either."""
    outcome = run(("leap",), lag=0.02, seconds=3.0)
    assert harm(outcome) == outcome.late == 0
    with without("reach"):
        assert run(("leap",), lag=0.02, seconds=3.0).late > 20
    with without("reach", "late"):
        assert run(("leap",), lag=0.02, seconds=3.0).silent > 20


def test_without_rule_l3_a_false_hole_becomes_a_gap_during_a_pause():
    assert harm(run(("hole",), lag=0.02, seconds=2.0, pause=6.0)) == 0
    with without("hole", "reach"):
        assert run(("hole",), lag=0.02, seconds=2.0, pause=6.0).gapped > 20


def test_without_rule_l4_a_false_start_mutes_the_child():
    with without("start"):
        assert run(LIARS["start"], signed=True, seconds=2.0, seed=2).silent > 20


@pytest.mark.parametrize("rule", ["late", "index"])
def test_without_rules_l5_and_l6_what_was_left_out_is_lost(rule):
    assert harm(run(LIARS["omit"], signed=True, lag=0.5, seconds=4.0)) == 0
    with without(rule):
        assert run(LIARS["omit"], signed=True, lag=0.5, seconds=4.0).silent > 0


def test_without_rule_l7_an_honest_router_is_convicted():
    def convicted():
        options = {"signed": True, "routers": True, "lag": 0.5, "loss": 0.05, "seconds": 4.0, "pause": 2.0}
        return run(("omit", "omit"), **options).honest_convicted

    assert convicted() == 0
    with without("settled"):
        assert convicted() > 0


def test_without_rule_l8_what_a_router_learns_late_never_reaches_its_children():
    assert harm(run(LIARS["omit"], signed=True, routers=True, lag=0.5, seconds=4.0)) == 0
    with without("correct"):
        assert run(LIARS["omit"], signed=True, routers=True, lag=0.5, seconds=4.0).silent > 0


# --- events -----------------------------------------------------------------------------------------------------------


def meshes(monkeypatch):
    """The meshes that `run` makes from now on."""
    made = []
    original = _lying.Mesh.outcome
    monkeypatch.setattr(_lying.Mesh, "outcome", lambda self: made.append(self) or original(self))
    return made


def test_unsigned_both_sides_are_disputed_and_nobody_is_convicted(monkeypatch):
    made = meshes(monkeypatch)
    outcome = run(LIARS["omit"], lag=0.02, seconds=4.0)
    assert outcome.disputed == {"L0", "H"}
    (mesh,) = made
    disputes = [event for _, _, event in mesh.events if isinstance(event, events.Disputed)]
    assert {(event.address[0], event.reason) for event in disputes} == {("L0", "omitted"), ("H", "unconfirmed")}
    assert all(event.after < event.until <= MAX_POSITION for event in disputes)
    statistics = mesh.receivers["C"].statistics(mesh.net.now)
    by_name = {link.address[0]: link for link in statistics.links}
    assert by_name["L0"].disputed > 0
    assert by_name["L0"].omitted > 0
    assert by_name["H"].omitted == 0
    assert statistics.omitted == outcome.late


def test_a_convicted_parent_keeps_its_link_and_its_packets_count(monkeypatch):
    """Rule L10: what it brings is taken, so that nothing stalls before its replacement is there."""
    made = meshes(monkeypatch)
    outcome = run(LIARS["omit"], signed=True, lag=0.5, seconds=6.0)
    (mesh,) = made
    convictions = [(when, event) for _, when, event in mesh.events if isinstance(event, events.Convicted)]
    assert [event.address[0] for _, event in convictions] == ["L0"]
    assert convictions[0][1].reason == "omitted"
    links = mesh.receivers["C"].statistics(mesh.net.now).links
    statistics = mesh.receivers["C"].statistics(mesh.net.now)
    assert statistics.index_requests > 0
    assert statistics.fetched > 0
    first_copies = {link.address[0]: link.first_copies for link in links}
    assert first_copies["L0"] > 20
    assert harm(outcome) == 0
