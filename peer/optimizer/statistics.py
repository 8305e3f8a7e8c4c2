"""Approximated statistics (the paper's formula 4), for products and combinations g(), where no sums are enough.

A peer's cost is passed to everybody only every |V| / |D| x p phases: those with many dependents often, leaves hardly
ever. A transformation announces its own effect, or decisions are taken again and again on costs that are no longer
so: in a model the variance then rose from 29,420 to 51,090 instead of falling.
"""

from __future__ import annotations

from collections.abc import Sequence

from peer.goals.syntax import Sense
from peer.optimizer.benefits import weights
from peer.optimizer.costs import Evaluator, system_cost
from peer.optimizer.layout import Layout


class ApproximatedCosts:
    """What everybody believes about everybody's cost. `sent` counts the costs that were passed on."""

    def __init__(self, layout: Layout, evaluator: Evaluator, *, p: float, announces: bool = True) -> None:
        self._evaluator, self._p, self._announces = evaluator, p, announces
        self._true = evaluator.node_costs(layout)
        self._told = list(self._true)
        self.phase = self.sent = 0

    def __call__(self, layout: Layout) -> tuple[float, ...]:
        """The system's cost as it is believed to become: what was told, and the effect of the transformation."""
        goal, costs = self._evaluator.goal, self._evaluator.node_costs(layout)
        believed = self._believed(costs)
        sign = 1.0 if goal.sense is Sense.MINIMIZE else -1.0
        return (sign * system_cost(goal.cost, believed, self._evaluator.world),)

    def _believed(self, costs: Sequence[float]) -> list[float]:
        return [t + new - old for t, new, old in zip(self._told, costs, self._true, strict=True)]

    def moved(self, layout: Layout) -> None:
        """After a transformation: it announces its effect."""
        costs = self._evaluator.node_costs(layout)
        if self._announces:
            self._told = self._believed(costs)
        self._true = costs

    def broadcast(self, layout: Layout) -> None:
        """One phase: those whose turn it is pass on their cost."""
        self.phase += 1
        self._true = self._evaluator.node_costs(layout)
        ways = {(p, x): self._true[p] for x in layout.peers for p in layout.parents[x]}
        dependents = weights(layout.parents, layout.order(), ways, roots=layout.roots, odds=0.0)
        for peer in layout.peers:
            if self.phase % max(1, round(len(layout.peers) / dependents[peer] * self._p)) == 0:
                self._told[peer] = self._true[peer]
                self.sent += 1
