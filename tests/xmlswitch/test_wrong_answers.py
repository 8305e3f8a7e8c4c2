"""Answers that once were wrong, each by the query that showed it: the switch, `Query.matches` and lxml agree."""

from __future__ import annotations

import pytest
from lxml import etree

from xmlswitch import Query, Switch


def answers(text: str, packet: bytes) -> tuple[bool, bool, bool]:
    query = Query.parse_untrusted(text)
    switch: Switch[Query] = Switch(strict=True, exact=True)
    switch.add_link(0)
    switch.subscribe(0, query)
    switched = {bool(switch.match(packet)) for _ in range(4)}
    assert len(switched) == 1
    root = etree.fromstring(packet)
    return switched.pop(), query.matches(packet), bool(etree.XPath(f"boolean({text})")(root))


@pytest.mark.parametrize("packet", [b"<a/>", b"<a><b/></a>", b"<a><x/></a>", b"<a><b/><x/><y/></a>"])
@pytest.mark.parametrize("text", ["(/a/b) = (/a/x and /a/y)", "(/a/b or /a/x) != /a/y", "not(/a/b) = (/a/x or /a/y)"])
def test_a_junction_that_is_compared_keeps_its_parentheses(text, packet):
    switched, matched, expected = answers(text, packet)
    assert switched == matched == expected
