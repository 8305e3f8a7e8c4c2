"""Moves on a mesh with levels: what rules R2 to R5 allow, and that no prefix of a transformation breaks them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.optimizer.layout import UNREACHED, Move
from peer.optimizer.transformations import BUILT_IN, DEMOTE, PARENT_CHILD_SWAP, PROMOTE, candidates
from tests.peer.optimizer.worlds import SmallWorld, grown


@given(seed=st.integers(0, 2**32), wanted=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_any_prefix_of_any_transformation_is_a_legal_mesh(seed, wanted):
    """Rule O1: loss or death in between needs no way back."""
    layout = grown(SmallWorld(30, roots=2), wanted, seed)
    rng = random.Random(seed)
    for _ in range(30):
        owner = rng.randrange(layout.size)
        for moves in rng.sample(found := list(candidates(layout, owner, BUILT_IN, rng, 20)), min(5, len(found))):
            for length in range(1, len(moves) + 1):
                saved = layout.apply(moves[:length])
                if saved is None:
                    continue
                assert layout.violations() == 0
                assert len(layout.order()) == layout.size
                if length < len(moves) or rng.random() < 0.5:
                    layout.undo(saved)


def test_promotions_are_always_legal():
    for seed in range(20):
        layout = grown(SmallWorld(40, roots=2), 2, seed, capacity=40)
        for owner in range(layout.size):
            for moves in candidates(layout, owner, (PROMOTE,), random.Random(seed)):
                saved = layout.apply(moves)
                assert saved is not None, (seed, moves)
                layout.undo(saved)


def test_levels_refuse_some_demotions_and_let_others_fall_first():
    refused = fell = tried = 0
    for seed in range(5):
        layout = grown(SmallWorld(60, roots=2), 2, seed)
        for owner in range(layout.size):
            for moves in candidates(layout, owner, (DEMOTE, PARENT_CHILD_SWAP), random.Random(seed), 20):
                tried += 1
                saved = layout.apply(moves)
                if saved is not None:
                    layout.undo(saved)
        refused, fell = refused + layout.refused, fell + layout.fell
    assert 0 < refused < tried
    assert fell > 0


def test_a_child_that_is_an_ancestor_by_another_parent_is_refused():
    """A sibling can be a descendant: done literally, 1.1 % of demotions would close a cycle."""
    world = SmallWorld(5, roots=1)
    layout = world.layout("1<0 2<0,1 3<2 4<3", wanted=2)
    assert layout.apply([Move(1, 0, 2)]) is None  # 2 stands under 1 already
    assert layout.violations() == 0
    assert layout.refused == 1


def test_an_undone_move_leaves_no_trace():
    world = SmallWorld(5)
    layout = world.layout("1<0 2<1 3<1 4<2")
    before = layout.whole()
    saved = layout.apply([Move(2, 1, 0), Move(3, 1, 2)])
    assert saved is not None
    assert layout.parents[3] == [2]
    layout.undo(saved)
    assert layout.whole() == before


@pytest.mark.parametrize(
    "move", [Move(2, 1, 1), Move(2, 1, 2), Move(2, 0, 3), Move(0, None, 1), Move(2, None, 1)], ids=str
)
def test_moves_that_make_no_sense_are_refused(move):
    layout = SmallWorld(4).layout("1<0 2<1 3<1")
    before = layout.whole()
    assert layout.apply([move]) is None
    assert layout.whole() == before


def test_nobody_joins_below_a_peer_without_parents():
    layout = SmallWorld(4).layout("1<0 2<1")
    assert layout.remove(1) == [2]
    assert layout.apply([Move(3, None, 2)]) is None
    assert layout.hops()[2] == UNREACHED
    assert layout.apply([Move(2, None, 0)]) is not None
    assert layout.heights()[0] == 1
