"""What a stranger's query must pass, in which order, and that what passed never raises later."""

from __future__ import annotations

import contextlib
import random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xmlswitch.generate import QueryMaker, document
from xmlswitch import (
    LocalQueryError,
    MalformedQuery,
    Query,
    QueryError,
    QueryTooExpensiveError,
    Switch,
    UnsupportedQueryError,
    covers,
    disjoin,
    parse_document,
)


def wire(text: str, namespaces: dict[str, str] | None = None, version: str = "1.0") -> bytes:
    return msgpack.packb([1, version, text, namespaces or {}])


@pytest.mark.parametrize("text", ["round(5, -999999999) = 0 or exists(1 to 2)", "ends-with(/a, 'x')", "/a eq 1"])
def test_only_xpath_1_is_accepted_from_the_network_and_elementpath_is_not_asked(text, monkeypatch):
    import xmlswitch.query.xpath2

    monkeypatch.setattr(xmlswitch.query.xpath2, "Expression", None)  # calling it would raise TypeError
    for version in ("3.1", "2.0", "", "1"):
        with pytest.raises(UnsupportedQueryError, match=r"XPath 1\.0"):
            Query.decode_untrusted(wire("/a", version=version))
    with pytest.raises(QueryError):
        Query.decode_untrusted(wire(text))


def test_a_later_version_is_not_encoded_and_the_error_says_what_to_send():
    query = Query.parse("ends-with(/a, 'x')")
    assert query.version == "3.1"
    assert not query.travels
    with pytest.raises(ValueError, match=r"need\(\)") as caught:
        query.encode()
    assert isinstance(caught.value, LocalQueryError)
    assert isinstance(caught.value, QueryError)
    assert Query.parse("/a").version == "1.0"
    assert Query.parse("/a").travels


def test_the_namespace_axis_stays_at_home():
    query = Query.parse("/a/namespace::p")
    assert query.matches(b"<a xmlns:p='urn:p'/>")
    assert not query.travels
    with pytest.raises(LocalQueryError, match="namespace axis"):
        query.encode()
    with pytest.raises(UnsupportedQueryError, match="namespace axis"):
        Query.decode_untrusted(wire("/a/namespace::p"))
    assert Query.parse("/namespace/a").travels


@pytest.mark.parametrize("text", ["/a = '\x01'", "/a = '\x00'", "contains(/a, '\uffff')", "/a = '\x0b'", "/a\x7f\x1f"])
def test_a_character_that_xml_has_not_is_refused_and_never_raises_in_publish(text):
    for refuse in (lambda: Query.parse(text), lambda: Query.decode_untrusted(wire(text))):
        with pytest.raises(QueryError):
            refuse()


def test_a_lone_surrogate_is_refused():
    with pytest.raises(QueryError):
        Query.parse("/a = '\ud800'")


@pytest.mark.parametrize("uri", ["x}y", "", "{", "a b", "a\nb", "\x00", "\x85", "u" * 5000])
def test_a_namespace_that_is_no_uri_is_refused(uri):
    for refuse in (lambda: Query.parse("/p:a", {"p": uri}), lambda: Query.decode_untrusted(wire("/p:a", {"p": uri}))):
        with pytest.raises(QueryError):
            refuse()


def test_a_thousand_terms_of_arithmetic_are_refused_and_do_not_end_the_process():
    for text in ("+".join(["1"] * 900), "=".join(["/a"] * 900), "-" * 1500 + "1", "1" + " < 1" * 65):
        with contextlib.suppress(QueryError):
            Query.decode_untrusted(wire(text))
    with pytest.raises(QueryTooExpensiveError, match="64 operators"):
        Query.parse("+".join(["1"] * 900))


@pytest.mark.parametrize("count", [70, 500])
@pytest.mark.parametrize("operator", ["or", "and", "|"])
def test_an_honest_query_of_many_alternatives_works(count, operator):
    text = f" {operator} ".join(f"/a/b{n}" for n in range(count))
    query = Query.decode_untrusted(Query.parse(text).encode())
    assert query == Query.parse(text)
    whole = b"<a>" + b"".join(b"<b%d/>" % n for n in range(count)) + b"</a>"
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    switch.subscribe(0, query)
    assert switch.match(whole) == {0}
    assert query.matches(whole)
    assert switch.match(b"<a/>") == frozenset()
    assert query.matches(b"<a><b69/></a>") == (operator != "and")
    assert covers(query, query)
    assert disjoin([query]).matches(whole)


def test_251_characters_do_not_become_92_megabytes():
    text = "/"
    while len(text) < 240:
        text = f"(/)[{text} < 5]"
    with pytest.raises(QueryTooExpensiveError):
        Query.decode_untrusted(wire(text))
    with pytest.raises(QueryTooExpensiveError):
        Query.parse(text)
    assert len(Query.parse("(/)[. < 5] < 5").evaluator.text) < 1000


@pytest.mark.parametrize("document_", [b"<a>4</a>", b"<a>6</a>", b"<a><b>4</b></a>"])
def test_the_document_is_among_the_nodes_that_are_compared(document_):
    value = 4 if b"4" in document_ else 6
    root = parse_document(document_)
    assert Query.parse("/ < 5").holds(root) == (value < 5)
    assert Query.parse("sum(/) = 4").holds(root) == (value == 4)
    assert Query.parse("count(//.[. < 5]) > 1").holds(root) == (value < 5)
    assert Query.parse("//b/ancestor::node() < 5").holds(root) == (value < 5 and b"<b>" in document_)


def test_what_is_canonical_is_accepted_by_others_too():
    """`a` becomes `/*/a`: a query just within the limits was refused when another peer read it."""
    for count in range(300, 1200, 100):
        text = "|".join(f"a{n}" for n in range(count))
        with contextlib.suppress(QueryTooExpensiveError):
            query = Query.parse(text)
            assert Query.decode_untrusted(query.encode()) == query


def test_numbers_beyond_a_double_keep_their_form():
    for text in (
        "/a < " + "9" * 400,
        "/a < 1 div 0",
        "/a > -1 div 0",
        "/a < -" + "9" * 400,
        "/a = -0",
        "1 div -0 > /a",
    ):
        query = Query.parse(text)
        again = Query.decode_untrusted(query.encode())
        assert again == query
        assert again.matches(b"<a>5</a>") == query.matches(b"<a>5</a>")
    assert Query.parse("/a < 1 div 0").matches(b"<a>5</a>")
    assert not Query.parse("/a < -1 div 0").matches(b"<a>5</a>")


def test_a_negative_threshold_is_indexed():
    for text in ("/a/lon < -73.5", "-73.5 > /a/lon", "/a/lon = -7", "starts-with(substring(/a/b, -1), 'x')"):
        assert not any(conjunction.verify for conjunction in Query.parse(text).plan.conjunctions), text
    assert Query.parse("/a/lon < -73.5").matches(b"<a><lon>-74</lon></a>")
    assert not Query.parse("/a/lon < -73.5").matches(b"<a><lon>-73</lon></a>")
    assert covers(Query.parse("/a/lon < -73"), Query.parse("/a/lon < -74"))


def test_an_unexpected_exception_at_admission_is_a_refusal(monkeypatch):
    monkeypatch.setattr(Query, "_parse_first_version", classmethod(lambda *_: 1 // 0))
    with pytest.raises(MalformedQuery, match="ZeroDivisionError"):
        Query.decode_untrusted(wire("/a = 1"))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x94\x01", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"a" * 40_000]
)
def test_bytes_that_are_no_query(data):
    with pytest.raises(MalformedQuery):
        Query.decode_untrusted(data)


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3))
def test_what_is_admitted_compiles_encodes_and_never_raises(text, namespaces):
    try:
        query = Query.decode_untrusted(wire(text, namespaces))
    except (MalformedQuery, QueryError, UnicodeEncodeError):
        return
    query.evaluator.compile()
    assert Query.decode_untrusted(query.encode()) == query
    query.matches(b"<a><b>1</b></a>")


@pytest.mark.parametrize("seed", range(12))
def test_what_is_admitted_is_matched_as_it_was_meant(seed):
    rng = random.Random(seed)
    maker = QueryMaker(rng)
    for _ in range(40):
        text = maker.query()
        query = Query.decode_untrusted(wire(text))
        root = parse_document(document(rng))
        assert query.holds(root) == Query.parse(text).holds(root)


def test_depth_leaves_room_on_the_stack():
    """The deepest query that is accepted is parsed, planned and matched with the stack of a busy event loop."""
    deepest = None
    for depth in range(1, 60):
        text = "/a" + "[b = 1 + 1 or c" * depth + "]" * depth
        with contextlib.suppress(QueryError):
            deepest = Query.parse(text)

    def at(level: int) -> bool:
        return at(level - 1) if level else Query.decode_untrusted(deepest.encode()).matches(b"<a><c/></a>")

    assert deepest is not None
    assert at(150) == deepest.matches(b"<a><c/></a>")
