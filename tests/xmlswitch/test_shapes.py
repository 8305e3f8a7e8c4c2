"""Known markup: whatever is done to a packet, the answer (or the refusal) is the parser's."""

from __future__ import annotations

import random

import pytest

from xmlswitch import MalformedDocument, Query, Switch, parse_document
from xmlswitch.match.shapes import shape_of

SAMPLE = '<?xml version="1.0"?>\n<a xmlns:p="urn:p"><b x="1" p:y=\'2\'>t1</b>\n <c><d>5</d>mixed<d>6</d></c><e/></a>\n'
QUERIES = [
    "/a/b/@x = '1'",
    "/a/b/@p:y > 1",
    "/a/b = 't1'",
    "string(/a/c) = '5mixed6'",
    "//d > 5",
    "/a/c/text() = 'mixed'",
    "starts-with(/a/b, 't')",
    "/a/e",
    "not(/a/f)",
    "count(//d) = 2",
    "//*[@x = '1']/following-sibling::c",
    "string-length(/a) > 12",
]
PIECES = [
    "<",
    ">",
    "&",
    "&amp;",
    "&#65;",
    "]]>",
    "<!--x-->",
    "<![CDATA[1]]>",
    "<?p?>",
    "\r",
    "\t",
    "\n",
    "\x00",
    "\x0b",
]
PIECES += [
    "'",
    '"',
    "\ufffe",
    "\u00e9",
    "\ue000",
    "=",
    "x='1'",
    "<f/>",
    "</b>",
    "xmlns='u'",
    " ",
    "",
    "7",
    "t1",
    "é",
    "\U0001f600",
]


def answers(switch: Switch[Query], packet: bytes) -> object:
    try:
        return switch.match(packet)
    except MalformedDocument:
        return "refused"


def by_evaluation(queries: list[Query], packet: bytes) -> object:
    try:
        root = parse_document(packet)
    except MalformedDocument:
        return "refused"
    return frozenset(number for number, query in enumerate(queries) if query.holds(root))


@pytest.fixture
def loaded() -> tuple[Switch[Query], list[Query]]:
    queries = [Query.parse(text, {"p": "urn:p"}) for text in QUERIES]
    switch: Switch[Query] = Switch()
    for number, query in enumerate(queries):
        switch.add_link(number)
        switch.subscribe(number, query)
    for _ in range(3):
        switch.match(SAMPLE.encode())
    return switch, queries


@pytest.mark.parametrize("seed", range(8))
def test_mutated_packets_get_the_parsers_answer(seed, loaded):
    switch, queries = loaded
    rng = random.Random(seed)
    for number in range(500):
        text = SAMPLE
        if number % 2:  # a value alone, so that the markup stays known
            text = text.replace(rng.choice(["t1", "5", "mixed", "6"]), rng.choice(PIECES) + rng.choice(PIECES))
            packet = text.encode()
            assert answers(switch, packet) == by_evaluation(queries, packet), repr(text)
            continue
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text))
            text = text[:start] + rng.choice(PIECES) + text[start + rng.choice([0, 0, 1, 2, 5]) :]
        packet = text.encode("utf-8", "surrogatepass")
        assert answers(switch, packet) == by_evaluation(queries, packet), repr(text)
    assert switch.stats().by_shape > 20


def test_values_alone_change(loaded):
    switch, queries = loaded
    for value in ("1", "t1", "", " 6 ", "é", "a=b", "'", "x" * 300):
        packet = SAMPLE.replace("t1", value).replace('"1"', f'"{value}"', 1).encode()
        assert answers(switch, packet) == by_evaluation(queries, packet)
    assert switch.stats().shapes >= 1


@pytest.mark.parametrize(
    "packet",
    [b"<a><!--x--></a>", b"<a>&amp;</a>", b"<a><![CDATA[x]]></a>", b"<a>a > b</a>", b"<a>\r\n</a>", b"<a b='x\ty'/>"],
)
def test_what_can_have_no_shape(packet):
    parse_document(packet)
    assert shape_of(packet) is None


def test_raw_bytes_that_are_not_utf8(loaded):
    switch, _ = loaded
    with pytest.raises(MalformedDocument):
        switch.match(SAMPLE.encode().replace(b"t1", b"\xff"))
