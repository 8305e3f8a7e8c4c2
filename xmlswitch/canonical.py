"""The canonical form: queries that say the same in other words become the same tree, and trees become text again.

Only rewrites that hold for every document are made: what `boolean(expr)` gives, with the root element as the context
node, is unchanged. The rules are listed in docs/xmlswitch.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import cast

from xmlswitch.numerals import to_number, to_string
from xmlswitch.syntax import (
    ANY_DEEPER,
    ARITHMETIC,
    ASSOCIATIVE,
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
    all_parts,
    balanced,
    flattened,
    is_positional,
    type_of,
)

_ROOT_ELEMENT = Step("child", "*")
_ON_CONTEXT = frozenset({"string", "number", "string-length", "normalize-space", "local-name", "namespace-uri", "name"})
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def normalise(expr: Expr) -> Expr:
    """The canonical tree of a whole query."""
    return _truth(expr, at_root=True)


# --- normalisation ---


def _truth(expr: Expr, at_root: bool) -> Expr:
    """The canonical tree where only the boolean value counts."""
    if isinstance(expr, Call):
        if expr.name == "boolean":
            return _truth(expr.args[0], at_root)
        if expr.name == "not":
            inner = _truth(expr.args[0], at_root)
            if isinstance(inner, Call) and inner.name == "not":
                return inner.args[0]
            if inner == TRUE:
                return FALSE
            return TRUE if inner == FALSE else Call("not", (inner,))
    elif isinstance(expr, Binary) and expr.op in ("and", "or"):
        return _junction(expr, at_root)
    expr = _value(expr, at_root)
    if isinstance(expr, Number):
        return TRUE if expr.value and expr.value == expr.value else FALSE
    if isinstance(expr, Literal):
        return TRUE if expr.value else FALSE
    if isinstance(expr, Binary) and expr.op == "|":
        # A union is true when one side is: as a disjunction it shares with what is spelled with `or`.
        return _joined("or", [_truth(part, at_root) for part in flattened(expr, "|")])
    if expr == Path(ROOT, ()) or expr == Path(ROOT, (_ROOT_ELEMENT,)):
        return TRUE
    return expr


def _junction(expr: Binary, at_root: bool) -> Expr:
    parts = [part for side in flattened(expr, expr.op) for part in flattened(_truth(side, at_root), expr.op)]
    return _joined(expr.op, parts)


def _joined(op: str, parts: list[Expr]) -> Expr:
    neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    if absorbing in parts:
        return absorbing
    return joined(op, [part for part in parts if part != neutral]) or neutral


def joined(op: str, parts: list[Expr]) -> Expr | None:
    """A sorted chain without repetitions; None for no parts."""
    if len(parts) == 1:
        return parts[0]
    ordered = {write(part): part for part in parts}
    return balanced(op, [part for _, part in sorted(ordered.items())]) if ordered else None


def _value(expr: Expr, at_root: bool) -> Expr:
    """The canonical tree where the value counts, whatever its type."""
    if isinstance(expr, Number | Literal):
        return expr
    if isinstance(expr, Path):
        return _path(expr, at_root)
    if isinstance(expr, Call):
        return _call(expr, at_root)
    if isinstance(expr, Negate):
        operand = _as_number(expr.operand, at_root)
        # A negative literal is a literal. Not -0, which prints as 0 and divides otherwise.
        return Number(-operand.value) if isinstance(operand, Number) and operand.value else Negate(operand)
    if isinstance(expr, Filter):
        primary = _value(expr.primary, at_root)
        predicates = _predicates(expr.predicates)
        return Filter(primary, predicates) if predicates else primary
    if expr.op in ("and", "or"):
        return _boolean(_truth(expr, at_root))
    if expr.op in COMPARISONS:
        return _comparison(expr, at_root)
    if expr.op in ARITHMETIC:
        left, right = _as_number(expr.left, at_root), _as_number(expr.right, at_root)
        if expr.op == "div" and left == Number(1.0) and isinstance(right, Number) and _is_plus_zero(right.value):
            return Number(math.inf)  # as infinity is written
        return Binary(expr.op, left, right)
    union = joined("|", [_value(part, at_root) for part in flattened(expr, "|")])
    return cast("Expr", union)


def _is_plus_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) > 0


def _comparison(expr: Binary, at_root: bool) -> Expr:
    left, right = _value(expr.left, at_root), _value(expr.right, at_root)
    op = expr.op
    constants = isinstance(left, Number | Literal), isinstance(right, Number | Literal)
    if all(constants):
        first, second = cast("Number | Literal", left).value, cast("Number | Literal", right).value
        if op not in ("=", "!=") or isinstance(left, Number) or isinstance(right, Number):
            first, second = (to_number(v) if isinstance(v, str) else v for v in (first, second))
        return TRUE if _COMPARE[op](first, second) else FALSE
    if constants[0] or (not constants[1] and write(left) > write(right)):
        left, right, op = right, left, MIRRORED[op]
    if op not in ("=", "!=") and isinstance(right, Literal):
        number = to_number(right.value)  # a relational operator compares numbers, whatever it is given
        if number == number:
            right = Number(number)
    return Binary(op, left, right)


def _call(expr: Call, at_root: bool) -> Expr:
    if at_root and expr.name in ("position", "last"):
        return Number(1.0)
    if not expr.args and expr.name in _ON_CONTEXT:
        return _call(Call(expr.name, (CONTEXT,)), at_root)
    if expr.name in ("not", "boolean"):
        return _boolean(_truth(expr, at_root))
    wanted = FUNCTIONS[expr.name][3]
    args: list[Expr] = []
    for arg, kind in zip(expr.args, wanted, strict=False):
        if kind == NUMBER:
            args.append(_as_number(arg, at_root))
        elif kind == STRING:
            args.append(_as_string(arg, at_root))
        else:
            args.append(_value(arg, at_root))
    if expr.name in ("string", "number") and type_of(args[0]) == FUNCTIONS[expr.name][2]:
        return args[0]
    return Call(expr.name, tuple(args))


def _boolean(truth: Expr) -> Expr:
    """A tree good for its truth, made good for its value too."""
    return truth if type_of(truth) == BOOLEAN else Call("boolean", (truth,))


def _as_string(expr: Expr, at_root: bool) -> Expr:
    """Where a string is wanted, string(x) and x are the same."""
    expr = _value(expr, at_root)
    return expr.args[0] if isinstance(expr, Call) and expr.name == "string" else expr


def _as_number(expr: Expr, at_root: bool) -> Expr:
    expr = _value(expr, at_root)
    return expr.args[0] if isinstance(expr, Call) and expr.name == "number" else expr


def _path(path: Path, at_root: bool) -> Expr:
    steps: list[Step] = []
    start = path.start if isinstance(path.start, str) else _value(path.start, at_root)
    if start == HERE and at_root:
        start = ROOT
        steps.append(_ROOT_ELEMENT)
    for step in path.steps:
        predicates = _predicates(step.predicates)
        if step.axis == "self" and step.test == "node()" and not predicates and (steps or start != HERE):
            continue
        if step.axis == "descendant" and not any(map(is_positional, predicates)):
            _deeper(steps)
            steps.append(Step("child", step.test, predicates))
        elif step.axis == "descendant-or-self" and step.test == "node()" and not predicates:
            _deeper(steps)
        else:
            if steps and steps[-1] == Step("self", "node()"):
                steps.pop()
            steps.append(Step(step.axis, step.test, predicates))
    return Path(start, tuple(steps)) if steps or isinstance(start, str) else start


def _deeper(steps: list[Step]) -> None:
    if steps and steps[-1] == Step("self", "node()"):
        steps.pop()
    if not steps or steps[-1] != ANY_DEEPER:
        steps.append(ANY_DEEPER)


def _predicates(predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if not predicates:
        return ()
    found: list[Expr] = []
    for predicate in predicates:
        if type_of(predicate) == NUMBER:
            found.append(_value(predicate, at_root=False))
            continue
        truth = _truth(predicate, at_root=False)
        if (
            isinstance(truth, Binary)
            and truth.op == "="
            and truth.left == Call("position", ())
            and isinstance(truth.right, Number)
        ):
            truth = truth.right
        elif type_of(truth) == NUMBER:
            truth = _boolean(truth)  # or it would be taken for a position
        if truth != TRUE:
            found.append(truth)
    if any(map(is_positional, found)):
        return tuple(found)
    if len(found) == 1 and not (isinstance(found[0], Binary) and found[0].op == "and"):
        return (_no_position(found[0]),)
    # Without positions the order of predicates, and whether they are joined by `and`, makes no difference.
    parts = {write(part): part for predicate in found for part in map(_no_position, flattened(predicate, "and"))}
    return tuple(part for _, part in sorted(parts.items()))


def _no_position(part: Expr) -> Expr:
    return _boolean(part) if type_of(part) == NUMBER else part


# --- writing ---

_STRENGTH = {"or": 0, "and": 1, "=": 2, "!=": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "div": 5}
_STRENGTH |= {"mod": 5, "|": 7}


def write(expr: Expr, prefixes: Mapping[str, str] | None = None) -> str:
    """XPath text; names of namespaces in `prefixes` get their prefix, others stay `{uri}local` (a key, not XPath)."""
    return _Writer(prefixes or {}).expr(expr)


class _Writer:
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
        strength = _STRENGTH[expr.op]
        same = expr.op in ASSOCIATIVE and isinstance(expr.right, Binary) and expr.right.op == expr.op
        right = self.operand(expr.right, strength if same else strength + 1)
        return f"{self.operand(expr.left, strength)} {expr.op} {right}"

    def number(self, value: float) -> str:
        if value < 0:
            return f"(-{self.number(-value)})"
        return to_string(value) if math.isfinite(value) else "(1 div 0)"

    def operand(self, expr: Expr, strength: int) -> str:
        text = self.expr(expr)
        return f"({text})" if isinstance(expr, Binary) and _STRENGTH[expr.op] < strength else text

    def path(self, path: Path) -> str:
        parts: list[str] = []
        if path.start == ROOT:
            parts.append("/")
        elif path.start != HERE:
            start = self.expr(cast("Expr", path.start))
            parts.append(start if isinstance(path.start, Call | Filter) else f"({start})")
        last = len(path.steps) - 1
        for number, step in enumerate(path.steps):
            if step == ANY_DEEPER and number < last:
                # `//` stands for this step and both its slashes.
                parts.append("//" if parts and parts != ["/"] else ("/" if parts else ".//"))
                continue
            if parts and not parts[-1].endswith("/"):
                parts.append("/")
            parts.append(self.step(step))
        return "".join(parts)

    def step(self, step: Step) -> str:
        if step.test == "node()" and not step.predicates and step.axis in ("self", "parent"):
            return "." if step.axis == "self" else ".."
        axis = {"child": "", "attribute": "@"}.get(step.axis)
        prefix = f"{step.axis}::" if axis is None else axis
        return f"{prefix}{self.name(step.test)}{self.predicates(step.predicates)}"

    def predicates(self, predicates: tuple[Expr, ...]) -> str:
        return "".join(f"[{self.expr(predicate)}]" for predicate in predicates)

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
