"""What one peer can compute of a goal: from the path values that each parent says, and what it measures itself.

A path value grows hop by hop: what the parent says, and the link to it. So a peer needs one number per aggregate of the
goal from each parent, and says as many to its children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from peer.goals.syntax import (
    Along,
    Arithmetic,
    Call,
    Constraint,
    Cost,
    Function,
    Goal,
    NodeAggregate,
    Number,
    Scope,
    Sense,
    SystemCost,
    Value,
    parts,
)
from peer.goals.vocabulary import Vocabulary
from peer.optimizer.blending import blend

LINK_MEASURED = frozenset({"latency", "loss", "lateness", "rate", "bandwidth"})
NODE_MEASURED = ("cpu", "fanout", "load", "hops", "parents", "own_rate", "incoming", "outgoing", "superfluous")
"""What a peer knows of itself, and says to its neighbours in this order. Append only: the order is the protocol."""
OF_CHILDREN = frozenset({"node.fanout", "node.load"})
"""What the number of children decides alone: constraints on these are kept when a child asks for a slot."""
MAX_AGGREGATES = 8
PENALTY = 1e6
"""How much more a constraint that is broken by its own threshold weighs than a cost of 1: constraints come first."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a peer does: its cost, and which constraints it breaks, by how much of their thresholds."""

    cost: float
    broken: tuple[tuple[str, float], ...]

    @property
    def violation(self) -> float:
        return sum(excess for _, excess in self.broken)


class Course:
    """A goal compiled for one peer. `problem` says why it cannot be followed here; empty if it can."""

    def __init__(self, goal: Goal, vocabulary: Vocabulary) -> None:
        self.goal, self._words = goal, vocabulary
        self._sign = 1.0 if goal.sense is Sense.MINIMIZE else -1.0
        self._limits = [
            c for c in goal.constraints if not isinstance(c.metric, SystemCost) and not unmeasured(c.metric)
        ]
        found = [part for cost in (goal.cost.cost, *(_cost_of(c) for c in self._limits)) for part in parts(cost)]
        self.aggregates = list(dict.fromkeys(p for p in found if isinstance(p, NodeAggregate)))
        missing = unmeasured(goal.cost.cost)
        self.problem = ""
        if missing:
            self.problem = f"peers do not measure {', '.join(missing)} yet"
        elif not any(aggregate.along is Along.PATH for aggregate in self.aggregates):
            self.problem = "the goal does not depend on paths, so a peer cannot tell by itself which parent is better"
        elif len(self.aggregates) > MAX_AGGREGATES:
            self.problem = f"the goal has {len(self.aggregates)} aggregates, at most {MAX_AGGREGATES} are followed"

    def child_limit(self, capacity: int) -> int | None:
        """The most children, up to the capacity, with which no constraint on children is broken; None without one.

        If no number will do, it is the one that breaks them least.
        """
        about = [limit for limit in self._limits if _is_about_children(_cost_of(limit))]
        if not about:
            return None

        def broken(children: int) -> float:
            node = {"fanout": float(children), "load": children / max(1, capacity)}
            return sum(limit.excess(self._node_cost(_cost_of(limit), {}, node)) for limit in about)

        return min(range(capacity, -1, -1), key=broken)

    @property
    def start(self) -> list[float]:
        """A root's path values."""
        return [math.inf if a.function is Function.MIN else 0.0 for a in self.aggregates]

    def through(self, told: Sequence[float], link: Mapping[str, float], sender: Mapping[str, float]) -> list[float]:
        """Path values through one parent: what it says of its path and of itself, and the link to it."""
        found = []
        for aggregate, before in zip(self.aggregates, told, strict=True):
            here = self._evaluate(
                aggregate.value, lambda v: (link if v.scope is Scope.LINK else sender).get(v.name, 0.0)
            )
            match aggregate.function:
                case Function.MIN:
                    found.append(min(before, here))
                case Function.MAX:
                    found.append(max(before, here))
                case _:
                    found.append(before + here)
        return found

    def together(self, ways: Sequence[Sequence[float]]) -> list[float]:
        """What several parents are worth: the expected first copy, or the widest path."""
        return [
            max(values) if aggregate.function is Function.MIN else blend(values)
            for aggregate, values in zip(self.aggregates, zip(*ways, strict=True), strict=True)
        ]

    def standing(self, values: Sequence[float], node: Mapping[str, float]) -> Standing:
        known = dict(zip(self.aggregates, values, strict=True))
        broken = []
        for limit in self._limits:
            excess = limit.excess(self._node_cost(_cost_of(limit), known, node))
            if excess:
                broken.append((str(limit), excess / (abs(limit.threshold.value) or 1.0)))
        return Standing(self._node_cost(self.goal.cost.cost, known, node), tuple(broken))

    def worth(self, values: Sequence[float], node: Mapping[str, float]) -> float:
        """One number to minimize: constraints first, then the cost."""
        standing = self.standing(values, node)
        return self._sign * standing.cost + PENALTY * standing.violation

    def _node_cost(self, cost: Cost, known: Mapping[NodeAggregate, float], node: Mapping[str, float]) -> float:
        return self._evaluate(cost, lambda value: node.get(value.name, 0.0), known)

    def _evaluate(
        self, cost: Cost, read: Callable[[Value], float], known: Mapping[NodeAggregate, float] | None = None
    ) -> float:
        match cost:
            case Number(value):
                return value
            case Value():
                return read(cost)
            case Arithmetic(operator, left, right, _):
                return _join(operator, self._evaluate(left, read, known), self._evaluate(right, read, known))
            case Call(name, arguments, _):
                return self._words.functions[name].call(*(self._evaluate(each, read, known) for each in arguments))
            case NodeAggregate():
                return (known or {}).get(cost, 0.0)


def _is_about_children(cost: Cost) -> bool:
    return all(str(p) in OF_CHILDREN for p in parts(cost) if isinstance(p, Value | NodeAggregate))


def _cost_of(constraint: Constraint) -> Cost:
    assert not isinstance(constraint.metric, SystemCost)
    return constraint.metric


def unmeasured(cost: Cost) -> list[str]:
    """What this cost needs and peers do not measure."""
    found = []
    for part in parts(cost):
        if isinstance(part, NodeAggregate):
            if part.along is Along.CHILDREN:
                found.append(str(part))
            elif part.function is Function.AVERAGE:
                found.append(f"the length of a path, for {part}")
            found += [str(v) for v in parts(part.value) if isinstance(v, Value) and not _is_measured(v)]
    inside = {id(v) for part in parts(cost) if isinstance(part, NodeAggregate) for v in parts(part.value)}
    found += [
        str(v)
        for v in parts(cost)
        if isinstance(v, Value) and id(v) not in inside and not (v.scope is Scope.NODE and v.name in NODE_MEASURED)
    ]
    return list(dict.fromkeys(found))


def _is_measured(value: Value) -> bool:
    return value.name in (LINK_MEASURED if value.scope is Scope.LINK else NODE_MEASURED)


def _join(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right if right else math.copysign(math.inf, left) if left else 0.0
