"""Placements, on neighbourhoods made by hand: what they see goes in, the move comes out."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from peer.mesh.candidates import CandidateCache, CandidateRecord
from peer.mesh.children import Child
from peer.mesh.config import MeshConfig
from peer.mesh.events import LinkId
from peer.mesh.liveness import RootFeed, RootMemory
from peer.mesh.messages import UNPLACED, CloseReason, Join, PeerAt, PeerId, RefuseReason, Report
from peer.mesh.parents import Parent
from peer.mesh.placement.moves import Ask, AskChildren, Drop, Evict, Replace
from peer.mesh.placement.neighbourhood import Neighbourhood
from peer.mesh.placement.scored import ScoredPlacement, score
from peer.mesh.placement.walk import WalkPlacement
from peer.placements import PLACEMENTS, placement_of
from tests.peer.mesh.one import One
from tests.peer.mesh.one import record as known

ME = PeerId(b"me")


def record(name: str, **changes) -> CandidateRecord:
    host = f"10.0.{len(name)}.{ord(name[0]) % 250 + 1}"
    plain = CandidateRecord(PeerId(name.encode()), (host, 4_000), 700, 1, 0.5, 2, 3, 2)
    return replace(plain, **changes)


def cache_of(*records: CandidateRecord) -> CandidateCache:
    cache = CandidateCache(ME, limit=64, lifetime=60.0)
    cache.add_records(records, 0.0)
    return cache


def parent(number: int, *, hops: int = 0, host: str = "10.1.1.1", **changes) -> Parent:
    values = {"since": 0.0, "heard_at": 0.0, "feed": RootFeed(RootMemory(0.1)), "is_fed": True}
    return Parent(LinkId(number), PeerId(b"p%d" % number), (host, 1), 0, hops, 2, **(values | changes))


def child(number: int, *, host: str, children: int = 0, parents: int = 2, level: int = 9_000) -> Child:
    report = Report(level, 3, 2, False, parents, children, 1, 1)
    return Child(LinkId(number), PeerId(b"c%d" % number), (host, 1), 1, 1, b"", 0.0, report=report)


def around(cache: CandidateCache | None = None, *, now: float = 1.0, **changes) -> Neighbourhood:
    cache = cache or cache_of()
    plain = Neighbourhood(
        now=now,
        config=MeshConfig(),
        level=5_000,
        hops=2,
        parents=(),
        children=(),
        candidates=cache.eligible(now, below=UNPLACED, exclude=()),
        silent_candidates=cache.last_resort(now, below=UNPLACED, exclude=()),
    )
    return replace(plain, **changes)


def asked(placement, view, count=300) -> list[str]:
    rng = Random(5)
    return [placement.wanted(view, rng).candidate.decode() for _ in range(count)]


A_CHILD = (child(9, host="10.8.8.8"),)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"hops": 1}, {"hops": 2}),
        ({"load": 0.1}, {"load": 0.9}),
        ({"query": b"all"}, {"query": b"none"}),
        ({"address": ("10.9.9.9", 1)}, {"address": ("10.1.1.1", 1)}),  # the host of a parent
        ({"address": ("10.1.1.2", 1)}, {"address": ("10.1.1.1", 1)}),  # its network is better than its host
        ({"address": ("10.9.9.9", 1)}, {"address": ("10.1.1.2", 1)}),
    ],
)
def test_what_makes_a_candidate_better(better, worse):
    view = around(parents=(parent(1),), coverage=lambda query: 0.0 if query == b"none" else 1.0)
    cache = cache_of(record("a", **better), record("b", **worse))
    assert score(cache.find(PeerId(b"a")), view) < score(cache.find(PeerId(b"b")), view)


def test_a_short_round_trip_is_better():
    cache = cache_of(record("a"), record("b"))
    cache.answered(PeerId(b"a"), round_trip=0.01, now=1.0)
    cache.answered(PeerId(b"b"), round_trip=0.2, now=1.0)
    assert score(cache.find(PeerId(b"a")), around()) < score(cache.find(PeerId(b"b")), around())


def test_the_scored_choice_is_the_best_of_a_few_random_ones():
    cache = cache_of(*(record(f"p{hops:02}", hops=hops) for hops in range(20)))
    picked = asked(ScoredPlacement(), around(cache, config=MeshConfig(choices=3)))
    assert len(set(picked)) > 8, "a crowd does not fall on one peer"
    assert sum(int(name[1:]) for name in picked) / len(picked) < 6, "and stays near the root"
    assert set(asked(ScoredPlacement(), around(cache, config=MeshConfig(choices=20)))) == {"p00"}


def test_a_full_candidate_is_the_last_resort_and_slots_for_repair_are_for_peers_with_children():
    cache = cache_of(record("full", free=0, free_for_repair=1, hops=0), record("open", hops=9))
    assert set(asked(ScoredPlacement(), around(cache))) == {"open"}
    assert set(asked(ScoredPlacement(), around(cache, children=A_CHILD))) == {"full"}
    assert set(asked(ScoredPlacement(), around(cache_of(record("full", free=0))))) == {"full"}


def test_the_walk_goes_from_the_roots_down():
    cache = cache_of(record("root", is_root=True, level=0, hops=0))
    walk = WalkPlacement()
    assert set(asked(walk, around(cache))) == {"root"}
    cache.add_hearsay([PeerAt(PeerId(b"kid"), ("10.3.3.3", 1), 600)], teller=cache.find(PeerId(b"root")), now=1.0)
    assert set(asked(walk, around(cache))) == {"root"}
    cache.refused(PeerId(b"root"), RefuseReason.FULL, until=3.0)
    assert set(asked(walk, around(cache))) == {"kid"}


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_no_candidate_no_move(name):
    placement = placement_of(name, PeerId(bytes(20)), stream="asdi")
    view = around(parents=(parent(1), parent(2)))
    assert placement.wanted(view, Random(1)) is None
    assert placement.better(view, Random(1)) is None
    assert placement.surplus(view) is None


def test_only_the_walk_asks_a_refuser_for_its_children():
    refuser = PeerId(b"full")
    assert WalkPlacement().after_refusal(refuser, RefuseReason.FULL) == AskChildren(refuser)
    assert WalkPlacement().after_refusal(refuser, RefuseReason.POLICY) is None
    assert ScoredPlacement().after_refusal(refuser, RefuseReason.FULL) is None


def test_a_better_parent_is_nearer_to_the_root_and_has_room():
    parents = (parent(1, hops=1), parent(2, hops=4, host="10.2.2.2"))
    placement, rng = ScoredPlacement(), Random(1)
    near = around(cache_of(record("near", hops=3)), parents=parents)
    assert placement.better(near, rng) == Replace(LinkId(2), PeerId(b"near"))
    assert placement.better(around(cache_of(record("far", hops=4)), parents=parents), rng) is None
    assert placement.better(around(cache_of(record("full", hops=0, free=0)), parents=parents), rng) is None


def test_the_silent_are_asked_only_when_there_is_nobody_else():
    cache = cache_of(record("silent"))
    cache.failed(PeerId(b"silent"), now=0.0)
    assert ScoredPlacement().wanted(around(cache, now=3.0), Random(1)) == Ask(PeerId(b"silent"))
    cache.add_records([record("well", hops=9)], 3.0)
    assert ScoredPlacement().wanted(around(cache, now=3.0), Random(1)) == Ask(PeerId(b"well"))


def test_useless_parents_go_first_then_the_farthest_and_suspects_stay():
    placement = ScoredPlacement()
    sound = (parent(1), parent(2, hops=3, host="10.2.2.2"), parent(3, host="10.3.3.3"))
    assert placement.surplus(around(parents=sound)) == Drop(LinkId(2))
    assert placement.surplus(around(parents=(*sound, parent(4, is_leaving=True)))) == Drop(LinkId(4))
    assert placement.surplus(around(parents=(*sound, parent(4, is_fed=False)))) == Drop(LinkId(4))
    suspect = parent(4, is_fed=False, is_suspect=True)
    assert placement.surplus(around(parents=(*sound[:2], suspect))) is None


@pytest.mark.parametrize("name", ["scored", "walk"])  # in the tree, places decide
def test_a_host_gets_a_second_place_only_if_no_other_host_offers_one(name):
    """Found with hostile meshes: sybils of one host were all the parents of honest peers, and gave them nothing."""
    placement = placement_of(name, PeerId(bytes(20)), stream="asdi")
    sybils = [record(f"sybil{n}", address=("10.1.1.1", n), hops=0, is_root=True, load=0.0) for n in range(6)]
    other = record("other", address=("10.2.2.2", 1), hops=9, load=1.0)
    held = (parent(1, host="10.1.1.1"),)
    assert set(asked(placement, around(cache_of(*sybils, other), parents=held))) == {"other"}
    assert set(asked(placement, around(cache_of(*sybils, other), pending=[("10.1.1.1", 9)]))) == {"other"}
    assert "other" not in asked(placement, around(cache_of(*sybils), parents=held)), "there is nobody else"


def test_the_younger_of_two_parents_on_one_host_is_replaced_or_given_up_first():
    twins = (parent(1, since=1.0), parent(2, since=2.0), parent(3, hops=5, host="10.3.3.3", since=0.0))
    placement, rng = ScoredPlacement(), Random(1)
    far = cache_of(record("far", hops=9))
    assert placement.better(around(far, parents=twins[:2]), rng) == Replace(LinkId(2), PeerId(b"far"))
    assert placement.better(around(cache_of(), parents=twins[:2]), rng) is None
    assert placement.surplus(around(parents=twins)) == Drop(LinkId(2))


def test_room_is_made_at_the_cost_of_a_childless_child_of_another_host():
    join = Join(PeerId(b"joiner"), 1, 1, 8_000, 2, 0, 0, is_repair=True, has_children=True)
    children = (child(1, host="10.1.1.1", children=2), child(2, host="10.2.2.2"), child(3, host="10.3.3.3", parents=1))
    view = around(children=children)
    placement = ScoredPlacement()
    assert placement.room(view, join, ("10.4.4.4", 1)) == Evict(LinkId(2), join.peer_id)
    assert placement.room(view, replace(join, has_children=False), ("10.4.4.4", 1)) is None
    crowd = tuple(child(number, host="10.1.1.1") for number in range(1, 7))
    assert placement.room(around(children=crowd), replace(join, has_children=False), ("10.4.4.4", 1)) == Evict(
        LinkId(6), join.peer_id
    )


def test_a_repair_moves_a_child_of_its_own_host_when_every_other_host_holds_as_many_slots():
    """Campaign seed 1010: a peer at the lowest level could only ask a full root, where its host had one slot and
    every other host one too. It stayed one parent short for good."""
    join = Join(PeerId(b"joiner"), 1, 1, 8_000, 2, 1, 0, is_repair=True, has_children=True)
    children = tuple(child(number, host=f"10.{number}.1.1") for number in range(1, 5))
    placement = ScoredPlacement()
    assert placement.room(around(children=children), join, ("10.3.1.1", 9)) == Evict(LinkId(3), join.peer_id)
    alone = (*children[:2], child(3, host="10.3.1.1", parents=1), children[3])
    assert placement.room(around(children=alone), join, ("10.3.1.1", 9)) is None, "it would lose its only parent"


class Reckless(ScoredPlacement):
    """Asks for what the levels forbid, and for parents that are not there."""

    def wanted(self, around, rng):
        return Ask(PeerId(b"above"))

    def surplus(self, around):
        return Drop(LinkId(99))


def test_a_move_that_no_candidate_stands_behind_is_vetoed():
    one = One(MeshConfig(parents_wanted=2), placement=Reckless())
    assert one.offer(known("root")) == []
    assert one.mesh.counters["moves_vetoed"] > 0
    assert one.offer(known("above", level=600))[0].peer_id == b"above", "without children it may go anywhere"


def test_a_peer_with_children_never_asks_above_its_level():
    one = One(MeshConfig(parents_wanted=1), placement=Reckless())
    opening = one.offer(known("above", level=600))[0]
    one.accept(opening, level=600)
    one.ask("kid")
    one.mesh.link_closed(opening.link, CloseReason.LEAVING, now=one.now)
    before = one.mesh.counters["joins_sent"]
    one.offer(known("above", level=60_000, version=1))
    assert one.mesh.counters["joins_sent"] == before
    assert one.mesh.counters["moves_vetoed"] > 0
