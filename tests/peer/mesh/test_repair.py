"""Death, suspicion and repair, and what a sleep does to what a peer believes."""

from __future__ import annotations

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.events import (
    CandidatesWanted,
    ParentLost,
    ParentSuspected,
    Thawed,
)
from peer.mesh.membership import Membership
from peer.mesh.messages import CloseReason, RefuseReason
from peer.mesh.surroundings import NoObserver
from tests.peer.mesh.one import One, events, named, record


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
    class Data(NoObserver):
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


def test_bursts_of_loss_bring_a_spare_parent_which_goes_when_they_end():
    one = One()
    one.place("a", "b")
    one.offer(record("c"))
    one.mesh.want_spare(True, now=one.now)
    one.drain()
    (opening,) = one.opened(one.run(0.5))
    one.accept(opening)
    one.run(5.0)
    assert len(one.mesh.parents) == 3, "the spare is not surplus"
    assert one.mesh.state is Membership.STEADY
    one.mesh.want_spare(False, now=one.now)
    one.drain()
    one.run(5.0)
    assert len(one.mesh.parents) == 2


def test_a_spare_that_cannot_be_had_is_not_a_lack():
    one = One()
    one.place("a", "b")
    one.mesh.want_spare(True, now=one.now)
    one.drain()
    one.run(30.0)
    assert one.mesh.state is Membership.STEADY
    assert len(one.mesh.parents) == 2
