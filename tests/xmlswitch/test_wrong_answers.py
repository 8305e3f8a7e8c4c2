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


@pytest.mark.parametrize(
    "text", ["substring(/a,'x')='1'", 'not(//a[substring(.,"x")="1"])', "substring(/a, 1, 'x') = ''"]
)
def test_a_position_in_a_text_that_is_not_a_number_raises_nowhere(text):
    for packet in (b"<a>10</a>", b"<b/>"):
        switched, matched, expected = answers(text, packet)
        assert switched == matched == expected


@pytest.mark.parametrize(
    ("text", "packet"),
    [
        ("substring-before(/a, 0) = '1'", b"<a>10</a>"),
        ("substring-after(/a, -1) = 'x'", b"<a>-1x</a>"),
        ("substring-after(/a, -0) = 'x'", b"<a>0x</a>"),
        ("substring-after(/a, 1.50) = 'x'", b"<a>1.5x</a>"),
        ("translate(/a, 1, 2) = 2", b"<a>1</a>"),
        ("substring(/a, '2') = '0'", b"<a>10</a>"),
        ("contains(/a, 1 div 0)", b"<a>-Infinity</a>"),
        ("starts-with(/a, string(10))", b"<a>100</a>"),
    ],
)
def test_a_number_where_a_string_is_wanted_is_its_text(text, packet):
    switched, matched, expected = answers(text, packet)
    assert switched == matched == expected
    assert expected


@pytest.mark.parametrize(
    "packet", [b"<a><id/></a>", b"<!--x--><a><id/></a>", b"<?p x?><a><id/></a>", b"<a><id/></a><!--x-->"]
)
@pytest.mark.parametrize("text", ["exists(id)", "name(.) eq 'a'", "exists(..) and exists(/a/id)"])
def test_the_context_is_the_root_element_whatever_stands_beside_it(text, packet):
    query = Query.parse(text)
    assert query.version == "3.1"
    assert query.matches(packet)
    assert query.need().matches(packet)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["//text()", "//text() = ''", "count(//text()) = 1", "/a/text()[1] = 'x'"])
@pytest.mark.parametrize("inside", ["", "x", "<b/>", "<b/>x"])
def test_an_empty_cdata_section_is_no_text(inside, text, encoding):
    """XPath has no empty text nodes; libxml2 makes one, and the index did not see it."""
    marks = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
    with_section, without = (
        marks.get(encoding, b"") + f"<a>{section}{inside}{section}</a>".encode(encoding)
        for section in ("<![CDATA[]]>", "")
    )
    switched, matched, _ = answers(text, with_section)
    assert switched == matched == answers(text, without)[2]
