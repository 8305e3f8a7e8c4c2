"""Evaluation of one query on one document: libxml2 does the walking, this module the numbers.

The tree is written out again for libxml2 with every conversion between strings and numbers routed through `numerals`
(see there why). A query without such a conversion is compiled as it is and costs nothing more.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from lxml import etree

from xmlswitch.caches import ByteCache
from xmlswitch.errors import QueryTooExpensiveError
from xmlswitch.limits import INDEX_LIMITS, QUERY_LIMITS
from xmlswitch.query.numerals import NAN, round_half_up, to_number, to_string
from xmlswitch.query.syntax import (
    ARITHMETIC,
    BOOLEAN,
    COMPARISONS,
    FUNCTIONS,
    MIRRORED,
    NODES,
    NUMBER,
    RELATIONAL,
    ROOT,
    STRING,
    Binary,
    Call,
    Expr,
    Negate,
    Number,
    Path,
    type_of,
)
from xmlswitch.query.writing import STRENGTH, Writer

_OURS = "urn:skymesh:xmlswitch"
_PREFIX = "sm"
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_STRING = etree.XPath("string()", smart_strings=False)
_EXACT_DIGITS = 15  # a whole number of so many digits is read alike by everybody


def string_value(node: Any) -> str:
    """The string-value of a node as lxml hands it over: an element, a string, or a namespace pair."""
    if isinstance(node, str):
        return node
    if isinstance(node, tuple):
        return str(node[1])
    if len(node) == 0:
        return node.text or ""
    return str(_STRING(node))


class Evaluator:
    """A query, compiled for libxml2 when it is first needed. Compiled expressions are kept in one bounded cache."""

    __slots__ = ("namespaces", "safe", "text")

    def __init__(
        self, expr: Expr, prefixes: Mapping[str, str], max_chars: int = QUERY_LIMITS.max_evaluator_chars
    ) -> None:
        writer = _SafeWriter(prefixes, max_chars)
        self.text = f"boolean({writer.expr(expr)})"
        self.safe = not writer.extended
        self.namespaces = tuple(sorted((prefix, uri) for uri, prefix in prefixes.items() if prefix != "xml"))

    def holds(self, root: Any) -> bool:
        return bool(_compiled(self.text, self.namespaces, self.safe)(root))

    def compile(self) -> None:
        """Have libxml2 read it now: `etree.XPathSyntaxError` for what it can't read."""
        _compiled(self.text, self.namespaces, self.safe)


_COMPILED: ByteCache[tuple[str, tuple[tuple[str, str], ...], bool], Any] = ByteCache(INDEX_LIMITS.max_compiled_bytes)
_COMPILED_BASE, _COMPILED_CHAR = 4096, 24  # bytes that libxml2 and lxml keep for an expression, an estimate


def _compiled(text: str, namespaces: tuple[tuple[str, str], ...], safe: bool) -> Any:
    key = text, namespaces, safe
    found = _COMPILED.get(key)
    if found is None:
        bound = dict(namespaces)
        if safe:
            found = etree.XPath(text, namespaces=bound or None, smart_strings=False)
        else:
            bound[_PREFIX] = _OURS
            found = etree.XPath(text, namespaces=bound, extensions=_EXTENSIONS, smart_strings=False)
        _COMPILED.put(key, found, _COMPILED_BASE + _COMPILED_CHAR * len(text))
    return found


class _SafeWriter(Writer):
    """Writes for libxml2: conversions and number printing become calls of our own functions.

    Some operands must be written twice, inside each other again and again: what would be too long is not finished.
    """

    def __init__(self, prefixes: Mapping[str, str], max_chars: int) -> None:
        super().__init__(prefixes)
        self.extended = False
        self.max_chars = max_chars

    def ours(self, name: str, *args: str) -> str:
        self.extended = True
        return f"{_PREFIX}:{name}({', '.join(args)})"

    def expr(self, expr: Expr) -> str:
        text = self.written(expr)
        if len(text) > self.max_chars:
            raise QueryTooExpensiveError(f"the query expands to more than {self.max_chars} characters for evaluation")
        return text

    def number(self, value: float) -> str:
        text = super().number(value)
        if text[0] == "(":  # negative, or infinite
            return text
        return text if text.isdigit() and len(text) <= _EXACT_DIGITS else self.ours("number", f'"{text}"')

    def written(self, expr: Expr) -> str:
        if isinstance(expr, Negate):
            return f"(-{self.as_number(expr.operand)})"
        if isinstance(expr, Call):
            return self.call(expr)
        if isinstance(expr, Binary):
            if expr.op in ARITHMETIC:
                return f"({self.as_number(expr.left)} {expr.op} {self.as_number(expr.right)})"
            if expr.op in COMPARISONS:
                return self.comparison(expr)
        return super().expr(expr)

    def call(self, call: Call) -> str:
        args = call.args
        if call.name == "number" and type_of(args[0]) != BOOLEAN:
            return self.as_number(args[0])
        if call.name == "string":
            return self.as_string(args[0]) if type_of(args[0]) == NUMBER else f"string({self.expr(args[0])})"
        if call.name == "sum":
            return self.ours("sum", *self.nodes(args[0]))
        if call.name == "round":
            return self.ours("round", self.as_number(args[0]))
        written: list[str] = []
        for arg, kind in zip(args, FUNCTIONS[call.name][3], strict=False):
            if kind == NUMBER:
                written.append(self.as_number(arg))
            elif kind == STRING:
                written.append(self.as_string(arg))
            else:
                written.append(self.expr(arg))
        return f"{call.name}({', '.join(written)})"

    def as_number(self, expr: Expr) -> str:
        kind = type_of(expr)
        if kind == NUMBER:
            return self.expr(expr)
        if kind == BOOLEAN:
            return f"number({self.expr(expr)})"
        return self.ours("number", f"string({self.expr(expr)})")

    def as_string(self, expr: Expr) -> str:
        return self.ours("string", self.expr(expr)) if type_of(expr) == NUMBER else self.expr(expr)

    def comparison(self, expr: Binary) -> str:
        kinds = type_of(expr.left), type_of(expr.right)
        numeric = expr.op in RELATIONAL or NUMBER in kinds
        if not numeric or BOOLEAN in kinds:
            strength = STRENGTH[expr.op]
            return f"({self.operand(expr.left, strength)} {expr.op} {self.operand(expr.right, strength + 1)})"
        if NODES not in kinds:
            return f"({self.as_number(expr.left)} {expr.op} {self.as_number(expr.right)})"
        left, right, op = expr.left, expr.right, expr.op
        if kinds[0] != NODES:
            left, right, op = right, left, MIRRORED[op]
        other = self.nodes(right) if type_of(right) == NODES else (self.as_number(right),)
        return self.ours("compare", *self.nodes(left), f'"{op}"', *other)

    def nodes(self, expr: Expr) -> tuple[str, str]:
        """A node-set for our functions, and the document's text when the document node itself is among the nodes."""
        text = self.expr(expr)
        if not may_reach_document(expr):
            return text, "false()"
        # The document is the one node without a parent.
        return text, f"concat(substring('d', 1, number(boolean(({text})[not(parent::node())]))), string(/))"


def may_reach_document(expr: Expr) -> bool:
    """Whether the node-set can hold the document node, which lxml leaves out when it hands over node-sets."""
    if isinstance(expr, Path):
        if not expr.steps:
            return expr.start == ROOT or (not isinstance(expr.start, str) and may_reach_document(expr.start))
        return expr.steps[-1].test == "node()" and expr.steps[-1].axis not in ("child", "attribute", "descendant")
    if isinstance(expr, Binary):
        return may_reach_document(expr.left) or may_reach_document(expr.right)
    return not isinstance(expr, Number)


def _values(nodes: Sequence[Any], document: Any) -> list[float]:
    found = [to_number(string_value(node)) for node in nodes]
    if isinstance(document, str) and document[:1] == "d":
        found.append(to_number(document[1:]))
    return found


def _compare(_: Any, left: Any, left_document: Any, op: str, right: Any, right_document: Any = False) -> bool:
    against = [right] if isinstance(right, float) else _values(right, right_document)
    test = _COMPARE[op]
    return any(test(a, b) for a in _values(left, left_document) for b in against)


def _number(_: Any, text: str) -> float:
    return to_number(text)


def _string(_: Any, number: float) -> str:
    return to_string(number)


def _round(_: Any, number: float) -> float:
    return round_half_up(number)


def _sum(_: Any, nodes: Sequence[Any], document: Any) -> float:
    values = _values(nodes, document)
    return sum(values) if all(value == value for value in values) else NAN


_EXTENSIONS: Any = {
    (_OURS, "compare"): _compare,
    (_OURS, "number"): _number,
    (_OURS, "string"): _string,
    (_OURS, "round"): _round,
    (_OURS, "sum"): _sum,
}
