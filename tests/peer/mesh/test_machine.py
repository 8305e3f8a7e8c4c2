"""One machine, message by message: every rule and every refusal where it can be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import (
    AcceptLink,
    CandidatesWanted,
    ChildLost,
    ColdRestart,
    Degraded,
    Inquire,
    Left,
    ParentLost,
    ParentSuspected,
    PublishRecord,
    RefuseLink,
    Restored,
    Thawed,
    WithdrawRecord,
)
from peer.mesh.membership import Membership, MembershipError
from peer.mesh.messages import CloseReason, RefuseReason
from peer.mesh.placement.walk import WalkPlacement
from tests.peer.mesh.one import One, named, record

ASKER = ("10.6.6.6", 6_000)


def events(one: One, kind: type) -> list:
    return [e for e in one.events if isinstance(e, kind)]


# Joining


def test_a_new_peer_asks_the_directory_and_joins_n_candidates_at_once():
    one = One()
    assert any(isinstance(e, CandidatesWanted) and e.below_level == m.UNPLACED for e in one.effects)
    openings = one.offer(record("a"), record("b"), record("c"))
    assert len(openings) == 2
    hello = encoding.decode_join_untrusted(openings[0].hello)
    assert (hello.level, hello.wanted, hello.has_children) == (m.UNPLACED, 2, False)
    for opening in openings:
        one.accept(opening)
    assert one.mesh.state is Membership.STEADY
    assert 512 <= one.mesh.level <= 1024
    assert one.mesh.resilience == 2
    assert events(one, Restored)


def test_one_parent_is_enough_to_serve_while_more_are_sought():
    one = One()
    (opening,) = one.offer(record("a"))
    one.accept(opening)
    assert one.mesh.state is Membership.DEGRADED
    assert one.mesh.is_rooted
    assert isinstance(one.ask("kid"), AcceptLink)


def test_a_refusal_leads_to_those_it_refers_to():
    one = One(MeshConfig(parents_wanted=1))
    (opening,) = one.offer(record("a"))
    referral = m.PeerAt(named("kid"), ("10.9.9.9", 4_000), 600)
    body = encoding.encode_refuse(m.Refuse((referral,)))
    one.mesh.link_refused(opening.link, RefuseReason.FULL, body, now=one.now)
    one.mesh.handle_timeout(now=one.now)
    assert [e.peer_id for e in one.opened(one.drain())] == [named("kid")]


def test_the_walk_asks_a_refuser_for_its_children():
    one = One(MeshConfig(parents_wanted=1), placement=WalkPlacement())
    (opening,) = one.offer(record("root"))
    one.mesh.link_refused(opening.link, RefuseReason.FULL, b"", now=one.now)
    (inquiry,) = [e for e in one.drain() if isinstance(e, Inquire)]
    assert encoding.decode_request_untrusted(inquiry.request) == m.ChildrenRequest(b"")
    one.mesh.handle_timeout(now=one.now)
    answer = m.Peers((m.PeerAt(named("kid"), ("10.9.9.9", 4_000), 600),))
    one.mesh.inquiry_answered(inquiry.inquiry, encoding.encode_answer(answer), now=one.now)
    one.mesh.handle_timeout(now=one.now)
    assert [e.peer_id for e in one.opened(one.drain())] == [named("kid")]


def test_an_unknown_reason_of_refusal_keeps_us_away():
    one = One(MeshConfig(parents_wanted=1))
    (opening,) = one.offer(record("a"))
    one.mesh.link_refused(opening.link, 0xEE, b"\xff\xff", now=one.now)
    assert one.opened(one.run(20.0)) == []
    assert one.mesh.counters["malformed"] == 1


def test_a_slow_answer_is_hedged_and_the_loser_declined():
    one = One(MeshConfig(parents_wanted=1))
    first = one.offer(record("a"), record("b"))
    assert len(first) == 1
    second = one.opened(one.run(0.35))
    assert len(second) == 1
    one.accept(second[0])
    late = one.accept(first[0])
    assert one.closed(late) == {first[0].link: CloseReason.EXCESS}
    assert len(one.mesh.parents) == 1


def test_a_time_out_of_another_join_does_not_cost_a_hedge():
    """There is one SEEK timer: whoever finds nothing to do when it fires must leave it set for the next hedge."""
    one = One(MeshConfig(parents_wanted=1))
    one.offer(*(record(name) for name in ("a", "b", "c", "d")))
    one.run(0.79)
    assert len(one.opened()) == 3, "at 0, 0.3 and 0.6 s"
    one.run(0.03)  # the first join times out, the third is still young
    assert one.mesh.counters["joins_unanswered"] == 1
    one.run(0.1)
    assert len(one.opened()) == 4, "at 0.9 s"


def test_back_off_doubles_up_to_its_limit_and_every_round_asks_the_directory():
    one = One(MeshConfig(backoff_limit=2.0))
    before = one.mesh.counters["rounds_failed"]
    one.run(1.5)
    early = one.mesh.counters["rounds_failed"] - before
    one.run(30.0)
    late = one.mesh.counters["rounds_failed"] - before - early
    assert early >= 2
    assert 12 <= late <= 22, "about one round in two seconds at the limit"


def test_a_client_that_wants_resilient_parents_leaves_the_others_alone():
    one = One(MeshConfig(requires_resilient_parents=True))
    assert one.offer(record("weak", level=700, resilience=1)) == []
    openings = one.offer(record("strong", level=700, resilience=2))
    assert [o.peer_id for o in openings] == [named("strong")]
    effects = one.accept(openings[0], level=700, resilience=1)  # it has weakened meanwhile
    assert one.closed(effects) == {openings[0].link: CloseReason.EXCESS}


# Rules R1 to R7


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


# Children


def test_refusals_each_with_its_reason():
    one = One(MeshConfig(capacity=3, max_joins_per_second=20.0), carries=lambda query: query != b"//x")
    one.place("a", "b")
    assert one.ask("one").reason is RefuseReason.POLICY
    assert one.ask("a").reason is RefuseReason.LEVEL
    assert one.ask("kid", query=b"//x").reason is RefuseReason.QUERY_NOT_CARRIED
    assert isinstance(one.ask("kid", port=1), AcceptLink)
    assert one.ask("kid", port=1).reason is RefuseReason.STALE
    assert isinstance(one.ask("kid2", port=2), AcceptLink)
    assert one.ask("kid3", port=3).reason is RefuseReason.FULL
    assert isinstance(one.ask("repair", port=4, has_children=True, level=90_000), AcceptLink)
    assert one.ask("repair2", port=5, has_children=True, level=90_000).reason is RefuseReason.FULL
    while (last := one.ask("crowd")).reason is RefuseReason.FULL:
        pass
    assert last.reason is RefuseReason.TOO_MANY_JOINS
    one.mesh.receive_join(99, ("10.0.0.1", 1), b"nonsense", now=one.now)
    assert [e.reason for e in one.drain() if isinstance(e, RefuseLink)] == [RefuseReason.MALFORMED]
    one.mesh.leave(now=one.now)
    assert one.ask("kid4").reason is RefuseReason.SHUTTING_DOWN


def test_a_full_peer_refers_to_children_with_room_below_the_joiner():
    one = One(MeshConfig(capacity=4, makes_room=False))
    one.place("a", "b")
    links = [one.ask(f"kid{i}", port=i + 1).link for i in range(3)]
    one.report(links[0], level=3_000)
    one.report(links[1], level=5_000)
    one.report(links[2], level=2_000, free=0, free_for_repair=1)
    refused = one.ask("new", port=9)
    names = {p.peer_id for p in encoding.decode_refuse_untrusted(refused.body).referrals}
    assert names == {named("kid0"), named("kid1")}
    one.ask("repair", port=10, has_children=True, level=90_000)
    refused = one.ask("repair2", port=11, has_children=True, level=4_000)
    names = {p.peer_id for p in encoding.decode_refuse_untrusted(refused.body).referrals}
    assert names == {named("kid0"), named("kid2")}


def test_a_restarted_child_replaces_its_own_link_only_from_its_own_address():
    one = One()
    one.place("a", "b")
    first = one.ask("kid", run=1, number=5)
    thief = one.ask("kid", run=9, number=1, port=6_666)
    assert isinstance(thief, AcceptLink)
    assert first.link in one.mesh.children.links
    again = one.ask("kid", run=2, number=1)
    assert first.link not in one.mesh.children.links
    assert again.link in one.mesh.children.links
    assert one.closed()[first.link] is CloseReason.REPLACED


def test_room_is_made_for_a_repair_by_moving_a_childless_child_that_has_another_parent():
    one = One(MeshConfig(capacity=2))
    one.place("a", "b")
    settled = one.ask("settled", host="10.7.7.1").link
    one.report(settled, parents=1)
    family = one.ask("family", host="10.7.7.2", has_children=True, level=90_000).link
    one.report(family, parents=2, children=3, level=1_500)
    repair = {"host": "10.7.7.3", "has_children": True, "level": 4_000, "parents": 1}
    assert one.ask("repair", **repair).reason is RefuseReason.FULL
    one.report(settled, parents=2)
    accepted = one.ask("repair", **repair)
    assert isinstance(accepted, AcceptLink)
    assert one.closed()[settled] is CloseReason.MAKE_ROOM
    one.report(accepted.link, parents=2, children=2, level=4_000)
    lower = one.ask("lower", host="10.7.7.4", has_children=True, level=3_000, parents=0)
    assert isinstance(lower, AcceptLink), "one at a higher level finds a place more easily than the joiner"
    assert one.closed()[accepted.link] is CloseReason.MAKE_ROOM
    rich = one.ask("rich", host="10.7.7.5", has_children=True, level=3_000, parents=2)
    assert rich.reason is RefuseReason.FULL


@pytest.mark.parametrize("honest", ["10.7.7.{}", "10.7.7.7"])
def test_thirty_joins_from_one_host_that_claim_children_push_nobody_off(honest):
    """A stranger took 11 of 12 slots so. Behind one address translator the stranger and the honest share a host."""
    one = One(MeshConfig(capacity=12, max_joins_per_second=200))
    one.place("a", "b")
    leaves = []
    for i in range(9):
        leaves.append(one.ask(f"leaf{i}", host=honest.format(i), port=i + 1).link)
        one.report(leaves[-1], parents=2)
    for i in range(30):
        answer = one.ask(f"liar{i}", host="10.7.7.7", port=100 + i, has_children=True, level=90_000)
        if isinstance(answer, AcceptLink):
            one.report(answer.link, parents=1, children=9)
    assert not set(one.closed()) & set(leaves[:7]), "one host had a slot taken from it only by its own"
    assert len(one.mesh.children) == 12
    newcomers = [one.ask(f"late{i}", host=f"10.8.8.{i}") for i in range(2)]
    crowded = one.mesh.config.host_share < sum(c.address[0] == "10.7.7.7" for c in one.mesh.children.links.values())
    assert all(isinstance(answer, AcceptLink) for answer in newcomers) is crowded
    assert not set(one.closed()) & set(leaves[:7])


def test_a_crowd_from_one_host_gives_way_to_other_hosts_until_it_has_its_share():
    one = One(MeshConfig(capacity=6, max_joins_per_second=200))
    one.place("a", "b")
    crowd = [one.ask(f"c{i}", port=i + 1, has_children=i == 5, level=90_000).link for i in range(6)]
    assert isinstance(one.ask("d0", host="2001:db8::1"), AcceptLink)
    assert list(one.closed().items()) == [(crowd[5], CloseReason.MAKE_ROOM)], "the newest goes"
    assert isinstance(one.ask("d1", host="2001:db8::ffff:1"), AcceptLink)
    assert isinstance(one.ask("d2", host="2001:db8::2"), AcceptLink)
    assert one.ask("d3", host="2001:db8::3").reason is RefuseReason.FULL, "an IPv6 host has a whole /64: three each"
    assert isinstance(one.ask("e0", host="192.0.2.1"), AcceptLink)
    assert isinstance(one.ask("e1", host="192.0.2.2"), AcceptLink)
    assert one.ask("e2", host="192.0.2.3").reason is RefuseReason.FULL, "two is what a host keeps"
    assert len(one.mesh.children) == 6


def test_one_host_cannot_use_up_the_joins_of_all():
    one = One(MeshConfig(capacity=40))
    one.place("a", "b")
    crowd = [one.ask(f"c{i}", port=i + 1) for i in range(40)]
    assert crowd[-1].reason is RefuseReason.TOO_MANY_JOINS
    assert isinstance(one.ask("other", host="10.9.9.9"), AcceptLink)


def test_a_child_that_never_spoke_loses_its_slot_sooner_than_one_that_did():
    one = One()
    one.place("a", "b")
    mute, spoke = one.ask("mute", port=1).link, one.ask("spoke", port=2).link
    one.report(spoke)
    one.run(1.7)
    assert set(one.mesh.children.links) == {spoke}
    one.run(1.6)
    assert not one.mesh.children
    assert {e.link: e.reason for e in events(one, ChildLost)} == {mute: "silent", spoke: "silent"}


def test_primitives_children_parents_and_status():
    one = One(covers=lambda wide, narrow: narrow.startswith(wide))
    one.place("a", "b")
    link = one.ask("kid", query=b"//flight").link
    other = one.ask("other", query=b"//track", port=6).link
    one.report(link)
    one.report(other)

    def answer(request) -> m.Answer:
        return encoding.decode_answer_untrusted(
            one.mesh.answer_inquiry(encoding.encode_request(request), ASKER, now=one.now)
        )

    assert [p.peer_id for p in answer(m.ChildrenRequest(b"//f")).peers] == [named("kid")]
    assert {p.peer_id for p in answer(m.ChildrenRequest(b"")).peers} == {named("kid"), named("other")}
    assert {p.peer_id for p in answer(m.ParentsRequest()).peers} == {named("a"), named("b")}
    state = answer(m.StatusRequest())
    assert (state.level, state.parents_held, state.children, state.is_rooted) == (one.mesh.level, 2, 2, True)
    assert one.mesh.answer_inquiry(b"\x01\x00", ASKER, now=one.now) is None


# Death, suspicion and repair


def test_suspicion_adds_a_spare_first_and_drops_later():
    one = One()
    one.place("a", "b")
    silent, loud = one.mesh.parents.links
    one.offer(record("c"))
    start = one.now
    suspected_at = lost_at = spare_at = None
    while one.now < start + 4:
        one.beats += 1
        one.beat(loud)
        for opening in one.opened(one.run(0.05, beating=False)):
            one.accept(opening)
            spare_at = one.now - start
        one.beats += 1
        for link in one.mesh.parents.links:
            if link not in (silent, loud):
                one.beat(link)
        if suspected_at is None and events(one, ParentSuspected):
            suspected_at = one.now - start
        if lost_at is None and events(one, ParentLost):
            lost_at = one.now - start
    assert 0.9 <= suspected_at <= 1.0
    assert suspected_at <= spare_at < 1.1
    assert 2.7 <= lost_at <= 2.8
    assert one.mesh.state is Membership.STEADY


def test_a_suspect_that_speaks_again_is_trusted_and_the_surplus_pruned():
    one = One()
    one.place("a", "b")
    silent, loud = one.mesh.parents.links
    for _ in range(10):
        one.beats += 1
        one.beat(loud)
        one.run(0.1, beating=False)
    assert one.mesh.state is Membership.DEGRADED
    (opening,) = one.offer(record("c", level=400, is_root=False))
    one.accept(opening, level=400, hops=3)
    one.run(0.1)
    assert len(one.mesh.parents) == 3
    effects = one.run(2.2)
    assert one.closed(effects) == {opening.link: CloseReason.EXCESS}, "the farthest goes"
    assert set(one.mesh.parents.links) == {silent, loud}


def test_data_on_the_link_is_a_sign_of_life():
    class Data:
        def __init__(self) -> None:
            self.heard: dict = {}

        def heard_at(self, link):
            return self.heard.get(link)

    data = Data()
    one = One(observer=data)
    one.place("a", "b")
    for _ in range(20):
        data.heard = dict.fromkeys(one.mesh.parents.links, one.now)
        one.run(0.1, beating=False)
    assert not events(one, ParentSuspected)
    one.run(1.0, beating=False)
    assert len(events(one, ParentSuspected)) == 2


def test_a_loss_is_repaired_from_the_warm_cache_with_the_directory_asked_beside_it():
    one = One()
    one.place("a", "b")
    one.offer(record("c"))
    one.run(5.0)
    link = next(iter(one.mesh.parents.links))
    one.mesh.link_closed(link, CloseReason.LEAVING, now=one.now)
    one.mesh.handle_timeout(now=one.now)
    effects = one.drain()
    assert [e.peer_id for e in one.opened(effects)] == [named("c")]
    assert any(isinstance(e, CandidatesWanted) for e in effects)
    assert events(one, ParentLost)[-1].reason == "closed by it: leaving"


def test_a_parent_that_says_it_leaves_is_replaced_before_it_goes():
    one = One()
    one.place("a", "b")
    one.offer(record("c"))
    leaving = next(iter(one.mesh.parents.links))
    one.beat(leaving, is_leaving=True)
    one.mesh.handle_timeout(now=one.now)
    (opening,) = one.opened(one.drain())
    one.accept(opening)
    assert leaving in one.mesh.parents.links
    for _ in range(25):
        one.beats += 1
        for link in one.mesh.parents.links:
            one.beat(link, is_leaving=link == leaving)
        one.run(0.1, beating=False)
    assert leaving not in one.mesh.parents.links
    assert one.mesh.state is Membership.STEADY


# Sleep


def test_after_a_sleep_nothing_counts_until_parents_have_proved_themselves():
    one = One()
    one.place("a", "b")
    one.ask("kid")
    one.offer(record("c"))
    one.run(1.0)
    first, second = one.mesh.parents.links
    one.now += 10.0
    one.beats += 100
    effects = one.beat(first)  # out of the socket's buffer: as old as the sleep, and looks young
    assert events(one, Thawed)
    probes = one.sent(m.Probe, effects)
    assert len(probes) == 2
    assert not one.mesh.is_rooted
    assert one.ask("other").reason is RefuseReason.NOT_ROOTED
    assert not one.mesh.candidates.eligible(one.now, below=m.UNPLACED, exclude=())
    one.mesh.receive_message(first, encoding.encode_link_message(m.Echo(probes[0].number)), now=one.now)
    one.beats += 1
    one.beat(first)
    assert one.mesh.is_rooted
    one.run(2.0)
    assert set(one.mesh.parents.links) == {first}, "the other never answered"
    assert second not in one.mesh.parents.links


def test_an_echo_of_an_earlier_sleep_proves_nothing():
    one = One()
    one.place("a", "b")
    one.run(1.0)
    one.now += 10.0
    one.mesh.handle_timeout(now=one.now)
    one.drain()
    one.now += 10.0
    one.mesh.handle_timeout(now=one.now)
    one.drain()
    for link in list(one.mesh.parents.links):
        one.mesh.receive_message(link, encoding.encode_link_message(m.Echo(1)), now=one.now)
    assert not one.mesh.is_rooted


def test_a_parent_answers_a_probe():
    one = One()
    one.place("a", "b")
    kid = one.ask("kid").link
    one.mesh.receive_message(kid, encoding.encode_link_message(m.Probe(41)), now=one.now)
    assert one.sent(m.Echo, one.drain()) == [m.Echo(41)]


def test_a_sleeping_root_goes_on_and_its_children_get_time_to_speak():
    one = One(is_root=True)
    kid = one.ask("kid").link
    one.report(kid)
    one.now += 10.0
    one.mesh.handle_timeout(now=one.now)
    one.drain()
    one.run(1.0)
    assert kid in one.mesh.children.links
    assert one.mesh.state is Membership.ROOT


# Place, record and end


def test_a_better_place_is_taken_make_before_break():
    one = One(MeshConfig(parents_wanted=1, replace_interval=10.0, lookup_interval=1_000.0))
    (opening,) = one.offer(record("far", level=5_000, hops=5, is_root=False))
    one.accept(opening, level=5_000, hops=5)
    one.offer(record("near"))
    effects = []
    while not one.opened(effects):
        effects = one.run(1.0)
    (near,) = one.opened(effects)
    assert near.peer_id == named("near")
    assert opening.link in one.mesh.parents.links
    one.accept(near)
    effects = one.run(0.2)
    assert one.closed(effects) == {opening.link: CloseReason.EXCESS}
    assert not events(one, Degraded)
    assert one.mesh.level < 5_000


def test_the_record_follows_room_and_root():
    one = One(MeshConfig(capacity=2))
    one.run(1.0)
    assert not [e for e in one.effects if isinstance(e, PublishRecord)]
    one.place("a", "b")
    (published,) = [e for e in one.run(1.5) if isinstance(e, PublishRecord)]
    assert (published.free, published.free_for_repair, published.parents_held) == (1, 2, 2)
    one.report(one.ask("kid", port=1).link, parents=1)
    one.report(one.ask("kid2", port=2, has_children=True, level=90_000).link, parents=1)
    assert [e for e in one.run(1.5) if isinstance(e, WithdrawRecord)], "full, so no candidate"


def test_a_leaf_is_never_listed_and_takes_nobody():
    one = One(MeshConfig(capacity=0))
    one.place("a", "b")
    assert one.ask("kid").reason is RefuseReason.FULL
    one.run(30.0)
    assert not [e for e in one.effects if isinstance(e, PublishRecord)]


def test_leaving_withdraws_tells_waits_and_closes():
    one = One()
    one.place("a", "b")
    kid = one.ask("kid").link
    one.run(1.5)
    one.report(kid)
    one.mesh.leave(now=one.now)
    effects = one.drain()
    assert [e for e in effects if isinstance(e, WithdrawRecord)]
    assert [b.is_leaving for b in one.sent(m.Beat, effects)] == [True]
    effects = one.run(1.4)
    assert all(b.is_leaving for b in one.sent(m.Beat, effects))
    assert not one.closed(effects), "still feeding"
    effects = one.run(0.2)
    assert len(one.closed(effects)) == 3
    assert set(one.closed(effects).values()) == {CloseReason.LEAVING}
    assert one.mesh.state is Membership.LEFT
    assert events(one, Left)
    assert one.mesh.next_timeout() is None


def test_leaving_ends_at_once_when_the_last_child_has_gone():
    one = One()
    one.place("a", "b")
    kid = one.ask("kid").link
    one.mesh.leave(now=one.now)
    one.mesh.link_closed(kid, CloseReason.EXCESS, now=one.now)
    one.drain()
    assert one.mesh.state is Membership.LEFT


def test_commands_out_of_order_and_time_that_goes_back_are_errors():
    one = One()
    with pytest.raises(MembershipError, match="joining"):
        one.mesh.start(now=one.now)
    with pytest.raises(MembershipError, match="time went back"):
        one.mesh.handle_timeout(now=one.now - 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"parents_wanted": 0},
        {"capacity": -1},
        {"repair_share": 1.0},
        {"suspect_after": 0.1},
        {"drop_after": 0.5},
        {"child_timeout": 0.5},
        {"thaw_after": 0.05},
        {"level_step": (0, 5)},
    ],
)
def test_a_wrong_knob_is_refused(changes):
    with pytest.raises(ValueError, match=r"\w"):
        replace(MeshConfig(), **changes)


@pytest.mark.parametrize(("capacity", "reserved"), [(0, 0), (1, 0), (2, 1), (4, 1), (6, 1), (8, 2), (40, 10)])
def test_slots_kept_for_repair(capacity, reserved):
    assert MeshConfig(capacity=capacity).reserved_slots == reserved


def test_the_wide_area_preset_is_consistent():
    wan = MeshConfig(capacity=9).wan()
    assert wan.capacity == 9
    assert wan.suspect_after < wan.drop_after
