"""A query as conditions at nodes inside each other: exact where `plan` is exact only if branching paths have one node.

`/a[b]/c[d > 1]` is: some `/a` has a `b`, and a `c` that has a `d` above 1. Conditions that are one path become one
path: `/a[b/c]` is `/a/b/c`. What conditions at nodes can't say (positions, other axes, comparisons of nodes) has no
twigs; such queries are evaluated.
"""

from __future__ import annotations

from typing import NamedTuple

from xmlswitch.limits import QueryLimits
from xmlswitch.query.atoms import TEXT, Column, Linear, Link, Test
from xmlswitch.query.numerals import to_number
from xmlswitch.query.plan import CHAINS, constant, down, is_constant
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    FALSE,
    HERE,
    MIRRORED,
    NUMBER,
    RELATIONAL,
    ROOT,
    TRUE,
    Binary,
    Call,
    Expr,
    Literal,
    Number,
    Path,
    Step,
    flattened,
    is_positional,
    type_of,
)

_SELF = Linear(())


class Condition(NamedTuple):
    """At a node: a path from it leads somewhere, to a value that passes a test, to a node with `inner` conditions."""

    path: Linear
    positive: bool = True
    column: Column | None = None
    test: Test | None = None
    inner: Twig | None = None


Twig = frozenset[Condition]
_Found = tuple[Twig, ...]
_TRUE: _Found = (frozenset(),)


class _NoTwigError(Exception):
    """The query says something that conditions at nodes can't."""


def twigs_of(expr: Expr | None, limits: QueryLimits) -> _Found | None:
    """The alternatives of a query, conditions of the document; None when it has no such form."""
    if expr is None:
        return None
    try:
        found = _Maker(limits).truth(expr, at_document=True)
    except _NoTwigError:
        return None
    return tuple(dict.fromkeys(found))


class _Maker:
    def __init__(self, limits: QueryLimits) -> None:
        self.max_conditions = limits.max_literals
        self.max_product = limits.max_product
        self.max_in_all = limits.max_conditions

    def truth(self, expr: Expr, at_document: bool = False) -> _Found:
        if expr == TRUE:
            return _TRUE
        if expr == FALSE:
            return ()
        if isinstance(expr, Path):
            return self.path(expr, None, at_document)
        if isinstance(expr, Call):
            return self.call(expr, at_document)
        if isinstance(expr, Binary):
            if expr.op == "and":
                return self.product([self.truth(part, at_document) for part in flattened(expr, "and")])
            if expr.op in ("or", "|"):
                parts = [self.truth(part, at_document) for part in flattened(expr, expr.op)]
                return self.bounded(tuple(dict.fromkeys(twig for part in parts for twig in part)))
            if expr.op in MIRRORED:
                return self.comparison(expr, at_document)
        raise _NoTwigError

    def bounded(self, found: _Found) -> _Found:
        if any(len(twig) > self.max_conditions for twig in found) or sum(map(_size, found)) > self.max_in_all:
            raise _NoTwigError
        return found

    def product(self, parts: list[_Found]) -> _Found:
        found: _Found = _TRUE
        for part in parts:
            conditions = len(part) * sum(map(_size, found)) + len(found) * sum(map(_size, part))
            is_product = len(found) > 1 and len(part) > 1
            if (is_product and len(found) * len(part) > self.max_product) or conditions > self.max_in_all:
                raise _NoTwigError
            found = tuple(dict.fromkeys(a | b for a in found for b in part))
        return self.bounded(found)

    def negated(self, found: _Found) -> _Found:
        return self.product([tuple(frozenset({c._replace(positive=not c.positive)}) for c in twig) for twig in found])

    def path(self, path: Path, test: tuple[tuple[Link, ...], Test] | None, at_document: bool) -> _Found:
        if path.start != (ROOT if at_document else HERE) or (at_document and not path.steps):
            raise _NoTwigError
        return self.steps(path.steps, test)

    def steps(self, steps: tuple[Step, ...], test: tuple[tuple[Link, ...], Test] | None) -> _Found:
        here, deep = _SELF, False
        for number, step in enumerate(steps):
            if step == ANY_DEEPER and not here.tail:
                deep = True
                continue
            following = _down(here, step, deep)
            here, deep = following, False
            if step.predicates:
                parts = [self.predicate(predicate) for predicate in step.predicates]
                rest = steps[number + 1 :]
                if rest or test is not None:
                    parts.append(self.steps(rest, test))
                return self.bounded(tuple(dict.fromkeys(_lifted(here, twig) for twig in self.product(parts))))
        if deep:
            raise _NoTwigError
        if test is None:
            return _TRUE if here == _SELF else (frozenset({Condition(here)}),)
        chain, what = test
        return (frozenset({Condition(here, True, Column(here, False, chain), what)}),)

    def predicate(self, predicate: Expr) -> _Found:
        if is_positional(predicate):
            raise _NoTwigError
        return self.truth(predicate)

    def comparison(self, expr: Binary, at_document: bool) -> _Found:
        left, right, op = expr.left, expr.right, expr.op
        if not isinstance(right, Number | Literal):
            raise _NoTwigError
        if isinstance(left, Binary) and left.op == "|":
            parts = [self.comparison(Binary(op, part, right), at_document) for part in flattened(left, "|")]
            return self.bounded(tuple(twig for part in parts for twig in part))
        if isinstance(right, Number) or op in RELATIONAL or type_of(left) == NUMBER:
            value = right.value if isinstance(right, Number) else to_number(right.value)
            if value != value:
                raise _NoTwigError
            test = Test("n" + op, value)
        else:
            test = Test(op, right.value)
        if isinstance(left, Path):
            return self.path(left, ((), test), at_document)
        return self.first(left, test, at_document)

    def call(self, expr: Call, at_document: bool) -> _Found:
        if expr.name == "not":
            return self.negated(self.truth(expr.args[0], at_document))
        if expr.name == "boolean":
            return self.truth(expr.args[0], at_document)
        if expr.name in ("starts-with", "contains") and isinstance(expr.args[1], Literal):
            if expr.args[1].value == "":
                return _TRUE
            return self.first(expr.args[0], Test(expr.name, expr.args[1].value), at_document)
        raise _NoTwigError

    def first(self, expr: Expr, test: Test, at_document: bool) -> _Found:
        """A test on what functions make of the first node of a path without predicates."""
        chain: list[Link] = []
        while isinstance(expr, Call):
            if expr.name in CHAINS and all(map(is_constant, expr.args[1:])):
                chain.append((expr.name, *map(constant, expr.args[1:])))
            elif expr.name in ("string-length", "number"):
                chain.append((expr.name,))
            elif expr.name != "string":
                raise _NoTwigError
            expr = expr.args[0]
        chain.reverse()
        links = tuple(chain)
        if ("number",) in links[:-1] or (links[-1:] == (("number",),) and not test.is_numeric):
            raise _NoTwigError
        if not isinstance(expr, Path) or expr.start != (ROOT if at_document else HERE):
            raise _NoTwigError
        here, deep = _SELF, False
        for step in expr.steps:
            if step.predicates:
                raise _NoTwigError
            if step == ANY_DEEPER and not here.tail:
                deep = True
                continue
            here, deep = _down(here, step, deep), False
        # Texts of nested elements don't come in document order from a walk; nor is the document a node of one.
        if deep or (here.tail == TEXT and (here.deep or any(loose for loose, _ in here.steps))):
            raise _NoTwigError
        if at_document and here == _SELF:
            raise _NoTwigError
        return (frozenset({Condition(here, True, Column(here, True, links), test)}),)


def _size(twig: Twig) -> int:
    """How many conditions it has, at whatever depth."""
    return sum(1 if condition.inner is None else 1 + _size(condition.inner) for condition in twig)


def columns_of(twig: Twig) -> set[Column]:
    """The columns of all its conditions, at whatever depth."""
    found: set[Column] = set()
    for condition in twig:
        if condition.column is not None:
            found.add(condition.column)
        if condition.inner is not None:
            found |= columns_of(condition.inner)
    return found


def _down(here: Linear, step: Step, deep: bool) -> Linear:
    if not here.tail and not deep:
        if step.axis == "self" and step.test == "node()":
            return here
        if step.axis == "attribute" and not here.steps and not step.test.endswith((")", "}*")):
            return Linear((), "@" + step.test)
        if step.axis == "child" and not here.steps and step.test == TEXT:
            return Linear((), TEXT)
    following = down(here, step, deep)
    if following is None:
        raise _NoTwigError
    return following


def _lifted(path: Linear, twig: Twig) -> Twig:
    """Conditions at the nodes of a path, as conditions where the path begins."""
    if not twig:
        return frozenset({Condition(path)}) if path != _SELF else twig
    if path == _SELF:
        return twig
    if len(twig) == 1:
        (only,) = twig
        if only.positive and not (only.column is not None and only.column.first and only.path != _SELF):
            below = only.path
            if path.tail and below != _SELF:
                raise _NoTwigError
            joined = path if below == _SELF else Linear(path.steps + below.steps, below.tail, below.deep)
            column = None if only.column is None else Column(joined, False, only.column.chain)
            return frozenset({Condition(joined, True, column, only.test, only.inner)})
    if path.tail:
        raise _NoTwigError
    return frozenset({Condition(path, inner=twig)})
