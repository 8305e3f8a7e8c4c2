"""A hard bound, in nanoseconds, on what libxml2 does for one XPath 1.0 query on one packet. Nothing is evaluated.

libxml2 can't be interrupted, so what may run is settled before it runs, from the query's tree and the packet's
`Facts`. What keeps honest queries cheap is to bound a *family* of evaluations together: a predicate is evaluated
`times` times, and any one node is its context at most `share` times. A child step of a family looks at nodes * share
nodes in all (a node has one parent), not at times * nodes; string-values copy each byte once for each of its ancestors.

libxml2's own habits are charged: duplicates are searched by scanning the result so far (every axis but child, attribute
and self); arguments, parentheses and unions are sorted, and comparing two nodes walks siblings; `a = b` compares all
pairs and whole texts; substring search is naive; translate() scans its alphabet; numbers go through Python, and
node-sets twice where the document node may be among them (`evaluate`). The charges were measured on one machine and
are the same everywhere, so that all peers come to the same verdict; real time is watched besides (`Meter`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from xmlswitch.match.facts import Facts
from xmlswitch.query.evaluate import may_reach_document
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    ARITHMETIC,
    BOOLEAN,
    COMPARISONS,
    FUNCTIONS,
    HERE,
    NODES,
    NUMBER,
    RELATIONAL,
    STRING,
    Binary,
    Call,
    Expr,
    Filter,
    Literal,
    Negate,
    Number,
    Path,
    Step,
    flattened,
    type_of,
)

# Nanoseconds: an evaluation, an operation, a look at a node, at a node of a result while duplicates are searched, a
# step between siblings while nodes are sorted, a byte of a text, of a numeral; a call of one of our functions, a node
# handed to it, a pair that it compares.
BASE, OP, VISIT, MERGE, HOP, BYTE, DIGIT, EXT, PROXY, PAIR = 8000, 200, 30, 3, 10, 3, 15, 4000, 2000, 120
_NUMERAL = 330  # bytes of the longest text of a double
_BOOLEAN = 5
_UTF8 = 4
_OR_SELF = "descendant-or-self"
_DEEPER = {"child": "descendant", "descendant": "descendant", "self": _OR_SELF, _OR_SELF: _OR_SELF}
_LAST = Call("last", ())


class _Nodes(NamedTuple):
    """The node-sets of a family of evaluations.

    The sum of their sizes, the size of the largest, how many evaluations can have the same node, and how many nodes of
    one set can lie inside each other.
    """

    total: float
    most: float
    share: float
    chain: float


class _Texts(NamedTuple):
    """The bytes of a family's texts together, and of the longest."""

    total: float
    most: float


class _TooMuch(Exception):
    """More than the cap, or an axis whose cost has no useful bound."""


def bound(expr: Expr, facts: Facts, cap: float = math.inf) -> float:
    """Nanoseconds; infinite as soon as it is more than `cap`. `expr` is a canonical tree."""
    model = _Model(facts, cap)
    try:
        model.argument(expr, 1, 1)
    except _TooMuch:
        return math.inf
    return model.cost


def _merged(steps: tuple[Step, ...]) -> list[Step]:
    """`//x` without predicates is one descendant step to libxml2."""
    found: list[Step] = []
    for step in steps:
        if found and found[-1] == ANY_DEEPER and not step.predicates and step.axis in _DEEPER:
            found[-1] = Step(_DEEPER[step.axis], step.test)
        else:
            found.append(step)
    return found


class _Model:
    """`times` is how often an expression is evaluated, `share` how often with the same context node."""

    def __init__(self, facts: Facts, cap: float) -> None:
        self.facts = facts
        self.nodes_, self.depth, self.fan, self.size = facts[:4]
        self.cost, self.cap = float(BASE), cap

    def charge(self, amount: float) -> None:
        self.cost += amount
        if self.cost > self.cap:
            raise _TooMuch

    # --- truth ---

    def argument(self, expr: Expr, times: float, share: float) -> None:
        if type_of(expr) == NODES:
            self.sort(self.nodes(expr, times, share))
        else:
            self.truth(expr, times, share)

    def truth(self, expr: Expr, times: float, share: float) -> None:
        kind = type_of(expr)
        self.charge(times * OP)
        if kind == NODES:
            self.nodes(expr, times, share)
        elif kind == STRING:
            self.text(expr, times, share)
        elif kind == NUMBER:
            self.number(expr, times, share)
        elif isinstance(expr, Binary) and expr.op in COMPARISONS:
            self.compare(expr, times, share)
        elif isinstance(expr, Binary):
            self.truth(expr.left, times, share)
            self.truth(expr.right, times, share)
        elif isinstance(expr, Call):
            self.truth_of_call(expr, times, share)

    def truth_of_call(self, expr: Call, times: float, share: float) -> None:
        if expr.name in ("contains", "starts-with"):
            whole, part = self.text(expr.args[0], times, share), self.text(expr.args[1], times, share)
            self.charge(BYTE * whole.total * (1 + part.most * (expr.name == "contains")))
        elif expr.name == "lang":
            self.text(expr.args[0], times, share)
            self.charge(times * self.depth * self.fan * VISIT)
        else:
            for arg in expr.args:
                self.argument(arg, times, share)

    def compare(self, expr: Binary, times: float, share: float) -> None:
        sides = expr.left, expr.right
        kinds = [type_of(side) for side in sides]
        if BOOLEAN in kinds:
            for side in sides:
                self.truth(side, times, share)
        elif expr.op in RELATIONAL or NUMBER in kinds:
            found = [self.handed(side, times, share) for side in sides if type_of(side) == NODES]
            for side in sides:
                if type_of(side) != NODES:
                    self.number(side, times, share)
            if found:
                self.charge(times * EXT + found[0].total * PAIR * (found[-1].most if len(found) > 1 else 1))
        elif kinds == [NODES, NODES]:
            left, right = self.nodes(expr.left, times, share), self.nodes(expr.right, times, share)
            texts = self.read(left, times)
            self.read(right, times)
            self.charge(left.total * right.most * 2 * VISIT + texts.total * right.most * BYTE)
        else:
            for side in sides:
                self.charge(BYTE * self.strings(side, times, share).total)

    # --- node-sets ---

    def nodes(self, expr: Expr, times: float, share: float) -> _Nodes:
        if isinstance(expr, Path):
            self.charge(times * OP)
            found = _Nodes(times, 1, share if expr.start == HERE else times, 1)
            if not isinstance(expr.start, str):
                found = self.sort(self.nodes(expr.start, times, share))
            for step in _merged(expr.steps):
                found = self.step(step, found, times)
            return found
        if isinstance(expr, Filter):
            found = self.sort(self.nodes(expr.primary, times, share))
            return self.filtered(expr.predicates, found, _Nodes(times, 1, times, 1))
        if isinstance(expr, Binary):
            return self.union(expr, times, share)
        if not isinstance(expr, Call):
            raise _TooMuch
        # id(): each word is looked up, and searched among those found.
        words = self.strings(expr.args[0], times, share)
        self.charge(words.total * (VISIT + self.nodes_ * MERGE))
        return _Nodes(times * self.nodes_, self.nodes_, times, self.depth)

    def union(self, expr: Binary, times: float, share: float) -> _Nodes:
        parts = flattened(expr, "|")
        whole = self.sort(self.nodes(parts[0], times, share))
        for part in parts[1:]:
            found = self.sort(self.nodes(part, times, share))
            self.charge(MERGE * found.total * whole.most)
            most = min(self.nodes_, whole.most + found.most)
            shared = min(times, whole.share + found.share)
            whole = _Nodes(whole.total + found.total, most, shared, min(self.depth, most))
        return self.sort(whole)

    def step(self, step: Step, at: _Nodes, times: float) -> _Nodes:
        nodes, depth, fan, axis = self.nodes_, self.depth, self.fan, step.axis
        total, most, share, chain = at
        searched, nested = most > 1, float(depth)  # for duplicates
        if axis in ("child", "attribute"):
            seen, again, most, nested, searched = min(nodes * share, total * fan), share, most * fan, chain, False
        elif axis == "self":
            seen, again, nested, searched = total, share, chain, False
        elif axis == "parent":
            seen, again, share = total, min(total, share * fan), share * fan
        elif axis in ("ancestor", "ancestor-or-self"):
            seen, again, most, share = total * depth, total, most * depth, total
        elif axis in ("descendant", "descendant-or-self"):
            again = min(depth * share, times * chain)
            seen, most, share = min(nodes * again, total * nodes), nodes, depth * share
        elif axis in ("following-sibling", "preceding-sibling"):
            again = min(total, share * fan)
            seen, most, share, nested = min(total * fan, nodes * again), most * fan, share * fan, chain
        elif axis in ("following", "preceding"):
            seen, again, most, share = total * nodes, total, nodes, total
        else:
            raise _TooMuch  # namespace: a copy of every declaration for every element
        self.charge(total * OP + seen * VISIT)
        passing = self.passing(axis, step.test)
        left = self.filtered(step.predicates, _Nodes(min(seen, again * passing), nodes, again, depth), at)
        share = min(times, share)
        most = min(nodes, most, passing, at.most if left.most < nodes else nodes)  # a position leaves one a context
        if searched:
            self.charge(MERGE * left.total * most)
        return _Nodes(min(left.total, passing * share, times * most), most, share, min(most, nested))

    def passing(self, axis: str, test: str) -> int:
        """How many nodes of the packet pass a node test."""
        if test[-1] == ")":
            return self.nodes_
        key = "@" if axis == "attribute" else ""
        return self.facts.names.get(key + ("*" if test[-1] == "*" else test), 0)

    def filtered(self, predicates: tuple[Expr, ...], found: _Nodes, contexts: _Nodes) -> _Nodes:
        """Each predicate is evaluated for every node that is left, once for each context it was reached from."""
        for predicate in predicates:
            self.charge(found.total * OP)
            self.truth(predicate, found.total, found.share)
            if isinstance(predicate, Number) or predicate == _LAST:
                found = _Nodes(min(found.total, contexts.total), min(found.most, contexts.most), *found[2:])
        return found

    def sort(self, found: _Nodes) -> _Nodes:
        if found.most > 1:
            self.charge(HOP * found.total * math.log2(found.most + 1) * (2 * self.depth + self.fan))
        return found

    def handed(self, expr: Expr, times: float, share: float) -> _Nodes:
        """A node-set for our own functions: proxies, string-values, and the question whether the document is in it."""
        before = self.cost
        found = self.sort(self.nodes(expr, times, share))
        if may_reach_document(expr):  # `evaluate` writes it twice, and filters it once
            self.charge(self.cost - before + times * 12 * OP + found.total * 4 * OP)
            self.charge(times * (self.size * (2 * BYTE + DIGIT) + self.nodes_ * VISIT))
        self.charge(found.total * PROXY + DIGIT * self.read(found, times).total)
        return found

    # --- texts and numbers ---

    def strings(self, expr: Expr, times: float, share: float) -> _Texts:
        """The string-values of all nodes of a node-set, or the one text of anything else."""
        if type_of(expr) == NODES:
            return self.read(self.nodes(expr, times, share), times)
        return self.text(expr, times, share)

    def read(self, found: _Nodes, times: float) -> _Texts:
        """All string-values of a node-set: how many times, at most, every byte of the document is copied."""
        whole = min(found.total, found.share * self.depth, times * found.chain)
        self.charge(found.total * OP + whole * (self.size * BYTE + self.nodes_ * VISIT))
        return _Texts(whole * self.size, self.size)

    def text(self, expr: Expr, times: float, share: float) -> _Texts:
        kind = type_of(expr)
        self.charge(times * OP)
        if kind == NODES:
            found = self.sort(self.nodes(expr, times, share))
            return self.read(_Nodes(min(times, found.total), 1, min(times, found.share), 1), times)
        if kind == NUMBER:
            self.number(expr, times, share)
            self.charge(times * EXT)
            return _Texts(times * _NUMERAL, _NUMERAL)
        if isinstance(expr, Literal):
            length = _UTF8 * len(expr.value)
            self.charge(times * length * BYTE)
            return _Texts(times * length, length)
        if not isinstance(expr, Call) or kind == BOOLEAN:
            self.truth(expr, times, share)
            return _Texts(times * _BOOLEAN, _BOOLEAN)
        return self.text_of_call(expr, times, share)

    def text_of_call(self, expr: Call, times: float, share: float) -> _Texts:
        if expr.name in ("name", "local-name", "namespace-uri"):
            self.argument(expr.args[0], times, share)
            self.charge(times * self.facts.name * BYTE)
            return _Texts(times * self.facts.name, self.facts.name)
        wanted = zip(expr.args, FUNCTIONS[expr.name][3], strict=False)
        texts = [self.text(arg, times, share) for arg, kind in wanted if kind != NUMBER]
        for arg in expr.args[len(texts) :]:
            self.number(arg, times, share)
        first = texts[0]
        if expr.name == "concat":
            first = _Texts(sum(text.total for text in texts), sum(text.most for text in texts))
            self.charge(BYTE * first.total * len(texts))
        elif expr.name == "translate":
            self.charge(BYTE * first.total * _UTF8 * (1 + texts[1].most + texts[2].most))
            return _Texts(_UTF8 * first.total, _UTF8 * first.most)
        elif expr.name in ("substring-before", "substring-after"):
            self.charge(BYTE * first.total * (1 + texts[1].most))
        self.charge(BYTE * 4 * first.total)
        return first

    def number(self, expr: Expr, times: float, share: float) -> None:
        self.charge(times * OP)
        kind = type_of(expr)
        if isinstance(expr, Number):
            self.charge(times * EXT)
        elif isinstance(expr, Negate):
            self.number(expr.operand, times, share)
        elif isinstance(expr, Binary) and expr.op in ARITHMETIC:
            self.number(expr.left, times, share)
            self.number(expr.right, times, share)
        elif kind == BOOLEAN:
            self.truth(expr, times, share)
        elif kind in (NODES, STRING):
            self.charge(times * EXT + DIGIT * self.text(expr, times, share).total)
        elif isinstance(expr, Call):
            self.number_of_call(expr, times, share)

    def number_of_call(self, expr: Call, times: float, share: float) -> None:
        if expr.name == "count":
            self.nodes(expr.args[0], times, share)
        elif expr.name == "sum":
            self.handed(expr.args[0], times, share)
        elif expr.name == "string-length":
            self.charge(BYTE * 2 * self.text(expr.args[0], times, share).total)
        elif expr.args:
            self.number(expr.args[0], times, share)
        self.charge(times * EXT * (expr.name in ("sum", "round")))
