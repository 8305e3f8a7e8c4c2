"""Numbers by XPath 1.0, where libxml2 and Python both differ from it, and the same in index and evaluation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from xmlswitch import Query, Switch, parse_document
from xmlswitch.query.atoms import transformed
from xmlswitch.query.numerals import round_half_up, to_number, to_string


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 290 ", 290), ("-.5", -0.5), ("5.", 5), ("\n7\t", 7), ("0.1", 0.1), ("9007199254740993", 9007199254740992)],
)
def test_numerals(text, number):
    assert to_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "+290", "2.9e2", "inf", "1_000", "\u0662\u0669", "0x1", "- 1", ".", "1.2.3", "NaN"]
)
def test_not_numerals(text):
    assert math.isnan(to_number(text))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1 + 0.2, "0.30000000000000004"),
        (1e21, "1" + "0" * 21),
        (-0.0, "0"),
        (1e-7, "0.0000001"),
        (math.inf, "Infinity"),
    ],
)
def test_number_to_string(number, text):
    assert to_string(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_strings_of_numbers_read_back(number):
    assert to_number(to_string(number)) == number


@given(st.decimals(min_value=-10_000, max_value=10_000, places=6).map(str))
def test_one_converter_everywhere(text):
    """The index, the evaluation and Python's correctly rounded float agree on every decimal; libxml2 does not."""
    packet = f"<a><b>{text}</b></a>".encode()
    root = parse_document(packet)
    number = to_string(float(text))
    for query in (f"/a/b = {number}", f"number(/a/b) = {number}", f"/a[b = {number} and c]/b or /a/b + 0 = {number}"):
        parsed = Query.parse(query.replace("= -", "= 0 - ") if "-" in number else query)
        switch: Switch[Query] = Switch()
        switch.add_link(0)
        switch.subscribe(0, parsed)
        assert parsed.holds(root)
        assert switch.match(packet) == {0}


def test_where_libxml2_departs_the_specification_wins():
    root = parse_document(b"<a>2.9e2</a>")
    assert etree.XPath("boolean(/a = 290)")(root) is True
    assert Query.parse("/a = 290").holds(root) is False


@pytest.mark.parametrize(("number", "rounded"), [(2.5, 3), (-2.5, -2), (0.49999999999999994, 0), (-0.5, 0)])
def test_round(number, rounded):
    assert round_half_up(number) == rounded


@given(
    st.text(alphabet="ab12 \n", max_size=8),
    st.sampled_from(
        [
            ("substring", 2.0),
            ("substring", 1.5, 2.6),
            ("substring", 0.0, 3.0),
            ("substring", -42.0),
            ("substring", 2.0, -1.0),
            ("substring-before", "1"),
            ("substring-after", "a"),
            ("substring-before", ""),
            ("substring-after", ""),
            ("normalize-space",),
            ("string-length",),
            ("translate", "ab1", "B2"),
        ]
    ),
)
def test_functions_of_columns_are_libxml2s(text, link):
    name, *args = link
    written = "".join(f", {arg if isinstance(arg, float) else repr(arg)}" for arg in args)
    expected = etree.XPath(f"string({name}($value{written}))")(etree.Element("a"), value=text)
    assert transformed(text, (link,)) == expected
