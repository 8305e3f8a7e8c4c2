"""What a router asks its parents for: never less than its children want, exact while there is room."""

from __future__ import annotations

import random

import msgpack
import pytest

from bench import _flights, _positions
from tests.xmlswitch.generate import NAMESPACES, QueryMaker, document
from xmlswitch import Interest, MalformedQuery, MemberLimits, Query, QueryError, Switch
from xmlswitch.query.member_wire import decode_members_untrusted, encode_members


class Upstream:
    """A parent: applies each change, and says which packets pass."""

    def __init__(self) -> None:
        self.asked: set[Query] = set()

    def apply(self, change) -> None:
        assert not set(change.added) & self.asked
        assert set(change.removed) <= self.asked
        self.asked |= set(change.added)
        self.asked -= set(change.removed)

    def switch(self) -> Switch[Query]:
        switch: Switch[Query] = Switch(strict=True, exact=True)
        switch.add_link(0)
        for query in self.asked:
            switch.subscribe(0, query)
        return switch


def settle(interest: Interest, upstream: Upstream) -> None:
    while not interest.is_settled:
        upstream.apply(interest.settle())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [4, 20, 1000])
def test_nobody_gets_less_than_asked_for(seed, most):
    rng = random.Random(seed)
    maker = QueryMaker(rng, namespaces=False)
    interest, upstream = Interest(MemberLimits(max_members=most)), Upstream()
    held: list[Query] = []
    for step in range(60):
        if held and rng.random() < 0.35:
            upstream.apply(interest.remove(held.pop(rng.randrange(len(held)))))
        else:
            try:
                held.append(Query.parse_untrusted(" and ".join(maker.query(2) for _ in range(rng.randint(1, 2)))))
            except QueryError:
                continue
            upstream.apply(interest.add(held[-1]))
        packet = document(rng, rng.choice(["mixed", "news", "flight"]))
        interest.selectivity.observe(packet)
        assert upstream.asked == interest.members
        assert len(upstream.asked) <= most
        if step % 5 == 0:
            switch = upstream.switch()
            for packet in (document(rng, rng.choice(["mixed", "news", "flight"])) for _ in range(12)):
                if any(query.matches(packet) for query in held):
                    assert switch.match(packet), packet
    for query in held:
        upstream.apply(interest.remove(query))
    settle(interest, upstream)
    assert not upstream.asked
    assert interest.size == 0
    assert not interest._names
    assert not interest._home


@pytest.mark.parametrize("make", [_positions.boxes, lambda number: _flights.queries(2, number)])
def test_members_are_exact_while_there_is_room(make):
    interest, upstream = Interest(MemberLimits(max_members=5000, max_bytes=1_000_000)), Upstream()
    queries = [Query.parse(text) for text in make(200)]
    for query in queries:
        upstream.apply(interest.add(query))
    assert not interest.widened
    switch = upstream.switch()
    for packet in (*_positions.packets(1, 40), *_flights.Traffic(1).packets(40)):
        assert bool(switch.match(packet)) == any(query.matches(packet) for query in queries)


def test_a_covered_query_costs_nothing_upstream():
    interest = Interest()
    assert interest.add(Query.parse("/flight/altitude > 300")).added
    for text in ("/flight/altitude > 310", "/flight/altitude > 300", "/flight[id = 'TWA1']/altitude > 350"):
        assert interest.add(Query.parse(text)) == ((), ()), text
    assert interest.covered == 2
    change = interest.add(Query.parse("/flight/altitude"))
    assert [query.canonical for query in change.added] == ["/flight/altitude"]
    assert [query.canonical for query in change.removed] == ["/flight/altitude > 300"]
    change = interest.remove(Query.parse("/flight/altitude"))
    assert [query.canonical for query in change.added] == ["/flight/altitude > 300"]


def test_what_covers_many_goes_step_by_step():
    """Each change takes bounded time: a general query is asked for until all that it covered are."""
    interest, upstream = Interest(), Upstream()
    general = Query.parse("/flight/altitude")
    upstream.apply(interest.add(general))
    for level in range(200):
        upstream.apply(interest.add(Query.parse(f"/flight/altitude = {level}")))
    assert upstream.asked == {general}
    upstream.apply(interest.remove(general))
    assert general in upstream.asked
    settle(interest, upstream)
    assert len(upstream.asked) == 200
    assert general not in upstream.asked


def test_hulls_are_least_and_greatest_value_common_prefix_and_shared_path():
    def asked_for(*texts: str) -> str:
        interest = Interest(MemberLimits(max_members=1))
        for text in texts:
            interest.add(Query.parse(text))
        (only,) = interest.members
        return only.canonical

    assert asked_for("/a/b > 3 and /a/b < 5", "/a/b > -7 and /a/b <= 4") == "/a/b < 5 and /a/b > (-7)"
    assert asked_for("/a/id = 'TWA12'", "/a/id = 'TWA17'") == '/a/id[starts-with(., "TWA1")]'
    assert asked_for("starts-with(/a/id, 'TWA')", "starts-with(/a/id, 'TW7')") == 'starts-with(/a/id, "TW")'
    assert asked_for("/a/b/c = 1", "/a/b/d = 'x'") == "/a/b"
    assert asked_for("/a/b = 5", "/a/b = 7") == "/a/b <= 7 and /a/b >= 5"
    assert asked_for("/a", "/b") == "true()"


def test_the_cheapest_loss_is_chosen_by_what_the_stream_has():
    """Two bands where no flight is are merged before two where many are, however near those stand."""
    interest = Interest(MemberLimits(max_members=3))
    texts = ["/a/b > 10 and /a/b < 20", "/a/b > 30 and /a/b < 40", "/a/b > 500 and /a/b < 510"]
    for text in texts:
        interest.add(Query.parse(text))
    for value in [*range(21, 30)] * 20:
        interest.selectivity.observe(b"<a><b>%d</b></a>" % value)
    interest.add(Query.parse("/a/b > 900 and /a/b < 910"))
    assert len(interest.members) == 3
    assert not any(query.matches(b"<a><b>25</b></a>") for query in interest.members)


def test_the_bound_in_bytes_holds():
    interest = Interest(MemberLimits(max_bytes=3000))
    for text in _flights.queries(2, 300):
        interest.add(Query.parse(text))
        assert interest.size <= 3000
    assert len(encode_members(interest.members)) <= 3000
    assert not any(query.matches_everything for query in interest.members)


def test_removing_what_was_never_added_is_an_error():
    with pytest.raises(KeyError):
        Interest().remove(Query.parse("/a"))


# --- the wire ---


@pytest.mark.parametrize("seed", range(6))
def test_members_come_back_from_the_wire(seed):
    maker = QueryMaker(random.Random(seed), namespaces=True)
    queries = []
    for _ in range(60):
        try:
            queries.append(Query.parse_untrusted(maker.query(2), NAMESPACES))
        except QueryError:
            continue
    data = encode_members(queries)
    assert set(decode_members_untrusted(data, max_members=60, max_bytes=60_000)) == set(queries)
    with pytest.raises(MalformedQuery):
        decode_members_untrusted(data, max_members=len(queries) - 1, max_bytes=60_000)
    with pytest.raises(MalformedQuery):
        decode_members_untrusted(data, max_members=60, max_bytes=len(data) - 1)
    rng = random.Random(seed)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            decode_members_untrusted(bytes(broken[: rng.randint(0, len(data))]), max_members=60, max_bytes=60_000)
        except (MalformedQuery, QueryError):
            continue


def test_literals_are_literals_and_nothing_else():
    """A template with holes must not become another kind of query than each of its literals says."""
    for literal in ("1 or /b", "'a' or 'b'", "", "/b", '"', "1.", "?"):
        data = msgpack.packb([1, [["/a = ?", {}]], [[0, literal]]])
        with pytest.raises(MalformedQuery):
            decode_members_untrusted(data, max_members=10, max_bytes=1000)


def test_a_thousand_boxes_fit():
    boxes = [Query.parse(text) for text in _positions.boxes(1000)]
    assert len(encode_members(boxes)) < 60_000
