"""How large a tree is once it is written and read again, without doing either.

The parser refuses a text by four counts. What we write for other peers must pass them too, and can be larger than what
we read: parentheses are added, and chains grow as parentheses fall away. Each rule here mirrors one of `Writer` and one
of the parser; the tests compare them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xmlswitch.limits import QueryLimits
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    ASSOCIATIVE,
    HERE,
    Binary,
    Call,
    Expr,
    Filter,
    Negate,
    Number,
    Path,
    flattened,
)
from xmlswitch.query.writing import STRENGTH, needs_parentheses

_Levels = tuple[int, int]
"""How many expressions the parser enters by recursion inside this one, and how many levels its tree has."""


def why_too_large(expr: Expr, limits: QueryLimits) -> str | None:
    """Why a peer would refuse the written tree; None if it would not."""
    measure = _Measure()
    nesting, depth = measure.levels(expr)
    if measure.parts > limits.max_nodes:
        return f"more than {limits.max_nodes} parts in one query"
    if nesting + 1 > limits.max_nesting:
        return f"expressions nested more than {limits.max_nesting} deep"
    if measure.longest_chain > limits.max_chain:
        return f"more than {limits.max_chain} operators in one chain"
    if depth > limits.max_depth:
        return f"operators nested more than {limits.max_depth} deep"
    return None


class _Measure:
    def __init__(self) -> None:
        self.parts = 0
        self.longest_chain = 0

    def levels(self, expr: Expr) -> _Levels:
        """Where it stands without parentheses. Parts and chains are counted on the way."""
        if isinstance(expr, Path):
            return self.path(expr)
        if isinstance(expr, Binary):
            return self.junction(expr) if expr.op in ASSOCIATIVE else self.operation(expr)
        if isinstance(expr, Filter):
            nesting, depth = self.in_parentheses(expr.primary)
            return self.around(nesting, depth, expr.predicates)
        if isinstance(expr, Negate):
            return self.negated(self.operand(expr.operand, STRENGTH["|"]))
        self.parts += 1
        if isinstance(expr, Call):
            return self.around(0, 0, expr.args)
        if isinstance(expr, Number):
            if math.isinf(expr.value):  # (1 div 0)
                self.parts += 3
            levels = (1, 2) if math.isinf(expr.value) else (0, 1)
            return self.negated(levels) if expr.value < 0 else levels
        return 0, 1

    def negated(self, levels: _Levels) -> _Levels:
        """`(-x)`, which always stands in parentheses."""
        self.parts += 2
        return levels[0] + 1, levels[1] + 1

    def in_parentheses(self, expr: Expr) -> _Levels:
        self.parts += 1
        nesting, depth = self.levels(expr)
        return nesting + 1, depth

    def operand(self, expr: Expr, strength: int, *, first: bool = True) -> _Levels:
        return self.in_parentheses(expr) if needs_parentheses(expr, strength, first=first) else self.levels(expr)

    def path(self, path: Path) -> _Levels:
        nesting = depth = 0
        if isinstance(path.start, str):
            self.parts += 1
        elif isinstance(path.start, Call | Filter):
            nesting, depth = self.levels(path.start)
        else:
            nesting, depth = self.in_parentheses(path.start)
        steps = path.steps
        self.parts += len(steps)
        if len(steps) > 1 and steps[0] == ANY_DEEPER:
            self.parts += 1 if path.start == HERE else -1  # `.//a` has a step more; slashes at the start don't count
        inside = [predicate for step in steps if step.predicates for predicate in step.predicates]
        return self.around(nesting, depth, inside)

    def around(self, nesting: int, depth: int, inside: Sequence[Expr]) -> _Levels:
        """Of something with predicates or arguments, each of which is an expression of its own."""
        for expr in inside:
            deeper, tree = self.levels(expr)
            nesting = max(nesting, deeper + 1)
            depth = max(depth, tree)
        return nesting, depth + 1

    def operation(self, expr: Binary) -> _Levels:
        strength = STRENGTH[expr.op]
        self.parts += 1
        self.longest_chain = max(self.longest_chain, _chain(expr))
        left, right = self.operand(expr.left, strength), self.operand(expr.right, strength + 1, first=False)
        return max(left[0], right[0]), max(left[1], right[1]) + 1

    def junction(self, expr: Binary) -> _Levels:
        first, *others = flattened(expr, expr.op)
        strength = STRENGTH[expr.op]
        levels = [self.operand(first, strength), *(self.operand(part, strength, first=False) for part in others)]
        self.parts += len(levels) - 1
        depths = [depth for _, depth in levels]
        while len(depths) > 1:  # as `balanced` pairs them
            pairs = [max(depths[at : at + 2]) + 1 for at in range(0, len(depths) - 1, 2)]
            depths = [*pairs, depths[-1]] if len(depths) % 2 else pairs
        return max(nesting for nesting, _ in levels), depths[0]


def _chain(expr: Expr) -> int:
    """Operators in a row down the left edge, as far as no parentheses are needed."""
    length, strength = 0, 0
    while isinstance(expr, Binary) and expr.op not in ASSOCIATIVE and STRENGTH[expr.op] >= strength:
        length, strength, expr = length + 1, STRENGTH[expr.op], expr.left
    return length
