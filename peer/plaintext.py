"""A packet as text: decoded as its byte order mark or its XML declaration says. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Final

DECLARATION_BYTES: Final = 256
"""How far the declaration is looked for: it comes first, and is short."""
# Longer marks first: UTF-32's begins like UTF-16's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ENCODING: Final = re.compile(
    rb"""[ \t\r\n]*<\?xml[ \t\r\n][^>]*?encoding[ \t\r\n]*=[ \t\r\n]*["']([A-Za-z][A-Za-z0-9._-]{0,39})["']"""
)
_UTF_16: Final = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    ("<".encode("utf-16-le"), "utf-16-le"),  # parsers take it without a mark too
    ("<".encode("utf-16-be"), "utf-16-be"),
)
_DECLARED: Final = re.compile(r"""(<\?xml[ \t\r\n][^>]*?encoding[ \t\r\n]*=[ \t\r\n]*)["'][A-Za-z0-9._-]{1,40}["']""")
# Python's codecs that are no character sets: what they make of bytes is not what the sender wrote.
_NOT_CHARACTER_SETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


def text_of(payload: bytes) -> str | None:
    """The text, or None when the bytes are not text in the encoding that they name (UTF-8 when they name none)."""
    for mark, encoding in _MARKS:
        if payload.startswith(mark):
            return _decoded(payload, encoding)
    found = _ENCODING.match(payload, 0, DECLARATION_BYTES)
    return _decoded(payload, found.group(1).decode("ascii") if found else "utf-8", is_ascii_like=True)


def framed_by_bytes(payload: bytes) -> bytes:
    """A document in UTF-16 as the same document in UTF-8; everything else as it is.

    Only then do the bytes of a line end or a zero mean just that: in UTF-16 they are parts of other characters too.
    """
    for start, encoding in _UTF_16:
        if payload.startswith(start) and not payload.startswith(codecs.BOM_UTF32_LE):
            text = _decoded(payload, encoding)
            if text is not None:
                declaration = _DECLARED.sub(r"\1'UTF-8'", text[:DECLARATION_BYTES], count=1)
                return (declaration + text[DECLARATION_BYTES:]).encode()
    return payload


def _decoded(payload: bytes, encoding: str, *, is_ascii_like: bool = False) -> str | None:
    try:
        codec = codecs.lookup(encoding)
        if codec.name in _NOT_CHARACTER_SETS or not getattr(codec, "_is_text_encoding", True):
            return None
        if is_ascii_like and "<?xml".encode(encoding) != b"<?xml":
            return None  # a declaration in ASCII that says UTF-16 contradicts itself
        return payload.decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        return None
