"""covers and disjoin against random packets: never a packet lost."""

from __future__ import annotations

import random

import pytest

from tests.xmlswitch.generate import QueryMaker, document
from xmlswitch import Query, covers, disjoin, parse_document

COVERED = [
    ("/a/b > 3", "/a/b > 5"),
    ("/a/b >= 3", "/a/b = 3"),
    ("/a/b", "/a/b/c"),
    ("//b", "/a/b[c]/d"),
    ("//b", "/a/*/b"),
    ("/a//c", "/a/b/c"),
    ("/a/*", "/a/b"),
    ("/*/b", "/a/b"),
    ("//@x", "/a/b/@x"),
    ("/a/b", "/a/b = 'x' and /a/c"),
    ("/a or /b", "/b"),
    ("/a/b or /a/c", "/a/c > 3"),
    ("starts-with(/a, 'x')", "starts-with(/a, 'xy')"),
    ("starts-with(/a, 'x')", "string(/a) = 'xyz'"),
    ("contains(/a, 'y')", "starts-with(/a, 'xyz')"),
    ("not(/a/b)", "not(/a//b)"),
    ("/a/b != 3", "/a/b > 3"),
    ("true()", "count(//a) mod 2 = 1"),
    ("/a", "false()"),
]
NOT_COVERED = [
    ("/a/b > 5", "/a/b > 3"),
    ("/a/b/c", "/a/b"),
    ("/a/b", "//b"),
    ("//a[b]/c", "//a/b and //a/c"),
    ("//a[b][c]", "//a[b] and //a[c]"),
    ("/a/b < 3", "not(/a/b >= 3)"),
    ("string(/a/b) = 'x'", "/a/b = 'x'"),
    ("//a[not(b)]", "//a"),
    ("/a/b", "/a//b"),
    ("/a/c", "/a/b"),
]


@pytest.mark.parametrize(("general", "special"), COVERED)
def test_covers(general, special):
    assert covers(Query.parse(general), Query.parse(special))


@pytest.mark.parametrize(("general", "special"), NOT_COVERED)
def test_does_not_cover(general, special):
    assert not covers(Query.parse(general), Query.parse(special))


@pytest.mark.parametrize("seed", range(25))
def test_covers_is_sound(seed):
    rng = random.Random(seed)
    maker = QueryMaker(rng)
    queries = [Query.parse(maker.query(1)) for _ in range(40)]
    roots = [parse_document(document(rng)) for _ in range(25)]
    answers = {query: [query.holds(root) for root in roots] for query in queries}
    for general in queries:
        for special in queries:
            if covers(general, special):
                pairs = zip(answers[general], answers[special], strict=True)
                assert all(wide or not narrow for wide, narrow in pairs), f"{general} does not cover {special}"


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("max_chars", [100_000, 200, 40, 5])
def test_disjoin_loses_nothing(seed, max_chars):
    rng = random.Random(seed)
    maker = QueryMaker(rng)
    queries = [Query.parse(maker.query(1)) for _ in range(12)]
    whole = disjoin(queries, max_chars=max_chars)
    assert len(whole.canonical) <= max(max_chars, len("true()"))
    for _ in range(15):
        root = parse_document(document(rng))
        members = any(query.holds(root) for query in queries)
        assert whole.holds(root) or not members, f"seed {seed}: {whole}"
        if max_chars == 100_000:
            assert whole.holds(root) == members, f"seed {seed}: {whole} is not exact"


def test_disjoin_is_minimal():
    queries = [Query.parse(text) for text in ("/a/b > 3", "/a/b > 5", "/a/b = 7", "/a/c", "/a/c/d")]
    assert disjoin(queries) == Query.parse("/a/b > 3 or /a/c")
    assert disjoin(reversed(queries)) == disjoin(queries)


def test_disjoin_of_none_and_of_everything():
    assert disjoin([]).matches_nothing
    assert disjoin([Query.parse("/a"), Query.parse("true()")]).matches_everything
    assert disjoin([Query.parse("/a"), Query.parse("ends-with(/a, 'x')")]).matches_everything
