"""How expensive a query can be: an estimate of node visits, from the query alone, for a document of given size.

libxml2 can't be interrupted, so what may run is settled before it runs. The estimate is a polynomial in the number of
nodes and the depth: a walk down from all nodes together visits each node once, `//` once a level, a sibling or
following axis or an absolute path inside a predicate all nodes for each node.
"""

from __future__ import annotations

from typing import NamedTuple

from xmlswitch.query.syntax import COMPARISONS, Binary, Call, Expr, Filter, Negate, Path, Step

_WIDE = frozenset({"following", "preceding", "following-sibling", "preceding-sibling"})
_TALL = frozenset({"ancestor", "ancestor-or-self", "descendant", "descendant-or-self"})
_FEW = 4  # a name test is taken to leave every fourth node


class Cost(NamedTuple):
    """Sum of `weight * nodes**wide * depth**tall`."""

    terms: tuple[tuple[float, int, int], ...]

    def steps(self, nodes: int, depth: int) -> float:
        return sum(weight * float(nodes**wide * depth**tall) for weight, wide, tall in self.terms)

    @property
    def degree(self) -> int:
        return max((wide for _, wide, _ in self.terms), default=0)


def cost_of(expr: Expr) -> Cost:
    """Of one evaluation on one document."""
    merged: dict[tuple[int, int], float] = {}
    for weight, wide, tall in _terms(expr, pairs=(1.0, 0, 0)):
        merged[wide, tall] = merged.get((wide, tall), 0.0) + weight
    return Cost(tuple((weight, wide, tall) for (wide, tall), weight in sorted(merged.items())))


_Term = tuple[float, int, int]


def _terms(expr: Expr, pairs: _Term) -> list[_Term]:
    """The cost of evaluating `expr` once for each of `pairs` contexts together."""
    if isinstance(expr, Path):
        if isinstance(expr.start, str):
            return _steps(expr.steps, pairs, inside=expr.start == "" and pairs[1] > 0)
        return _terms(expr.start, pairs) + _steps(expr.steps, pairs, inside=False)
    if isinstance(expr, Call):
        return [pairs] + [term for arg in expr.args for term in _terms(arg, pairs)]
    if isinstance(expr, Binary):
        found = _terms(expr.left, pairs) + _terms(expr.right, pairs)
        comparing_nodes = expr.op in COMPARISONS and all(isinstance(s, Path | Filter) for s in (expr.left, expr.right))
        if not comparing_nodes:
            return found
        local = all(isinstance(s, Path) and s.start == "" for s in (expr.left, expr.right)) and pairs[1] > 0
        return [*found, (pairs[0], pairs[1] + (1 if local else 2), pairs[2])]
    if isinstance(expr, Negate):
        return _terms(expr.operand, pairs)
    if isinstance(expr, Filter):
        found = _terms(expr.primary, pairs)
        reached = (pairs[0], pairs[1] + 1, pairs[2])
        return found + [term for predicate in expr.predicates for term in _terms(predicate, reached)]
    return []


def _steps(steps: tuple[Step, ...], pairs: _Term, inside: bool) -> list[_Term]:
    weight, wide, tall = pairs
    if not inside:
        wide += 1  # from the document a step reaches up to all nodes, again for each context
    found: list[_Term] = []
    deep = False
    for step in steps:
        if step.axis in _WIDE:
            wide += 1
        elif step.axis in _TALL and inside and not deep:
            tall += 1
            deep = True
        found.append((weight, wide, tall))
        kept = weight if step.test in ("*", "node()") else weight / _FEW
        for predicate in step.predicates:
            found += _terms(predicate, (kept, wide, tall))
    return found
