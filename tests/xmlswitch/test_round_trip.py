"""What is sent is what was meant: a query read from its own canonical text is the same query."""

from __future__ import annotations

import random

import pytest

from tests.xmlswitch.generate import NAMESPACES, QueryMaker
from tests.xmlswitch.hostile import hostile_queries
from xmlswitch import Query, QueryError


def comes_back(text: str, namespaces: dict[str, str]) -> bool:
    try:
        query = Query.parse_untrusted(text, namespaces)
    except QueryError:
        return False
    again = Query.decode_untrusted(query.encode())
    assert again == query, (text, query.canonical, again.canonical)
    assert again.expr == query.expr, (text, query.canonical)
    return True


@pytest.mark.parametrize(
    "text",
    [
        "/a > '-7'",
        "(/ > -7) and /a",
        "(-/a) < / and /b",
        "(/) * 2 = 4",
        "2 * (/) * 3 = 4",
        "(/) div 2 > 1 or (/) mod 2 = 1",
        "5 - (/) * 2 = 1",
        "((/a)[1] | /) * 2 = 1",
        "((/b | /a)[true()] | /aa) = 1",
        "count((/c | /b)[true()] | /a | (/d)[2]) = 1",
        "(/a)[true()] = - -/b",
        "1 div -0 = /a",
        "1 div '-0' = /a or /b = '-0' + 1",
        "-(1 div 0) < /a",
        "/a[position() = -1] and /b[-(-1)]",
        "(/a = 1) = (/b = 2)",
        "number('-7') < /a and string(-7) = /b",
        "/a[(/)] = (/)",
        "1 - (1 - 1) - - 1 = /a",
    ],
)
def test_the_canonical_text_means_what_the_query_means(text):
    assert comes_back(text, {})


@pytest.mark.parametrize("seed", range(4))
def test_random_queries_come_back(seed):
    rng = random.Random(seed)
    maker = QueryMaker(rng, namespaces=True)
    assert sum(comes_back(maker.query(rng.randint(1, 3)), NAMESPACES) for _ in range(300)) > 250


def test_hostile_queries_come_back_or_are_refused():
    assert sum(comes_back(text, namespaces) for text, namespaces in hostile_queries()) > 200


def test_arithmetic_on_constants_is_folded():
    assert Query.parse("/a > 300 * 100 - 1").canonical == "/a > 29999"
    assert Query.parse("/a = -7 mod 3").canonical == "/a = (-1)"
    assert Query.parse("/a = 1 div 0 - 1 div 0").canonical == "(1 div 0) - (1 div 0) = /a"
    assert Query.parse("/a = 0 * -1 or /b = (1 div 0) mod 2").canonical == "(1 div 0) mod 2 = /b or /a = 0 * (-1)"
