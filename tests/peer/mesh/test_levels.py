"""The level rules one by one, and together: any order of legal moves keeps the child above the parent."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh.levels import LevelRules
from peer.mesh.messages import MAX_LEVEL, UNPLACED

rules = LevelRules((512, 1024))


def test_a_childless_peer_may_join_anybody():
    assert rules.ceiling(700, has_children=False) == UNPLACED
    assert rules.ceiling(700, has_children=True) == 700


@pytest.mark.parametrize(("level", "join_level", "accepts"), [(0, 1, True), (700, 700, False), (701, 700, False)])
def test_r2_a_parent_accepts_only_below_the_level_in_the_join(level, join_level, accepts):
    assert rules.may_accept(level, join_level) is accepts


@pytest.mark.parametrize(
    ("level", "accepted", "has_children", "takes"),
    [
        (700, 0, True, True),
        (700, 700, True, False),  # it was placed elsewhere, or fell, while the join was in flight
        (700, 900, True, False),
        (700, 900, False, True),  # nobody below: it can rise
        (UNPLACED, 900, False, True),
        (UNPLACED, MAX_LEVEL, False, False),  # no number is left above such a parent
    ],
)
def test_r3_the_child_checks_again(level, accepted, has_children, takes):
    assert rules.may_take(level, accepted, has_children=has_children) is takes


def test_r4_a_level_rises_only_with_no_children():
    assert rules.may_rise(has_children=False)
    assert not rules.may_rise(has_children=True)


def test_r5_a_level_falls_only_to_above_every_parent():
    assert rules.may_fall(701, [700, 0])
    assert not rules.may_fall(700, [700, 0])


def test_a_late_beat_does_not_raise_what_was_told():
    assert rules.reported(700, 900) == 700
    assert rules.reported(900, 700) == 700


@given(st.lists(st.integers(0, MAX_LEVEL - 2048), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_new_level_is_sparse_and_above_every_parent(reported, rng):
    assert max(reported) + 512 <= rules.place(reported, Random(rng.random())) <= max(reported) + 1024


@given(st.integers(1, 100_000), st.lists(st.integers(0, 100_000), max_size=4), st.integers())
def test_lowering_never_breaks_r5(level, reported, seed):
    lower = rules.lowered(level, reported, Random(seed))
    if lower is not None:
        assert lower < level
        assert rules.may_fall(lower, reported)


class Pair:
    """A parent and a child with every message in flight for as long as it likes: the claim of levels.py in small."""

    def __init__(self) -> None:
        self.parent, self.child = 1_000, 2_000
        self.other_children = 0
        self.is_linked = True
        self.reported = 1_000
        self.in_flight: list[int] = []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4_000)), max_size=40))
def test_a_held_link_keeps_its_order_under_any_interleaving(moves):
    pair = Pair()
    for kind, number in moves:
        if kind == 0 and rules.may_rise(has_children=pair.is_linked):
            pair.parent = max(pair.parent, number)
        elif kind == 1:
            pair.parent = min(pair.parent, number)
        elif kind == 2:
            pair.in_flight.append(pair.parent)
        elif kind == 3 and pair.in_flight:
            pair.reported = rules.reported(pair.reported, pair.in_flight.pop(number % len(pair.in_flight)))
        elif kind == 4 and number < pair.child and rules.may_fall(number, [pair.reported]):
            pair.child = number
        assert pair.child > pair.parent
