"""need(): whenever a query of XPath 2.0 to 3.1 holds, what its parents are asked for holds too."""

from __future__ import annotations

import random

import pytest

from tests.xmlswitch.generate import document
from xmlswitch import Query, QueryError, parse_document

REALISTIC = [
    "lower-case(/flight/id) = 'twa1'",
    "matches(/flight/id,'^TWA')",
    "/flight/flightleg/altitude > 3e2",
    "some $x in //fix satisfies ends-with($x,'K')",
    "ends-with(/flight/id,'123')",
    "/flight/id eq 'TWA123'",
    "some $x in /flight/leg satisfies $x/alt > 300",
    "max(//alt) > 300",
    "/flight/leg/alt = (310, 320)",
    "if (/flight) then true() else false()",
    "not(empty(//alt))",
    "/flight/id = ('TWA1','TWA2','DAL3')",
    "//altitude[. gt '300']",
    "xs:dateTime(/flight/time) > xs:dateTime('2026-01-01T00:00:00Z')",
    "every $a in //altitude satisfies number($a) > 100",
    "avg(//speed) > 400",
    "count(distinct-values(//fix)) > 3",
    "matches(/flight/id, '^(TWA|DAL)[0-9]+$')",
    "tokenize(/flight/route, ' ') = 'BOS'",
    "exists(/flight/route[tokenize(., '\\.') = 'KJFK'])",
    "upper-case(/flight/status) = 'AIRBORNE'",
    "(for $l in //leg return $l/alt) > 300",
    "//leg[alt ge 300][speed le 400]",
    "abs(/flight/lat - 40.1) < 0.5",
    "/flight/(id|callsign) = 'TWA1'",
    "string-join(//fix, '-') = 'BOS-JFK'",
    "contains(lower-case(/flight/remarks), 'emergency')",
    "//fix[last()] is //fix[1]",
    "xs:integer(/flight/alt) idiv 10 mod 2 = 0",
    "let $a := /flight/alt return $a > 300 and $a < 400",
    "/flight/alt cast as xs:integer > 300",
    "year-from-dateTime(/flight/time) = 2026",
    "substring(/flight/id, 1, 3) = ('TWA','DAL')",
    "replace(/flight/id, '[0-9]', '') = 'TWA'",
    "/flight[starts-with(id, 'TWA')] ! alt > 300",
    "/flight/id => upper-case() => starts-with('TWA')",
    "deep-equal(/flight/a, /flight/b)",
    "/flight/alt instance of element()",
    "//*:altitude > 300",
    "//*[local-name() = 'alt' and . castable as xs:integer]",
    "head(//fix) = 'BOS'",
    "exists(//alert) and empty(//cancelled)",
    "empty(//cancelled)",
    "/flight[not(landed)]/alt ! (. > 300)",
    "sum(//weight) gt 1000",
    "min(//alt) < 100 or exists(//emergency)",
    "/flight/id ne ''",
    "string-length(/flight/id) gt 5",
]
OTHERS = [
    "/flight/alt[. castable as xs:integer][. gt '3'] = '310'",
    "some $l in //leg, $a in $l/alt satisfies $a = '310'",
    "some $l in leg satisfies //x[. = $l/alt]",
    "//leg[some $a in alt satisfies $a = '310']",
    "//leg[for $a in alt return $a = ../alt]",
    "let $n := 2 return //fix[$n]",
    "let $n := xs:integer(/flight/n) return //fix[$n]",
    "number(/flight/alt) != 5",
    "number(//nosuch) != 5 or exists(//x)",
    "string(/flight/alt) ne ''",
    "count(//alt) ge 0",
    "count(//alt) lt 3",
    "sum(//nosuch) ge 0 and true()",
    "string-length(//nosuch) eq 0",
    "matches(/flight/id, 'TW?A')",
    "matches(/flight/id, 'x*')",
    "matches(/flight/id, 'twa', 'i')",
    "matches(/flight/id, '^TWA1|DAL')",
    "matches(string(/nosuch), '^$')",
    "contains(string(/nosuch), '')",
    "starts-with(/flight/id, 'TW') and ends-with(/flight/id, '3')",
    "if (//nosuch) then /flight else empty(//nosuch)",
    "if (/flight/alt) then exists(//leg) else exists(//fix)",
    "(/flight, /x) ! altitude > 100",
    "exists((//alt, //altitude))",
    "/flight/alt/upper-case(.) = '310'",
    "/flight/alt/count(nosuch) = 0",
    "//leg/(alt|speed)/string() = '390'",
    "//leg/../alt eq '310'",
    "'310' = /flight/alt/data()",
    "300 lt /flight/alt",
    "-xs:integer(/flight/alt) lt 0",
    "//fix = tokenize('BOS JFK', ' ')",
    "(//fix except //alt) = 'BOS'",
    "exists(//fix intersect //*[. = 'BOS'])",
    "/flight/time[year-from-dateTime(.) = 2026] => exists()",
    "(//alt)[1] eq '310'",
    "reverse(//fix)[1] = 'JFK'",
    "sort(//fix)[1] eq 'BOS'",
    "/*/fix[. = 'BOS']/following-sibling::fix eq 'JFK'",
    "//text()[. eq 'BOS']",
    "//element(fix) ! string(.) = 'BOS'",
    "every $f in //fix satisfies $f = 'BOS'",
    "not(every $f in //fix satisfies $f = 'BOS')",
    "boolean(//leg) and not(exists(//nosuch)) eq true()",
    "b = 'x1' or a/@x eq '1'",
    "some $x in b satisfies starts-with($x, 'x')",
    "//b[c eq '1' or d eq '1']",
    "//a[exists(b) and not(empty(c))]/@x = ('1', '2')",
]
DOCUMENTS = [
    b"<flight><id>TWA123</id><time>2026-03-01T00:00:00Z</time><route>BOS.KJFK</route><leg><alt>310</alt>"
    b"<speed>390</speed></leg><alt>310</alt><fix>BOS</fix><fix>JFK</fix><altitude>3.1e2</altitude><speed>450</speed>"
    b"<status>airborne</status><lat>40.2</lat><remarks>EMERGENCY</remarks><weight>2000</weight><n>2</n></flight>",
    b"<flight/>",
    b"<flight><id>DAL3</id><alt>40</alt><landed/></flight>",
    b"<flight><id>twa1</id><alt>5</alt><leg><alt>310</alt></leg></flight>",
    b"<x><altitude>400</altitude></x>",
    b"<flight><callsign>TWA1</callsign><alt/></flight>",
    b"<x xmlns='urn:u'><altitude>400</altitude></x>",
    b"<a><b>x1</b><b><c>1</c></b><a x='1'/></a>",
    b"<flight><route>BOS JFK</route><fix>A</fix><fix>B</fix><fix>C</fix><fix>DK</fix><alert/></flight>",
]


@pytest.mark.parametrize("text", REALISTIC + OTHERS)
def test_what_holds_needs_what_is_asked_for(text):
    query = Query.parse(text)
    need = query.need()
    assert need.version == "1.0"
    assert Query.decode_untrusted(need.encode()) == need
    packets = [*DOCUMENTS, *(document(random.Random(seed)) for seed in range(25))]
    for packet in packets:
        root = parse_document(packet)
        assert need.holds(root) or not query.holds(root), f"{need} is not needed by {text} on {packet!r}"


def test_most_realistic_queries_get_a_useful_condition():
    later = [query for text in REALISTIC if (query := Query.parse(text)).version != "1.0"]
    useful = [query for query in later if not query.need().matches_everything]
    assert len(later) >= 45
    assert len(useful) >= 38 * len(later) // 45, [query.text for query in later if query not in useful]


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("matches(/flight/id, '^TWA')", "/flight/id[starts-with(., 'TWA')]"),
        ("/flight/id eq 'TWA1'", "/flight/id = 'TWA1'"),
        ("/flight/id = ('A', 'B')", "/flight/id = 'A' or /flight/id = 'B'"),
        ("/flight/(id|callsign) eq 'A'", "/flight/id = 'A' or /flight/callsign = 'A'"),
        ("exists(//alert) and empty(//cancelled)", "//alert"),
        ("max(//alt) gt 300 and /a eq 'x'", "//alt and /a = 'x'"),
        ("empty(//cancelled)", "true()"),
        ("b/upper-case(.) = 'X'", "/*/b"),
        ("/p:a eq 'x'", "/p:a = 'x'"),
    ],
)
def test_conditions(text, need):
    namespaces = {"p": "urn:p"}
    assert Query.parse(text, namespaces).need() == Query.parse(need, namespaces)


def test_what_travels_needs_itself():
    for text in ("/a/b > 3", "count(//a) mod 2 = 1", "true()"):
        assert Query.parse(text).need() == Query.parse(text)


def test_the_namespace_axis_needs_what_the_index_asks_for():
    query = Query.parse("/a/b/namespace::p and /a/c = 'x'")
    need = query.need()
    assert need.travels
    assert not need.matches_everything
    assert need.matches(b"<a><b xmlns:p='urn:p'/><c>x</c></a>")


def test_a_default_namespace_needs_everything():
    assert Query.parse("ends-with(/a, 'x')", {"": "urn:a"}).need().matches_everything


PIECES = ["//b", "/a/b", "b", "//b[c eq '1']", "a/@x", "//c/..", "//*[@x]", "(//b|//c)", "//b/text()", "//d", "."]
SHAPES = [
    "{p} eq '1'",
    "{p} = ('1', 'x', '2')",
    "exists({p})",
    "max({p}) > 1",
    "{p} => string() = 'x1'",
    "contains(string({p}), 'x')",
    "some $v in {p} satisfies $v = '1'",
    "some $v in {p} satisfies $v/c eq '1'",
    "for $v in {p} return $v/c",
    "let $v := {p} return $v = 'x' or exists($v/b)",
    "number(({p})[1]) lt 3",
    "count({p}) gt 1",
    "string-length(string(({p})[1])) ge 1",
    "starts-with(({p})[1], 'x')",
    "({p}) ! (. = '1')",
    "if ({p}) then {q} eq '1' else exists({q})",
    "{p} ! upper-case(.) = 'X'",
    "not(empty({p})) and {q} != '1'",
    "exists({p}) or {q} eq 'x'",
    "//a[{q} eq '1']/b ! 1",
    "sum({p}) gt 0",
    "{p} is {q}",
    "matches(string(({p})[1]), '^x[0-9]')",
]


@pytest.mark.parametrize("seed", range(20))
def test_generated_queries_need_what_is_asked_for(seed):
    rng = random.Random(seed)
    for _ in range(12):
        text = rng.choice(SHAPES).format(p=rng.choice(PIECES), q=rng.choice(PIECES))
        if rng.random() < 0.4:
            other = rng.choice(SHAPES).format(p=rng.choice(PIECES), q=rng.choice(PIECES))
            text = f"({text}) {rng.choice(['and', 'or'])} ({other})"
        try:
            query = Query.parse(text)
        except QueryError:
            continue
        need = query.need()
        for _ in range(6):
            packet = document(rng)
            root = parse_document(packet)
            assert need.holds(root) or not query.holds(root), f"{need} for {text} on {packet!r}"
