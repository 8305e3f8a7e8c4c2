"""Links, masks, refusals, counters and memory of the switch; and both profiles through the same tests."""

from __future__ import annotations

import dataclasses
import json
import random

import msgpack
import pytest

from xmlswitch import RECORD, XPATH, MalformedDocument, Query, QueryError, RecordQuery, Switch

XML = [b"<a><b>%d</b><c>%s</c></a>" % (number, text) for number in range(6) for text in (b"x", b"xy", b"z")]
RECORDS = [
    encode({"b": number, "c": text, "d": {"e": [1, "k"]}})
    for number in range(6)
    for text in ("x", "xy", "z")
    for encode in (lambda record: json.dumps(record).encode(), msgpack.packb)
]
PROFILES = {
    "xpath": (
        XPATH,
        [
            Query.parse(t)
            for t in ("/a/b > 3", "/a/c = 'x'", "starts-with(/a/c, 'x') and /a/b < 4", "/a/d", "not(/a/d)", "true()")
        ],
        XML,
    ),
    "record": (
        RECORD,
        [
            RecordQuery.parse(t)
            for t in ("b > 3", 'c = "x"', 'c ~ "x" and b < 4', "f", "not f", "*", 'd.e = "k"', "b >= 2 and c")
        ],
        RECORDS,
    ),
}


@pytest.mark.parametrize("name", PROFILES)
class TestEveryProfile:
    def test_index_agrees_with_evaluation_through_changes(self, name):
        profile, queries, packets = PROFILES[name]
        rng = random.Random(1)
        switch = Switch(profile)
        held: dict[int, list] = {link: [] for link in range(5)}
        for link in held:
            switch.add_link(link)
        for _ in range(300):
            link = rng.choice(list(held))
            if held[link] and rng.random() < 0.5:
                switch.unsubscribe(link, held[link].pop())
            else:
                held[link].append(rng.choice(queries))
                switch.subscribe(link, held[link][-1])
            packet = rng.choice(packets)
            expected = {link for link, own in held.items() if any(profile.matches(packet, query) for query in own)}
            assert switch.match(packet) == expected

    def test_merge_and_covers(self, name):
        profile, queries, packets = PROFILES[name]
        rng = random.Random(2)
        for _ in range(30):
            chosen = rng.sample(queries, 2)
            merged = profile.merge(chosen)
            for packet in packets:
                assert profile.matches(packet, merged) == any(profile.matches(packet, query) for query in chosen)
            for general in (*chosen, merged):
                for special in chosen:
                    if profile.covers(general, special):
                        assert all(profile.matches(p, general) for p in packets if profile.matches(p, special))
            assert all(profile.covers(merged, query) for query in chosen)

    def test_wire(self, name):
        profile, queries, _ = PROFILES[name]
        for query in queries:
            assert profile.decode_untrusted(profile.encode(query)) == query


@pytest.mark.parametrize("packet", [b"", b"[1]", b"{", b"\x81", b"\xc1", b'{"a":' * 5000, b"\x91" * 200])
def test_what_is_no_record(packet):
    with pytest.raises(MalformedDocument):
        RECORD.matches(packet, RecordQuery.parse("a"))


@pytest.mark.parametrize("text", ["", "a >", "a and", "> 3", "a = b", "not"])
def test_record_queries_are_refused_with_a_place(text):
    with pytest.raises(QueryError, match="expected"):
        RecordQuery.parse(text)


def test_slots_are_bits_and_the_callers_to_choose():
    switch: Switch[Query] = Switch()
    assert switch.add_link("x", slot=5) == 5
    assert switch.add_link("y") == 0
    switch.subscribe("x", Query.parse("/a"))
    switch.subscribe("y", Query.parse("/b"))
    assert switch.match_mask(b"<a/>") == 1 << 5
    assert switch.match(b"<b/>") == {"y"}
    with pytest.raises(ValueError, match="in use"):
        switch.add_link("z", slot=5)
    switch.remove_link("x")
    assert switch.match_mask(b"<a/>") == 0
    assert switch.add_link("z", slot=5) == 5


def test_a_packet_that_all_want_is_not_looked_at():
    switch: Switch[Query] = Switch()
    switch.add_link(1)
    switch.add_link(2)
    switch.subscribe(1, Query.parse("true()"))
    assert switch.match(b"not XML at all") == {1}
    assert switch.stats().unparsed == 1
    switch.subscribe(2, Query.parse("/a"))
    with pytest.raises(MalformedDocument):
        switch.match(b"not XML at all")
    assert switch.stats().malformed == {"well-formed": 1}
    switch.subscribe(2, Query.parse("/"))
    assert switch.match(b"not XML at all") == {1, 2}
    switch.unsubscribe(2, Query.parse("/"))
    assert switch.match(b"<a/>") == {1, 2}


def test_stats_are_a_frozen_snapshot():
    stats = Switch().stats()
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.packets = 1  # type: ignore[misc]


def test_everything_is_given_back():
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    queries = [Query.parse(f"/a/b{n % 40} > {n} and /a/c[@x{n % 7} = '{n}']/d or //e{n % 11}[f]/g") for n in range(400)]
    for query in queries:
        switch.subscribe(0, query)
    for n in range(60):
        switch.match(b"<a><b%d>500</b%d><c x1='8'><d/></c></a>" % (n % 40, n % 40))
    for query in queries:
        switch.unsubscribe(0, query)
    index = switch._index._index
    assert not index.entries
    assert not index.paths
    assert not index.always.size
    assert not index._interned
    assert index.automaton._root.is_bare
    assert switch.match(b"<a><b1>500</b1></a>") == frozenset()


def test_a_query_too_dear_for_a_packet_lets_it_pass_and_is_counted():
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    switch.subscribe(0, Query.parse("//a[count(//b[//c]) = 0]"))
    packet = b"<a>" + b"<b/><a/><c/>" * 3000 + b"</a>"
    assert switch.match(packet) == {0}
    assert switch.stats().cut_off == 1
    assert switch.match(b"<a><b/><c/></a>") == frozenset()


def test_hostile_packets_leave_the_switch_as_it_was():
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    switch.subscribe(0, Query.parse("/a/b = 1"))
    for packet in (b"<a>" * 5000, b"<!DOCTYPE a><a/>", b"\x00", b"<a x='" + b"y" * 70000 + b"'/>", b"<a><b>1</b>"):
        with pytest.raises(MalformedDocument):
            switch.match(packet)
    assert switch.match(b"<a><b>1</b></a>") == {0}
    assert sum(switch.stats().malformed.values()) == 5


def test_many_names_do_not_grow_the_automaton_without_bound():
    from xmlswitch.index.automaton import Automaton
    from xmlswitch.index.paths import PathEntry
    from xmlswitch.query.atoms import Linear

    automaton = Automaton(max_states=50)
    automaton.add(PathEntry(Linear(((True, "x"), (True, "*"), (True, "y"))), 1))
    rng = random.Random(1)
    for _ in range(200):
        state = automaton.start
        for _ in range(8):
            name = rng.choice("xyz")
            state = state.next.get(name) or automaton.follow(state, name)
        assert automaton.states <= 51


def test_queries_of_one_link_that_share_a_condition_go_one_by_one():
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    first, second = Query.parse("/a/b = '1' or /a/c"), Query.parse("/a/b = '1' or /a/d")
    for query in (first, second):
        switch.subscribe(0, query)
    packet = b"<a><b>1</b></a>"
    assert switch.match(packet) == {0}
    switch.unsubscribe(0, first)
    assert switch.match(packet) == {0}
    assert switch.match(b"<a><c/></a>") == frozenset()
    switch.unsubscribe(0, second)
    assert switch.match(packet) == frozenset()
