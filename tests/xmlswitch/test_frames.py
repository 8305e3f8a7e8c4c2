"""Conditions at nodes: what the bits of frames must survive, beyond what the comparison with lxml finds by chance."""

from __future__ import annotations

import sys

from tests.xmlswitch.test_work import Calls
from xmlswitch import Query, Switch


def switch_of(*texts: str) -> Switch[Query]:
    switch: Switch[Query] = Switch(strict=True)
    for link, text in enumerate(texts):
        switch.add_link(link)
        switch.subscribe(link, Query.parse(text))
    return switch


def boxes(*places: tuple[int, int]) -> bytes:
    return b"<r>" + b"".join(b"<c><lat>%d</lat><lon>%d</lon></c>" % place for place in places) + b"</r>"


def test_the_bits_of_a_scope_do_not_grow_with_churn():
    switch = switch_of("//c[lat > 90][lon > 90]")
    index = switch._index._index
    for number in range(600):
        query = Query.parse(f"//c[lat = {number}][lon = {number}]")
        switch.subscribe(0, query)
        if number % 50 == 0:
            assert switch.match(boxes((number, 1), (1, number))) == frozenset()
            assert switch.match(boxes((1, 2), (number, number))) == {0}
        switch.unsubscribe(0, query)
    (scope,) = index.frames.scopes.values()
    assert scope.size < 600
    assert len(scope.terms) == 1
    assert switch.match(boxes((91, 91))) == {0}
    assert switch.match(boxes((91, 1), (1, 91))) == frozenset()


def test_more_thresholds_than_a_page_has_bits():
    texts = [f"//c[lat > {n}][lat < {n + 2}][lon > {n}][lon < {n + 2}]" for n in range(700)]
    switch = switch_of(*texts)
    assert switch.match(boxes((5, 600), (11, 11), (650, 650))) == {10, 649}


def test_known_markup_with_conditions_at_nodes_is_not_parsed():
    switch = switch_of("//c[lat > 10][lon > 10]", "//c[not(lat = 3)][starts-with(lon, '7')]")
    for n in range(40):
        expected = ({0} if n > 10 else set()) | ({1} if n == 7 else set())
        assert switch.match(boxes((n, n), (3, 7), (20, 4))) == expected
    assert switch.stats().by_shape > 20


def test_known_markup_follows_queries_that_come_and_go():
    switch = switch_of("//c[lat > 10][lon > 10]")
    query = Query.parse("//c[lat < 5][lon < 5]")
    switch.add_link(1)
    for turn in range(6):
        for n in range(12):
            expected = ({0} if n == 11 else set()) | ({1} if turn % 2 and n < 5 else set())
            assert switch.match(boxes((n, n), (1, 20))) == expected
        if turn % 2:
            switch.unsubscribe(1, query)
        else:
            switch.subscribe(1, query)
    assert switch.stats().by_shape > 0


def test_a_condition_in_a_condition_is_noted_at_each_of_its_levels():
    switch = switch_of("//a[b[c][d]]/e", "//a[not(b[c][d])]/e", "//a[.//b[c][not(d)]]/e")
    assert switch.match(b"<r><a><b><c/></b><b><d/></b><e/></a></r>") == {1, 2}
    assert switch.match(b"<r><a><b><c/><d/></b><e/></a></r>") == {0}
    assert switch.match(b"<r><a><x><b><c/><d/></b></x><e/></a></r>") == {1}
    assert switch.match(b"<r><a><a><b><c/><d/></b></a><e/></a></r>") == {1}


def test_the_first_node_counts_in_each_frame_by_itself():
    switch = switch_of("//a[starts-with(b, 'x')][c]", "//a[not(contains(b, 'y'))][c]", "//a[string-length(b) < 1][c]")
    assert switch.match(b"<r><a><b>x</b><b>y</b><c/></a></r>") == {0, 1}
    assert switch.match(b"<r><a><b>y</b><b>x</b><c/></a></r>") == frozenset()
    assert switch.match(b"<r><a><b>y</b></a><a><b>x</b><c/></a></r>") == {0, 1}
    assert switch.match(b"<r><a><c/></a></r>") == {1, 2}


def test_many_scopes_at_many_places_are_charged_to_the_packet():
    """Each element opens a frame for all scopes above it, and each `b` says something to all: 2,487,031 calls."""
    switch = switch_of(*(f"//n{n}//*[.//b][.//e][.//f][c{n}]/d" for n in range(100)))
    packet = "".join(f"<n{n}><b/><e/><f/>" for n in range(100)) + "".join(f"</n{n}>" for n in reversed(range(100)))
    calls = Calls()
    previous = sys.getprofile()
    sys.setprofile(calls)
    try:
        switch.match(packet.encode())
    finally:
        sys.setprofile(previous)
    assert calls.count < 1_500_000, calls.count
    assert switch.stats().cut_off > 0
