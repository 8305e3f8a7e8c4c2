"""Streams whose queries are not XPath: records from CSV and JSON lines, and a language that an application adds."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dcp import EVERYTHING
from peer.api import join, root
from peer.envelope import Envelope
from peer.feeds.framing_csv import CsvSplitter
from peer.languages import LanguagePolicy, language_named, register_language
from peer.queries import XPathPolicy, token_of
from tests.peer.cli.inprocess import call_here, root_here
from xmlswitch import RECORD, MalformedQuery, QueryError

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "word_language.py"
CSV = b"""id,price,note
TWA1,120,"two
lines"
UAL2,80,
broken
TWA3,99.5,"a ""quoted"" word"
"""


def token(text: str) -> bytes:
    return token_of(language_named("record").parse(text, {}))


def policy() -> LanguagePolicy:
    return LanguagePolicy(RECORD)


def pack(**record) -> bytes:
    return Envelope().pack(json.dumps(record).encode())


def test_a_policy_routes_records_to_the_children_that_want_them():
    routes = policy()
    routes.open_slot(0, token("price > 100"))
    routes.open_slot(1, token('id ~ "UAL"'))
    assert routes.route(pack(id="UAL1", price=120)) == 0b11
    assert routes.route(pack(id="TWA1", price=120)) == 0b01
    routes.close_slot(0)
    assert routes.route(pack(id="UAL1", price=120)) == 0b10
    assert routes.route(Envelope().pack(b"<xml/>")) == 0
    assert routes.unreadable == 1


def test_covering_merging_and_matching_by_token():
    routes = policy()
    narrow, wide = token("price > 100"), token("price > 50")
    assert routes.covers(wide, narrow)
    assert not routes.covers(narrow, wide)
    assert routes.covers(EVERYTHING, narrow)
    assert not routes.covers(narrow, EVERYTHING)
    assert routes.merged({narrow, wide}) == wide
    assert routes.merged(()) == EVERYTHING
    assert routes.matches(narrow, pack(price=101))
    assert not routes.matches(narrow, pack(price=100))
    assert routes.text_of(narrow) == "price > 100"


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: b"\xf5record\0" + tail))
def test_any_bytes_are_a_query_or_refused(data):
    routes = policy()
    if routes.check(data) is None and data != EVERYTHING:
        routes.open_slot(0, data)
        routes.close_slot(0)
    routes.covers_untrusted(data, token("price > 100"))


def test_queries_of_another_language_are_refused_with_a_reason():
    assert "in the language record" in policy().check(token_of(language_named("xpath").parse("/a", {})))
    assert XPathPolicy().check(token("price > 100")) is not None
    with pytest.raises(MalformedQuery):
        policy().open_slot(0, b"\xf5words\0fog")


def test_names_of_languages():
    with pytest.raises(ValueError, match="one of xpath, record"):
        language_named("sql")
    with pytest.raises(ValueError, match="already registered"):
        register_language(type("Other", (type(RECORD),), {})())
    with pytest.raises(QueryError, match="no namespaces"):
        language_named("record").parse("a", {"p": "urn:p"})
    with pytest.raises(QueryError):
        language_named("record").parse("price >", {})


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_rows_become_objects_however_the_bytes_are_cut(size):
    splitter = CsvSplitter()
    found = [p for at in range(0, len(CSV), size) for p in splitter.feed(CSV[at : at + size])] + splitter.finish()
    assert [json.loads(packet) for packet in found] == [
        {"id": "TWA1", "price": "120", "note": "two\nlines"},
        {"id": "UAL2", "price": "80", "note": ""},
        {"id": "TWA3", "price": "99.5", "note": 'a "quoted" word'},
    ]
    assert splitter.errors == {"bad_row": 1}


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_are_rows_or_errors(chunks):
    splitter = CsvSplitter(max_document=100)
    for chunk in chunks:
        assert all(isinstance(json.loads(packet), dict) for packet in splitter.feed(chunk))
        assert len(splitter._rest) + len(splitter._row) <= 100
    splitter.finish()


def test_a_quotation_that_never_ends_is_bounded():
    splitter = CsvSplitter(max_document=1_000)
    splitter.feed(b'a,b\n"' + b"x\n" * 1_000)
    assert splitter.errors["bad_row"] + splitter.errors["too_large"] > 0
    assert len(splitter._row) <= 1_000


@pytest.mark.net
@pytest.mark.slow
async def test_a_dynamic_router_of_records_asks_for_what_its_child_wants():
    options = {"language": "record", "beacon": False}
    with trio.fail_after(60):
        async with root("prices", capacity=1, keep_numbers=False, **options) as source:
            options |= {"bootstrap": [source.address], "parents": 1}
            async with join("prices", dynamic=True, query="price > 1000", **options) as router:
                await router.wait_parents(1)
                async with join("prices", query="price > 100", capacity=0, **options) as client:
                    await client.wait_parents(1)
                    for price in (50, 150, 99, 101):
                        await source.send(json.dumps({"price": price}).encode())
                    got = []
                    async for item in client:
                        if hasattr(item, "payload"):
                            got.append(json.loads(item.payload)["price"])
                            if len(got) == 2:
                                break
                    assert got == [150, 101]
                    assert len(router.statistics().children) == 1


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.parametrize(
    ("framing", "data"), [("csv", b"id,price\nA,120\nB,80\n"), ("lines", b'{"id":"A","price":120}\n{"id":"B"}\n')]
)
def test_a_client_of_a_file_of_records_gets_what_it_asks_for(tmp_path, capfd, framing, data):
    path = tmp_path / "records"
    path.write_bytes(data)
    with root_here(str(path), stream="prices", framing=framing, language="record") as address:
        done = call_here(
            capfd, "join", "prices", "--bootstrap", address, "--no-beacon", "--leaf", "--from", "oldest", "--count=1",
            "--timeout", "30", "--language", "record", "--query", "price > 100",
        )  # fmt: skip
    assert done.code == 0, done
    assert json.loads(done.out)["id"] == "A"


@pytest.mark.net
@pytest.mark.slow
def test_the_example_runs():
    main = runpy.run_path(str(EXAMPLE))["main"]
    assert trio.run(main) == ["fog in the valley", "a storm is coming", "the fog lifts"]
