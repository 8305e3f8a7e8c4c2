"""How one peer decides to move: from what its parents and candidates say and what it measured, nothing else.

The same rules serve whole meshes in a simulation and a peer among real ones, so peers are whatever names them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from peer.optimizer.blending import LEAST_ODDS, blend

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Rule O12. With these, 8 of 791 moves went back within the time that a flap is counted; without them 223."""

    share: float = 0.05
    """Of the present cost: what a move must gain at least."""
    least: float = 0.001
    """Seconds, or whatever the cost is in."""
    dwell: float = 60.0
    """Seconds that a peer stays where it is after a move."""

    def is_enough(self, gain: float, cost: float) -> bool:
        return gain >= max(self.least, self.share * abs(cost))


class Way(NamedTuple, Generic[Name]):
    """One parent, present or possible."""

    peer: Name
    cost: float
    """Of the path through it, with the link to it."""
    hops: int


class Slot(NamedTuple, Generic[Name]):
    """A child of a full candidate that could take the slot that we leave (rule O7)."""

    child: Name
    weight: float
    loss: float
    """By how much its cost rises. Negative: it gains, too."""


class Offer(NamedTuple, Generic[Name]):
    """A candidate, and who would make room at it for each parent that we could leave."""

    way: Way[Name]
    has_room: bool
    slots: Mapping[Name, Sequence[Slot[Name]]]
    """By the parent that we would leave."""


class Proposed(NamedTuple, Generic[Name]):
    gain: float
    """In weighted cost."""
    old: Name
    new: Name
    gives_way: Name | None
    """The child that takes our old slot, in an exchange."""


def best_move(
    ways: Sequence[Way[Name]],
    offers: Sequence[Offer[Name]],
    *,
    weight: float,
    height: int = 0,
    rules: Hysteresis | None = None,
    max_hops: int = 12,
    odds: float = LEAST_ODDS,
) -> Proposed[Name] | None:
    """The best single move or exchange, if one is worth it. `height`: links to the farthest peer below."""
    rules = rules or Hysteresis()
    now = blend([way.cost for way in ways], odds)
    deepest = 1 + max(way.hops for way in ways)
    best: Proposed[Name] | None = None
    for offer in offers:
        for leaving in ways:
            rest = [way for way in ways if way is not leaving]
            gain = now - blend([*(way.cost for way in rest), offer.way.cost], odds)
            if not rules.is_enough(gain, now):
                continue
            hops = 1 + max([*(way.hops for way in rest), offer.way.hops])
            if hops > deepest and hops + height > max_hops:
                continue
            net, gives_way = weight * gain, None
            if not offer.has_room:
                slot = min(offer.slots.get(leaving.peer, ()), key=lambda s: s.weight * s.loss, default=None)
                if slot is None:
                    continue
                net, gives_way = net - slot.weight * slot.loss, slot.child
            if net > rules.share * weight * now and (best is None or net > best.gain):
                best = Proposed(net, leaving.peer, offer.way.peer, gives_way)
    return best
