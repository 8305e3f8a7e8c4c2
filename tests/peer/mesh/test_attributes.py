"""What peers say about goals, as bytes, and what a machine does with it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh import attributes as a
from peer.mesh.events import Inquire, SendMessage
from peer.mesh.messages import MalformedMessage
from peer.optimizer.said import Said
from peer.testing.guided import Guided, signed
from tests.peer.mesh.one import One, named, record

GOLDEN = {
    "attributes": (a.Attributes(((1, b"\x01\x02"), (200, b""))), "01200201020102c800"),
    "attributes wanted": (a.AttributesRequest(), "0121"),
    "goal wanted": (a.GoalRequest(), "0122"),
    "goal": (a.GoalData(b"//"), "012300022f2f"),
}
OUTSIDE = ("10.9.9.9", 1)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name):
    value, golden = GOLDEN[name]
    assert a.encode(value).hex() == golden
    body = bytes.fromhex(golden)
    assert a.decode_untrusted(body) == value
    for wrong in (*(body[:size] for size in range(len(body))), body + b"\0"):
        with pytest.raises(MalformedMessage):
            a.decode_untrusted(wrong)


@given(st.binary(max_size=64).map(lambda tail: b"\x01" + tail) | st.binary(max_size=64))
def test_any_bytes_are_a_message_or_malformed(body):
    with contextlib.suppress(MalformedMessage):
        assert a.encode(a.decode_untrusted(body)) == body


def test_counts_and_sizes_are_checked_first():
    with pytest.raises(MalformedMessage, match="at most 16"):
        a.decode_untrusted(b"\x01\x20\xff" + b"\0" * 510)
    with pytest.raises(MalformedMessage, match="at most 700"):
        a.decode_untrusted(b"\x01\x23\xff\xff" + b"\0" * 65_535)


def placed(**options) -> One:
    one = One(placement=Guided(**options)())
    one.place("a", "b")
    return one


def said(effects) -> list:
    return [
        a.decode_untrusted(e.body) for e in effects if isinstance(e, SendMessage) and a.is_attribute_message(e.body)
    ]


def test_a_peer_without_a_goal_fetches_one_that_a_parent_has():
    one = placed()
    link = next(iter(one.mesh.parents.links))
    other = Guided(signed(version=7))()
    values = a.Attributes(((1, b"\0" * 7 + b"\x07" + other.held.digest),))
    one.mesh.receive_message(link, a.encode(values), now=one.now)
    assert said(one.drain()) == [a.GoalRequest()]
    one.mesh.receive_message(link, a.encode(a.GoalData(signed(version=7))), now=one.now)
    assert one.mesh.counters["goals_taken"] == 1
    one.mesh.receive_message(link, a.encode(a.GoalRequest()), now=one.now)
    assert said(one.drain()) == [a.GoalData(signed(version=7))]


def test_offered_goals_are_limited_and_nonsense_is_counted():
    one = placed()
    for version in range(30):
        one.mesh.answer_inquiry(a.encode(a.GoalData(b"x" * (200 + version))), OUTSIDE, now=one.now)
    assert one.mesh.counters["goals_refused"] == 5
    assert one.mesh.counters["goals_ignored"] == 25
    before = one.mesh.counters["malformed"]
    assert one.mesh.answer_inquiry(b"\x01\x20\xff", OUTSIDE, now=one.now) is None
    one.mesh.receive_message(next(iter(one.mesh.parents.links)), b"\x01\x23", now=one.now)
    assert one.mesh.counters["malformed"] == before + 2


def test_a_placement_that_follows_no_goals_answers_nothing():
    one = One()
    one.place("a", "b")
    assert one.mesh.answer_inquiry(a.encode(a.AttributesRequest()), OUTSIDE, now=one.now) is None
    one.mesh.receive_message(next(iter(one.mesh.parents.links)), a.encode(a.GoalRequest()), now=one.now)
    assert said(one.drain()) == []
    assert one.mesh.counters["malformed"] == 0


def test_with_a_goal_parents_are_measured_and_told_of_us():
    one = placed()
    one.mesh.answer_inquiry(a.encode(a.GoalData(signed())), OUTSIDE, now=one.now)
    seen = one.run(60.0)
    assert any(isinstance(message, a.Attributes) for message in said(seen))
    asked = {e.address[0] for e in seen if isinstance(e, Inquire)}
    assert {p.address[0] for p in one.mesh.parents.links.values()} <= asked
    assert {p.peer_id for p in one.mesh.parents.links.values()} == {named("a"), named("b")}


def test_a_newcomer_is_held_beside_the_others_for_its_whole_trial():
    """Any review of the parents cut the trial short, from 5 s to the 2 s of an ordinary spare."""
    placement = Guided(data=signed())()
    one = One(placement=placement)
    one.place("a", "b")
    one.mesh.add_candidates([record("c")], now=one.now)

    def measure(name: str, path: float) -> None:
        said = Said(placement.held.version, placement.held.digest, (path,), hops=0, free=3)
        placement.measured(named(name), 0.010, said.as_values(), one.now)

    opened: list = []
    for _ in range(200):
        for name, path in (("a", 0.1), ("b", 0.2), ("c", 0.0)):
            measure(name, path)
        one.mesh.add_candidates([record("c", version=int(one.now * 10))], now=one.now)
        opened = one.opened(one.run(0.5))
        if opened:
            break
    one.accept(opened[0])
    one.run(4.5)
    assert len(one.mesh.parents) == 3
    one.run(1.0)
    assert {p.peer_id for p in one.mesh.parents.links.values()} == {named("a"), named("c")}
