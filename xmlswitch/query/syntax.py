"""XPath 1.0 as a tree: the nodes, the static type of each, and the core function library's signatures.

XPath 1.0 without variables is statically typed, and everything later (canonical form, index, evaluation) leans on it.
Names are kept expanded, `{uri}local`; `*` is any name and `{uri}*` any name of a namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

NODES, STRING, NUMBER, BOOLEAN = "node-set", "string", "number", "boolean"


class Number(NamedTuple):
    value: float


class Literal(NamedTuple):
    value: str


class Call(NamedTuple):
    name: str
    args: tuple[Expr, ...]


class Step(NamedTuple):
    """`axis::test[predicate]...`; a kind test is spelled with its parentheses, `text()`."""

    axis: str
    test: str
    predicates: tuple[Expr, ...] = ()


class Path(NamedTuple):
    """Steps from the document (`/`), from the context node (""), or from the nodes of an expression."""

    start: str | Expr
    steps: tuple[Step, ...]


class Filter(NamedTuple):
    """`(expr)[predicate]...`: positions count over the whole node-set in document order."""

    primary: Expr
    predicates: tuple[Expr, ...]


class Binary(NamedTuple):
    op: str
    left: Expr
    right: Expr


class Negate(NamedTuple):
    operand: Expr


Expr: TypeAlias = Number | Literal | Call | Path | Filter | Binary | Negate

ROOT, HERE = "/", ""
ANY_DEEPER = Step("descendant-or-self", "node()")  # what `//` abbreviates

COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
RELATIONAL = frozenset({"<", "<=", ">", ">="})
MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
ARITHMETIC = frozenset({"+", "-", "*", "div", "mod"})
ASSOCIATIVE = frozenset({"and", "or", "|"})  # chains of these are balanced trees: their depth is a logarithm

AXES = frozenset(
    [
        "ancestor",
        "ancestor-or-self",
        "attribute",
        "child",
        "descendant",
        "descendant-or-self",
        "following",
        "following-sibling",
        "namespace",
        "parent",
        "preceding",
        "preceding-sibling",
        "self",
    ]
)
KIND_TESTS = frozenset({"node", "text", "comment", "processing-instruction"})

# Function -> least and most arguments, result, and what each argument is converted to ("" takes it as it is).
FUNCTIONS: dict[str, tuple[int, int, str, tuple[str, ...]]] = {
    "last": (0, 0, NUMBER, ()),
    "position": (0, 0, NUMBER, ()),
    "count": (1, 1, NUMBER, (NODES,)),
    "id": (1, 1, NODES, ("",)),
    "local-name": (0, 1, STRING, (NODES,)),
    "namespace-uri": (0, 1, STRING, (NODES,)),
    "name": (0, 1, STRING, (NODES,)),
    "string": (0, 1, STRING, ("",)),
    "concat": (2, 64, STRING, (STRING,) * 64),
    "starts-with": (2, 2, BOOLEAN, (STRING, STRING)),
    "contains": (2, 2, BOOLEAN, (STRING, STRING)),
    "substring-before": (2, 2, STRING, (STRING, STRING)),
    "substring-after": (2, 2, STRING, (STRING, STRING)),
    "substring": (2, 3, STRING, (STRING, NUMBER, NUMBER)),
    "string-length": (0, 1, NUMBER, (STRING,)),
    "normalize-space": (0, 1, STRING, (STRING,)),
    "translate": (3, 3, STRING, (STRING, STRING, STRING)),
    "boolean": (1, 1, BOOLEAN, ("",)),
    "not": (1, 1, BOOLEAN, (BOOLEAN,)),
    "true": (0, 0, BOOLEAN, ()),
    "false": (0, 0, BOOLEAN, ()),
    "lang": (1, 1, BOOLEAN, (STRING,)),
    "number": (0, 1, NUMBER, ("",)),
    "sum": (1, 1, NUMBER, (NODES,)),
    "floor": (1, 1, NUMBER, (NUMBER,)),
    "ceiling": (1, 1, NUMBER, (NUMBER,)),
    "round": (1, 1, NUMBER, (NUMBER,)),
}

TRUE = Call("true", ())
FALSE = Call("false", ())
CONTEXT = Path(HERE, (Step("self", "node()"),))


_TYPE_OF_KIND: dict[type, str] = {Number: NUMBER, Negate: NUMBER, Literal: STRING, Path: NODES, Filter: NODES}


def type_of(expr: Expr) -> str:
    if isinstance(expr, Binary):
        if expr.op in ARITHMETIC:
            return NUMBER
        return NODES if expr.op == "|" else BOOLEAN
    if isinstance(expr, Call):
        return FUNCTIONS[expr.name][2]
    return _TYPE_OF_KIND[type(expr)]


def balanced(op: str, parts: list[Expr]) -> Expr:
    """One expression for a chain of an associative operator, no deeper than it must be: everything recurses on it."""
    while len(parts) > 1:
        pairs = [Binary(op, parts[at], parts[at + 1]) for at in range(0, len(parts) - 1, 2)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else [*pairs]
    return parts[0]


def flattened(expr: Expr, op: str) -> list[Expr]:
    """The operands of a chain of one operator, in order."""
    found: list[Expr] = []
    left = [expr]
    while left:
        part = left.pop()
        if isinstance(part, Binary) and part.op == op:
            left += (part.right, part.left)
        else:
            found.append(part)
    return found


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """The expressions right below an expression, those of predicates too."""
    if isinstance(expr, Binary):
        return expr.left, expr.right
    if isinstance(expr, Path):
        inside = tuple(predicate for step in expr.steps for predicate in step.predicates)
        return inside if isinstance(expr.start, str) else (expr.start, *inside)
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Filter):
        return expr.primary, *expr.predicates
    return (expr.operand,) if isinstance(expr, Negate) else ()


def all_parts(expr: Expr) -> Iterator[Expr]:
    """The expression and every expression in it, without recursion."""
    left = [expr]
    while left:
        part = left.pop()
        yield part
        left += parts_of(part)


def depth_of(expr: Expr) -> int:
    """How many expressions lie inside each other."""
    depth, level = 0, [expr]
    while level:
        depth += 1
        level = [part for above in level for part in parts_of(above)]
    return depth


def is_positional(predicate: Expr) -> bool:
    """Whether the predicate's truth can depend on where its node stands among the others."""
    return type_of(predicate) == NUMBER or uses_position(predicate)


def uses_position(expr: Expr) -> bool:
    """position() or last() of the expression's own context, not of a predicate nested in it."""
    if isinstance(expr, Call):
        return expr.name in ("position", "last") or any(uses_position(arg) for arg in expr.args)
    if isinstance(expr, Binary):
        return uses_position(expr.left) or uses_position(expr.right)
    if isinstance(expr, Negate):
        return uses_position(expr.operand)
    if isinstance(expr, Filter):
        return uses_position(expr.primary)
    if isinstance(expr, Path) and not isinstance(expr.start, str):
        return uses_position(expr.start)
    return False
