"""Subscriptions of many queries: the same bytes at both ends, changes by difference, and slots that share."""

from __future__ import annotations

import random

import msgpack
import pytest

from bench import _flights
from xmlswitch import (
    Interest,
    MalformedQuery,
    MemberLimits,
    MemberSlots,
    Query,
    QueryError,
    QuerySet,
    QueryTooExpensiveError,
    Switch,
    digest_of,
    encode_members,
    is_query_set,
)
from xmlswitch.query.query_set import read_difference_untrusted


def queries(number: int, seed: int = 2) -> list[Query]:
    return [Query.parse(text) for text in _flights.queries(seed, number)]


def test_equal_sets_have_equal_bytes_and_come_back():
    some = queries(40)
    data = QuerySet(some).encode()
    assert data == QuerySet(reversed(some)).encode()
    assert is_query_set(data)
    assert not any(is_query_set(query.encode()) for query in some)
    assert QuerySet.decode_untrusted(data).queries == frozenset(some)


def test_a_set_in_another_order_is_refused():
    """Its owner would ask for it by other bytes than its parents know it by."""
    version, templates, members = msgpack.unpackb(QuerySet(queries(10)).encode())
    with pytest.raises(MalformedQuery):
        QuerySet.decode_untrusted(msgpack.packb([version, templates, members[::-1]]))


def test_differences_make_the_same_set_at_both_ends():
    rng = random.Random(1)
    pool = queries(80)
    interest = Interest(MemberLimits(max_members=30))
    here = there = QuerySet([])
    held: list[Query] = []
    for query in pool:
        interest.add(query)
        held.append(query)
        if rng.random() < 0.4:
            interest.remove(held.pop(rng.randrange(len(held))))
        new = QuerySet(interest.members)
        parts = here.difference_to(new, most=rng.choice([40, 200, 1000]))
        there = there.changed(map(read_difference_untrusted, parts))
        here = new
        assert there.queries == here.queries
        assert there.encode() == here.encode()
    for packet in _flights.Traffic(1).packets(60):
        if any(query.matches(packet) for query in held):
            assert there.passes(packet)


def test_a_difference_from_another_set_is_refused():
    one, two, three = queries(3)
    difference = QuerySet([one, two]).difference_to(QuerySet([one, three]))
    parts = [read_difference_untrusted(part) for part in difference]
    with pytest.raises(MalformedQuery):
        QuerySet([one]).changed(parts)
    assert QuerySet([one, two]).changed(parts).queries == {one, three}


def test_too_many_queries_are_refused():
    some = queries(5)
    limits = MemberLimits(max_members=4, max_bytes=60_000)
    with pytest.raises(MalformedQuery):
        QuerySet.decode_untrusted(QuerySet(some).encode(), limits)
    parts = [read_difference_untrusted(part) for part in QuerySet(some[:4]).difference_to(QuerySet(some))]
    with pytest.raises(QueryTooExpensiveError):
        QuerySet(some[:4]).changed(parts, limits)


@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_are_a_difference_or_refused(seed):
    rng = random.Random(seed)
    base, new = QuerySet(queries(12)), QuerySet(queries(12, seed=3))
    (data,) = base.difference_to(new)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            base.changed([read_difference_untrusted(bytes(broken[: rng.randint(0, len(data))]))])
        except (MalformedQuery, QueryError):
            continue
    for odd in ([b"", []], [encode_members([]), [b"x" * 15]], [encode_members([]), b"x" * 16], 7, [1, 2, 3]):
        with pytest.raises(MalformedQuery):
            read_difference_untrusted(msgpack.packb(odd))


def test_covering_is_sound_and_finds_the_obvious():
    wide = QuerySet([Query.parse("/a/b > 3"), Query.parse("/a/c"), Query.parse("//d = 'x'")])
    for text in ("/a/b > 5", "/a/c[e]", "/a/b > 9 or /a/c = 1", "/a/b = 4 and //z"):
        assert wide.covers(QuerySet([Query.parse(text)])), text
    for text in ("/a/b > 2", "/a", "/a/c or /a/e", "true()"):
        assert not wide.covers(QuerySet([Query.parse(text)])), text
    assert wide.covers(QuerySet([]))
    assert not QuerySet([]).covers(wide)
    rng = random.Random(4)
    pool, packets = queries(60), _flights.Traffic(3).packets(80)
    for _ in range(40):
        outer, inner = QuerySet(rng.sample(pool, 20)), QuerySet(rng.sample(pool, 3))
        if outer.covers(inner):
            assert all(outer.passes(packet) for packet in packets if inner.passes(packet))


@pytest.mark.parametrize("seed", range(8))
def test_slots_that_share_answer_as_if_they_did_not(seed):
    """Children change their sets step by step, several of each at once, and leave in any order."""
    rng = random.Random(seed)
    switch: Switch[Query] = Switch(strict=True)
    switch.add_link("own", slot=0)
    pool, packets = queries(60), _flights.Traffic(seed).packets(6)
    switch.subscribe("own", pool[0])
    slots = MemberSlots(switch, first=1)
    held: dict[int, QuerySet] = {}
    for _ in range(60):
        if held and rng.random() < 0.4:
            slot = rng.choice(list(held))
            del held[slot]
            slots.close(slot)
        else:
            slot = next(number for number in range(100) if number not in held)
            if held and rng.random() < 0.8:  # what another has, a little changed
                some = set(rng.choice(list(held.values())).queries) ^ set(rng.sample(pool, rng.randint(0, 4)))
            else:
                some = set(rng.sample(pool, rng.choice([1, 1, 5, 20])))
            held[slot] = QuerySet(some)
            slots.open(slot, held[slot])
        for packet in packets:
            mask = switch.match_mask(packet)
            assert slots.spread(mask) == sum(1 << slot for slot in held if held[slot].passes(packet))
            assert bool(mask & 1) == pool[0].passes(packet)
    for slot in held:
        slots.close(slot)
    assert switch.links == ("own",)
    assert switch.stats().queries == 1


def test_a_change_of_one_query_touches_few_of_a_thousand(monkeypatch):
    switch: Switch[Query] = Switch()
    slots = MemberSlots(switch)
    some = [Query.parse(f"/flight/id = 'X{number}'") for number in range(1001)]
    slots.open(0, QuerySet(some[:1000]))
    touched = []
    subscribe, unsubscribe = switch.subscribe, switch.unsubscribe
    monkeypatch.setattr(switch, "subscribe", lambda *each: (touched.append(each), subscribe(*each)))
    monkeypatch.setattr(switch, "unsubscribe", lambda *each: (touched.append(each), unsubscribe(*each)))
    slots.open(1, QuerySet(some[1:]))
    assert slots.spread(switch.match_mask(b"<flight><id>X0</id></flight>")) == 0b01
    assert slots.spread(switch.match_mask(b"<flight><id>X7</id></flight>")) == 0b11
    assert slots.spread(switch.match_mask(b"<flight><id>X1000</id></flight>")) == 0b10
    slots.close(0)
    assert slots.spread(switch.match_mask(b"<flight><id>X7</id></flight>")) == 0b10
    assert slots.spread(switch.match_mask(b"<flight><id>X0</id></flight>")) == 0
    assert len(touched) < 10
    assert digest_of(some[0]) != digest_of(some[1])
