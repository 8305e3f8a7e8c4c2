"""Exchanges of slots, message by message: who is asked, who may borrow a slot, and what a liar gets."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh import attributes, encoding, trades
from peer.mesh import messages as m
from peer.mesh.config import MeshConfig
from peer.mesh.events import AcceptLink, Inquire, JoinTicket, OpenLink, RefuseLink, SendMessage
from peer.mesh.messages import MalformedMessage, PeerAt
from peer.mesh.placement.moves import Trade
from peer.mesh.trades import TradeMessage, TradeType
from peer.optimizer.proposing import Hysteresis
from peer.optimizer.said import Said
from peer.testing.guided import LATENCY, Guided, signed
from tests.peer.mesh.one import One, named, record

EAGER = Hysteresis(0.0, 0.0, 0.0)
X_ADDRESS = ("10.9.9.9", 4_000)
OLD = PeerAt(named("old"), ("10.8.8.8", 4_000), 700)


def test_golden_bytes():
    trade = TradeMessage(TradeType.TRADE, amount=0.5, peer_id=named("x"), peers=(OLD,))
    golden = "0126003fe0000000000000" + "0178" + "010b01036f6c64000002bc040a0808080fa0"
    assert trades.encode(trade).hex() == golden
    assert trades.decode_untrusted(bytes.fromhex(golden)) == trade


@given(st.binary(max_size=80).map(lambda tail: b"\x01\x26" + tail) | st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(body):
    with contextlib.suppress(MalformedMessage):
        trades.decode_untrusted(body)


def placed(text: str = LATENCY, **config) -> One:
    one = One(MeshConfig(**({"capacity": 4} | config)), placement=Guided(signed(text), EAGER)())
    one.place("a", "b", level=100)
    for link in one.mesh.parents.links:
        tell(one, link, path=0.010)
    return one


def tell(one: One, link, path: float, weight: float = 0.0) -> None:
    """A neighbour says its path, and what it is worth."""
    values = Said(1, b"\0" * 8, (path,), hops=1, free=1, weight=weight).as_values()
    one.mesh.receive_message(link, attributes.encode(attributes.Attributes(tuple(values.items()))), now=one.now)
    one.drain()


def child(one: One, name: str, weight: float = 0.5):
    answer = join(one, name)
    assert isinstance(answer, AcceptLink)
    one.report(answer.link, parents=2)
    tell(one, answer.link, 0.05, weight)
    return answer.link


def join(one: One, name: str, **flags) -> AcceptLink | RefuseLink:
    one.requests += 1
    hello = m.Join(named(name), 1, 1, m.UNPLACED, 2, 2, 2, False, False, **flags)
    address = X_ADDRESS if name == "x" else (f"10.7.{one.requests}.1", 5_000)
    one.mesh.receive_join(JoinTicket(one.requests), address, encoding.encode_join(hello), now=one.now)
    (answer,) = [e for e in one.drain() if isinstance(e, AcceptLink | RefuseLink)]
    return answer


def inquire(one: One, kind: TradeType, **values) -> TradeMessage:
    answer = one.mesh.answer_inquiry(trades.encode(TradeMessage(kind, **values)), X_ADDRESS, now=one.now)
    return trades.decode_untrusted(answer)


def said(effects) -> dict:
    """Messages of an exchange, by link."""
    return {
        e.links[0]: trades.decode_untrusted(e.body)
        for e in effects
        if isinstance(e, SendMessage) and trades.is_trade_message(e.body)
    }


def say(one: One, link, kind: TradeType, **values) -> list:
    one.mesh.receive_message(link, trades.encode(TradeMessage(kind, **values)), now=one.now)
    return one.drain()


def full() -> tuple[One, list]:
    """A peer with three children of four slots; the fourth is kept for repairs."""
    one = placed()
    links = [child(one, f"k{n}", weight) for n, weight in enumerate((3.0, 0.5, 1.0))]
    assert isinstance(join(one, "x", is_optional=True), RefuseLink)
    return one, links


def test_a_full_peer_asks_its_least_important_children_and_lends_a_slot_once_one_agrees():
    one, links = full()
    assert inquire(one, TradeType.TRADE, amount=0.2, peer_id=named("x"), peers=(OLD,)).yes
    offers = said(one.drain())
    assert set(offers) == set(links)
    assert offers[links[1]] == TradeMessage(TradeType.OFFER, amount=0.2, peers=(OLD,))
    assert not any(isinstance(e, Inquire) for e in say(one, links[0], TradeType.AGREED, yes=True, amount=0.3))
    (ready,) = [e for e in say(one, links[1], TradeType.AGREED, yes=True, amount=0.1) if isinstance(e, Inquire)]
    assert ready.address == X_ADDRESS
    assert isinstance(join(one, "stranger", is_optional=True, is_trade=True), RefuseLink)
    taken = join(one, "x", is_optional=True, is_trade=True)
    assert isinstance(taken, AcceptLink)
    assert said(say(one, taken.link, TradeType.TAKEN)) == {links[1]: TradeMessage(TradeType.GO)}


def test_a_liar_that_only_says_it_trades_gets_no_slot():
    one, links = full()
    assert isinstance(join(one, "x", is_optional=True, is_trade=True), RefuseLink)
    assert inquire(one, TradeType.TRADE, amount=0.2, peer_id=named("x"), peers=(OLD,)).yes
    one.run(2.5)
    assert isinstance(join(one, "x", is_optional=True, is_trade=True), RefuseLink)  # the lock is over
    assert say(one, links[0], TradeType.TAKEN) == []


def test_a_peer_that_repairs_takes_no_part():
    one, links = full()
    one.mesh.link_reset(next(iter(one.mesh.parents.links)), now=one.now)
    one.drain()
    assert not inquire(one, TradeType.TRADE, amount=0.2, peer_id=named("x"), peers=(OLD,)).yes
    assert said(say(one, links[0], TradeType.LOCK))[links[0]].yes is False


def test_one_exchange_at_a_time():
    one, links = full()
    assert said(say(one, links[0], TradeType.LOCK))[links[0]].yes
    assert said(say(one, links[1], TradeType.LOCK))[links[1]].yes is False
    assert not inquire(one, TradeType.TRADE, amount=0.2, peer_id=named("x"), peers=(OLD,)).yes
    assert isinstance(join(one, "k", is_optional=True, is_trade=True), AcceptLink)  # whom the first one sends
    assert isinstance(join(one, "k2", is_optional=True, is_trade=True), RefuseLink)


def measured(one: One, effects, path: float, after: float = 0.02) -> list:
    """The peer that was asked for its attributes answers."""
    (asked,) = [e for e in effects if isinstance(e, Inquire)]
    one.now += after
    values = Said(1, b"\0" * 8, (path,), hops=1, free=0).as_values()
    answer = attributes.encode(attributes.Attributes(tuple(values.items())))
    one.mesh.inquiry_answered(asked.inquiry, answer, now=one.now)
    return one.drain()


@pytest.mark.parametrize(("path", "agrees"), [(0.02, True), (9.0, False)])
def test_a_child_makes_room_if_that_costs_less_than_it_gains(path, agrees):
    one = placed()
    for name in ("a", "b"):
        one.mesh.guidance._guide.measured(named(name), 0.02, Said(1, b"\0" * 8, (0.01,), 1, 1).as_values(), one.now)
    link = next(iter(one.mesh.parents.links))
    effects = say(one, link, TradeType.OFFER, amount=0.5, peers=(OLD,))
    answer = said(measured(one, effects, path))[link]
    assert (answer.kind, answer.yes) == (TradeType.AGREED, agrees)
    opened = [e for e in say(one, link, TradeType.GO) if isinstance(e, OpenLink)]
    assert [e.peer_id for e in opened] == [OLD.peer_id] * agrees
    if agrees:
        hello = encoding.decode_join_untrusted(opened[0].hello)
        assert (hello.is_trade, hello.is_optional) == (True, True)
        one.accept(opened[0], level=700, hops=1)
        one.run(0.1)
        assert link not in one.mesh.parents.links
        assert len(one.mesh.parents) == 2


def test_a_peer_with_children_asks_the_other_to_fall_first():
    one = placed()
    for name in ("a", "b"):
        one.mesh.guidance._guide.measured(named(name), 0.02, Said(1, b"\0" * 8, (0.01,), 1, 1).as_values(), one.now)
    child(one, "k")
    high = PeerAt(OLD.peer_id, OLD.address, one.mesh.level + 5)
    link = next(iter(one.mesh.parents.links))
    effects = measured(one, say(one, link, TradeType.OFFER, amount=0.5, peers=(high,)), 0.02)
    (asked,) = [e for e in effects if isinstance(e, Inquire)]
    request = trades.decode_untrusted(asked.request)
    assert (request.kind, request.amount) == (TradeType.FALL, one.mesh.level)
    fell = trades.encode(TradeMessage(TradeType.ANSWER, yes=True, amount=one.mesh.level - 10))
    one.mesh.inquiry_answered(asked.inquiry, fell, now=one.now)
    assert said(one.drain())[link].yes


def test_a_peer_falls_only_while_it_lends_a_slot_and_stays_above_its_parents():
    one, links = full()
    level = one.mesh.level
    assert not inquire(one, TradeType.FALL, amount=level - 50.0).yes
    say(one, links[0], TradeType.LOCK)
    assert not inquire(one, TradeType.FALL, amount=101.0).yes  # nothing lies between that and its parents
    assert inquire(one, TradeType.FALL, amount=level - 50.0).yes
    assert 100 < one.mesh.level < level - 50
    lower = one.mesh.level
    assert not inquire(one, TradeType.FALL, amount=lower - 1.0).yes  # once
    assert one.mesh.level == lower


def test_a_slot_that_a_repair_took_is_given_back():
    one, links = full()
    repair = one.ask("repair", has_children=True, host="10.6.6.6")
    assert isinstance(repair, AcceptLink)
    one.report(repair.link, parents=2, children=3)
    tell(one, repair.link, 0.05, 4.0)
    asked = {}
    for _ in range(100):
        for link in one.mesh.children.links:
            one.report(link)
        asked |= {k: v for k, v in said(one.run(0.1)).items() if v.kind is TradeType.AWAY}
    assert set(asked) == {links[1]}  # the least important one


def test_a_child_that_is_asked_to_go_joins_another_first():
    one = placed()
    guide = one.mesh.guidance._guide
    for name in ("a", "b", "other"):
        guide.measured(named(name), 0.02, Said(1, b"\0" * 8, (0.01,), hops=1, free=2).as_values(), one.now)
    link = next(iter(one.mesh.parents.links))
    one.mesh.add_candidates([record("other", level=100)], now=one.now)
    (opening,) = [e for e in say(one, link, TradeType.AWAY) if isinstance(e, OpenLink)]
    assert (opening.peer_id, link in one.mesh.parents.links) == (named("other"), True)
    one.accept(opening, level=100)
    one.run(6.0)
    assert link not in one.mesh.parents.links


def test_a_bid_needs_the_word_of_both_peers():
    one = placed()
    one.mesh.add_candidates([record("q", level=100)], now=one.now)
    link = next(iter(one.mesh.parents.links))
    one.mesh.guidance.trade(Trade(link, named("q"), 0.5), one.now)
    effects = one.drain()
    assert said(effects) == {link: TradeMessage(TradeType.LOCK)}
    assert inquire(one, TradeType.READY, peer_id=named("q")).yes
    assert not inquire(one, TradeType.READY, peer_id=named("somebody")).yes
    assert one.opened(one.drain()) == []
    (opening,) = one.opened(say(one, link, TradeType.LOCKED, yes=True))
    assert opening.peer_id == named("q")
    one.accept(opening, level=100)
    new = opening.link
    assert said(e for e in one.effects if isinstance(e, SendMessage) and e.links == (new,)) == {
        new: TradeMessage(TradeType.TAKEN)
    }
    one.run(0.1)
    assert link not in one.mesh.parents.links


def test_a_goal_limits_the_children_but_never_leaves_a_peer_without_parents():
    one = placed(LATENCY + " subject to fanout <= 2", capacity=8)
    assert isinstance(join(one, "k1"), AcceptLink)  # one of the two is kept for repairs
    assert isinstance(join(one, "k2"), RefuseLink)
    assert isinstance(one.ask("repair", has_children=True, host="10.6.6.6"), AcceptLink)
    assert isinstance(one.ask("repair2", has_children=True, host="10.6.6.7"), RefuseLink)
    assert isinstance(join(one, "desperate", is_urgent=True), AcceptLink)
