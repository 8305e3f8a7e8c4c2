"""From a canonical tree to what the index holds: a disjunction of conjunctions of atoms.

Each conjunction is a *necessary* condition; it is also sufficient unless it says otherwise (`Conjunction.unique`,
`.verify`). The rules that keep it sound:

- `/a[b]/c` becomes `/a/b` and `/a/c`. Both can hold through two different `a`; so the branching path `/a` goes to
  `unique`. A single predicate at the last step needs no such thing: `//a[b]` is `//a/b`.
- What is negated must be sufficient, or its negation would not be necessary. A negation below a step also makes that
  step's path a branching one: some `a` without `b` is not the same as no `a/b`.
- `starts-with(a/b, 'x')` looks at the first node. From the document that is a `first` column; below a step it is
  relaxed to any node, and the path goes to `unique`.
- Everything else is evaluated (`verify`), with whatever necessary conditions could be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xmlswitch.query.atoms import ALWAYS, TEXT, UNKNOWN, Atom, Column, Conjunction, Linear, Link, Test, holds_on_absent
from xmlswitch.query.numerals import to_number
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    CONTEXT,
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
    Negate,
    Number,
    Path,
    Step,
    flattened,
    is_positional,
    type_of,
)

if TYPE_CHECKING:
    from xmlswitch.limits import QueryLimits

Disjunction = tuple[Conjunction, ...]
_NEVER: Disjunction = ()
_TRUE: Disjunction = (ALWAYS,)
_UNKNOWN: Disjunction = (UNKNOWN,)
CHAINS = frozenset({"substring-before", "substring-after", "substring", "translate", "normalize-space"})


@dataclass(frozen=True, slots=True)
class Plan:
    """`reasons` say, for people, why evaluation may be needed."""

    conjunctions: Disjunction
    reasons: tuple[str, ...]


def plan_of(expr: Expr, limits: QueryLimits) -> Plan:
    """Of a canonical tree."""
    if isinstance(expr, Path) and (linear := _plain(expr)) is not None:
        return Plan((Conjunction(frozenset({(Atom(linear), True)})),), ())
    planner = _Planner(limits)
    found = tuple(map(planner.with_few_branches, planner.truth(expr, None)))
    return Plan(tuple(dict.fromkeys(map(_without_implied, found))), tuple(dict.fromkeys(planner.reasons)))


def plan_before(need: Plan, reason: str) -> Plan:
    """Of a query that must be evaluated, and that can hold only where another does, which has a plan."""
    found = tuple(dict.fromkeys(map(_only_positive, need.conjunctions)))
    return Plan(found, (reason, *need.reasons))


class _Planner:
    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self.reasons: list[str] = []

    def unknown(self, why: str) -> Disjunction:
        self.reasons.append(why)
        return _UNKNOWN

    # --- boolean structure ---

    def truth(self, expr: Expr, context: Linear | None) -> Disjunction:
        """`context` is the linear path of the context node, None at the document."""
        if expr == TRUE:
            return _TRUE
        if expr == FALSE:
            return _NEVER
        if isinstance(expr, Path):
            return self.path(expr, context, None)
        if isinstance(expr, Call):
            if expr.name == "not":
                return self.negated(self.truth(expr.args[0], context))
            return self.call(expr, context)
        if isinstance(expr, Binary):
            if expr.op == "and":
                operands = flattened(expr, "and")
                if len(operands) > 2 * self.limits.max_literals:
                    return self.unknown(f"more than {self.limits.max_literals} conditions together")
                parts = [self.truth(part, context) for part in operands]
                return self.product(parts, self.branching(context, parts))
            if expr.op in ("or", "|"):
                return self.alternatives(expr, context)
            if expr.op in MIRRORED:
                return self.comparison(expr, context)
        return self.unknown("arithmetic or a filtered node-set is evaluated")

    def alternatives(self, expr: Binary, context: Linear | None) -> Disjunction:
        found: dict[Conjunction, None] = {}
        size = 0
        for part in flattened(expr, expr.op):
            alternatives = self.truth(part, context)
            found.update(dict.fromkeys(alternatives))
            size += _size(alternatives)
            if self.is_too_many(len(found), size):  # no need to look at the others
                return self.unknown("too many alternatives")
        return tuple(found)

    def is_too_many(self, number: int, size: int) -> bool:
        return number > self.limits.max_conjunctions or size > self.limits.max_plan_size

    def product(self, parts: list[Disjunction], unique: frozenset[Linear]) -> Disjunction:
        parts = [part for part in parts if part != _TRUE]
        if len(parts) == 1 and not unique:
            return parts[0]
        found: list[Conjunction] = [Conjunction(frozenset(), unique)]
        for part in parts:
            if self.is_too_large(found, part):
                part = self.unknown("too many alternatives")
            found = [
                Conjunction(a.literals | b.literals, a.unique | b.unique, a.verify or b.verify)
                for a in found
                for b in part
            ]
            if any(len(conjunction.literals) > self.limits.max_literals for conjunction in found):
                return self.unknown(f"more than {self.limits.max_literals} conditions together")
        return tuple(found)

    def is_too_large(self, found: list[Conjunction], part: Disjunction) -> bool:
        """Whether the product of both would be."""
        number = len(found) * len(part)
        if number == 1:
            return False
        size = len(part) * _size(found) + len(found) * _size(part)
        is_product = len(found) > 1 and len(part) > 1
        return size > self.limits.max_plan_size or (is_product and number > self.limits.max_product)

    def branching(self, context: Linear | None, parts: list[Disjunction]) -> frozenset[Linear]:
        """The context's path, when several conditions, or a negative one, must hold at one and the same node."""
        if context is None or context.is_single:
            return frozenset()
        loaded = [part for part in parts if any(conjunction.literals for conjunction in part)]
        negative = any(not positive for part in loaded for c in part for _, positive in c.literals)
        return frozenset({context}) if len(loaded) > 1 or negative else frozenset()

    def negated(self, found: Disjunction) -> Disjunction:
        found = tuple(map(_without_implied, found))
        if any(conjunction.verify for conjunction in found):
            return self.unknown("not() of what can't be decided in the index")
        if any(conjunction.unique for conjunction in found):
            # Only true of documents where the paths are unique; a positive literal would be wrong in all others.
            if len(found) != 1 or not all(positive for _, positive in found[0].literals):
                return self.unknown("not() of a condition on branches")
            only = found[0]
            return tuple(Conjunction(frozenset({(atom, False)}), only.unique) for atom, _ in only.literals)
        parts = [
            tuple(Conjunction(frozenset({(atom, not positive)})) for atom, positive in conjunction.literals)
            for conjunction in found
        ]
        return self.product(parts, frozenset())

    def with_few_branches(self, conjunction: Conjunction) -> Conjunction:
        """The index walks each path that must be unique, and they can be prefixes of each other: bound them too."""
        if len(conjunction.unique) <= self.limits.max_literals:
            return conjunction
        self.unknown(f"more than {self.limits.max_literals} branches together")
        return _only_positive(conjunction)

    # --- paths ---

    def path(self, path: Path, context: Linear | None, test: tuple[tuple[Link, ...], Test] | None) -> Disjunction:
        """Some node of the path exists, and passes the test if there is one."""
        if path.start not in (ROOT, HERE):
            start = self.truth(path.start, context) if not isinstance(path.start, str) else _TRUE
            return tuple(c._replace(verify=True) for c in self.product([start, self.unknown("a step after ()")], _NONE))
        if path.start == HERE and context is None:
            return self.unknown("a step from a node that is not on a downward path")
        here = context if path.start == HERE and context is not None else Linear(())
        parts: list[Disjunction] = []
        unique: frozenset[Linear] = frozenset()
        steps = path.steps
        deep = False
        for number, step in enumerate(steps):
            if step == ANY_DEEPER and not here.tail:
                deep = True
                continue
            following = down(here, step, deep)
            if following is None:
                parts.append(self.unknown(f"the step {step.axis}::{step.test} is evaluated"))
                test = None
                break
            here, deep = following, False
            more = number + 1 < len(steps) or test is not None
            found, branches = self.predicates(step, here, more)
            parts += found
            unique |= branches
        if test is None or deep:
            if test is not None:
                parts.append(self.unknown("a test on all descendants is evaluated"))
            if here.tail or here.steps not in ((), ((False, "*"),)):
                parts.append((Conjunction(frozenset({(Atom(here), True)})),))
        else:
            chain, what = test
            here = here if here.steps or here.tail else _ROOT  # the document's text is the root element's
            atom = Atom(here, Column(here, False, chain), what)
            parts.append((Conjunction(frozenset({(atom, True)})),))
        return self.product(parts, unique)

    def predicates(self, step: Step, here: Linear, more: bool) -> tuple[list[Disjunction], frozenset[Linear]]:
        parts: list[Disjunction] = []
        unique: frozenset[Linear] = frozenset()
        for predicate in step.predicates:
            if is_positional(predicate):
                if predicate in (Number(1.0), Call("last", ())):
                    if not here.is_single:
                        unique |= {here}
                else:
                    parts.append(self.unknown("a position is evaluated"))
            else:
                parts.append(self.truth(predicate, here))
        if more:
            parts.append((Conjunction(frozenset({(Atom(here), True)})),))
        unique |= self.branching(here, parts)
        if more:
            parts.pop()
        return parts, unique

    # --- values ---

    def comparison(self, expr: Binary, context: Linear | None) -> Disjunction:
        left, right, op = expr.left, expr.right, expr.op
        if not isinstance(right, Number | Literal):
            if isinstance(left, Path) and isinstance(right, Path):
                both = [self.path(left, context, None), self.path(right, context, None)]
                positive = [tuple(_only_positive(c) for c in part) for part in both]
                return self.product([*positive, self.unknown("a comparison of two node-sets is evaluated")], _NONE)
            return self.unknown("a comparison without a literal is evaluated")
        if isinstance(left, Binary) and left.op == "|":
            parts = [self.comparison(Binary(op, part, right), context) for part in flattened(left, "|")]
            found = tuple(conjunction for part in parts for conjunction in part)
            return self.unknown("too many alternatives") if self.is_too_many(len(found), _size(found)) else found
        numeric = isinstance(right, Number) or op in RELATIONAL or type_of(left) == NUMBER
        if numeric:
            value = right.value if isinstance(right, Number) else to_number(right.value)
            if value != value:
                return _NEVER if op != "!=" else self.unknown("a comparison with NaN is evaluated")
            test = Test("n" + op, value)
        else:
            test = Test(op, right.value)
        if isinstance(left, Path):
            return self.path(left, context, ((), test))
        return self.first(left, test, context)

    def call(self, expr: Call, context: Linear | None) -> Disjunction:
        if expr.name in ("starts-with", "contains") and isinstance(expr.args[1], Literal):
            if expr.args[1].value == "":
                return _TRUE
            return self.first(expr.args[0], Test(expr.name, expr.args[1].value), context)
        if type_of(expr) == "string":
            return self.first(expr, Test("nonempty", ""), context)
        if expr.name == "boolean":
            return self.truth(expr.args[0], context)
        if expr.name == "count":
            return self.first(expr, Test("n!=", 0.0), context)
        return self.unknown(f"{expr.name}() is evaluated")

    def first(self, expr: Expr, test: Test, context: Linear | None) -> Disjunction:
        """A test on what a function makes of a node-set's first node."""
        chain: list[Link] = []
        while isinstance(expr, Call):
            args = expr.args
            if expr.name in CHAINS and all(map(is_constant, args[1:])):
                chain.append((expr.name, *map(constant, args[1:])))
            elif expr.name in ("string-length", "number", "count"):
                chain.append((expr.name,))
            elif expr.name != "string":
                return self.unknown(f"{expr.name}() is evaluated")
            expr = args[0]
        chain.reverse()
        links = tuple(chain)
        if not isinstance(expr, Path):
            return self.unknown("a function of several nodes or of a computed value is evaluated")
        if ("number",) in links[:-1] or (links[-1:] == (("number",),) and not test.is_numeric):
            return self.unknown("the text of a number is evaluated")
        if expr == CONTEXT and context is not None and ("count",) not in links:
            # The context node is one node: any and first are the same, and it is always there.
            return (Conjunction(frozenset({(Atom(context, Column(context, False, links), test), True)})),)
        linear = _plain(expr)
        # Texts of nested elements don't come in document order from a walk: which is first must be evaluated.
        nested = linear is not None and linear.tail == TEXT and (linear.deep or any(deep for deep, _ in linear.steps))
        if linear is not None and not nested:
            if links[:1] != (("count",),) and ("count",) in links:
                return self.unknown("count() of a computed value")
            return (Conjunction(frozenset({(Atom(linear, Column(linear, True, links), test), True)})),)
        if ("count",) in links or holds_on_absent(Column(Linear(()), True, links), test):
            return self.unknown("a function that can hold where its path does not is evaluated")
        found = self.path(expr, context, (links, test))
        if expr.start == HERE and len(expr.steps) == 1 and _is_one_attribute(expr.steps[0]):
            return found
        target = _target(expr, context)
        if target is None:
            return tuple(c._replace(verify=True) for c in found)
        return tuple(c if target.is_single else c._replace(unique=c.unique | {target}) for c in found)


_NONE: frozenset[Linear] = frozenset()
_ROOT = Linear(((False, "*"),))


def down(here: Linear, step: Step, deep: bool) -> Linear | None:
    """One step further down, or None for a step that a linear path can't take."""
    if here.tail:
        # From an attribute or a text only `.` leads anywhere.
        return here if step.axis == "self" and step.test == "node()" and not deep else None
    if step.axis == "self" and step.test == "node()" and not deep:
        return here if here.steps else None
    if step.axis == "child" and not step.test.endswith(")"):
        return Linear((*here.steps, (deep, step.test)))
    if step.axis == "child" and step.test == TEXT and (here.steps or deep):
        return Linear(here.steps, TEXT, deep)
    if step.axis == "attribute" and (here.steps or deep) and not step.test.endswith(")"):
        if step.test.endswith("}*"):
            return None
        return Linear(here.steps, "@" + step.test, deep)
    return None


def _is_one_attribute(step: Step) -> bool:
    """An element has at most one attribute of a name: the first is the only one."""
    return step.axis == "attribute" and not step.test.endswith(("*", ")")) and not step.predicates


def _plain(path: Path) -> Linear | None:
    """The linear path of a path from the document without predicates."""
    if path.start != ROOT or any(step.predicates for step in path.steps):
        return None
    return _target(path, None)


def _target(path: Path, context: Linear | None) -> Linear | None:
    """The linear path of a path, its predicates left out."""
    if path.start == ROOT:
        here = Linear(())
    elif path.start == HERE and context is not None:
        here = context
    else:
        return None
    deep = False
    for step in path.steps:
        if step == ANY_DEEPER and not here.tail:
            deep = True
            continue
        following = down(here, step, deep)
        if following is None:
            return None
        here, deep = following, False
    return None if deep or not here.steps else here


def is_constant(expr: Expr) -> bool:
    return isinstance(expr, Literal | Number) or (isinstance(expr, Negate) and isinstance(expr.operand, Number))


def constant(expr: Expr) -> str | float:
    if isinstance(expr, Negate) and isinstance(expr.operand, Number):
        return -expr.operand.value
    return expr.value if isinstance(expr, Literal | Number) else ""


def _size(conjunctions: Iterable[Conjunction]) -> int:
    """What the index has to hold: paths, and their steps."""
    size = 0
    for literals, unique, _ in conjunctions:
        for atom, _ in literals:
            size += 1 + len(atom.path.steps)
        for path in unique:
            size += 1 + len(path.steps)
    return size


def _only_positive(conjunction: Conjunction) -> Conjunction:
    return Conjunction(frozenset(pair for pair in conjunction.literals if pair[1]), frozenset(), True)


def _without_implied(conjunction: Conjunction) -> Conjunction:
    """Leave out `/a/b` where `/a/b/c` or a test on `/a/b` is required anyway: fewer distinct sets of paths."""
    if len(conjunction.literals) < 2:
        return conjunction
    paths = [atom.path for atom, positive in conjunction.literals if positive and atom.needs_path]
    kept = frozenset(
        (atom, positive)
        for atom, positive in conjunction.literals
        if not (positive and atom.column is None and _is_implied(atom.path, conjunction, paths))
    )
    return conjunction._replace(literals=kept)


def _is_implied(path: Linear, conjunction: Conjunction, paths: list[Linear]) -> bool:
    if path.tail:
        return any(
            atom.column is not None and positive and atom.needs_path and atom.path == path
            for atom, positive in conjunction.literals
        )
    depth = len(path.steps)
    for other in paths:
        if other.steps[:depth] == path.steps and (len(other.steps) > depth or other.tail):
            return True
    return any(
        atom.column is not None and positive and atom.needs_path and atom.path == path
        for atom, positive in conjunction.literals
    )
