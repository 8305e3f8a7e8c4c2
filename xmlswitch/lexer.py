"""XPath 1.0 text to tokens, each with its place in the text, by the rules of section 3.7 of the recommendation."""

from __future__ import annotations

import re
from typing import NamedTuple

from xmlswitch.errors import QuerySyntaxError

_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NCNAME = rf"[{_START}][{_START}\-.0-9\u00b7\u0300-\u036f\u203f-\u2040]*"
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
      (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
    | (?P<literal>"[^"]*"|'[^']*')
    | (?P<symbol>::|\.\.|//|!=|<=|>=|[()\[\].@,/|+\-=<>*$])
    | (?P<name>{_NCNAME}(?::(?!:)(?:{_NCNAME}|\*))?)
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_OPERATOR_NAMES = frozenset({"and", "or", "mod", "div"})
# After one of these (or at the start) a `*` is a name test and a name is a name; after anything else, an operator.
_BEFORE_OPERAND = frozenset(
    {
        "@",
        "::",
        "(",
        "[",
        ",",
        "and",
        "or",
        "mod",
        "div",
        "*",
        "/",
        "//",
        "|",
        "+",
        "-",
        "=",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
    }
)


class Token(NamedTuple):
    """`kind`: number, literal, symbol (operators too), name, `*` as a name test, or end."""

    kind: str
    text: str
    position: int


def tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    operand_expected = True
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            start = len(text) - len(text[position:].lstrip(" \t\r\n"))
            quote = text[start]
            if quote in "\"'":
                raise QuerySyntaxError(f"expected a closing {quote} for this string", text, start)
            raise QuerySyntaxError(f"expected an XPath token, found {quote!r}", text, start)
        kind = str(match.lastgroup)
        value = match[kind]
        start = match.start(kind)
        if kind == "name" and not operand_expected:
            # `a and-b` and `a div2` are one name to the grammar; `a and b` an operator.
            if value not in _OPERATOR_NAMES:
                raise QuerySyntaxError(f"expected an operator, found {value!r}", text, start)
            kind = "operator"
        elif kind == "symbol":
            if value == "*":
                kind = "name" if operand_expected else "operator"
            elif value in ("|", "+", "-", "=", "!=", "<", "<=", ">", ">="):
                kind = "operator"
        found.append(Token(kind, value, start))
        if kind == "end":
            return found
        operand_expected = kind == "operator" or (kind == "symbol" and value in _BEFORE_OPERAND) or value == "$"
        position = match.end()
