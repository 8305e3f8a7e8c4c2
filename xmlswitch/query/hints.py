"""What people type who know other languages, and what they mean: hints for refused queries, warnings for accepted ones.

A warning is about a query that is XPath and surely not what was meant. What it says holds for every packet; what can
be said only with packets at hand is in `advice`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xmlswitch.errors import QueryError
from xmlswitch.limits import QUERY_LIMITS
from xmlswitch.query.numerals import to_number
from xmlswitch.query.parser import parse_xpath
from xmlswitch.query.query import Query
from xmlswitch.query.syntax import COMPARISONS, HERE, RELATIONAL, Binary, Expr, Literal, Path, all_parts

_LITERAL = re.compile(r""""[^"]*"|'[^']*'""")
_OPERATORS = {"not", "and", "or", "div", "mod"}
_HINTS = [
    (re.compile("[\u2018\u2019\u201c\u201d]"), "quotes are ' or \", not the typographic ones that text editors make"),
    (re.compile("=="), "equality is a single ="),
    (re.compile("=>"), "greater or equal is >="),
    (re.compile("=<"), "less or equal is <="),
    (re.compile("<>"), "not equal is !=, or not(a = b) if a may be missing"),
    (re.compile("&&"), "write `and` instead of &&"),
    (re.compile(r"\|\|"), "write `or` instead of ||"),
    (re.compile(r"!(?!=)"), "negation is not(...)"),
    (re.compile(r"\b(?:AND|OR|NOT|DIV|MOD)\b"), "`and`, `or` and `not(...)` are written in lower case"),
    (
        re.compile(r"\blike\b", re.IGNORECASE),
        "there is no `like`: use contains(path, 'x') or starts-with(path, 'x')",
    ),
    (re.compile(r"\bbetween\b", re.IGNORECASE), "there is no `between`: write path >= 1 and path <= 9"),
    (re.compile(r"\bstarts_?with\s*\(", re.IGNORECASE), "the function is starts-with(path, 'text')"),
    (re.compile(r"\bin\s*[(\[]", re.IGNORECASE), "there is no `in`: write path = 'a' or path = 'b'"),
    (re.compile(r"\d,\d{3}\b"), "numbers have no separators: write 30000, not 30,000"),
]


def hint_for(text: str) -> str | None:
    """What was probably meant by a query that was refused."""
    outside = _LITERAL.sub("''", text)
    return next((hint for pattern, hint in _HINTS if pattern.search(outside)), None)


def warnings_for(query: Query, namespaces: Mapping[str, str] | None = None) -> list[str]:
    """What is surely wrong with a query that is accepted, as its user wrote it."""
    text = query.text
    outside = _LITERAL.sub("''", text)
    found: dict[str, None] = {}
    if query.version != "1.0":
        if re.search(r"\d,\d{3}\b", outside):
            found["30,000 is two numbers, 30 and 0: numbers have no separators"] = None
        if "||" in outside:
            found["|| joins texts; the alternative of two conditions is `or`"] = None
        return list(found)
    try:
        tree = parse_xpath(text, namespaces or {}, QUERY_LIMITS) if text.strip() else None
    except QueryError:
        return []
    if tree is not None:
        found.update(dict.fromkeys(_of_tree(tree)))
        if (query.matches_everything or query.matches_nothing) and text.strip() not in ("true()", "false()"):
            which = "every packet matches" if query.matches_everything else "no packet matches"
            found[f"it asks for nothing in the packet: {which}"] = None
    return list(found)


def _of_tree(tree: Expr) -> Iterator[str]:
    for part in all_parts(tree):
        if isinstance(part, Path) and part.start == HERE and len(part.steps) > 1 and part.steps[0].test in _OPERATORS:
            word = part.steps[0].test
            yield f"`{word}` is the name of an element here; " + (
                "negation is not(...)" if word == "not" else f"`{word}` needs a condition on both sides"
            )
        if isinstance(part, Binary) and part.op in COMPARISONS:
            for one, other in ((part.left, part.right), (part.right, part.left)):
                yield from _of_operand(part.op, one, other)


def _of_operand(op: str, operand: Expr, other: Expr) -> Iterator[str]:
    if isinstance(operand, Literal):
        if op in RELATIONAL and to_number(operand.value) != to_number(operand.value):
            yield f"'{operand.value}' is not a number: {op} is never true"
        return
    if not (isinstance(operand, Path) and operand.start == HERE and len(operand.steps) == 1):
        return
    step = operand.steps[0]
    if step.axis != "child" or step.predicates or not isinstance(other, Path):
        return
    if step.test in ("null", "nil", "None", "NULL"):
        yield f"`{step.test}` is the name of an element here; for a missing one write not(path)"
    elif step.test in ("true", "false"):
        yield f"`{step.test}` is the name of an element here; for text write '{step.test}'"
    elif re.fullmatch(r"[A-Z][A-Z0-9]*\d[A-Z0-9]*|[A-Z]{3,}", step.test):
        yield f"{step.test} is the name of an element here; for text write '{step.test}'"
