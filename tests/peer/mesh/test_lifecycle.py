"""A better place, the record, leaving, and knobs that do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import (
    Degraded,
    Left,
    PublishRecord,
    WithdrawRecord,
)
from peer.mesh.membership import Membership, MembershipError
from peer.mesh.messages import CloseReason, RefuseReason
from tests.peer.mesh.one import One, events, named, record


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
