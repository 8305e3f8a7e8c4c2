"""The paper's mode: in each period the owners of critical units propose, and the root chooses.

Serial: the one best transformation per period. Concurrent: the best one, then every other one that is independent of
those chosen (definition 5: they share no peer whose parents or children change), each checked again on the mesh as it
has become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import NamedTuple

from peer.goals.syntax import Function, Kind, NodeAggregate, Sense
from peer.optimizer.costs import Evaluator
from peer.optimizer.layout import Layout, Move, Saved
from peer.optimizer.transformations import BUILT_IN, Transformation, candidates, unit_of

Judged = tuple[float, ...]
Judge = Callable[[Layout], Judged]
LEAST_GAIN = 1e-9


class Scope(StrEnum):
    """Which units propose."""

    BOTTLENECK = "bottleneck"
    """Only units that can change the system's cost."""
    OPPORTUNISTIC = "opportunistic"
    """All units, each for the worst cost among its own peers, as long as the system's cost gets no worse."""


class Proposal(NamedTuple):
    value: Judged
    moves: list[Move]
    owner: int


@dataclass(slots=True)
class Coordinator:
    """`judge` decides, and defaults to the goal itself; a judge on approximated statistics decides on what it knows."""

    layout: Layout
    evaluator: Evaluator
    rng: Random
    kinds: Sequence[Transformation] = BUILT_IN
    scope: Scope = Scope.BOTTLENECK
    concurrent: bool = False
    judge: Judge | None = None
    tried: int = 0
    proposals: int = 0
    _kept: tuple[Judged, list[Saved]] | None = field(default=None)

    def value(self) -> Judged:
        return (self.judge or self.evaluator.value)(self.layout)

    def owners(self) -> list[int]:
        """Of the units that propose."""
        able = [owner for owner in range(self.layout.size) if self.layout.children[owner]]
        if self.scope is Scope.OPPORTUNISTIC:
            return able
        critical = critical_peers(self.layout, self.evaluator)
        return able if critical is None else [owner for owner in able if unit_of(self.layout, owner) & critical]

    def period(self) -> list[list[Move]]:
        """One period; returns the transformations that were carried out."""
        now = self.value()
        found = [best for owner in self.owners() if (best := self._best_of(owner, now)) is not None]
        self.proposals += len(found)
        done: list[list[Move]] = []
        touched: set[int] = set()
        for proposal in sorted(found, key=lambda p: p.value):
            peers = peers_of(proposal.moves)
            if peers & touched:
                continue
            saved = self.layout.apply(proposal.moves)
            if saved is None:
                continue
            value = self.value()
            if not self.layout.has_room(proposal.moves) or not (is_better(value, now) or value <= now):
                self.layout.undo(saved)
                continue
            now = value
            touched |= peers
            done.append(proposal.moves)
            if not self.concurrent:
                break
        return done

    def run(self, periods: int) -> Iterator[list[list[Move]]]:
        """Periods until nothing helps."""
        for _ in range(periods):
            done = self.period()
            if not done:
                return
            yield done

    def shake(self) -> bool:
        """Instead of a period in which nothing helped: a random transformation. The next call takes it back if it led
        nowhere (rule O13). Returns whether there was one."""
        now = self.value()
        if self._kept is not None and not is_better(now, self._kept[0]):
            self.layout.undo(self._kept[1])
        self._kept = (self.value(), self.layout.whole())
        able = [
            moves
            for owner in range(self.layout.size)
            if self.layout.children[owner]
            for moves in candidates(self.layout, owner, self.kinds, self.rng)
        ]
        self.rng.shuffle(able)
        for moves in able:
            saved = self.layout.apply(moves)
            if saved is not None:
                if self.layout.has_room(moves):
                    return True
                self.layout.undo(saved)
        return False

    def settle(self) -> None:
        """Take the last random transformation back if it led nowhere."""
        if self._kept is not None and not is_better(self.value(), self._kept[0]):
            self.layout.undo(self._kept[1])
        self._kept = None

    def _best_of(self, owner: int, now: Judged) -> Proposal | None:
        layout, best = self.layout, None
        value_of = self.judge or self.evaluator.value
        alone = self._worst_in(owner) if self.scope is Scope.OPPORTUNISTIC else None
        for moves in candidates(layout, owner, self.kinds, self.rng):
            self.tried += 1
            saved = layout.apply(moves)
            if saved is None:
                continue
            if layout.has_room(moves):
                value = value_of(layout)
                if alone is not None:
                    value = (*value, alone(layout)) if value <= now else (float("inf"),)
                if best is None or value < best.value:
                    best = Proposal(value, moves, owner)
            layout.undo(saved)
        before = now if alone is None else (*now, alone(layout))
        return best if best is not None and is_better(best.value, before) else None

    def _worst_in(self, owner: int) -> Judge_of_unit | None:
        """The unit's own worst cost, for a system cost that is one peer's; else the system's cost is enough."""
        goal, evaluator = self.evaluator.goal, self.evaluator
        if goal.cost.function.kind is not Kind.BOTTLENECK:
            return None
        unit = unit_of(self.layout, owner)
        sign = 1.0 if goal.sense is Sense.MINIMIZE else -1.0

        def worst(layout: Layout) -> float:
            costs = evaluator.node_costs(layout)
            return max(sign * costs[peer] for peer in unit if not layout.is_root(peer))

        return worst


Judge_of_unit = Callable[[Layout], float]


def peers_of(moves: Sequence[Move]) -> set[int]:
    """Whose parents or children a transformation changes."""
    return {peer for move in moves for peer in move if peer is not None}


def is_better(new: Judged, old: Judged, least: float = LEAST_GAIN) -> bool:
    """The first figure that differs decides; constraints come first."""
    for a, b in zip(new, old, strict=False):
        if abs(a - b) > least * max(1.0, abs(b)):
            return a < b
    return False


def critical_peers(layout: Layout, evaluator: Evaluator) -> set[int] | None:
    """The peers whose cost decides the system's, and those above that their cost comes from; None: everybody.

    For an additive or holistic cost, or while a constraint is broken, every peer counts.
    """
    goal = evaluator.goal
    if goal.cost.function.kind is not Kind.BOTTLENECK or evaluator.value(layout)[0] > 0:
        return None
    costs = evaluator.node_costs(layout)
    members = evaluator.world.members(goal.cost.over)
    if not members:
        return None
    pick = max if goal.cost.function is Function.MAX else min
    worst = pick(costs[peer] for peer in members)
    cost = goal.cost.cost
    is_bottleneck = isinstance(cost, NodeAggregate) and cost.function.kind is Kind.BOTTLENECK
    found: set[int] = set()
    todo = [peer for peer in members if costs[peer] == worst]
    while todo:
        peer = todo.pop()
        above = [p for p in layout.parents[peer] if not layout.is_root(p)]
        if is_bottleneck:
            # The narrow link is that of the highest peer with this cost.
            same = [p for p in above if costs[p] == worst]
            if same:
                todo += [p for p in same if p not in found]
                continue
            found.add(peer)
        elif peer not in found:
            found.add(peer)
            todo += above
    return found
