"""How much work a stranger's query makes, in calls rather than seconds: a busy machine does not change it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import msgpack
import pytest

from tests.xmlswitch.hostile import hostile_queries
from xmlswitch import MalformedQuery, Query, QueryError, Switch

MOST_CALLS = 130_000  # some 15 ms; the largest of the corpus makes 116,000


class Calls:
    """A profile function that counts calls of Python and C functions."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        self.count += event in ("call", "c_call")


def calls_of_a_join(text: str, namespaces: dict[str, str] | None = None) -> int:
    """Admission and subscription, as a parent does them for a child."""
    data = msgpack.packb([1, "1.0", text, namespaces or {}], unicode_errors="surrogatepass")
    switch: Switch[Query] = Switch()
    switch.add_link(0)
    calls = Calls()
    previous = sys.getprofile()
    sys.setprofile(calls)
    try:
        switch.subscribe(0, Query.decode_untrusted(data))
    except (QueryError, MalformedQuery):
        pass
    finally:
        sys.setprofile(previous)
    return calls.count


def test_no_hostile_query_makes_more_than_bounded_work():
    counted = [(calls_of_a_join(text, namespaces), text) for text, namespaces in hostile_queries()]
    most, text = max(counted)
    assert most < MOST_CALLS, (most, text[:100])


FAMILIES = {
    "flight ids": lambda size: " or ".join(f"/flight/id = 'AAL{n:04d}'" for n in range(size)),
    "alternatives with predicates": lambda size: " or ".join(f"//*[a{n}][b{n}]/c" for n in range(size)),
    "unions compared": lambda size: " and ".join(f"(/a{n} | //b{n}) = {n}" for n in range(size)),
    "predicates in predicates": lambda size: "/a" + "[b = 1 or c" * (size // 5) + "]" * (size // 5),
    "unions in unions": lambda size: "/a" + "[b | c" * (size // 5) + "]" * (size // 5),
    "first nodes of first nodes": lambda size: "//*[1]" * (2 * size),
    "a long path": lambda size: "//a" * (3 * size),
    "many predicates": lambda size: "/a" + "[b]" * (4 * size),
    "negations": lambda size: "//*[" + " and ".join(f"not(@a{n})" for n in range(size)) + "]",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_work_grows_no_faster_than_the_query(name):
    """Twice the query, twice the work: parts are not parsed, written or compared again at each level above them."""
    half, whole = (calls_of_a_join(FAMILIES[name](size)) for size in (100, 200))
    assert whole < 2.4 * half
    assert whole < MOST_CALLS


def test_seventy_flights_are_cheap_and_accepted():
    text = FAMILIES["flight ids"](70)
    assert Query.parse_untrusted(text).matches(b"<flight><id>AAL0069</id></flight>")
    assert calls_of_a_join(text) < 30_000
