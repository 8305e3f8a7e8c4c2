"""What a change at one peer is worth to the whole system, from a few sums that the peers below report (rules O5, O6).

The state is that of the paper's Table 4, with two differences. Weights are shares of first copies instead of numbers of
dependents: in a mesh everybody would be counted once per path, and 37 % of the benefits would be overestimated. And a
variance needs no costs of all peers: their number, sum and sum of squares are enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from peer.goals.syntax import Function
from peer.optimizer.blending import LEAST_ODDS, shares


class Below(NamedTuple):
    """A peer and those below it, in sums: what children report."""

    weight: float
    """1 for itself, and of each child's weight the share of first copies that come from here."""
    total: float
    """The sum of their costs, weighted alike."""
    worst: float
    """The highest cost."""


class Moments(NamedTuple):
    """All peers of the system: what the root passes down."""

    number: float
    total: float
    squares: float

    def spread(self, function: Function) -> float:
        """Their variance or standard deviation."""
        if self.number < 2:
            return 0.0
        variance = max(0.0, (self.squares - self.total**2 / self.number) / (self.number - 1))
        return variance if function is Function.VARIANCE else math.sqrt(variance)

    def shifted(self, below: Below, change: float) -> Moments:
        """After the cost of everybody below has changed by this much."""
        return Moments(
            self.number,
            self.total + below.weight * change,
            self.squares + 2 * change * below.total + below.weight * change**2,
        )


def weights(
    parents: Sequence[Sequence[int]],
    order: Sequence[int],
    ways: Mapping[tuple[int, int], float],
    *,
    roots: int,
    odds: float = LEAST_ODDS,
) -> list[float]:
    """For each peer: by how much the sum of all costs changes when its own cost changes by 1.

    `ways` is the cost of each peer through each parent, by (parent, peer).
    """
    found = [0.0] * roots + [1.0] * (len(parents) - roots)
    for peer in reversed(order):
        ranked = sorted(parents[peer], key=lambda p: ways[p, peer])
        for parent, share in zip(ranked, shares(len(ranked), odds), strict=True):
            found[parent] += found[peer] * share
    return found


def benefit(
    function: Function, change: float, below: Below, *, members: float, moments: Moments | None, system: float
) -> float:
    """What it is worth to the system, positive for an improvement, if the cost of a peer changes by `change`.

    `system` is the system's present cost, `members` the number of peers it is taken over. Costs are minimized.
    """
    match function:
        case Function.SUM:
            return -change * below.weight
        case Function.AVERAGE:
            return -change * below.weight / max(1.0, members)
        case Function.MAX:
            # Equation 2, from this peer alone: it can lower the worst cost only if the worst one is below it.
            return system - max(system if below.worst < system else 0.0, below.worst + change)
        case Function.VARIANCE | Function.STD if moments is not None:
            return moments.spread(function) - moments.shifted(below, change).spread(function)
    return -change * below.weight / max(1.0, members)


def change_below_bottleneck(before: float, after: float, narrowest: Mapping[float, float]) -> float:
    """The change of the sum of bottlenecks below a peer whose own goes from `before` to `after`.

    `narrowest` is how many peers have which narrowest link between this peer and them (the paper's T of type II). One
    line does for the paper's gamma and omega, and needs no cases.
    """
    return sum(count * (min(after, value) - min(before, value)) for value, count in narrowest.items())
