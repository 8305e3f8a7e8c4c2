"""Rules R1 to R7 in the machine, one by one."""

from __future__ import annotations

from peer.mesh import messages as m
from peer.mesh.events import (
    AcceptLink,
    CandidatesWanted,
    ColdRestart,
    Degraded,
)
from peer.mesh.membership import Membership
from peer.mesh.messages import CloseReason, RefuseReason
from tests.peer.mesh.one import One, events, named, record


def test_r1_the_child_is_entered_before_the_accept_goes_out():
    one = One()
    one.place("a", "b")
    answer = one.ask("kid")
    assert answer.link in one.mesh.children.links


def test_r2_a_join_from_our_level_or_below_is_refused():
    one = One()
    one.place("a", "b")
    assert one.ask("kid", level=one.mesh.level).reason is RefuseReason.LEVEL
    assert one.ask("kid", level=one.mesh.level - 1).reason is RefuseReason.LEVEL
    assert isinstance(one.ask("kid", level=one.mesh.level + 1), AcceptLink)


def test_r3_an_accept_is_checked_against_the_level_now():
    one = One()
    openings = one.offer(record("a"), record("b", level=90_000))
    by_name = {o.peer_id: o for o in openings}
    one.accept(by_name[named("a")])
    one.ask("kid")  # with a child it can no longer rise above b
    effects = one.accept(by_name[named("b")], level=90_000)
    assert one.closed(effects) == {by_name[named("b")].link: CloseReason.LEVEL}
    assert one.mesh.level < 90_000


def test_r4_without_children_the_level_rises_above_a_new_parent():
    one = One()
    openings = one.offer(record("a"), record("b", level=90_000))
    for opening in openings:
        one.accept(opening, level=90_000 if opening.peer_id == named("b") else 0)
    assert one.mesh.level > 90_000


def test_r5_the_level_falls_when_the_parents_are_far_below_and_stays_above_them():
    one = One()
    for opening in one.offer(record("a", level=90_000), record("b", level=90_000)):
        one.accept(opening, level=90_000)
    child = one.ask("kid").link
    high = one.mesh.level
    for index, link in enumerate(list(one.mesh.parents.links)):
        one.beat(link, level=3_000 + index)
    assert 3_001 < one.mesh.level < high
    assert child in one.mesh.children.links
    fallen = one.mesh.level
    one.beat(next(iter(one.mesh.parents.links)), level=90_000)  # an old beat, late
    assert one.mesh.level == fallen


def test_r6_with_one_parent_left_a_peer_stays_and_with_none_it_waits_before_it_starts_cold():
    one = One()
    one.place("a", "b")
    first, second = one.mesh.parents.links
    one.mesh.link_reset(first, now=one.now)
    one.run(10.0)
    assert one.mesh.state is Membership.DEGRADED
    kid = one.ask("kid").link
    one.report(kid)
    one.mesh.link_reset(second, now=one.now)
    assert one.mesh.state is Membership.ORPHANED
    one.offer(record("high", level=99_000))
    one.run(2.8)
    one.report(kid)
    assert one.mesh.state is Membership.ORPHANED
    closed = one.closed(one.run(0.4))
    assert closed.pop(kid) is CloseReason.COLD_RESTART
    assert set(closed.values()) <= {CloseReason.NOT_PENDING}, "a last try at the lost parents may be under way"
    assert events(one, ColdRestart) == [ColdRestart(1)]
    assert one.mesh.state is Membership.JOINING
    assert one.mesh.level == m.UNPLACED


def test_a_cold_restart_waits_while_it_would_lead_nowhere():
    one = One()
    one.place("a", "b")
    kid = one.ask("kid").link
    for link in list(one.mesh.parents.links):
        one.mesh.link_reset(link, now=one.now)
    for _ in range(20):
        one.report(kid)
        one.mesh.candidates.clear()
        one.run(1.0)
    assert one.mesh.state is Membership.ORPHANED
    assert any(isinstance(e, CandidatesWanted) and e.below_level == m.UNPLACED for e in one.effects[-40:])


def test_r7_an_accept_that_was_not_waited_for_is_closed():
    one = One()
    (opening,) = one.offer(record("a"))
    one.run(0.9)
    assert one.mesh.counters["joins_unanswered"] == 1
    effects = one.accept(opening)
    assert one.closed(effects) == {opening.link: CloseReason.NOT_PENDING}
    assert not one.mesh.parents


def test_r7_a_peer_that_is_not_fed_takes_no_children():
    one = One()
    assert one.ask("early").reason is RefuseReason.NOT_ROOTED
    one.place("a", "b")
    assert isinstance(one.ask("kid"), AcceptLink)
    for _ in range(32):  # the parents live, but their root does not: beats go on, the counter stands
        for link in list(one.mesh.parents.links):
            one.beat(link, fed=False)
        one.run(0.1, beating=False)
    assert one.mesh.parents
    assert not one.mesh.is_rooted
    assert one.ask("late").reason is RefuseReason.NOT_ROOTED
    assert events(one, Degraded)
