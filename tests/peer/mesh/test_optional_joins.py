"""A peer that only seeks a better place: it takes nothing that repairs need, and blames nobody whom it left."""

from __future__ import annotations

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import AcceptLink, JoinTicket, OpenLink, RefuseLink
from tests.peer.mesh.one import One, named, record


def joins(effects) -> list[m.Join]:
    return [encoding.decode_join_untrusted(e.hello) for e in effects if isinstance(e, OpenLink)]


def ask(one: One, name: str, *, is_optional: bool) -> AcceptLink | RefuseLink:
    one.requests += 1
    hello = m.Join(named(name), 1, 1, m.MAX_LEVEL, 2, 0, 0, True, has_children=True, is_optional=is_optional)
    address = (f"10.9.{one.requests}.1", 5_000)
    one.mesh.receive_join(JoinTicket(one.requests), address, encoding.encode_join(hello), now=one.now)
    (answer,) = [e for e in one.drain() if isinstance(e, AcceptLink | RefuseLink)]
    return answer


def next_opening(one: One) -> OpenLink:
    for _ in range(200):
        opened = one.opened(one.run(0.1))
        if opened:
            return opened[0]
    raise AssertionError("nobody was asked")


def moved() -> One:
    """A peer with one parent that has just moved to a better one."""
    one = One(MeshConfig(parents_wanted=1, replace_interval=10.0, lookup_interval=1_000.0))
    (opening,) = one.offer(record("far", level=700, hops=5))
    one.accept(opening, level=700, hops=5)
    one.mesh.add_candidates([record("near", level=600, hops=1)], now=one.now)
    one.accept(next_opening(one), level=600, hops=1)
    one.run(1.0)
    assert [p.peer_id for p in one.mesh.parents.links.values()] == [named("near")]
    return one


def test_a_join_for_a_better_place_says_that_it_is_optional():
    one = moved()
    first, better = joins(one.effects)
    assert (first.is_optional, first.is_repair) == (False, False)
    assert (better.is_optional, better.is_repair) == (True, False)


def test_an_optional_join_gets_no_slot_that_is_kept_for_repairs():
    one = One(MeshConfig(capacity=4), is_root=True)
    assert all(isinstance(ask(one, f"child{n}", is_optional=True), AcceptLink) for n in range(3))
    refused = ask(one, "optional", is_optional=True)
    assert isinstance(refused, RefuseLink)
    assert refused.reason == m.RefuseReason.FULL
    assert isinstance(ask(one, "repair", is_optional=False), AcceptLink)


def test_nobody_is_sent_away_for_an_optional_join():
    one = One(MeshConfig(capacity=2), is_root=True)
    links = [ask(one, f"child{n}", is_optional=False).link for n in range(2)]
    for link in links:
        one.report(link, parents=2, children=0)
    assert isinstance(ask(one, "optional", is_optional=True), RefuseLink)
    assert len(one.mesh.children) == 2
    assert isinstance(ask(one, "repair", is_optional=False), AcceptLink)
    assert one.mesh.counters["make_room"] == 1


def test_a_parent_that_we_left_for_a_better_one_is_not_avoided_as_silent():
    """It was: a healthy peer could not be asked for 5 s, just when a repair might need it."""
    one = moved()
    far = one.mesh.candidates.find(named("far"))
    assert far.failures == 0
    assert far.avoid_until <= one.now


def test_a_peer_that_moved_once_does_not_call_every_later_join_a_repair():
    """`is_repair` was true for good after the first re-placement."""
    one = moved()
    one.mesh.add_candidates([record("nearer", level=0, hops=0)], now=one.now)
    (join,) = joins([next_opening(one)])
    assert join.is_optional
    assert not join.is_repair


def test_a_join_after_a_loss_is_a_repair_until_it_has_succeeded():
    one = One(MeshConfig(parents_wanted=1))
    one.place("a")
    (link,) = one.mesh.parents.links
    one.mesh.add_candidates([record("b")], now=one.now)
    one.mesh.link_closed(link, m.CloseReason.LEAVING, now=one.now)
    one.mesh.handle_timeout(now=one.now)
    seen = one.drain()
    (join,) = joins(seen)
    assert join.is_repair
    assert not join.is_optional
    one.accept(one.opened(seen)[0])
    assert one.mesh._own.is_repairing is False
