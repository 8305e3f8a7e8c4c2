"""The reference tree: the paper's examples, both ends agree, and every link of a mesh goes to a lower rank."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tree import churn, examples, shape
from dht.places import place_of
from peer.mesh.reftree import (
    PLACES,
    Holders,
    ReferenceTree,
    Rules,
    Span,
    crown_of,
    depths,
    expected_parents,
    mask,
)

ARITIES = st.sampled_from([2, 3, 4, 7])
HOSTS = st.sets(st.integers(0, 255), min_size=1, max_size=60)


def test_section_3_5_link_by_link():
    assert examples()


@given(ARITIES, HOSTS)
def test_both_ends_find_the_same_neighbors(arity, places):
    hosts = Holders(ReferenceTree(arity, 256), places)
    for place in hosts.places:
        below = {child for child in hosts.places if hosts.parent(child) == place}
        assert set(hosts.children(place)) == below
        assert all(place in hosts.neighbors(other) for other in hosts.neighbors(place))


@given(ARITIES, HOSTS)
def test_it_is_a_tree_over_everybody(arity, places):
    hosts = Holders(ReferenceTree(arity, 256), places)
    tops = [place for place in hosts.places if hosts.parent(place) is None]
    assert len(tops) == 1
    reached, waiting = set(), tops
    while waiting:
        place = waiting.pop()
        assert place not in reached
        reached.add(place)
        waiting += hosts.children(place)
    assert reached == set(hosts.places)
    assert len(set(hosts.nodes.values())) == len(hosts)


@given(ARITIES, HOSTS, st.lists(st.integers(0, 255), max_size=30))
def test_what_a_change_settles_is_what_all_would_compute_from_the_list(arity, places, changes):
    hosts = Holders(ReferenceTree(arity, 256), places)
    for place in changes:
        if place not in hosts.nodes:
            hosts.add(place)
        elif len(hosts) > 1:
            hosts.remove(place)
    assert hosts.nodes == Holders(ReferenceTree(arity, 256), hosts.places).nodes


@given(HOSTS)
def test_nobody_in_a_binary_tree_has_more_than_three_neighbors(places):
    hosts = Holders(ReferenceTree(2, 256), places)
    assert max(len(hosts.neighbors(place)) for place in hosts.places) <= 3


@pytest.mark.parametrize("arity", [2, 3, 4, 7])
def test_the_property_of_section_3_2(arity):
    tree = ReferenceTree(arity, 500)
    found: Counter[int] = Counter()

    def look(span: Span, parent: int | None) -> None:
        key = tree.key(span)
        found[key] += 1
        outside = 0
        for child in tree.children(span):
            if child.low < child.high:
                below = tree.key(child)
                if parent is not None and not min(key, parent) < below < max(key, parent):
                    outside += 1
                    assert (below < key) == (key < parent)
                look(child, key)
        assert outside <= 1

    look(tree.root, None)
    assert found == Counter(range(500))  # every key is one node


@given(ARITIES, st.integers(1, 6), st.integers(0, 20))
def test_masks_are_distinct_and_only_the_first_is_nothing(arity, rank, more):
    wanted = min(arity**rank, 2 + more)
    masks = [mask(rank, number, arity) for number in range(wanted)]
    assert len(set(masks)) == wanted
    assert not any(masks[0])


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(4, 12), st.integers(-1, 4), st.integers(1, 4))
def test_every_link_goes_to_a_lower_rank_and_nobody_has_more_than_its_slots(seed, parents, capacity, crown, roots):
    rng = random.Random(seed)
    hosts = Holders(ReferenceTree(2), [rng.getrandbits(160) for _ in range(80)])
    above = [-1 - number for number in range(roots)]
    up = expected_parents(hosts, Rules(parents, capacity, crown), above)
    assert set(up) == set(hosts.places)
    for place, found in up.items():
        assert len(set(found)) == len(found) >= min(parents, 1)
        assert all(parent in above or len(hosts.nodes[parent]) < len(hosts.nodes[place]) for parent in found)
    children = Counter(parent for found in up.values() for parent in found if parent >= 0)
    assert max(children.values(), default=0) <= capacity
    assert min(depths(up).values()) == 1


def test_the_crown_is_as_wide_as_the_roots_have_room():
    assert [crown_of(slots, 2) for slots in (1, 2, 5, 6, 29, 30, 62)] == [-1, 0, 0, 1, 2, 3, 4]


def test_a_place_depends_on_the_stream_and_the_peer():
    places = {place_of(stream, peer) for stream in ("a", "ab") for peer in (b"b" * 20, b"c" * 20)}
    assert len(places) == 4
    assert all(0 <= place < PLACES for place in places)
    assert place_of("asdi", bytes(20)) == 0x122370EBE51CE1B09284C48C5A3FD908F7AAE007


def test_the_bench_finds_what_the_paper_found():
    found = churn(2, 30, random.Random(1))
    assert found["degree_max"] == 3
    assert 2 < found["area_join"] < 3
    assert 2 < found["area_leave"] < 3
    large = shape(Rules(2, 6, 3), 400, random.Random(1))
    assert large["level_violations"] == 0
    assert large["children_max"] <= 6
    assert large["cut_off"] < shape(Rules(1, 2, -1), 400, random.Random(1))["cut_off"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ReferenceTree(1),
        lambda: ReferenceTree(2, 0),
        lambda: ReferenceTree(2, 16).topmost(3, 16),
        lambda: Holders(ReferenceTree(2, 16)).add(16),
        lambda: Holders(ReferenceTree(2, 16), [3]).remove(4),
        lambda: expected_parents(Holders(ReferenceTree(2, 16), [3]), Rules(), []),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must|expected|nobody"):
        wrong()
