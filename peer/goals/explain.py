"""What a goal means for the mesh: its type in the paper's tables, the state it needs, and the traffic it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peer.goals.syntax import (
    Along,
    Call,
    Cost,
    Function,
    Goal,
    Kind,
    NodeAggregate,
    Sense,
    Value,
    parts,
)
from peer.goals.vocabulary import VOCABULARY, Better, Vocabulary

ATTRIBUTE_BYTES = 8
FIXED_BYTES = 130
"""Of each report: the headers of the datagram, the goal's version and hash, the standing, and what a peer knows of
itself."""
REPORTS_PER_SECOND = 2.0
"""Each end of a link sends one."""
PROBES_PER_PERIOD = 4
"""Candidates that a peer measures each period: a grandparent and three strangers, about."""
PERIOD = 30.0
PROBE_BYTES = 2 * 60
BUCKETS = 16
"""Distinct values that a subtree tells of, for an additive cost of bottlenecks (the paper's T of type II)."""

_TYPES = {
    (Kind.ADDITIVE, Kind.ADDITIVE): "I",
    (Kind.ADDITIVE, Kind.BOTTLENECK): "II",
    (Kind.BOTTLENECK, Kind.ADDITIVE): "III",
    (Kind.BOTTLENECK, Kind.BOTTLENECK): "IV",
    (Kind.HOLISTIC, Kind.ADDITIVE): "V",
    (Kind.HOLISTIC, Kind.BOTTLENECK): "VI",
}
_ALWAYS = ("node.fanout <= capacity", "node.hops <= 12")


@dataclass(frozen=True, slots=True)
class GoalExplanation:
    goal: str
    aggregation: str | None
    """I to VI; None for a node cost without an aggregate, or with several."""
    system: Kind
    node: str
    """additive, bottleneck, local (no aggregate) or combined (several)."""
    dependents: str
    state: tuple[str, ...]
    attributes: int
    """Values that each end of a link tells the other."""
    bytes_per_link_second: float
    constraints: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "goal": self.goal,
            "aggregation": self.aggregation,
            "system": str(self.system),
            "node": self.node,
            "dependents": self.dependents,
            "state": list(self.state),
            "bytes_per_link_second": round(self.bytes_per_link_second, 1),
            "constraints": list(self.constraints),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        kind = f"type {self.aggregation}" if self.aggregation else "no type of the paper's Table 1"
        lines = [
            ("goal", self.goal),
            ("type", f"{kind}: {self.system} over peers, {self.node} in the node"),
            ("affects", self.dependents),
            *(("state", state) for state in self.state),
            ("traffic", f"about {self.bytes_per_link_second:.0f} B/s per link, on top of what keeps the mesh"),
            *(("constraint", constraint) for constraint in self.constraints),
            *(("warning", warning) for warning in self.warnings),
        ]
        return "\n".join(f"{name:<11} {text}" for name, text in lines)


def explain_goal(goal: Goal, vocabulary: Vocabulary | None = None) -> GoalExplanation:
    words = vocabulary or VOCABULARY
    cost, function = goal.cost.cost, goal.cost.function
    aggregates = _aggregates(cost)
    node = node_kind(cost)
    single = isinstance(cost, NodeAggregate)
    aggregation = _TYPES[function.kind, aggregates[0].function.kind] if single else None
    state, attributes = _state(function, aggregates, node)
    for more in goal.costs():
        if more != cost:
            attributes += max(1, len(_aggregates(more)))
    profiles = any(_of_profiles(more, words) for more in goal.costs())
    if profiles:
        state = (*state, "rates of merged queries, from a sample of 200 logged packets")
        attributes += 1
    report = FIXED_BYTES + attributes * ATTRIBUTE_BYTES
    traffic = report * REPORTS_PER_SECOND + PROBES_PER_PERIOD * PROBE_BYTES / PERIOD
    return GoalExplanation(
        str(goal),
        aggregation,
        function.kind,
        node,
        _dependents(aggregates, profiles),
        state,
        attributes,
        traffic,
        (*_ALWAYS, *map(str, goal.constraints)),
        tuple(_warnings(goal, words)),
    )


def node_kind(cost: Cost) -> str:
    aggregates = _aggregates(cost)
    if not aggregates:
        return "local"
    return str(aggregates[0].function.kind) if isinstance(cost, NodeAggregate) else "combined"


def _aggregates(cost: Cost) -> list[NodeAggregate]:
    return list(dict.fromkeys(part for part in parts(cost) if isinstance(part, NodeAggregate)))


def _of_profiles(cost: Cost, words: Vocabulary) -> bool:
    return any(isinstance(p, Value) and words.metrics[p.scope, p.name].of_profiles for p in parts(cost))


def _dependents(aggregates: list[NodeAggregate], profiles: bool) -> str:
    where = {aggregate.along for aggregate in aggregates}
    found = []
    if Along.PATH in where:
        found.append("the peers below")
    if Along.CHILDREN in where or profiles:
        found.append("the peers on the paths to the roots")
    return " and ".join(found) or "the peer itself"


def _state(function: Function, aggregates: list[NodeAggregate], node: str) -> tuple[tuple[str, ...], int]:
    """What a peer keeps and tells, after Table 4; weights are first-copy shares in place of counts."""
    state: tuple[str, ...]
    own = f"the path's values of each parent ({max(1, len(aggregates))})"
    if function in (Function.VARIANCE, Function.STD) and node != "combined":
        state = (own, "number, sum and sum of squares of all costs, from the root", "weight and sum of the costs below")
        return state, 1 + 3 + 2
    if function.kind is Kind.HOLISTIC or node == "combined":
        state = (own, "the costs of all peers, each told every |V| / |D| x p periods (formula 4)")
        return state, max(1, len(aggregates)) + 2
    if function.kind is Kind.BOTTLENECK:
        state = (own, "the system's cost, from the root", "the worst cost below")
        if node == "bottleneck":
            return (*state, "the narrowest link below"), 4
        return state, 3
    if node == "bottleneck":
        return (own, f"how many peers below have which bottleneck, in at most {BUCKETS} steps"), 1 + 2 * BUCKETS
    return (own, "the weight of the peers below: the sum of their first-copy shares"), 2


def _warnings(goal: Goal, words: Vocabulary) -> list[str]:
    found = []
    function, cost = goal.cost.function, goal.cost.cost
    if function in (Function.VARIANCE, Function.STD) and goal.sense is Sense.MINIMIZE:
        bounded = any(_aggregates(c) and c == cost for c in list(goal.costs())[1:])
        if not bounded:
            found.append(
                f"{function} alone can be won by making everybody equally slow (in a model the mean rose from 78 to "
                "98 ms): add a constraint on the mean or on each peer"
            )
    values = [part for part in parts(cost) if isinstance(part, Value)]
    if not isinstance(cost, Call) and len(values) == 1:
        better = words.metrics[values[0].scope, values[0].name].better
        wrong = {Better.LOW: Sense.MAXIMIZE, Better.HIGH: Sense.MINIMIZE}.get(better)
        if goal.sense is wrong and function.kind is not Kind.HOLISTIC:
            found.append(f"{goal.sense} {values[0]}: less of it is better" if better is Better.LOW else
                         f"{goal.sense} {values[0]}: more of it is better")  # fmt: skip
    return found
