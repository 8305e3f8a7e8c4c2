"""Splitters: packets come out whole, however the bytes are cut; garbage is counted and passed; nothing grows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peer.feeds.framing import LengthSplitter, SeparatorSplitter, Splitter, XmlSplitter, make_splitter
from peer.feeds.framing_xml import MAX_DEPTH, RESYNC_DOCUMENTS
from peer.feeds.options import FRAMINGS

NAMES = st.sampled_from(["a", "b", "flight", "n:x", "é"])
TEXTS = st.text(st.characters(exclude_characters="<>&\0", exclude_categories=["Cs"]), max_size=12)
MISC = st.one_of(
    TEXTS.filter(lambda text: "--" not in text and not text.endswith("-")).map(lambda text: f"<!--{text}<'\">-->"),
    TEXTS.filter(lambda text: "?" not in text).map(lambda text: f"<?pi {text}>'<?>"),
)


def attributes() -> st.SearchStrategy[str]:
    value = TEXTS.filter(lambda text: "'" not in text and '"' not in text)
    return st.lists(value, max_size=2).map(
        lambda values: "".join(f' k{number}="{text}>/\'"' for number, text in enumerate(values))
    )


def element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda name, attrs, body: f"<{name}{attrs}>{body}</{name} >", NAMES, attributes(), inner)


ELEMENTS = st.recursive(
    st.one_of(
        st.builds(lambda name, attrs: f"<{name}{attrs} />", NAMES, attributes()),
        element(TEXTS),
        element(TEXTS.filter(lambda text: "]]" not in text).map(lambda text: f"<![CDATA[{text}</a>]]>")),
    ),
    lambda children: element(
        st.lists(st.one_of(children, MISC, TEXTS), max_size=3).map("".join),
    ),
    max_leaves=6,
)
DOCUMENTS = st.builds(
    lambda head, misc, doctype, body: head + misc + doctype + body,
    st.sampled_from(["", '<?xml version="1.0"?>']),
    st.one_of(st.just(""), MISC),
    st.sampled_from(["", "<!DOCTYPE a>", "<!DOCTYPE a [<!ENTITY e \">'\"><!-- ' -->\n<?x '?>]>"]),
    ELEMENTS,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def run(splitter: Splitter, chunks: list[bytes]) -> tuple[list[bytes], dict[str, int]]:
    found = [packet for chunk in chunks for packet in splitter.feed(chunk)]
    return found + splitter.finish(), dict(splitter.errors)


@given(st.lists(DOCUMENTS, max_size=5), st.lists(st.integers(0, 10**6), max_size=8), st.sampled_from(["", " ", "\r\n"]))
def test_documents_come_back_whole(documents, places, between):
    data = between.join(documents).encode()
    found, errors = run(XmlSplitter(), cut(data, places))
    assert found == [document.encode() for document in documents]
    assert not errors


@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.one_of(
                DOCUMENTS.map(str.encode),
                st.sampled_from(
                    [b"<", b"</a>", b"<!", b"<a", b"<?xml ", b"]]>", b"x", b"\0", b"<a b='", b"<!--", b"?>"]
                ),
                st.binary(max_size=5),
            ),
            max_size=8,
        ).map(b"".join),
    ),
    st.lists(st.integers(0, 10**6), max_size=30),
    st.sampled_from(FRAMINGS),
    st.integers(1, 80),
)
@example(b"<a>" + b"x" * 90 + b"</a><a/>", list(range(100)), "xml", 20)
@example(b"x<a/>", [], "xml", 1)  # once went round forever
def test_cutting_changes_nothing(data, places, kind, most):
    whole = run(make_splitter(kind, max_document=most), [data])
    assert run(make_splitter(kind, max_document=most), cut(data, places)) == whole
    assert run(make_splitter(kind, max_document=most), [bytes((byte,)) for byte in data]) == whole
    assert all(0 < len(packet) <= most for packet in whole[0])


@pytest.mark.parametrize(
    ("data", "found", "errors"),
    [
        (b"garbage<a/>more<b/>", [b"<a/>", b"<b/>"], {"garbage": 2}),
        (b"<a><b></a><a>1</a>", [b"<a>1</a>"], {"mismatch": 1}),
        (b"<a>1</a><a><b>cut<?xml version='1.0'?><c/>", [b"<a>1</a>", b"<?xml version='1.0'?><c/>"], {"cut_off": 1}),
        # After trouble inside a document an inner element is no document; a root seen before is.
        (b"<a>1</a><a>< <i>x</i></a><a>2</a>", [b"<a>1</a>", b"<a>2</a>"], {"bad_markup": 1}),
        (b"<a", [], {"cut_off": 1}),
        (b"<a/><!-- trailing -->", [b"<a/>"], {}),
        (b"<a/><!-- trailing --><?xml version='1.0'?><b/>", [b"<a/>", b"<?xml version='1.0'?><b/>"], {}),
        (b"\xef\xbb\xbf<a/>\xef\xbb\xbf\n<b/>", [b"<a/>", b"<b/>"], {}),
        (b"<a></b ><!ELEMENT x><c></c>", [b"<c></c>"], {"mismatch": 1}),
    ],
)
def test_it_finds_its_way_back(data, found, errors):
    assert run(XmlSplitter(), [data]) == (found, errors)


def test_new_roots_are_taken_after_long_garbage():
    splitter = XmlSplitter(max_document=64)
    data = b"<a>1</a><a>< " + b"<x/>" * (RESYNC_DOCUMENTS * 64 // 4 + 10)
    found, errors = run(splitter, [data])
    assert found[0] == b"<a>1</a>"
    assert b"<x/>" in found
    assert errors == {"bad_markup": 1}


def test_a_document_too_large_is_passed_and_never_kept():
    splitter = XmlSplitter(max_document=1_000)
    found = [packet for _ in range(100) for packet in splitter.feed(b"<a>" + b"x" * 100)]
    assert found == []
    assert len(splitter._buffer) <= 1_200
    assert splitter.errors["too_large"] >= 1
    assert splitter.feed(b"</a><?xml version='1.0'?><a/>") == [b"<?xml version='1.0'?><a/>"]


def test_the_inner_elements_of_a_document_that_is_too_large_are_not_documents():
    inner = b"<flight><id>DAL841</id></flight>"
    big = b"<?xml version='1.0'?><feed>" + inner * 80_095 + b"</feed>"
    assert len(big) > 2_200_000
    splitter = XmlSplitter()
    chunks = [big[at : at + 65_536] for at in range(0, len(big), 65_536)]
    assert run(splitter, [b"<a/>", *chunks, b"<b/>"]) == ([b"<a/>", b"<b/>"], {"too_large": 1})
    assert splitter.skipped == [(0, len(big))]
    assert len(splitter._buffer) == 0


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"<a>" + b"<i>1</i>" * 30 + b"</a><b/>", [b"<b/>"]),
        (b"<a>" + b"<!-- <i/> -->" * 30 + b"</a><b/>", [b"<b/>"]),
        (b"<a><i k='" + b"x" * 100 + b"'/></a><b/>", [b"<b/>"]),
        (b"<!--" + b"x" * 60 + b"--><a/><b/>", [b"<a/>", b"<b/>"]),  # a comment between documents is of none
        (
            b"<!--" + b"x" * 30 + b"--><!--" + b"x" * 30 + b"--><?xml version='1.0'?><a/>",
            [b"<?xml version='1.0'?><a/>"],
        ),
        # Broken inside, too: what follows up to its end is still of it.
        (b"<a>" + b"<i>1</i>" * 30 + b"<< " + b"<i>1</i>" * 30 + b"</a><b/>", [b"<b/>"]),
        (b"<a><j></i>" + b"<i>1</i>" * 60 + b"</a><b/>", [b"<b/>"]),
    ],
)
def test_nothing_inside_a_large_or_broken_document_is_taken_for_a_document(data, found):
    for chunks in ([data], [bytes((byte,)) for byte in data]):
        assert run(XmlSplitter(max_document=50), chunks)[0] == found


def test_skipped_packets_are_told_with_their_place_and_size():
    splitter = XmlSplitter(max_document=10)
    assert splitter.feed(b"<a/><b>0123456789</b><c/><d>" + b"x" * 20) == [b"<a/>", b"<c/>"]
    assert splitter.skipped == [(1, 17)]
    splitter.skipped.clear()
    assert splitter.feed(b"</d><e/>") == [b"<e/>"]
    assert splitter.skipped == [(0, 27)]
    lines = SeparatorSplitter(b"\n", max_document=5)
    lines.feed(b"one\ntoo lo")
    lines.feed(b"ng\ntwo\n")
    assert lines.skipped == [(0, 8)]
    lengths = LengthSplitter(max_document=2)
    lengths.feed(b"\0\0\0\x01a\0\0\0\x03bcd")
    assert lengths.skipped == [(1, 3)]


def test_a_document_that_nests_without_end_is_given_up():
    splitter = XmlSplitter(max_document=1 << 30)
    splitter.feed(b"<a>" * (MAX_DEPTH + 1))
    assert splitter.errors == {"too_deep": 1}


def test_lengths():
    splitter = LengthSplitter(max_document=10)
    data = b"\0\0\0\x03abc" + b"\0\0\0\0" + b"\0\0\0\x0b" + b"x" * 11 + b"\0\0\0\x01z"
    assert run(splitter, [data]) == ([b"abc", b"z"], {"too_large": 1})
    assert splitter.feed(b"\xff\xff\xff\xff<a/>") == []
    assert splitter.is_broken
    assert splitter.feed(b"\0\0\0\x03abc") == []


def test_separators():
    assert run(SeparatorSplitter(b"\0"), [b"<a/>\0\0 <b/>\n\0<c/>"]) == ([b"<a/>", b"<b/>", b"<c/>"], {})
    lines = SeparatorSplitter(b"\n", max_document=5)
    assert run(lines, [b"one\r\ntoo long a line", b" indeed\ntwo\n"]) == ([b"one", b"two"], {"too_large": 1})


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="framing is one of"):
        make_splitter("json")


def test_a_declaration_without_end_that_is_too_large_does_not_hang():
    """Found by the fuzzer: the document was too large, began again at its own declaration, and was too large."""
    splitter = make_splitter("xml", max_document=64)
    text = b"<?xml version='" + b"x" * 200 + b"<a/>"
    splitter.feed(text)
    splitter.finish()
    assert splitter.errors["too_large"] == 1
