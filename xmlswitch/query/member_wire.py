"""Many queries as bytes, small: queries that differ in their literals alone share everything else.

A query's canonical text is its *template*, with a mark for each literal, and the literals. A set of members on the wire
is the msgpack array `[1, [[template, namespaces], ...], [[number of the template, literal, ...], ...]]`. What is read
is the canonical text again, whatever the literals are, and passes the same checks as any query from the network.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import msgpack

from xmlswitch.errors import MalformedQuery
from xmlswitch.query.query import Query

WIRE_VERSION = 1
DIGEST_BYTES = 16
_MARK = "?"  # no character of XPath 1.0 outside of literals
_LITERALS = re.compile(r"""("[^"]*"|'[^']*'|\(-\d+(?:\.\d+)?\)|(?<![\w.\-])\d+(?:\.\d+)?(?![\w.\-]))""")
_MAX_PIECES = 2000  # of one member: a query has no more parts

Template = tuple[str, tuple[tuple[str, str], ...]]
Row = tuple[Template, tuple[str, ...]]


def split(query: Query) -> Row:
    """Its template, and its literals as they are written."""
    known: Row | None = query.__dict__.get("row")
    if known is None:
        pieces = _LITERALS.split(query.canonical)
        template = _MARK.join(pieces[::2]), tuple(sorted(query.namespaces.items()))
        known = query.__dict__["row"] = template, tuple(pieces[1::2])
    return known


def _template_bytes(template: Template) -> int:
    return len(template[0].encode()) + 4 + sum(len(prefix) + len(uri.encode()) + 4 for prefix, uri in template[1])


def _literal_bytes(literals: Iterable[str]) -> int:
    return 4 + sum(len(literal.encode()) + 1 + (len(literal) > 31) for literal in literals)


def digest_of(query: Query) -> bytes:
    """What stands for a member when it is removed."""
    known: bytes | None = query.__dict__.get("digest")
    if known is None:
        known = query.__dict__["digest"] = hashlib.blake2b(query.encode(), digest_size=DIGEST_BYTES).digest()
    return known


def encode_members(queries: Iterable[Query]) -> bytes:
    """The same bytes for the same queries, in whatever order they come."""
    return encode_rows(sorted(map(split, queries)))


def encode_rows(rows: Iterable[Row]) -> bytes:
    """The same for queries that were split, and are in order: those of one template stand together."""
    templates: list[Template] = []
    members = []
    last, number = None, -1
    for template, literals in rows:
        if template is not last and template != last:
            last, number = template, number + 1
            templates.append(template)
        members.append((number, *literals))
    return bytes(msgpack.packb([WIRE_VERSION, [[text, dict(bound)] for text, bound in templates], members]))


def decode_members_untrusted(data: bytes, *, max_members: int, max_bytes: int) -> list[Query]:
    """The queries that `encode_members` wrote; `MalformedQuery` for any other bytes, `QueryError` for one we refuse.

    Both limits are checked before a query is read: of `data`, and of what its members say when written out.
    """
    if len(data) > max_bytes:
        raise MalformedQuery(f"{len(data)} bytes of members; the limit is {max_bytes}")
    try:
        version, templates, members = msgpack.unpackb(data, max_array_len=max(max_members, _MAX_PIECES) + 1)
        if version != WIRE_VERSION or len(members) > max_members or len(templates) > len(members):
            raise MalformedQuery(f"at most {max_members} members of version {WIRE_VERSION}, each template in use")
        texts = [_joined(templates, member) for member in members]
    except MalformedQuery:
        raise
    except Exception as error:  # a stranger must not find the one value that we did not think of
        raise MalformedQuery(f"not a set of members: {type(error).__name__}") from None
    return [Query.parse_untrusted(text, namespaces) for text, namespaces in texts]


def _joined(templates: list[Any], member: list[Any]) -> tuple[str, dict[str, str]]:
    number, *literals = member
    if type(number) is not int or not 0 <= number < len(templates):
        raise MalformedQuery(f"no template {number!r:.40}")
    text, namespaces = templates[number]
    if not isinstance(text, str) or not all(isinstance(literal, str) for literal in literals):
        raise MalformedQuery("a template and its literals are texts")
    if not isinstance(namespaces, dict) or not all(isinstance(n, str) for pair in namespaces.items() for n in pair):
        raise MalformedQuery("namespaces are texts by prefix")
    pieces = text.split(_MARK)
    if len(pieces) != len(literals) + 1:
        raise MalformedQuery(f"{len(literals)} literals for {len(pieces) - 1} marks")
    if any(_LITERALS.fullmatch(literal) is None for literal in literals):
        raise MalformedQuery("a literal is a number or a text in quotes")
    return "".join(piece for pair in zip(pieces, [*literals, ""], strict=True) for piece in pair), namespaces


class MemberSize:
    """What a set of queries takes on the wire, kept while it changes."""

    __slots__ = ("_templates", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._templates: dict[Template, int] = {}

    def add(self, query: Query) -> None:
        template, literals = split(query)
        number = self._templates.get(template, 0)
        self._templates[template] = number + 1
        self.bytes += _literal_bytes(literals) + (0 if number else _template_bytes(template))

    def remove(self, query: Query) -> None:
        template, literals = split(query)
        self._templates[template] -= 1
        self.bytes -= _literal_bytes(literals)
        if not self._templates[template]:
            del self._templates[template]
            self.bytes -= _template_bytes(template)
