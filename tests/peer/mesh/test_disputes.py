"""A parent whose word about the stream was disputed: replaced first, make before break, and never banned."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from peer.mesh.config import MeshConfig
from peer.mesh.disputes import MAX_REMEMBERED, DisputeMemory
from peer.mesh.events import CloseLink, Disputed, OpenLink, Starved
from peer.mesh.messages import CloseReason, PeerId
from peer.mesh.placement.moves import Ask, Drop, Replace
from peer.mesh.placement.scored import ScoredPlacement
from tests.peer.mesh.one import One, named
from tests.peer.mesh.one import record as known
from tests.peer.mesh.test_placement import around, cache_of, parent, record


def steady() -> One:
    one = One(MeshConfig(parents_wanted=2))
    for opening in one.offer(known("a"), known("bb")):
        one.accept(opening)
    assert one.mesh.state.value == "steady"
    return one


def link_to(one: One, name: str) -> int:
    return next(p.link for p in one.mesh.parents.links.values() if p.peer_id == named(name))


def dispute(one: One, name: str, reason: str = "it left out a packet") -> None:
    one.mesh.parent_disputed(link_to(one, name), after=4, until=5, reason=reason, now=one.now)
    one.drain()


def test_a_disputed_parent_goes_when_a_replacement_is_up_and_not_before():
    one = steady()
    one.offer(known("ccc"))
    dispute(one, "bb")
    told = one.events[-1]
    assert isinstance(told, Disputed)
    assert (told.peer_id, told.after, told.until, told.reason) == (named("bb"), 4, 5, "it left out a packet")
    opening = next(e for e in one.run(0.5) if isinstance(e, OpenLink))
    assert opening.peer_id == named("ccc")
    assert named("bb") in one.mesh.parents.peer_ids(), "make before break"
    one.accept(opening)
    closed = [e for e in one.run(0.2) if isinstance(e, CloseLink)]
    assert [e.reason for e in closed] == [CloseReason.EXCESS]
    assert one.mesh.parents.peer_ids() == {named("a"), named("ccc")}
    assert one.mesh.state.value == "steady"


def test_a_parent_that_is_contradicted_about_every_packet_is_reported_once_in_a_while():
    one = steady()
    for _ in range(200):
        dispute(one, "bb")
        one.run(0.05)
    assert one.mesh.counters["disputed"] == 200
    assert sum(isinstance(e, Disputed) for e in one.events) == 2, "ten seconds, one in five"


def test_a_disputed_parent_stays_if_nobody_else_has_a_place():
    one = steady()
    dispute(one, "bb")
    one.run(30.0)
    assert named("bb") in one.mesh.parents.peer_ids()


def test_who_was_disputed_is_asked_again_if_there_is_nobody_else():
    view = around(cache_of(record("liar"), record("other", hops=9)), disputed=frozenset({PeerId(b"liar")}))
    asks = {ScoredPlacement().wanted(view, Random(seed)) for seed in range(30)}
    assert asks == {Ask(PeerId(b"other"))}
    alone = around(cache_of(record("liar")), disputed=frozenset({PeerId(b"liar")}))
    assert ScoredPlacement().wanted(alone, Random(1)) == Ask(PeerId(b"liar"))


def test_a_liar_that_frames_every_other_parent_moves_its_child_once_in_a_while_only():
    one = steady()
    one.offer(*(known("x" * n) for n in range(3, 12)))
    joins = one.mesh.counters["joins_sent"]
    for _ in range(100):
        for name in one.mesh.parents.peer_ids() - {named("a")}:
            dispute(one, name.decode())
        for opening in [e for e in one.run(0.1) if isinstance(e, OpenLink)]:
            one.accept(opening)
    assert 1 <= one.mesh.counters["joins_sent"] - joins <= 5, "ten seconds, one in about five"


def test_the_disputed_are_given_up_first_and_replaced_first():
    placement = ScoredPlacement()
    sound = (parent(1), parent(2, hops=3, host="10.2.2.2"), replace_dispute(parent(3, host="10.3.3.3")))
    assert placement.surplus(around(parents=sound)) == Drop(3)
    far = around(cache_of(record("far", hops=9)), parents=sound[1:])
    assert placement.better(far, Random(1)) == Replace(3, PeerId(b"far"))
    assert placement.better(replace(far, disputed=frozenset({PeerId(b"far")})), Random(1)) is None


def replace_dispute(one):
    return replace(one, dispute="left out 5")


def test_starving_makes_every_parent_worth_replacing():
    one = steady()
    one.mesh.starved(head=99, seconds=2.0, now=one.now)
    one.drain()
    assert one.events[-1] == Starved(99, 2.0)
    assert all(p.dispute is not None for p in one.mesh.parents.links.values())
    assert one.mesh.counters["starved"] == 1


def test_disputes_are_bounded_and_forgotten():
    memory = DisputeMemory(300.0)
    for number in range(MAX_REMEMBERED + 10):
        memory.remember(PeerId(b"%d" % number), float(number))
    assert len(memory) == MAX_REMEMBERED
    assert PeerId(b"0") not in memory.recent(260.0)
    assert PeerId(b"265") in memory.recent(500.0)
    assert memory.recent(5_000.0) == frozenset()
    assert len(memory) == 0
