"""A goal as a tree of values, after the grammar in Figure 1 of the XPORT paper. `str()` gives its canonical text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from peer.goals.units import NUMBER, Dimension


class Function(StrEnum):
    """What aggregates. Over a path or children only the first four are possible."""

    MIN = "min"
    MAX = "max"
    SUM = "sum"
    AVERAGE = "average"
    PRODUCT = "product"
    VARIANCE = "variance"
    STD = "std"

    @property
    def kind(self) -> Kind:
        if self in (Function.SUM, Function.AVERAGE):
            return Kind.ADDITIVE
        return Kind.BOTTLENECK if self in (Function.MIN, Function.MAX) else Kind.HOLISTIC


class Kind(StrEnum):
    """The paper's three classes; they decide which state a peer needs."""

    ADDITIVE = "additive"
    BOTTLENECK = "bottleneck"
    HOLISTIC = "holistic"


NODE_FUNCTIONS = (Function.MIN, Function.MAX, Function.SUM, Function.AVERAGE)


class Scope(StrEnum):
    LINK = "link"
    NODE = "node"


class Along(StrEnum):
    """What a node cost aggregates over."""

    PATH = "path"
    CHILDREN = "children"


class Over(StrEnum):
    """What a system cost aggregates over. The paper's brokers are our routers."""

    ROUTERS = "routers"
    CLIENTS = "clients"
    PEERS = "peers"


class Sense(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Decider(StrEnum):
    """Who decides which peers move."""

    PEERS = "peers"
    ROOT = "root"


class Comparison(StrEnum):
    LESS = "<"
    MORE = ">"
    AT_MOST = "<="
    AT_LEAST = ">="
    NOT = "!="


@dataclass(frozen=True, slots=True)
class Number:
    """In seconds and bytes, whatever unit it was written in."""

    value: float
    unit: str = ""
    written: str = ""
    dimension: Dimension = NUMBER

    def __str__(self) -> str:
        return f"{self.written} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Value:
    """A metric of a link or a node."""

    scope: Scope
    name: str
    dimension: Dimension

    def __str__(self) -> str:
        return f"{self.scope}.{self.name}"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str
    left: Cost
    right: Cost
    dimension: Dimension

    def __str__(self) -> str:
        left, right = str(self.left), str(self.right)
        if isinstance(self.left, Arithmetic) and self.operator in "*/" and self.left.operator in "+-":
            left = f"({left})"
        if isinstance(self.right, Arithmetic) and not (self.operator == "+" and self.right.operator in "*/"):
            right = f"({right})"
        return f"{left} {self.operator} {right}"


@dataclass(frozen=True, slots=True)
class Call:
    """f() of local values or g() of node costs, by the name under which it was registered."""

    name: str
    arguments: tuple[Cost, ...]
    dimension: Dimension

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class NodeAggregate:
    function: Function
    value: Cost
    along: Along
    dimension: Dimension

    def __str__(self) -> str:
        return f"{self.along} {self.function}({self.value})"


Cost = Number | Value | Arithmetic | Call | NodeAggregate
"""A local value or a node cost: the difference is whether there is an aggregate in it."""


@dataclass(frozen=True, slots=True)
class SystemCost:
    function: Function
    cost: Cost
    over: Over
    dimension: Dimension

    def __str__(self) -> str:
        return f"{self.function}({self.cost}) over {self.over}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """On every peer's node cost, or on the cost of the whole system."""

    metric: SystemCost | Cost
    comparison: Comparison
    threshold: Number

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.threshold}"

    def excess(self, value: float) -> float:
        """By how much a value breaks this constraint; 0 if it does not."""
        limit = self.threshold.value
        match self.comparison:
            case Comparison.AT_MOST | Comparison.LESS:
                over = value - limit
            case Comparison.AT_LEAST | Comparison.MORE:
                over = limit - value
            case Comparison.NOT:
                return 1.0 if value == limit else 0.0
        if self.comparison in (Comparison.LESS, Comparison.MORE) and over == 0:
            return max(abs(limit), 1.0) * 1e-9  # at the limit is broken, by as little as can be
        return max(0.0, over)


@dataclass(frozen=True, slots=True)
class Goal:
    sense: Sense
    cost: SystemCost
    constraints: tuple[Constraint, ...] = ()
    by: Decider = Decider.PEERS

    def __str__(self) -> str:
        text = f"{self.sense} {self.cost}"
        text += f" subject to {', '.join(map(str, self.constraints))}" if self.constraints else ""
        return text + (f" decided by {self.by}" if self.by is not Decider.PEERS else "")

    def costs(self) -> Iterator[Cost]:
        """Every node cost that is needed: the goal's own and those of the constraints."""
        yield self.cost.cost
        for constraint in self.constraints:
            metric = constraint.metric
            yield metric.cost if isinstance(metric, SystemCost) else metric


def parts(cost: Cost) -> Iterator[Cost]:
    """A cost and everything in it, from the outside in."""
    yield cost
    match cost:
        case Arithmetic(_, left, right, _):
            yield from parts(left)
            yield from parts(right)
        case Call(_, arguments, _):
            for argument in arguments:
                yield from parts(argument)
        case NodeAggregate(_, value, _, _):
            yield from parts(value)
