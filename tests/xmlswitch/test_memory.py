"""What strangers' queries and packets leave behind: bounded, in bytes where they choose the size."""

from __future__ import annotations

import random
import tracemalloc

from xmlswitch import IndexLimits, Query, Switch
from xmlswitch.caches import ByteCache
from xmlswitch.match.engine import XPathIndex


def test_a_byte_cache_keeps_what_was_used_last():
    cache: ByteCache[str, int] = ByteCache(100)
    for name in "abcde":
        cache.put(name, ord(name), 30)
        cache.get("a")
    assert len(cache) == 3
    assert cache.bytes == 90
    assert cache.get("a") == ord("a")
    assert cache.get("b") is None
    cache.put("large", 1, 101)
    assert cache.get("large") is None
    cache.put("a", 7, 50)
    assert cache.get("a") == 7
    assert cache.bytes <= 100


def test_accept_sets_do_not_leak_with_query_churn():
    """24,003 after 12,000 changes on d256d84: a query stays on whose paths the others' paths end."""
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    switch.add_link(1)
    switch.subscribe(1, Query.parse("/a/b/c or //d/e"))
    automaton = switch._index._index.automaton
    for _ in range(3000):
        query = Query.parse("/a/b = 7 or //d")
        switch.subscribe(0, query)
        assert switch.match(b"<a><b>7</b><b><c/></b><d/></a>") == {0, 1}
        switch.unsubscribe(0, query)
    assert len(automaton._accepts) < 1500
    assert switch.match(b"<a><b>7</b><d/></a>") == frozenset()
    assert switch.match(b"<a><b><c/></b></a>") == {1}


def test_20000_names_do_not_make_40000_transitions():
    index = XPathIndex(limits=IndexLimits(max_transition_bytes=200_000, max_waypoint_bytes=1_000_000))
    index.add(Query.parse("/r/a or //b[c][d] or //e"), 0)
    rng = random.Random(1)
    for packet in range(40):
        names = [b"n%d" % rng.randrange(20_000) for _ in range(500)]
        document = b"<r>" + b"".join(b"<%s><%s/></%s>" % (name, name, name) for name in names) + b"</r>"
        assert index.match(document, 1) == 0
        automaton = index._index.automaton
        assert automaton.transition_bytes <= 200_000 + 1000
        assert index._index.waypoints.bytes <= 1_000_000 + 2000, packet
    assert index.match(b"<r><b><c/><d/></b></r>", 1) == 1
    assert index.match(b"<r><x><e/></x></r>", 1) == 1


def test_one_packet_with_more_names_than_are_remembered_is_matched():
    index = XPathIndex(limits=IndexLimits(max_transition_bytes=10_000, max_waypoint_bytes=50_000))
    index.add(Query.parse("//n777[x = 1]"), 0)
    index.add(Query.parse("//n777[x = 2]"), 1)
    document = b"<r>" + b"".join(b"<n%d><x>1</x></n%d>" % (n, n) for n in range(1000)) + b"</r>"
    for _ in range(3):
        assert index.match(document, 3) == 1


def test_values_of_all_columns_together_are_bounded():
    index = XPathIndex(limits=IndexLimits(max_look_bytes=500 * 350))
    for column in range(20):
        index.add(Query.parse(f"/r/c{column} = 'x'"), column)
    for packet in range(200):
        values = b"".join(b"<c%d>v%d</c%d>" % (column, packet, column) for column in range(20))
        assert index.match(b"<r>%s</r>" % values, (1 << 20) - 1) == 0
        kept = sum(len(column.looks) for path in index._index.paths for column in path.columns.values())
        assert kept <= 520
    assert index.match(b"<r><c3>x</c3></r>", (1 << 20) - 1) == 1 << 3


def test_compiled_queries_are_bounded_in_bytes():
    from xmlswitch.query.evaluate import _COMPILED

    for number in range(300):
        text = " or ".join(f"//a{number}[{n}]" for n in range(2, 300))
        Query.parse(text).evaluator.compile()
    assert _COMPILED.bytes <= IndexLimits().max_compiled_bytes


def test_weights_grow_with_queries():
    assert Query.parse("/a").weight < Query.parse("/a/b = 'xxxxxxxxxxxxxxxx'").weight


def test_new_names_and_values_take_bounded_memory():
    """1 million names took 176 MB. What libxml2 keeps of names is its own, and not seen here."""
    limits = IndexLimits(max_transition_bytes=200_000, max_waypoint_bytes=500_000, max_look_bytes=500_000)
    index = XPathIndex(limits=limits)
    texts = ["//*[x = 1]/y", "/r/*/z = 'q'", "//*[@a = 'x'][@*]/b", "//b[c][d][e or f]", "//*[text() = 'v']/@z"]
    for link, text in enumerate(texts):
        index.add(Query.parse(text), link)
    rng = random.Random(1)

    def packet() -> bytes:
        parts = []
        for _ in range(100):
            name, key, value = (b"%x" % rng.getrandbits(200) for _ in range(3))
            known = b"".join(b"<%c/>" % rng.choice(b"cdefxyz") for _ in range(rng.randint(0, 4)))
            parts.append(b"<n%s a%s='%s' a='%s'>%s<b>%s</b></n%s>" % (name, key, value, value, value, known, name))
        return b"<r>" + b"".join(parts) + b"</r>"

    for _ in range(30):
        index.match(packet(), 31)
    tracemalloc.start()
    for _ in range(100):
        index.match(packet(), 31)
    grown, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 4_000_000, (grown, peak)
