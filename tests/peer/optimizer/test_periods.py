"""The root's periods between peers: proposals go up, choices come down, and only who is named moves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh.messages import PeerId
from peer.optimizer.periods import MAX_BIDS, MAX_ROOTS, PERIOD, Bid, Choice, Periods, independent, newest, short_name
from peer.optimizer.proposing import Hysteresis
from peer.optimizer.said import Said, read_said_untrusted
from peer.testing.campaign import run_campaign
from peer.testing.guided import LATENCY, RESTLESS, Guided, Spread, signed
from tests.peer.optimizer.test_goal_placement import PARENTS, around, candidate, following, says

BY_ROOT = f"{LATENCY} decided by root"
ME = PeerId(b"me")


def bid(gain: float, *names: str) -> Bid:
    return Bid(gain, tuple(short_name(PeerId(name.encode())) for name in names))


def test_the_best_proposal_and_all_that_touch_none_of_its_peers_are_chosen():
    best, other, clash = bid(3.0, "a", "p", "q"), bid(1.0, "b", "r", "s"), bid(2.0, "c", "q", "t")
    assert independent([other, clash, best]) == [best, other]
    many = [bid(float(n), f"x{n}", f"y{n}", f"z{n}") for n in range(20)]
    assert len(independent(many)) == MAX_BIDS


def test_a_root_chooses_once_per_period():
    periods = Periods()
    first = periods.choose(PeerId(b"root"), [bid(1.0, "a", "p", "q")], 0.5, 100.0)
    assert first == Choice(short_name(PeerId(b"root")), 1, 0.5, (short_name(PeerId(b"a")),))
    assert periods.choose(PeerId(b"root"), [bid(9.0, "b", "p", "q")], 0.5, 101.0) == first
    second = periods.choose(PeerId(b"root"), [bid(9.0, "b", "p", "q")], 0.5, 100.0 + PERIOD)
    assert (second.number, second.names) == (2, (short_name(PeerId(b"b")),))


def test_whoever_is_named_moves_once_and_hears_of_it_once():
    periods = Periods()
    named = Choice(b"r" * 8, 1, 0.0, (short_name(ME),))
    periods.hear([named])
    assert (periods.is_news(ME), periods.is_news(ME), periods.is_chosen(ME)) == (True, False, True)
    periods.done(ME)
    periods.hear([named])
    assert not periods.is_chosen(ME)
    periods.hear([named._replace(number=2)])
    assert (periods.is_news(ME), periods.is_chosen(ME)) == (True, True)


def test_what_roots_say_is_bounded():
    periods = Periods()
    choices = [Choice(bytes([n]) * 8, 1, 0.0, ()) for n in range(50)]
    periods.hear(choices)
    assert len(periods._chosen) == len(newest(choices)) == MAX_ROOTS


def test_a_peer_proposes_and_does_not_move_until_it_is_named():
    placement = following(BY_ROOT)
    says(placement, "near", 0.010, 0.020)
    says(placement, "far", 0.050, 0.060)
    says(placement, "new", 0.010, 0.030)
    here = around(PARENTS, [candidate("new")], own=ME)
    assert placement.better(here, Random(1)) is None
    said = read_said_untrusted(placement.values(here, PARENTS[0].peer_id))
    assert [each.peers for each in said.bids] == [bid(0.0, "me", "far", "new").peers]
    assert said.worst == pytest.approx(0.7 * 0.020 + 0.3 * 0.080)
    choice = Choice(b"r" * 8, 1, 0.1, (short_name(ME),))
    told = Said(placement.held.version, placement.held.digest, (0.010,), hops=1, free=1, choices=(choice,))
    placement.heard(PARENTS[0].peer_id, told.as_values(), 99.5)
    assert placement.is_due(ME)
    assert read_said_untrusted(placement.values(here)).choices == (choice,)  # and passes it down
    assert placement.better(here, Random(1)).candidate == b"new"
    assert placement.better(here, Random(1)) is None


def test_for_the_worst_cost_only_peers_above_the_worst_one_propose():
    placement = following("minimize max(path sum(link.latency)) decided by root")
    says(placement, "near", 0.010, 0.020)
    says(placement, "far", 0.050, 0.060)
    here = around(PARENTS, own=ME)
    assert placement.is_critical(here)  # nobody has said what the worst is
    choice = Choice(b"r" * 8, 1, 0.5, ())
    told = Said(placement.held.version, placement.held.digest, (0.010,), hops=1, choices=(choice,))
    placement.heard(PARENTS[0].peer_id, told.as_values(), 99.5)
    says_again = choice._replace(worst=0.0381)
    assert not placement.is_critical(here)
    placement.heard(PARENTS[0].peer_id, Said(1, b"", (0.010,), hops=1, choices=(says_again,)).as_values(), 99.5)
    assert placement.is_critical(here)


@given(st.dictionaries(st.integers(9, 14), st.binary(max_size=255)))
def test_any_proposals_and_choices_are_read(values):
    said = read_said_untrusted(values)
    assert all(each.gain > 0 and len(each.peers) == 3 for each in said.bids)
    assert all(len(name) == 8 for choice in said.choices for name in choice.names)


@pytest.mark.slow
def test_a_mesh_improves_in_the_roots_periods():
    guided = Guided(signed(BY_ROOT), Hysteresis(dwell=10.0))
    mesh = Spread(1, guided=guided, peers=12, capacity=4)
    mesh.run(20.0)
    start = mesh.mean_path()
    mesh.run(140.0)
    mesh.check_settled()
    assert mesh.mean_path() < 0.95 * start
    periods = max(placement._periods._choice.number for placement in guided.made[:2])
    assert 0 < sum(placement.moves for placement in guided.made) <= 2 * MAX_BIDS * periods


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_chaos_breaks_no_promise_in_the_roots_periods(seed):
    run_campaign(seed, placement=Guided(signed(BY_ROOT), RESTLESS), knobs={"replace_interval": 3.0})
