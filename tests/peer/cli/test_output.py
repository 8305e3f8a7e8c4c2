"""What goes to standard output: every packet, whatever its encoding, and nothing made up."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import Gap, Packet
from peer.cli.output import Printer
from peer.plaintext import text_of

LATIN_1 = "<?xml version='1.0' encoding='ISO-8859-1'?><a>Orléans</a>"


def line(payload: bytes) -> dict[str, object]:
    (text,) = Printer("jsonl", "asdi").render([Packet(1, payload)], 5.0).splitlines()
    shown = json.loads(text)
    assert (shown.pop("an"), shown.pop("stream"), shown.pop("received")) == (1, "asdi", 5.0)
    return shown


def test_a_latin_1_document_is_decoded_by_its_declaration():
    assert line(LATIN_1.encode("latin-1")) == {"xml": LATIN_1}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("<a>é</a>".encode(), "<a>é</a>"),
        (b"\xef\xbb\xbf" + "<a>é</a>".encode(), "<a>é</a>"),
        ("<a>é</a>".encode("utf-16"), "<a>é</a>"),
        ("<a>é</a>".encode("utf-32"), "<a>é</a>"),
        ('<?xml version="1.0"\n encoding = "windows-1252" ?><a>€</a>'.encode("cp1252"), None),
        ("<?xml version='1.0' encoding='koi8-r'?><a>Ж</a>".encode("koi8-r"), None),
        ("<?xml version='1.0' encoding='shift_jis'?><a>空</a>".encode("shift_jis"), None),
    ],
)
def test_what_names_its_encoding_is_text(payload, text):
    shown = text_of(payload)
    assert shown is not None
    assert "�" not in shown
    assert text is None or shown == text


@pytest.mark.parametrize(
    "payload",
    [
        b"<a>Orl\xe9ans</a>",
        b"\xff\xfe\x00",
        b"<?xml version='1.0' encoding='nonsense'?><a/>",
        b"<?xml version='1.0' encoding='rot13'?><a/>",
        b"<?xml version='1.0' encoding='zlib'?><a/>",
        b"<?xml version='1.0' encoding='unicode_escape'?><a/>",
        b"<?xml version='1.0' encoding='idna'?><a/>",
        b"<?xml version='1.0' encoding='UTF-16'?><a/>\x00",
        bytes(range(256)),
    ],
)
def test_what_is_not_text_goes_out_as_base64_with_a_field_that_says_so(payload):
    shown = line(payload)
    assert set(shown) == {"payload_base64"}
    assert base64.b64decode(shown["payload_base64"]) == payload


@given(st.binary(max_size=80))
def test_any_bytes_make_one_line_from_which_they_come_back(payload):
    shown = line(payload)
    if "payload_base64" in shown:
        assert base64.b64decode(shown["payload_base64"]) == payload
    else:
        assert "�" not in shown["xml"] or "�".encode() in payload


def test_xml_and_raw_write_the_bytes_as_they_are():
    packets = [Packet(1, LATIN_1.encode("latin-1")), Gap(1, 2)]
    assert Printer("raw", "asdi").render(packets, 5.0) == packets[0].payload
    assert Printer("xml", "asdi").render(packets, 5.0) == packets[0].payload + b"\n"


def test_a_strangers_query_does_not_write_to_the_terminal():
    from peer.cli.mesh_table import as_table
    from peer.observe.crawl import MeshView, PeerView

    nasty = "/a[. = '\x1b[2J\r\n']" + "x" * 5_000
    one = PeerView(bytes(20), ("192.0.2.1", 1), role="leaf", query=nasty, answered=True)
    shown = as_table(MeshView("asdi", {one.peer_id: one}), wide=True)
    assert shown.count("\n") == 2
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert len(shown) < 1_000
