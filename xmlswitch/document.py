"""The one XML parser of the project: bytes from anybody to an lxml tree, or `MalformedDocument` with rule and place.

Refused: a DOCTYPE of any kind, entities beyond the five, more than one document, what is not well-formed, what breaks a
limit, encodings other than UTF-8, UTF-16, ISO-8859-1 and US-ASCII. Kept as the parser gives them: comments, processing
instructions, white space. CDATA sections are text, empty ones are nothing. White space before the XML declaration is
forgiven: feeds send it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from lxml import etree

from xmlswitch.errors import MalformedDocument, Rule
from xmlswitch.limits import DOCUMENT_LIMITS, DocumentLimits

_ERROR_NAMES = {code: name for name, code in vars(etree.ErrorTypes).items() if isinstance(code, int)}
_WHITE_SPACE = b" \t\r\n"
# The prolog up to a DOCTYPE: declaration, comments and processing instructions may stand before it.
_DOCTYPE = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|<\?(?:(?!\?>).)*+\?>|<!--(?:(?!-->).)*+-->)*+<!DOCTYPE", re.DOTALL)
_PLAIN_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["'](?:utf-8|us-ascii)["']""", re.IGNORECASE)
_ENCODINGS = frozenset(
    {"UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "ISO-8859-1", "LATIN1", "LATIN-1", "US-ASCII", "ASCII"}
)
_ENCODINGS_IN_WORDS = "write UTF-8, UTF-16, ISO-8859-1 or US-ASCII"
# libxml2 makes an empty text node of it, where XPath has no empty texts: libxml2 and the index would disagree.
_EMPTY_CDATA = b"<![CDATA[]]>"
_EMPTY_CDATA_UTF16 = "<![CDATA[]]>".encode("utf-16-le")[:-1]  # in either byte order
_MIN_BYTES_A_LEVEL = 7  # <a></a>


def _parser() -> Any:
    return etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False, recover=False
    )


# One parser for all packets: making one costs more than parsing a flight. lxml copies it for other threads.
_PARSER = _parser()


def parse_document(packet: bytes, limits: DocumentLimits = DOCUMENT_LIMITS) -> Any:
    """The root element of the packet's document."""
    if packet[:1] != b"<":
        packet = packet.lstrip(_WHITE_SPACE)
    if len(packet) > limits.max_bytes:
        raise MalformedDocument(Rule.SIZE, f"{len(packet)} bytes; the limit is {limits.max_bytes}")
    if not packet:
        raise MalformedDocument(Rule.EMPTY, "no document in the packet")
    suspicious = b"<!DOCTYPE" in packet or not _is_plainly_encoded(packet)
    if suspicious and (found := _DOCTYPE.match(packet)):
        _refuse_doctype(packet, found.end() - len(b"<!DOCTYPE"))
    try:
        root = etree.fromstring(packet, _PARSER)
    except etree.XMLSyntaxError as error:
        raise _malformed(error) from None
    except (ValueError, LookupError) as error:  # lxml's own refusals, of encodings it can't look up
        raise MalformedDocument(Rule.ENCODING, str(error)) from None
    if suspicious:
        info = root.getroottree().docinfo
        # Few encodings, so that all peers read the same; what is declared may also hide a `<` from our eyes.
        if info.encoding is not None and info.encoding.upper() not in _ENCODINGS:
            raise MalformedDocument(Rule.ENCODING, f"{info.encoding} is not accepted: {_ENCODINGS_IN_WORDS}", 1, 1)
        if info.internalDTD is not None:
            _refuse_doctype(packet, 0)
    if _EMPTY_CDATA in packet or (suspicious and _EMPTY_CDATA_UTF16 in packet):
        root = etree.fromstring(
            etree.tostring(root.getroottree(), encoding="utf-8"), _PARSER
        )  # no empty text is written
    _check_limits(root, packet, limits)
    return root


def _is_plainly_encoded(packet: bytes) -> bool:
    head = packet[:120]
    return head[:1] == b"<" and (b"encoding" not in head or _PLAIN_ENCODING.match(head) is not None)


def _refuse_doctype(packet: bytes, offset: int) -> None:
    line = packet.count(b"\n", 0, offset) + 1
    column = offset - (packet.rfind(b"\n", 0, offset) + 1) + 1
    raise MalformedDocument(Rule.DOCTYPE, "document type declarations are not accepted", line, column)


def _malformed(error: etree.XMLSyntaxError) -> MalformedDocument:
    line, column = error.position
    # By the error's own code: the parser's log may begin with errors of earlier packets.
    name = _ERROR_NAMES.get(error.code, "")
    if "ENTITY" in name or "entity" in str(error).lower():
        rule = Rule.ENTITY
    elif "ENCODING" in name or "encoding" in str(error):
        rule = Rule.ENCODING
    elif "depth" in str(error).lower():
        rule = Rule.DEPTH
    else:
        rule = Rule.WELL_FORMED
    detail = re.sub(r", line \d+, column \d+.*", "", error.msg or "not well-formed", flags=re.DOTALL)
    return MalformedDocument(rule, detail, max(line, 0), max(column, 0))


def _check_limits(root: Any, packet: bytes, limits: DocumentLimits) -> None:
    """Each check runs only when the packet has bytes enough to break its limit: small packets pay nothing."""
    size = len(packet)
    if size > _MIN_BYTES_A_LEVEL * limits.max_depth:
        deep = _deeper_than(limits.max_depth)(root)
        if deep:
            raise MalformedDocument(
                Rule.DEPTH, f"elements nested more than {limits.max_depth} deep", deep[0].sourceline, 1
            )
    if packet.count(b"=") > limits.max_attributes:
        for value in _richer_than(limits.max_attributes)(root):
            element = value.getparent()
            detail = f"{len(element.attrib)} attributes on one element; the limit is {limits.max_attributes}"
            raise MalformedDocument(Rule.ATTRIBUTES, detail, element.sourceline, 1)
    if size > limits.max_attribute_chars:
        for value in _ATTRIBUTES(root):
            if len(value) > limits.max_attribute_chars:
                detail = f"an attribute of {len(value)} characters; the limit is {limits.max_attribute_chars}"
                raise MalformedDocument(Rule.ATTRIBUTE_SIZE, detail, value.getparent().sourceline, 1)
    if size > limits.max_text_chars:
        for value in _TEXTS(root):
            if len(value) > limits.max_text_chars:
                detail = f"a text of {len(value)} characters; the limit is {limits.max_text_chars}"
                raise MalformedDocument(Rule.TEXT_SIZE, detail, value.getparent().sourceline, 1)


_ATTRIBUTES = etree.XPath("//@*")
_TEXTS = etree.XPath("//text()")


@lru_cache(maxsize=8)
def _richer_than(attributes: int) -> Any:
    return etree.XPath(f"//@*[{attributes + 1}]")


@lru_cache(maxsize=8)
def _deeper_than(depth: int) -> Any:
    return etree.XPath("/*" * (depth + 1))
