"""How large a demo is."""

from __future__ import annotations

from dataclasses import dataclass

from demo.run.feed import FeedPlan
from peer.goals import parse_goal

STREAM = "demo"
MAX_PEERS = 120
"""Processes of one demo, storms included: a laptop must survive a nervous finger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    roots: int = 2
    routers: int = 6
    clients: int = 6
    dht_nodes: int = 2
    parents: int = 2
    capacity: int = 6
    copies: int = 5
    speed: float = 6.0
    """At 10 the whole demo took 0.9 of a core on a busy machine; it is to leave room on a laptop."""
    log_packets: int = 65_536
    """History that every peer keeps for those who come back; with little of it a long absence costs packets."""

    goal: str | None = None
    """What the mesh should be good at (docs/optimizer.md); None: no goal."""

    def __post_init__(self) -> None:
        if self.goal is not None:
            parse_goal(self.goal)  # GoalError, a ValueError
        for name, least in (("roots", 1), ("routers", 0), ("clients", 1), ("dht_nodes", 1)):
            value = getattr(self, name)
            if not least <= value <= MAX_PEERS:
                raise ValueError(f"{name} must be in {least}..{MAX_PEERS}, got {value}")
        total = self.roots + self.routers + self.clients + self.dht_nodes
        if total > MAX_PEERS:
            raise ValueError(f"too many processes for one machine: {total}, maximum {MAX_PEERS}")
        FeedPlan(0.0, self.copies, self.speed)  # ValueError
        if not 1 <= self.parents <= 16:
            raise ValueError(f"parents must be in 1..16, got {self.parents}")
        if self.parents > self.roots:
            raise ValueError(
                f"{self.parents} parents need {self.parents} roots, or the first router can never have them: "
                f"there are {self.roots}"
            )
        if not 1 <= self.capacity <= 256:
            raise ValueError(f"capacity must be in 1..256, got {self.capacity}")
        if not 16 <= self.log_packets <= 1_000_000:
            raise ValueError(f"log_packets must be in 16..1000000, got {self.log_packets}")
        places = (self.roots + self.routers) * self.capacity
        if places < (self.routers + self.clients) * self.parents:
            raise ValueError(
                f"{self.routers + self.clients} peers want {self.parents} parents each, and there are {places} places: "
                "add routers, or raise --capacity"
            )
