"""The transformations of the paper's Table 2, the exchange, and composites that users define."""

from __future__ import annotations

import random

import pytest

from peer.optimizer.layout import Move
from peer.optimizer.transformations import (
    DEMOTE,
    EXCHANGE,
    MAX_PAIRS,
    MIGRATION,
    PARENT_CHILD_SWAP,
    PROMOTE,
    SIBLING_SWAP,
    SUBTREE,
    TransformationError,
    candidates,
    moves_of,
    transformation,
    unit_of,
)
from tests.peer.optimizer.worlds import SmallWorld

#        0
#        1
#     2     3
#   4   5     6
TREE = "1<0 2<1 3<1 4<2 5<2 6<3"
ROLES = {"i": 1, "j": 2, "k": 3, "x": 4}


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        (PROMOTE, [(4, 2, 1)]),
        (DEMOTE, [(3, 1, 2)]),
        (SUBTREE, [(4, 2, 1), (5, 2, 1)]),
        (PARENT_CHILD_SWAP, [(2, 1, 0), (1, 0, 2), (3, 1, 2), (4, 2, 1), (5, 2, 1)]),
        (MIGRATION, [(4, 2, 3), (5, 2, 3)]),
        (SIBLING_SWAP, [(4, 2, 3), (5, 2, 3), (6, 3, 2)]),
        (EXCHANGE, [(4, 2, 1), (3, 1, 2)]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_each_kind_does_to_a_tree(kind, moves):
    layout = SmallWorld(7).layout(TREE)
    found = moves_of(layout, kind, ROLES)
    assert found == [Move(*move) for move in moves]
    assert layout.apply(found) is not None
    assert len(layout.order()) == layout.size


def test_a_parent_child_swap_follows_table_2_and_not_the_prose():
    """The prose keeps the subtree of the child where it is; the table hands it to the old parent."""
    layout = SmallWorld(7).layout(TREE)
    layout.apply(moves_of(layout, PARENT_CHILD_SWAP, ROLES))
    assert layout.children[0] == {2}
    assert layout.children[2] == {1, 3}
    assert layout.children[1] == {4, 5}


def test_users_define_composites_from_primitives():
    up_two = transformation("lift", "promote(x); promote(x)")
    layout = SmallWorld(7).layout(TREE)
    assert moves_of(layout, up_two, ROLES) == [Move(4, 2, 0)]
    there_and_back = transformation("nothing", "promote(x); demote(x, j)")
    assert moves_of(layout, there_and_back, ROLES) is None


@pytest.mark.parametrize(
    "text", ["", "promote(q)", "promote(x, j)", "demote(x)", "promote(x) demote(k, j)", "promote(x);", "lift(x)"]
)
def test_a_composite_that_makes_no_sense_is_one_sentence(text):
    with pytest.raises(TransformationError, match="expected promote"):
        transformation("mine", text)
    with pytest.raises(TransformationError, match="at most 16 steps"):
        transformation("mine", ";".join(["promote(x)"] * 17))


def test_in_a_mesh_a_child_that_is_there_already_does_not_move():
    layout = SmallWorld(7).layout("1<0 2<1 3<1 4<2,1 5<2 6<3", wanted=2)
    assert moves_of(layout, PROMOTE, ROLES) is None
    assert moves_of(layout, SUBTREE, ROLES) == [Move(5, 2, 1)]
    assert moves_of(layout, MIGRATION, ROLES) == [Move(4, 2, 3), Move(5, 2, 3)]


def test_the_root_has_no_parent_to_swap_with():
    layout = SmallWorld(7).layout(TREE)
    assert moves_of(layout, PARENT_CHILD_SWAP, {"i": 0, "j": 1}) is None


def test_a_unit_has_three_levels():
    layout = SmallWorld(7).layout(TREE)
    assert unit_of(layout, 1) == {0, 1, 2, 3, 4, 5, 6}
    assert unit_of(layout, 2) == {1, 2, 4, 5}


def test_a_star_is_sampled():
    world = SmallWorld(60)
    layout = world.layout(" ".join(f"{x}<0" for x in range(1, 60)), capacity=99)
    found = list(candidates(layout, 0, (DEMOTE,), random.Random(1)))
    assert len(found) == MAX_PAIRS
    assert len(list(candidates(layout, 0, (SIBLING_SWAP,), random.Random(1)))) == 0
