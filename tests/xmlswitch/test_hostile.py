"""The corpus of hostile queries through everything that a stranger's query meets: answered or refused, and soon."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import TypeVar

import msgpack
import pytest

from tests.xmlswitch.hostile import hostile_queries
from xmlswitch import MalformedQuery, Query, QueryError, Switch, covers, disjoin

T = TypeVar("T")
CORPUS = hostile_queries()
SMALL = b"<a><b x='1'>1</b><c>x</c></a>"
LARGE = (
    b"<a>"
    + b"".join(b"<b%d x='%d'><c>%d</c><d>text of %d</d></b%d>" % (n % 40, n, n, n, n % 40) for n in range(2000))
    + b"</a>"
)
OTHER = Query.parse("/a/b > 3 or //c = 'x' or starts-with(/a/d, 'y')")
# 50 ms are wanted; a busy machine or a tracer may take many times as long, a query that is not bounded never ends.
SECONDS = 2.0
MEGABYTES = 150  # of the whole corpus together


def wire(text: str, namespaces: dict[str, str]) -> bytes:
    return msgpack.packb([1, "1.0", text, namespaces], unicode_errors="surrogatepass")


def soon(work: Callable[[], T]) -> T | None:
    """What it gives, None for a refusal; any other exception fails the test, and so does taking long."""
    began = time.process_time()
    try:
        return work()
    except (QueryError, MalformedQuery):
        return None
    finally:
        assert time.process_time() - began < SECONDS


def meet_the_switch(query: Query) -> None:
    for general, special in ((OTHER, query), (query, OTHER)):
        soon(lambda general=general, special=special: covers(general, special))
    whole = soon(lambda: disjoin([query, OTHER]))
    assert whole is not None
    assert whole.travels
    switch: Switch[Query] = Switch(strict=True)
    switch.add_link(0)
    switch.subscribe(0, query)
    for packet in (SMALL, SMALL, SMALL, LARGE):
        matched = soon(lambda packet=packet: switch.match(packet))
        if packet is SMALL:
            assert (matched == {0}) == soon(lambda: query.passes(SMALL))
            assert matched == {0} or not query.matches(SMALL)
    switch.remove_link(0)


def test_there_are_enough():
    assert len(CORPUS) >= 500
    assert len({text for text, _ in CORPUS}) >= 500


@pytest.mark.parametrize("part", range(16))
def test_every_hostile_query_is_answered_or_refused(part):
    Query.parse("ends-with(/a, 'x')")  # the import of elementpath is not a query's fault
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for text, namespaces in CORPUS[part::16]:
        admitted = soon(lambda text=text, namespaces=namespaces: Query.decode_untrusted(wire(text, namespaces)))
        parsed = soon(lambda text=text, namespaces=namespaces: Query.parse(text, namespaces))
        met = {admitted} if admitted is not None else set()
        if parsed is not None:
            need = soon(parsed.need)
            assert need is not None
            assert soon(lambda need=need: Query.decode_untrusted(need.encode())) == need
            assert not parsed.matches(SMALL) or need.matches(SMALL)
            met.add(need)
        for query in met:
            assert query is not None
            assert Query.decode_untrusted(query.encode()) == query
            meet_the_switch(query)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


def test_a_refused_query_leaves_nothing_behind():
    from xmlswitch.query.evaluate import _COMPILED

    for text, namespaces in CORPUS:
        soon(lambda text=text, namespaces=namespaces: Query.decode_untrusted(wire(text, namespaces)))
    assert _COMPILED.bytes <= 32 << 20


def test_many_hostile_queries_at_once_do_not_stop_the_switch():
    """A link each, as strangers that join: honest links get what they asked for, exactly."""
    switch: Switch[Query] = Switch(strict=True)
    honest = [Query.parse("/a/b > 3"), Query.parse("/a/b = 1"), Query.parse("//c = 'x' and not(//nosuch)")]
    admitted = [
        query
        for text, namespaces in CORPUS
        if (query := soon(lambda text=text, namespaces=namespaces: Query.decode_untrusted(wire(text, namespaces))))
    ]
    for link, query in enumerate([*honest, *admitted]):
        switch.add_link(link)
        switch.subscribe(link, query)
    for _ in range(3):
        matched = soon(lambda: switch.match(SMALL))
        assert matched is not None
        assert {0, 1, 2} & matched == {1, 2}
    for link, query in enumerate([*honest, *admitted]):
        if query.matches(SMALL):
            assert link in matched
