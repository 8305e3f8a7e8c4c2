"""Joining: whom to ask, refusals, hedging, back-off."""

from __future__ import annotations

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import (
    AcceptLink,
    CandidatesWanted,
    Inquire,
    Restored,
)
from peer.mesh.membership import Membership
from peer.mesh.messages import CloseReason, RefuseReason
from peer.mesh.placement.walk import WalkPlacement
from tests.peer.mesh.one import One, events, named, record


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
