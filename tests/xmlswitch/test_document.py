"""The parser: what it takes, what it refuses, and that a refusal says which rule and where."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlswitch import DocumentLimits, MalformedDocument, Rule, parse_document

BOMB = (
    b'<!DOCTYPE l [<!ENTITY a0 "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    + b']><l x="&a9;">&a9;</l>'
)
EXTERNAL = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'

REFUSED = [
    (b"", Rule.EMPTY, 0),
    (b" \n\t", Rule.EMPTY, 0),
    (b"<a/><b/>", Rule.WELL_FORMED, 1),
    (b"<a></b>", Rule.WELL_FORMED, 1),
    (b"<a>\n<b>\n</a>", Rule.WELL_FORMED, 3),
    (b"<a>]]></a>", Rule.WELL_FORMED, 1),
    (b'<a x="1" x="2"/>', Rule.WELL_FORMED, 1),
    (b"<p:a/>", Rule.WELL_FORMED, 1),
    (b"<!DOCTYPE a><a/>", Rule.DOCTYPE, 1),
    (b'<?xml version="1.0"?>\n<!-- c -->\n<!DOCTYPE a SYSTEM "x"><a/>', Rule.DOCTYPE, 3),
    (BOMB, Rule.DOCTYPE, 1),
    (EXTERNAL, Rule.DOCTYPE, 1),
    ('<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a><a/>'.encode("utf-16"), Rule.DOCTYPE, 1),
    (b'<?xml version="1.0" encoding="UTF-7"?>+ADw-!DOCTYPE a+AD4APA-a/+AD4-', Rule.ENCODING, 1),
    (b"<a>&nbsp;</a>", Rule.ENTITY, 1),
    (b"<a>\xff</a>", Rule.ENCODING, 1),
    (b'<?xml version="1.0" encoding="no-such"?><a/>', Rule.ENCODING, 1),
    (b"<a>" * 129 + b"x" * 900 + b"</a>" * 129, Rule.DEPTH, 1),
    (b"<a>" * 100_000, Rule.DEPTH, 1),
    (b"<a " + b" ".join(b'x%d="1"' % n for n in range(257)) + b"/>", Rule.ATTRIBUTES, 1),
    (b'<a x="' + b"y" * 70_000 + b'"/>', Rule.ATTRIBUTE_SIZE, 1),
    (b"<a>" + b"y" * 300_000 + b"</a>", Rule.TEXT_SIZE, 1),
    (b"<a>" + b"y" * (1 << 20) + b"</a>", Rule.SIZE, 0),
]


@pytest.mark.parametrize(("packet", "rule", "line"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_rule_and_place(packet, rule, line):
    with pytest.raises(MalformedDocument) as caught:
        parse_document(packet)
    assert caught.value.rule == rule
    assert caught.value.line == line
    assert rule.value in str(caught.value)


@pytest.mark.parametrize(
    "packet",
    [
        b' \r\n<?xml version="1.0"?><a>\xc3\xa9</a> \n',
        "\ufeff<a>\u00e9</a>".encode(),
        '<?xml version="1.0" encoding="utf-16"?><a>\u00e9</a>'.encode("utf-16"),
        '<?xml version="1.0" encoding="ISO-8859-1"?><a>\u00e9</a>'.encode("latin-1"),
        b"<a>&#233;</a>",
        b"<a><![CDATA[\xc3\xa9]]></a>",
        b"<!-- <!DOCTYPE a> --><a>\xc3\xa9</a>",
    ],
)
def test_any_encoding_that_xml_allows(packet):
    assert "".join(parse_document(packet).itertext()) == "\u00e9"


def test_limits_are_the_callers():
    parse_document(b"<a><b/></a>", DocumentLimits(max_bytes=11))
    with pytest.raises(MalformedDocument, match="size"):
        parse_document(b"<a><b/></a>", DocumentLimits(max_bytes=10))


def test_every_prefix_of_a_document_is_refused():
    packet = b'<?xml version="1.0"?><a x="1">b<c/>&amp;<!-- d --></a>'
    for end in range(len(packet)):
        with pytest.raises(MalformedDocument):
            parse_document(packet[:end])


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(data):
    for packet in (data, b"<a>" + data + b"</a>", b"<a " + data + b"/>"):
        with contextlib.suppress(MalformedDocument):
            parse_document(packet)


def test_the_rule_of_a_refusal_does_not_depend_on_earlier_packets():
    packets = {
        b"not XML at all": Rule.WELL_FORMED,
        b"<a>&x;</a>": Rule.ENTITY,
        b"<a>\xff</a>": Rule.ENCODING,
        b"<a><b>1</b>": Rule.WELL_FORMED,
        b"<a>" * 5000: Rule.DEPTH,
    }
    for before in packets:
        for packet, rule in packets.items():
            for one in (before, packet):
                with pytest.raises(MalformedDocument) as refused:
                    parse_document(one)
            assert refused.value.rule is rule
