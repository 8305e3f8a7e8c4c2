"""What is checked of a query before and after it is parsed, so that one that was admitted never raises later.

The order matters: the cheap checks come first, and nothing is built whose size was not bounded before. Text from the
network is XPath 1.0 or refused: elementpath, its regular expressions and its folding of constants are out of reach.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgpack

from xmlswitch.errors import MalformedQuery, QueryTooExpensiveError, UnsupportedQueryError
from xmlswitch.query.syntax import Expr, Path, all_parts

if TYPE_CHECKING:
    from xmlswitch.limits import QueryLimits

WIRE_VERSION = 1
XPATH_1 = "1.0"
MAX_WIRE_BYTES = 32 * 1024  # 8,192 characters of four bytes each
MAX_NAMESPACES = 64
MAX_URI_CHARS = 1024
# Written as what is not allowed: the complement, which has the larger part of Unicode, takes 10 ms to compile.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NOT_IN_URI = re.compile("[\x00-\x20{}\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_WRITTEN_GROWTH = 8  # what conversions add to a query's text for libxml2, at most


def read_wire(data: bytes) -> tuple[str, dict[str, str]]:
    """The text and the namespaces of an encoded XPath 1.0 query; nothing of the text is looked at."""
    if len(data) > MAX_WIRE_BYTES:
        raise MalformedQuery(f"{len(data)} bytes; the limit is {MAX_WIRE_BYTES}")
    try:
        fields: Any = msgpack.unpackb(data, raw=False, strict_map_key=True, max_map_len=MAX_NAMESPACES)
    except Exception as error:  # whatever msgpack finds wrong with a stranger's bytes
        raise MalformedQuery(f"not msgpack: {error}") from None
    if not isinstance(fields, list) or len(fields) < 4 or fields[0] != WIRE_VERSION:
        raise MalformedQuery("not an encoded query of a known version")
    _, version, text, namespaces = fields[:4]
    if not isinstance(text, str) or not isinstance(namespaces, dict):
        raise MalformedQuery("not an encoded query")
    if version != XPATH_1:
        raise UnsupportedQueryError("only XPath 1.0 is accepted from the network; send Query.need() of a later version")
    if not all(isinstance(item, str) for pair in namespaces.items() for item in pair):
        raise MalformedQuery("a namespace binding is not text")
    return text, namespaces


def check_text(text: str) -> None:
    """No document can have these characters, and libxml2 takes none of them."""
    if found := _NOT_XML.search(text):
        reason = f"the character U+{ord(found[0]):04X} can't occur in XML; remove it"
        raise UnsupportedQueryError(reason, text.encode("utf-8", "replace").decode(), found.start())


def check_namespaces(namespaces: Mapping[str, str]) -> None:
    if len(namespaces) > MAX_NAMESPACES:
        raise QueryTooExpensiveError(f"{len(namespaces)} namespaces; the limit is {MAX_NAMESPACES}")
    for prefix, uri in namespaces.items():
        if not uri:
            raise UnsupportedQueryError(f"prefix {prefix!r} is bound to an empty namespace; bind it to a URI")
        if len(uri) > MAX_URI_CHARS or len(prefix) > MAX_URI_CHARS:
            raise QueryTooExpensiveError(f"a namespace of more than {MAX_URI_CHARS} characters")
        if _NOT_IN_URI.search(uri):
            reason = "spaces, braces and control characters are not allowed"
            raise UnsupportedQueryError(f"the namespace {uri!r} is not a URI: {reason}")


def uses_namespace_axis(expr: Expr) -> bool:
    paths = (part for part in all_parts(expr) if isinstance(part, Path))
    return any(step.axis == "namespace" for path in paths for step in path.steps)


def surely_compiles(canonical: str, limits: QueryLimits) -> bool:
    """Whether neither the length nor the names of what libxml2 gets leave a doubt that it can read it."""
    brackets = canonical.count("(") + canonical.count("[")  # what is written twice stands in one of them
    grown = len(canonical) * _WRITTEN_GROWTH << min(brackets + 1, 30)
    return canonical.isascii() and grown <= limits.max_evaluator_chars
