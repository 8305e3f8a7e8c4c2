"""A tree as XPath text again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from xmlswitch.query.numerals import to_string
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    ASSOCIATIVE,
    HERE,
    ROOT,
    Binary,
    Call,
    Expr,
    Filter,
    Literal,
    Negate,
    Number,
    Path,
    Step,
    all_parts,
    flattened,
)

STRENGTH = {"or": 0, "and": 1, "=": 2, "!=": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "div": 5}
STRENGTH |= {"mod": 5, "|": 7}
_DOCUMENT = Path(ROOT, ())
_SHORT_AXES = {"child": "", "attribute": "@"}


def write(expr: Expr, prefixes: Mapping[str, str] | None = None) -> str:
    """XPath text; names of namespaces in `prefixes` get their prefix, others stay `{uri}local` (a key, not XPath)."""
    return Writer(prefixes or {}).expr(expr)


def needs_parentheses(operand: Expr, strength: int, *, first: bool) -> bool:
    """An operand that is weaker than its operator; and `/`, where a name or `*` may follow and become its step."""
    if isinstance(operand, Binary):
        return STRENGTH[operand.op] < strength
    return operand == _DOCUMENT and (not first or strength == STRENGTH["*"])


class Writer:
    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self.prefixes = prefixes

    def expr(self, expr: Expr) -> str:
        if isinstance(expr, Path):
            return self.path(expr)
        if isinstance(expr, Literal):
            return f'"{expr.value}"' if '"' not in expr.value else f"'{expr.value}'"
        if isinstance(expr, Number):
            return self.number(expr.value)
        if isinstance(expr, Call):
            return f"{expr.name}({', '.join(map(self.expr, expr.args))})"
        if isinstance(expr, Negate):
            # Always in parentheses: `-a` binds tighter than most, but an operand of `|` may not be one.
            return f"(-{self.operand(expr.operand, 7)})"
        if isinstance(expr, Filter):
            return f"({self.expr(expr.primary)}){self.predicates(expr.predicates)}"
        strength = STRENGTH[expr.op]
        if expr.op in ASSOCIATIVE:  # and no other operator is of the same strength
            first, *others = flattened(expr, expr.op)
            written = [self.operand(part, strength, first=False) for part in others]
            return f" {expr.op} ".join([self.operand(first, strength), *written])
        right = self.operand(expr.right, strength + 1, first=False)
        return f"{self.operand(expr.left, strength)} {expr.op} {right}"

    def number(self, value: float) -> str:
        if value < 0:
            return f"(-{self.number(-value)})"
        return to_string(value) if math.isfinite(value) else "(1 div 0)"

    def operand(self, expr: Expr, strength: int, *, first: bool = True) -> str:
        text = self.expr(expr)
        return f"({text})" if needs_parentheses(expr, strength, first=first) else text

    def path(self, path: Path) -> str:
        if path.start == HERE and len(path.steps) == 1:
            return self.step(path.steps[0])
        parts: list[str] = []
        if path.start == ROOT:
            parts.append("/")
        elif path.start != HERE:
            start = self.expr(cast("Expr", path.start))
            parts.append(start if isinstance(path.start, Call | Filter) else f"({start})")
        last = len(path.steps) - 1
        for number, step in enumerate(path.steps):
            if number < last and step == ANY_DEEPER:
                # `//` stands for this step and both its slashes.
                parts.append("//" if parts and parts != ["/"] else ("/" if parts else ".//"))
                continue
            if parts and parts[-1][-1] != "/":
                parts.append("/")
            parts.append(self.step(step))
        return "".join(parts)

    def step(self, step: Step) -> str:
        if step.axis == "child" and not step.predicates and step.test[0] != "{":
            return step.test
        if step.test == "node()" and not step.predicates and step.axis in ("self", "parent"):
            return "." if step.axis == "self" else ".."
        axis = _SHORT_AXES.get(step.axis)
        prefix = f"{step.axis}::" if axis is None else axis
        return f"{prefix}{self.name(step.test)}{self.predicates(step.predicates)}"

    def predicates(self, predicates: tuple[Expr, ...]) -> str:
        return "".join([f"[{self.expr(predicate)}]" for predicate in predicates])

    def name(self, test: str) -> str:
        if test[:1] != "{":
            return test
        uri, _, local = test[1:].partition("}")
        prefix = self.prefixes.get(uri)
        return test if prefix is None else f"{prefix}:{local}"


def namespaces_of(expr: Expr) -> set[str]:
    """The namespaces that a query names."""
    return {
        step.test[1:].partition("}")[0]
        for part in all_parts(expr)
        if isinstance(part, Path)
        for step in part.steps
        if step.test[:1] == "{"
    }
