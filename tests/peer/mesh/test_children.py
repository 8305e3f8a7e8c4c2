"""Children: who is let in, who has to move, and what is told about them."""

from __future__ import annotations

import pytest

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import (
    AcceptLink,
    ChildLost,
    RefuseLink,
)
from peer.mesh.messages import CloseReason, RefuseReason
from tests.peer.mesh.one import One, events, named

ASKER = ("10.6.6.6", 6_000)


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


@pytest.mark.parametrize(("host", "is_moved"), [("127.0.0.1", True), ("::1", True), ("10.7.7.7", False)])
def test_on_one_machine_room_is_made_for_a_repair_too(host, is_moved):
    """Found by a mesh of 22 processes: a router with children lacked a parent for good, since leaves held the slots of
    the only peer above it, and all of them were of one host."""
    one = One(MeshConfig(capacity=3))
    one.place("a", "b")
    leaves = [one.ask(f"leaf{i}", host=host, port=i + 1, level=90_000).link for i in range(2)]
    for leaf in leaves:
        one.report(leaf, parents=2)
    family = one.ask("family", host=host, port=7, has_children=True, level=90_000).link
    one.report(family, parents=2, children=3, level=4_000)
    answer = one.ask("repair", host=host, port=8, has_children=True, level=4_000, parents=1)
    assert isinstance(answer, AcceptLink) is is_moved
    assert (leaves[-1] in one.closed()) is is_moved
    assert family in one.mesh.children.links


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


def test_a_child_of_another_version_learns_ours_and_is_counted():
    one = One()
    one.place("a", "b")
    hello = bytes((m.VERSION + 1,)) + b"\x01 whatever comes next"
    one.mesh.receive_join(99, ("10.0.0.1", 1), hello, now=one.now)
    [refused] = [e for e in one.drain() if isinstance(e, RefuseLink)]
    assert (refused.reason, refused.body[0]) == (RefuseReason.VERSION, m.VERSION)
    assert one.mesh.counters["refused_version"] == 1


def test_a_peer_with_many_slots_fills_them_in_seconds_even_from_one_host():
    one = One(MeshConfig(capacity=400), is_root=True)
    taken = 0
    for step in range(100):
        one.now += 0.1
        for place in range(5):
            taken += isinstance(one.ask(f"kid{step}.{place}", port=1 + step * 5 + place), AcceptLink)
    assert taken == 300, "all slots but the quarter that is kept for repairs"
