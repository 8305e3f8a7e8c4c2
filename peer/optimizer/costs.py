"""A goal computed on a mesh: (violation of constraints, cost), to be compared from left to right (rule O4).

A goal is compiled once into functions of a `Context`, which is one mesh at one moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add, mul, sub
from typing import NamedTuple, Protocol

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
    Over,
    Scope,
    Sense,
    SystemCost,
    Value,
)
from peer.goals.vocabulary import VOCABULARY, Vocabulary
from peer.optimizer.blending import LEAST_ODDS, blend
from peer.optimizer.layout import Layout

MAX_HOPS = 12
"""A constraint that is always in force."""
UNFED = 2.0
"""What a peer without a path to a root counts as, in seconds, hops or whatever the cost is in."""


class World(Protocol):
    """What is measured. Peers are the numbers of the layout."""

    def link_metric(self, name: str, layout: Layout) -> Callable[[int, int], float]:
        """A function of parent and child."""

    def node_metric(self, name: str, layout: Layout) -> Callable[[int], float]: ...

    def members(self, over: Over) -> Sequence[int]:
        """Never a root."""

    def own_profile(self, peer: int) -> int:
        """What its own client asked for, as a set of bits."""

    def rate(self, profile: int) -> float:
        """Bytes per second that match."""


class Broken(NamedTuple):
    """A constraint that does not hold, and the peer at which; None if it is one on the whole system."""

    constraint: str
    peer: int | None
    excess: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    violation: float
    cost: float
    """As the goal states it: for `maximize`, more is better."""
    costs: Sequence[float]
    """By peer."""
    broken: tuple[Broken, ...]


class Context:
    """One mesh at one moment. Metrics of an application may use it as their view."""

    def __init__(self, layout: Layout, world: World, odds: float) -> None:
        self.layout, self.world, self.odds = layout, world, odds
        self.order = layout.order()
        self.memory: dict[Cost, list[float]] = {}

    @cached_property
    def hops(self) -> list[int]:
        return self.layout.hops(self.order)

    @cached_property
    def merged(self) -> list[int]:
        """What each peer's own client and everybody below asked for."""
        own = self.world.own_profile
        profile = [own(peer) for peer in range(self.layout.size)]
        parents = self.layout.parents
        for peer in reversed(self.order):
            for parent in parents[peer]:
                profile[parent] |= profile[peer]
        return profile


Compiled = Callable[[Context], list[float]]
Local = Callable[[Context], Callable[[int, int], float]]


def _rate_of_link(context: Context) -> Callable[[int, int], float]:
    rate, merged = context.world.rate, context.merged
    return lambda parent, child: rate(merged[child])


def _outgoing(context: Context) -> Callable[[int], float]:
    rate, merged, children = context.world.rate, context.merged, context.layout.children
    return lambda peer: sum(rate(merged[child]) for child in children[peer])


def _superfluous(context: Context) -> Callable[[int], float]:
    rate, merged, own = context.world.rate, context.merged, context.world.own_profile
    return lambda peer: rate(merged[peer] & ~own(peer))


_NODE: dict[str, Callable[[Context], Callable[[int], float]]] = {
    "fanout": lambda c: lambda x: float(len(c.layout.children[x])),
    "load": lambda c: lambda x: len(c.layout.children[x]) / max(1, c.layout.capacity[x]),
    "parents": lambda c: lambda x: float(len(c.layout.parents[x])),
    "hops": lambda c: lambda x: float(c.hops[x]),
    "own_rate": lambda c: lambda x: c.world.rate(c.world.own_profile(x)),
    "incoming": lambda c: lambda x: c.world.rate(c.merged[x]),
    "superfluous": _superfluous,
    "outgoing": _outgoing,
}
_LINK: dict[str, Callable[[Context], Callable[[int, int], float]]] = {"rate": _rate_of_link}


class Evaluator:
    """A goal in a world. `value` is what optimization compares, `evaluation` what people look at."""

    def __init__(
        self,
        goal: Goal,
        world: World,
        *,
        vocabulary: Vocabulary | None = None,
        odds: float = LEAST_ODDS,
        max_hops: int = MAX_HOPS,
    ) -> None:
        self.goal, self.world = goal, world
        self._words = vocabulary or VOCABULARY
        self._odds, self._max_hops = odds, max_hops
        self._sign = 1.0 if goal.sense is Sense.MINIMIZE else -1.0
        self._cost = self._compile(goal.cost.cost)
        self._limits = [(c, self._compile(_node_cost(c.metric))) for c in goal.constraints]

    def context(self, layout: Layout) -> Context:
        return Context(layout, self.world, self._odds)

    def value(self, layout: Layout) -> tuple[float, float]:
        """(violation, cost), both to be minimized."""
        context = self.context(layout)
        violation = self._violation(context)
        return violation, self._sign * system_cost(self.goal.cost, self._cost(context), self.world)

    def node_costs(self, layout: Layout) -> list[float]:
        return self._cost(self.context(layout))

    def evaluation(self, layout: Layout) -> Evaluation:
        context = self.context(layout)
        costs, broken = self._cost(context), list(self._broken(context))
        return Evaluation(
            sum(b.excess for b in broken), system_cost(self.goal.cost, costs, self.world), costs, tuple(broken)
        )

    # Constraints

    def _violation(self, context: Context) -> float:
        """Each constraint's excess in its own threshold, so that milliseconds and children can be added."""
        total, most = 0.0, self._max_hops
        for hops in context.hops:
            if hops > most:
                total += (hops - most) / most
        for constraint, compiled in self._limits:
            values, scale = compiled(context), _scale(constraint)
            if isinstance(constraint.metric, SystemCost):
                total += constraint.excess(system_cost(constraint.metric, values, self.world)) / scale
            else:
                total += sum(constraint.excess(values[peer]) for peer in self.world.members(Over.PEERS)) / scale
        return total

    def _broken(self, context: Context) -> list[Broken]:
        found = [
            Broken(f"node.hops <= {self._max_hops}", peer, (hops - self._max_hops) / self._max_hops)
            for peer, hops in enumerate(context.hops)
            if hops > self._max_hops
        ]
        for constraint, compiled in self._limits:
            values, scale = compiled(context), _scale(constraint)
            if isinstance(constraint.metric, SystemCost):
                excess = constraint.excess(system_cost(constraint.metric, values, self.world)) / scale
                found += [Broken(str(constraint), None, excess)] if excess else []
                continue
            for peer in self.world.members(Over.PEERS):
                excess = constraint.excess(values[peer]) / scale
                if excess:
                    found.append(Broken(str(constraint), peer, excess))
        return sorted(found, key=lambda b: -b.excess)

    # From trees to functions

    def _compile(self, cost: Cost) -> Compiled:
        compiled = self._compiled(cost)

        def remembered(context: Context) -> list[float]:
            found = context.memory.get(cost)
            if found is None:
                found = context.memory[cost] = compiled(context)
            return found

        return remembered

    def _compiled(self, cost: Cost) -> Compiled:
        match cost:
            case Number(value):
                return lambda context: [value] * context.layout.size
            case Value(Scope.NODE, name, _):
                node = self._node(name)
                return lambda context: list(map(node(context), range(context.layout.size)))
            case Value():
                return _over_parents(self._local(cost, Along.PATH))
            case Arithmetic(operator, left, right, _):
                one, other, join = self._compile(left), self._compile(right), _OPERATORS[operator]
                return lambda context: list(map(join, one(context), other(context)))
            case Call(name, arguments, _):
                call, inner = self._words.functions[name].call, [self._compile(argument) for argument in arguments]
                return lambda context: list(map(call, *(each(context) for each in inner)))
            case NodeAggregate(function, summed, Along.PATH, _):
                return _over_path(function, self._local(summed, Along.PATH))
            case NodeAggregate(function, summed, _, _):
                return _over_children(function, self._local(summed, Along.CHILDREN))

    def _local(self, cost: Cost, along: Along) -> Local:
        """A local value as a function of the two ends of a link, sender first."""
        match cost:
            case Number(value):
                return lambda context: lambda sender, receiver: value
            case Value(Scope.NODE, name, _):
                node = self._node(name)
                if along is Along.PATH:
                    return lambda context: _of_sender(node(context))
                return lambda context: _of_receiver(node(context))
            case Value(_, name, _):
                return self._link(name)
            case Arithmetic(operator, left, right, _):
                one, other, join = self._local(left, along), self._local(right, along), _OPERATORS[operator]
                return lambda context: _joined(join, one(context), other(context))
            case Call(name, arguments, _):
                call, inner = self._words.functions[name].call, [self._local(each, along) for each in arguments]
                return lambda context: _called(call, [each(context) for each in inner])
            case _:
                raise AssertionError("the parser lets no aggregate into an aggregate")

    def _node(self, name: str) -> Callable[[Context], Callable[[int], float]]:
        read = self._words.metrics[Scope.NODE, name].read
        if read is not None:
            return lambda context: lambda peer: read(context, peer)
        return _NODE.get(name) or (lambda context: context.world.node_metric(name, context.layout))

    def _link(self, name: str) -> Local:
        read = self._words.metrics[Scope.LINK, name].read
        if read is not None:
            return lambda context: lambda parent, child: read(context, parent, child)
        return _LINK.get(name) or (lambda context: context.world.link_metric(name, context.layout))


def _node_cost(metric: SystemCost | Cost) -> Cost:
    return metric.cost if isinstance(metric, SystemCost) else metric


def _scale(constraint: Constraint) -> float:
    return abs(constraint.threshold.value) or 1.0


def _divided(a: float, b: float) -> float:
    return a / b if b else math.copysign(math.inf, a) if a else 0.0


_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _divided,
}


def _of_sender(node: Callable[[int], float]) -> Callable[[int, int], float]:
    return lambda sender, receiver: node(sender)


def _of_receiver(node: Callable[[int], float]) -> Callable[[int, int], float]:
    return lambda sender, receiver: node(receiver)


def _joined(
    join: Callable[[float, float], float], one: Callable[[int, int], float], other: Callable[[int, int], float]
) -> Callable[[int, int], float]:
    return lambda sender, receiver: join(one(sender, receiver), other(sender, receiver))


def _called(call: Callable[..., float], inner: Sequence[Callable[[int, int], float]]) -> Callable[[int, int], float]:
    return lambda sender, receiver: call(*(each(sender, receiver) for each in inner))


# Aggregates


def _over_parents(local: Local) -> Compiled:
    def compute(context: Context) -> list[float]:
        value, parents = local(context), context.layout.parents
        return [
            blend([value(parent, peer) for parent in above], context.odds) if above else 0.0
            for peer, above in enumerate(parents)
        ]

    return compute


def _over_path(function: Function, local: Local) -> Compiled:
    if function is Function.AVERAGE:
        return _average_over_path(local)
    steps: dict[Function, Callable[[float, float], float]] = {Function.SUM: add, Function.MIN: min, Function.MAX: max}
    step = steps[function]
    start = {Function.SUM: 0.0, Function.MIN: math.inf, Function.MAX: -math.inf}[function]
    is_widest = function is Function.MIN

    def compute(context: Context) -> list[float]:
        value, parents, odds, roots = local(context), context.layout.parents, context.odds, context.layout.roots
        found = [start] * context.layout.size
        for peer in context.order:
            above = parents[peer]
            if len(above) == 1:
                found[peer] = step(found[above[0]], value(above[0], peer))
            elif above:
                ways = [step(found[parent], value(parent, peer)) for parent in above]
                found[peer] = max(ways) if is_widest else blend(ways, odds)
            elif peer >= roots:
                found[peer] = 0.0 if is_widest else UNFED
        for root in range(roots):
            found[root] = 0.0 if not is_widest else math.inf
        return found

    return compute


def _average_over_path(local: Local) -> Compiled:
    total = _over_path(Function.SUM, local)
    length = _over_path(Function.SUM, lambda context: lambda sender, receiver: 1.0)
    return lambda context: [_divided(a, b) for a, b in zip(total(context), length(context), strict=True)]


def _over_children(function: Function, local: Local) -> Compiled:
    def compute(context: Context) -> list[float]:
        value = local(context)
        return [
            aggregate(function, [value(peer, child) for child in children]) if children else 0.0
            for peer, children in enumerate(context.layout.children)
        ]

    return compute


def aggregate(function: Function, values: Sequence[float]) -> float:
    """0 of nothing."""
    if not values:
        return 0.0
    match function:
        case Function.MIN:
            return min(values)
        case Function.MAX:
            return max(values)
        case Function.SUM:
            return sum(values)
        case Function.AVERAGE:
            return sum(values) / len(values)
        case Function.PRODUCT:
            return math.prod(values)
        case Function.VARIANCE:
            return _variance(values)
        case Function.STD:
            return math.sqrt(_variance(values))


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def system_cost(cost: SystemCost, values: Sequence[float], world: World) -> float:
    return aggregate(cost.function, [values[peer] for peer in world.members(cost.over)])
