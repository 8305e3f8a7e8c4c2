"""The words that a goal may use: metrics, and functions f() of local values and g() of node costs.

An application adds its own with `register_metric`, `register_local` and `register_combination`. Peers that do not know
a word of a goal keep the goal that they have, so register on every peer before setting such a goal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from peer.goals.syntax import Scope
from peer.goals.units import NUMBER, RATE, TIME, Dimension

MAX_WORDS = 256
"""Metrics and functions together: a limit against registering in a loop."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
RESERVED = frozenset(
    {"minimize", "maximize", "subject", "to", "over", "path", "children", "link", "node", "min", "max", "sum"}
    | {"average", "product", "variance", "std", "routers", "brokers", "clients", "peers"}
    | {"decided", "by", "root"}
)


class Better(StrEnum):
    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    scope: Scope
    dimension: Dimension
    meaning: str
    better: Better = Better.LOW
    of_profiles: bool = False
    """It follows from the queries below a peer, so it changes up to the root when one peer moves."""
    read: Callable[..., float] | None = None
    """`read(view, parent, child)` of a link or `read(view, peer)` of a node; None: the view knows it by name."""


@dataclass(frozen=True, slots=True)
class FunctionWord:
    name: str
    call: Callable[..., float]
    arity: int | None
    """None for any number."""
    meaning: str
    of_local: bool
    of_costs: bool
    dimension: Callable[..., Dimension]
    """From the dimensions of the arguments; raises ValueError with a reason if they do not fit."""


def same_dimension(*dimensions: Dimension) -> Dimension:
    if len(set(dimensions)) > 1:
        raise ValueError("its arguments must have the same unit")
    return dimensions[0]


def product_of_dimensions(*dimensions: Dimension) -> Dimension:
    found = NUMBER
    for dimension in dimensions:
        found = found.times(dimension)
    return found


@dataclass(slots=True)
class Vocabulary:
    metrics: dict[tuple[Scope, str], Metric] = field(default_factory=dict)
    functions: dict[str, FunctionWord] = field(default_factory=dict)

    def copy(self) -> Vocabulary:
        return Vocabulary(dict(self.metrics), dict(self.functions))

    def add_metric(self, metric: Metric) -> None:
        self._check(metric.name)
        if (metric.scope, metric.name) in self.metrics:
            raise ValueError(f"metric {metric.scope}.{metric.name} is already registered")
        self.metrics[metric.scope, metric.name] = metric

    def add_function(self, function: FunctionWord) -> None:
        self._check(function.name)
        if function.name in self.functions:
            raise ValueError(f"function {function.name} is already registered")
        self.functions[function.name] = function

    def _check(self, name: str) -> None:
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise ValueError(
                f"expected a name of 1 to 32 small letters, digits and _ that is not reserved, got {name!r}"
            )
        if len(self.metrics) + len(self.functions) >= MAX_WORDS:
            raise ValueError(f"at most {MAX_WORDS} metrics and functions can be registered")

    def scopes(self, name: str) -> list[Scope]:
        return [scope for scope in Scope if (scope, name) in self.metrics]


def _built_in() -> Vocabulary:
    words = Vocabulary()
    link, node = Scope.LINK, Scope.NODE
    for metric in (
        Metric("latency", link, TIME, "how long a packet takes over the link"),
        Metric("lateness", link, TIME, "how long a parent's copy comes after the first copy"),
        Metric("loss", link, NUMBER, "share of the packets that are lost"),
        Metric("bandwidth", link, RATE, "what the link can carry", Better.HIGH),
        Metric("rate", link, RATE, "what the link carries", of_profiles=True),
        Metric("cpu", node, TIME, "processor time from a packet's arrival until it is sent to all children"),
        Metric("fanout", node, NUMBER, "children", Better.NEITHER),
        Metric("load", node, NUMBER, "children, as a share of the capacity"),
        Metric("hops", node, NUMBER, "links of the longest path to a root"),
        Metric("parents", node, NUMBER, "parents", Better.HIGH),
        Metric("own_rate", node, RATE, "what the peer's own client asked for", Better.NEITHER, of_profiles=True),
        Metric("incoming", node, RATE, "what its merged query matches, once", of_profiles=True),
        Metric("superfluous", node, RATE, "incoming data that only others asked for", of_profiles=True),
        Metric("outgoing", node, RATE, "what it sends to its children", of_profiles=True),
    ):
        words.add_metric(metric)
    for name, call, arity, meaning, dimension in (
        ("larger", max, None, "the largest of its arguments", same_dimension),
        ("smaller", min, None, "the smallest of its arguments", same_dimension),
        ("excess", lambda a, b: max(0.0, a - b), 2, "by how much the first exceeds the second", same_dimension),
        ("times", lambda a, b: a * b, 2, "the product of two", product_of_dimensions),
    ):
        words.add_function(FunctionWord(name, call, arity, meaning, True, True, dimension))
    return words


VOCABULARY = _built_in()
"""What `parse_goal` knows unless it is given another."""


def register_metric(
    name: str,
    *,
    scope: Scope | str = Scope.NODE,
    dimension: Dimension = NUMBER,
    meaning: str = "",
    better: Better | str = Better.LOW,
    of_profiles: bool = False,
    read: Callable[..., float] | None = None,
    vocabulary: Vocabulary | None = None,
) -> Metric:
    """Let goals say `link.NAME` or `node.NAME`.

    `read` is given the view and the parent and child of a link, or the view and a peer. Without it the view must know
    the value by its name.
    """
    metric = Metric(name, Scope(scope), dimension, meaning or name, Better(better), of_profiles, read)
    (vocabulary or VOCABULARY).add_metric(metric)
    return metric


def register_local(
    name: str,
    call: Callable[..., float],
    *,
    arity: int | None = 1,
    meaning: str = "",
    dimension: Callable[..., Dimension] = same_dimension,
    vocabulary: Vocabulary | None = None,
) -> FunctionWord:
    """Let goals use f() = NAME(...) of metrics, inside or outside an aggregate."""
    word = FunctionWord(name, call, arity, meaning or name, True, False, dimension)
    (vocabulary or VOCABULARY).add_function(word)
    return word


def register_combination(
    name: str,
    call: Callable[..., float],
    *,
    arity: int | None = None,
    meaning: str = "",
    dimension: Callable[..., Dimension] = same_dimension,
    vocabulary: Vocabulary | None = None,
) -> FunctionWord:
    """Let goals use g() = NAME(...) of node costs."""
    word = FunctionWord(name, call, arity, meaning or name, False, True, dimension)
    (vocabulary or VOCABULARY).add_function(word)
    return word
