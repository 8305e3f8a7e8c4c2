"""The record profile: merge and covers against matching, hostile queries and hostile records."""

from __future__ import annotations

import contextlib
import json
import random
import time

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlswitch import RECORD, MalformedDocument, MalformedQuery, QueryError, RecordQuery, Switch

FIELDS = ("x", "y", "x.z")
VALUES = [5, 5.0, "5", "5.0", " 5", "05", 3, -7, "abc", "ab", "", True, None, 1e300, [5, "abc"], ["5.0"], [], {"z": 5}]
OPERANDS = ["5", '"5"', '"5.0"', '"05"', "3", "-7", '"abc"', '"ab"', '""', '"3"', "7.5"]


def test_a_number_does_not_cover_its_text():
    number, text = RecordQuery.parse("x = 5"), RecordQuery.parse('x = "5"')
    packet = b'{"x": "5.0"}'
    assert RECORD.matches(packet, number)
    assert not RECORD.matches(packet, text)
    assert not RECORD.covers(text, number)
    assert RECORD.covers(number, text)
    assert RECORD.matches(packet, RECORD.merge([number, text]))


def test_alternatives_that_cover_each_other_do_not_both_go():
    one, other = RecordQuery.parse("x = 5"), RecordQuery.parse("x = 5 and x > 3")
    merged = RECORD.merge([one, other])
    assert merged.alternatives
    assert RECORD.matches(b'{"x": 5}', merged)


def _conjunction(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(1, 3)):
        field = rng.choice(FIELDS)
        kind = rng.random()
        if kind < 0.15:
            parts.append(field)
        elif kind < 0.25:
            parts.append(f"not {field}")
        else:
            op = rng.choice(["=", "!=", "~", "<", "<=", ">", ">="])
            numeric = [operand for operand in OPERANDS if operand.strip('"').lstrip("-")[:1].isdigit()]
            parts.append(f"{field} {op} {rng.choice(numeric if op in ('<', '<=', '>', '>=') else OPERANDS)}")
    return " and ".join(parts)


@pytest.mark.parametrize("seed", range(40))
def test_merge_and_covers_agree_with_matching(seed):
    rng = random.Random(seed)
    queries = [RecordQuery.parse("\n".join(_conjunction(rng) for _ in range(rng.randint(1, 2)))) for _ in range(14)]
    packets = [
        json.dumps({name: rng.choice(VALUES) for name in ("x", "y") if rng.random() < 0.8}).encode() for _ in range(25)
    ]
    answers = {query: [RECORD.matches(packet, query) for packet in packets] for query in queries}
    for general in queries:
        for special in queries:
            if RECORD.covers(general, special):
                pairs = zip(answers[general], answers[special], strict=True)
                assert all(wide or not narrow for wide, narrow in pairs), f"{general} does not cover {special}"
    merged = RECORD.merge(queries)
    switch = Switch(RECORD)
    switch.add_link(0)
    switch.subscribe(0, merged)
    for at, packet in enumerate(packets):
        expected = any(answers[query][at] for query in queries)
        assert RECORD.matches(packet, merged) == expected
        assert (switch.match(packet) == {0}) == expected
    for query in queries:
        assert RECORD.covers(merged, query)
        assert RECORD.decode_untrusted(RECORD.encode(query)) == query


def test_merging_very_many_takes_bounded_time_and_loses_nothing():
    rng = random.Random(1)
    queries = [RecordQuery.parse("\n".join(f"f{rng.randrange(99)} > {rng.randrange(99)}" for _ in range(64)))] * 3
    queries += [RecordQuery.parse("\n".join(f"f{n} > {k}" for k in range(64))) for n in range(199)]
    began = time.process_time()
    merged = RECORD.merge(queries)
    assert time.process_time() - began < 5
    assert RECORD.matches(b'{"f7": 100}', merged)


@pytest.mark.parametrize(
    "text",
    [
        'x = "\\x"',
        'x = "\\u12"',
        'x > "abc"',
        "x > " + "9" * 400,
        "x = " + "9" * 4000,
        "\n".join(["x"] * 100),
        " and ".join(["x"] * 40),
        "x" * 5000,
        '"',
        'x = "' + "\\" * 999,
        "x = \x00",
        "not not x",
        "",
    ],
)
def test_hostile_record_queries_are_refused(text):
    with pytest.raises(QueryError):
        RecordQuery.parse(text)
    with pytest.raises((QueryError, MalformedQuery)):
        RECORD.decode_untrusted(text.encode())


@pytest.mark.parametrize(
    "packet",
    [
        b'{"x": ' + b"9" * 10_000 + b"}",
        b'{"x": [' + b"1," * 20_000 + b"1]}",
        b'{"a":' * 40 + b"1" + b"}" * 40,
        b'{"a":' * 100_000,
        b'{"x": "\xff"}',
        b"{" + b",".join(b'"k%d":1' % n for n in range(20_000)) + b"}",
        b'{"' + b"k" * 2000 + b'": {"a": 1}}',
        b"\xdf\xff\xff\xff\xff",
        b"\x81\x01\x02",
        b"\xc7\xff\x01" + b"x" * 255,
        b"\xff",
    ],
    ids=range(11),
)
def test_hostile_records_are_malformed(packet):
    with pytest.raises(MalformedDocument):
        RECORD.matches(packet, RecordQuery.parse("x = 5"))


def test_large_numbers_are_values():
    query = RecordQuery.parse("x > 5")
    assert RECORD.matches(b'{"x": ' + b"9" * 4000 + b"}", query)
    assert RECORD.matches(b'{"x": 1e999}', RecordQuery.parse("x"))
    assert RECORD.matches(msgpack.packb({"x": (1 << 64) - 1}), query)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_query_or_refused(data):
    with contextlib.suppress(QueryError, MalformedQuery):
        query = RECORD.decode_untrusted(data)
        assert RECORD.decode_untrusted(RECORD.encode(query)) == query
    with contextlib.suppress(MalformedDocument):
        RECORD.matches(data, RecordQuery.parse("x"))
