"""XPath 1.0 text to tokens, each with its place in the text, by the rules of section 3.7 of the recommendation."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from xmlswitch.errors import QuerySyntaxError

# What a name may begin with and go on with: in ASCII, and beyond.
_START = "A-Z_a-z"
_START_BEYOND = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_REST = r"\-.0-9"
_REST_BEYOND = r"\u00b7\u0300-\u036f\u203f-\u2040"


@cache
def _token(is_ascii: bool) -> re.Pattern[str]:
    """The pattern of a token. Compiling the one for all of Unicode takes 10 ms, and few queries need it."""
    start = _START if is_ascii else _START + _START_BEYOND
    ncname = f"[{start}][{start}{_REST if is_ascii else _REST + _REST_BEYOND}]*"
    return re.compile(
        rf"""[ \t\r\n]*(?:
          (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
        | (?P<literal>"[^"]*"|'[^']*')
        | (?P<symbol>::|\.\.|//|!=|<=|>=|[()\[\].@,/|+\-=<>*$])
        | (?P<name>{ncname}(?::(?!:)(?:{ncname}|\*))?)
        | (?P<end>\Z)
        | (?P<wrong>.)
        )""",
        re.VERBOSE | re.DOTALL,
    )


_OPERATOR_SYMBOLS = frozenset({"|", "+", "-", "=", "!=", "<", "<=", ">", ">="})
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


class Tokens(NamedTuple):
    """Columns, one entry per token, the end among them: an object per token would take longer than finding it.

    Kinds: number, literal, symbol, operator, name (`*` as a name test too), or end.
    """

    kinds: list[str]
    texts: list[str]
    positions: list[int]


def tokens(text: str) -> Tokens:
    kinds: list[str] = []
    texts: list[str] = []
    positions: list[int] = []
    operand_expected = True
    for match in _token(text.isascii()).finditer(text):
        kind = str(match.lastgroup)
        start, end = match.span(kind)
        value = text[start:end]
        if kind == "symbol":
            if value == "*":
                kind = "name" if operand_expected else "operator"
            elif value in _OPERATOR_SYMBOLS:
                kind = "operator"
            operand_expected = kind == "operator" or (kind == "symbol" and (value in _BEFORE_OPERAND or value == "$"))
        elif kind == "name" and not operand_expected:
            # `a and-b` and `a div2` are one name to the grammar; `a and b` an operator.
            if value not in _OPERATOR_NAMES:
                raise QuerySyntaxError(f"expected an operator, found {value!r}", text, start)
            kind = "operator"
            operand_expected = True
        elif kind == "wrong":
            if value in "\"'":
                raise QuerySyntaxError(f"expected a closing {value} for this string", text, start)
            raise QuerySyntaxError(f"expected an XPath token, found {value!r}", text, start)
        else:
            operand_expected = False
        kinds.append(kind)
        texts.append(value)
        positions.append(start)
        if kind == "end":
            break
    return Tokens(kinds, texts, positions)
