"""The canonical form: queries that say the same in other words become the same tree.

Only rewrites that hold for every document are made: what `boolean(expr)` gives, with the root element as the context
node, is unchanged. The rules are listed in docs/xmlswitch.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import cast

from xmlswitch.query.numerals import to_number, to_string
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    ARITHMETIC,
    BOOLEAN,
    COMPARISONS,
    CONTEXT,
    FALSE,
    FUNCTIONS,
    HERE,
    MIRRORED,
    NUMBER,
    ROOT,
    STRING,
    TRUE,
    Binary,
    Call,
    Expr,
    Filter,
    Literal,
    Negate,
    Number,
    Path,
    Step,
    balanced,
    flattened,
    is_positional,
    type_of,
)
from xmlswitch.query.writing import Writer, write

_ROOT_ELEMENT = Step("child", "*")
_SELF = Step("self", "node()")
_POSITION = Call("position", ())
_ALWAYS_THERE = (Path(ROOT, ()), Path(ROOT, (_ROOT_ELEMENT,)))
_ON_CONTEXT = frozenset({"string", "number", "string-length", "normalize-space", "local-name", "namespace-uri", "name"})
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "div": operator.truediv,
    "mod": math.fmod,
}
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def canonical_form(expr: Expr) -> tuple[Expr, str]:
    """The canonical tree of a whole query, and its text as `write` gives it without prefixes."""
    normaliser = _Normaliser()
    tree = normaliser.truth(expr, at_root=True)
    return tree, normaliser.text(tree)


class _Texts(Writer):
    """Writes every tree once: a part is asked for its text at each level above it, as a key to sort by."""

    def __init__(self) -> None:
        super().__init__({})
        self._written: dict[int, tuple[Expr, str]] = {}  # the tree is kept too, or its id could become another's

    def expr(self, expr: Expr) -> str:
        known = self._written.get(id(expr))
        if known is None:
            known = self._written[id(expr)] = expr, super().expr(expr)
        return known[1]


class _Normaliser:
    def __init__(self) -> None:
        self.text = _Texts().expr

    def truth(self, expr: Expr, at_root: bool) -> Expr:
        """The canonical tree where only the boolean value counts."""
        if isinstance(expr, Call):
            if expr.name == "boolean":
                return self.truth(expr.args[0], at_root)
            if expr.name == "not":
                inner = self.truth(expr.args[0], at_root)
                if isinstance(inner, Call) and inner.name == "not":
                    return inner.args[0]
                if inner == TRUE:
                    return FALSE
                return TRUE if inner == FALSE else Call("not", (inner,))
        elif isinstance(expr, Binary):
            if expr.op in ("and", "or"):
                return self.junction(expr, at_root)
            if expr.op == "|":
                return self.any_of(expr, at_root)
        expr = self.value(expr, at_root)
        if isinstance(expr, Path):
            return TRUE if expr in _ALWAYS_THERE else expr
        if isinstance(expr, Number):
            return TRUE if expr.value and expr.value == expr.value else FALSE
        if isinstance(expr, Literal):
            return TRUE if expr.value else FALSE
        if isinstance(expr, Binary) and expr.op == "|":
            return self.any_of(expr, at_root)
        return expr

    def any_of(self, union: Binary, at_root: bool) -> Expr:
        """A union is true when one side is: as a disjunction it shares with what is spelled with `or`."""
        return self.joined("or", [self.truth(part, at_root) for part in flattened(union, "|")])

    def junction(self, expr: Binary, at_root: bool) -> Expr:
        parts = [part for side in flattened(expr, expr.op) for part in flattened(self.truth(side, at_root), expr.op)]
        return self.joined(expr.op, parts)

    def joined(self, op: str, parts: list[Expr]) -> Expr:
        neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
        if absorbing in parts:
            return absorbing
        return joined(op, [part for part in parts if part != neutral], self.text) or neutral

    def value(self, expr: Expr, at_root: bool) -> Expr:
        """The canonical tree where the value counts, whatever its type."""
        if isinstance(expr, Path):
            return self.path(expr, at_root)
        if isinstance(expr, Number | Literal):
            return expr
        if isinstance(expr, Call):
            return self.call(expr, at_root)
        if isinstance(expr, Negate):
            operand = self.as_number(expr.operand, at_root)
            # A negative literal is a literal. Not -0, which prints as 0 and divides otherwise.
            return Number(-operand.value) if isinstance(operand, Number) and operand.value else Negate(operand)
        if isinstance(expr, Filter):
            primary = self.value(expr.primary, at_root)
            predicates = self.predicates(expr.predicates)
            return Filter(primary, predicates) if predicates else primary
        if expr.op in ("and", "or"):
            return _boolean(self.truth(expr, at_root))
        if expr.op in COMPARISONS:
            return self.comparison(expr, at_root)
        if expr.op in ARITHMETIC:
            left, right = self.as_number(expr.left, at_root), self.as_number(expr.right, at_root)
            if expr.op == "div" and left == Number(1.0) and isinstance(right, Number) and _is_plus_zero(right.value):
                return Number(math.inf)  # as infinity is written
            return _folded(Binary(expr.op, left, right))
        parts = [part for side in flattened(expr, "|") for part in flattened(self.value(side, at_root), "|")]
        union = joined("|", parts, self.text)
        return cast("Expr", union)

    def comparison(self, expr: Binary, at_root: bool) -> Expr:
        left, right = self.value(expr.left, at_root), self.value(expr.right, at_root)
        op = expr.op
        constants = isinstance(left, Number | Literal), isinstance(right, Number | Literal)
        if all(constants):
            first, second = cast("Number | Literal", left).value, cast("Number | Literal", right).value
            if op not in ("=", "!=") or isinstance(left, Number) or isinstance(right, Number):
                first, second = (to_number(v) if isinstance(v, str) else v for v in (first, second))
            return TRUE if _COMPARE[op](first, second) else FALSE
        if constants[0] or (not constants[1] and self.text(left) > self.text(right)):
            left, right, op = right, left, MIRRORED[op]
        if op not in ("=", "!="):
            right = _constant_number(right)  # a relational operator compares numbers, whatever it is given
        return Binary(op, left, right)

    def call(self, expr: Call, at_root: bool) -> Expr:
        if at_root and expr.name in ("position", "last"):
            return Number(1.0)
        if not expr.args and expr.name in _ON_CONTEXT:
            return self.call(Call(expr.name, (CONTEXT,)), at_root)
        if expr.name in ("not", "boolean"):
            return _boolean(self.truth(expr, at_root))
        wanted = FUNCTIONS[expr.name][3]
        args: list[Expr] = []
        for arg, kind in zip(expr.args, wanted, strict=False):
            if kind == NUMBER:
                args.append(self.as_number(arg, at_root))
            elif kind == STRING:
                args.append(self.as_string(arg, at_root))
            else:
                args.append(self.value(arg, at_root))
        if expr.name in ("string", "number"):
            only = _constant_string(args[0]) if expr.name == "string" else _constant_number(args[0])
            return only if type_of(only) == FUNCTIONS[expr.name][2] else Call(expr.name, (only,))
        return Call(expr.name, tuple(args))

    def as_string(self, expr: Expr, at_root: bool) -> Expr:
        """Where a string is wanted, string(x) and x are the same."""
        expr = self.value(expr, at_root)
        return _constant_string(expr.args[0] if isinstance(expr, Call) and expr.name == "string" else expr)

    def as_number(self, expr: Expr, at_root: bool) -> Expr:
        expr = self.value(expr, at_root)
        return _constant_number(expr.args[0] if isinstance(expr, Call) and expr.name == "number" else expr)

    def path(self, path: Path, at_root: bool) -> Expr:
        if (path.start == ROOT or not at_root) and _is_plain(path):
            return path
        steps: list[Step] = []
        start = path.start if isinstance(path.start, str) else self.value(path.start, at_root)
        if start == HERE and at_root:
            start = ROOT
            steps.append(_ROOT_ELEMENT)
        for step in path.steps:
            predicates = self.predicates(step.predicates) if step.predicates else ()
            if step.axis == "self" and step.test == "node()" and not predicates and (steps or start != HERE):
                continue
            if step.axis == "descendant" and not any(map(is_positional, predicates)):
                _deeper(steps)
                steps.append(Step("child", step.test, predicates))
            elif step.axis == "descendant-or-self" and step.test == "node()" and not predicates:
                _deeper(steps)
            else:
                if steps and steps[-1] == _SELF:
                    steps.pop()
                steps.append(Step(step.axis, step.test, predicates) if step.predicates else step)
        return Path(start, tuple(steps)) if steps or isinstance(start, str) else start

    def predicates(self, predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        found: list[Expr] = []
        positional = False
        for predicate in predicates:
            if type_of(predicate) == NUMBER:
                found.append(self.value(predicate, at_root=False))
                positional = True
                continue
            truth = self.truth(predicate, at_root=False)
            if isinstance(truth, Path) and isinstance(truth.start, str):
                found.append(truth)
                continue
            if (
                isinstance(truth, Binary)
                and truth.op == "="
                and truth.left == _POSITION
                and isinstance(truth.right, Number)
            ):
                truth = truth.right
            elif type_of(truth) == NUMBER:
                truth = _boolean(truth)  # or it would be taken for a position
            if truth != TRUE:
                found.append(truth)
                positional = positional or is_positional(truth)
        if positional or (len(found) == 1 and not (isinstance(found[0], Binary) and found[0].op == "and")):
            return tuple(found)
        # Without positions the order of predicates, and whether they are joined by `and`, makes no difference.
        conditions = [part for predicate in found for part in flattened(predicate, "and")]
        parts = {self.text(part): part for part in map(_no_position, conditions)}
        return tuple(part for _, part in sorted(parts.items()))


def joined(op: str, parts: list[Expr], text: Callable[[Expr], str] = write) -> Expr | None:
    """A sorted chain without repetitions; None for no parts. `text` is `write`, or one that remembers."""
    if len(parts) == 1:
        return parts[0]
    ordered = {text(part): part for part in parts}
    return balanced(op, [part for _, part in sorted(ordered.items())]) if ordered else None


def _is_plain(path: Path) -> bool:
    """Whether it is nothing but child steps by name: nothing in it has another form."""
    for step in path.steps:
        if step.predicates or step.axis != "child":
            return False
    return isinstance(path.start, str)


def _folded(expr: Binary) -> Expr:
    """Arithmetic on two numbers as its result, where that is a number which can be written."""
    if not isinstance(expr.left, Number) or not isinstance(expr.right, Number):
        return expr
    left, right = expr.left.value, expr.right.value
    if math.isinf(left) or math.isinf(right) or (not right and expr.op in ("div", "mod")):
        return expr
    result = _ARITHMETIC[expr.op](left, right)
    return Number(result) if math.isfinite(result) and (result or _is_plus_zero(result)) else expr


def _constant_string(expr: Expr) -> Expr:
    """A number where a string is wanted: the string."""
    if isinstance(expr, Negate) and isinstance(expr.operand, Number):  # -0
        expr = expr.operand
    return Literal(to_string(expr.value)) if isinstance(expr, Number) else expr


def _constant_number(expr: Expr) -> Expr:
    """A numeral in quotes where a number is wanted: the number. Not -0, which is written as an expression."""
    if not isinstance(expr, Literal):
        return expr
    number = to_number(expr.value)
    is_kept = number != number or (number == 0 and not _is_plus_zero(number))
    return expr if is_kept else Number(number)


def _is_plus_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) > 0


def _boolean(truth: Expr) -> Expr:
    """A tree good for its truth, made good for its value too."""
    return truth if type_of(truth) == BOOLEAN else Call("boolean", (truth,))


def _deeper(steps: list[Step]) -> None:
    if steps and steps[-1] == _SELF:
        steps.pop()
    if not steps or steps[-1] != ANY_DEEPER:
        steps.append(ANY_DEEPER)


def _no_position(part: Expr) -> Expr:
    return _boolean(part) if type_of(part) == NUMBER else part
