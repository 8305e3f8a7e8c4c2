"""What the parts of the mesh machine share: who we are, where we stand, the timers, and the outbox.

No decisions are made here. A part that wants something done appends an effect; one that has news appends an event.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from peer.mesh.config import MAX_PARENTS
from peer.mesh.events import CloseLink, Effect, Event, LinkId
from peer.mesh.levels import ROOT_LEVEL
from peer.mesh.membership import Input, Membership, step
from peer.mesh.messages import UNPLACED
from peer.mesh.timers import TimerTable

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.config import MeshConfig
    from peer.mesh.levels import LevelRules
    from peer.mesh.messages import CloseReason, PeerId


class MeshState:
    """Invariant: the level changes only through `set_level`, the state only through `step`."""

    def __init__(self, peer_id: PeerId, config: MeshConfig, rules: LevelRules, rng: Random) -> None:
        self.peer_id = peer_id
        self.config = config
        self.rules = rules
        self.rng = rng
        self.run = rng.getrandbits(64)
        self.state = Membership.IDLE
        self.level = UNPLACED
        self.version = 0
        """Rises whenever the level or a table of links changes, so that a checker need not look after every beat."""
        self.timers = TimerTable()
        self.effects: list[Effect] = []
        self.events: deque[Event] = deque()
        self.counters: Counter[str] = Counter()
        self.wants_spare = False
        """Losses come in bursts: hold one parent beyond those that are wanted, if it can be had."""
        self.is_repairing = False
        """A parent was lost, and there have not been enough since."""
        self._links = 0

    @property
    def is_root(self) -> bool:
        return self.level == ROOT_LEVEL

    @property
    def parents_to_hold(self) -> int:
        """What is wanted, and a spare; being short of the spare is not being short."""
        return min(self.config.parents_wanted + self.wants_spare, MAX_PARENTS)

    def step(self, given: Input) -> None:
        self.state = step(self.state, given)

    def set_level(self, level: int) -> None:
        if level != self.level:
            self.level = level
            self.version += 1

    def new_link(self) -> LinkId:
        self._links += 1
        return LinkId(self._links)

    def close(self, link: LinkId, reason: CloseReason) -> None:
        self.effects.append(CloseLink(link, reason))

    def jittered(self, interval: float) -> float:
        return interval * self.rng.uniform(0.5, 1.5)
