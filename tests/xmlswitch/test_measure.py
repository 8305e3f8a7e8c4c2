"""What a written tree counts for a parser, without parsing it: the same as the parser itself says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.xmlswitch.generate import NAMESPACES, QueryMaker
from tests.xmlswitch.hostile import hostile_queries
from xmlswitch import Query, QueryError, QueryLimits, QueryTooExpensiveError
from xmlswitch.query.measure import why_too_large
from xmlswitch.query.parser import parse_xpath

LOOSE = QueryLimits(max_chars=1 << 20, max_nesting=90, max_nodes=50_000, max_chain=2_000, max_depth=200)
FIELDS = ["max_nodes", "max_nesting", "max_chain", "max_depth"]


def read_again(query: Query, limits: QueryLimits) -> str | None:
    try:
        parse_xpath(query.canonical, query.namespaces, limits)
    except QueryTooExpensiveError as error:
        return error.reason
    return None


def least(query: Query, field: str) -> int:
    """The least limit with which the canonical text is read."""
    low, high = 0, getattr(LOOSE, field)
    while low < high:
        middle = (low + high) // 2
        if read_again(query, replace(LOOSE, **{field: middle})) is None:
            high = middle
        else:
            low = middle + 1
    return low


def check(text: str, namespaces: dict[str, str]) -> bool:
    try:
        query = Query._from_expr(parse_xpath(text, namespaces, LOOSE), LOOSE, text)
    except QueryError:
        return False
    if query.expr is None or read_again(query, LOOSE) is not None:
        return False
    for field in FIELDS:
        limit = least(query, field)
        assert why_too_large(query.expr, replace(LOOSE, **{field: limit})) is None, (text, field, limit)
        if limit:
            below = replace(LOOSE, **{field: limit - 1})
            assert why_too_large(query.expr, below) == read_again(query, below), (text, field, limit)
    return True


def test_the_hostile_corpus_is_measured_as_the_parser_counts():
    assert (
        sum(check(text, namespaces) for text, namespaces in hostile_queries() if len(text) < 400 and not namespaces)
        > 100
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_queries_are_measured_as_the_parser_counts(seed):
    rng = random.Random(seed)
    maker = QueryMaker(rng, namespaces=True)
    assert sum(check(maker.query(depth=rng.randint(1, 4)), NAMESPACES) for _ in range(60)) > 40


@pytest.mark.parametrize(
    "text",
    [
        "/a > -7",
        "/a = -(1 div 0)",
        "-(-/a) = - -/b",
        "(1+/a+3)+(4+5+/b)*-6 = /c - (7 - 8)",
        "/a < /b = (/c != /d) and ((/e | /f)/g or (//h)[2]//i or id('x')/k)",
        ".//a[.//b]/descendant-or-self::node()",
        "//a[descendant-or-self::node()]",
        "((/a = 1) = (/b = 2)) = (/c and /d)",
        "(((/a+1)+2)+3)+4 > 5",
        "(//a | //b[c | .//d])[last()] = concat(1, -2, 'x')",
    ],
)
def test_every_kind_of_writing_is_measured(text):
    assert check(text, {})
