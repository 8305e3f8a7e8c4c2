"""One peer of a simulated mesh, and what a run of the simulation measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peer.mesh.config import MeshConfig
    from peer.mesh.hostport import HostPort
    from peer.mesh.machine import Mesh
    from peer.mesh.messages import PeerId
    from peer.testing.simlinks import SimLinks


@dataclass(slots=True)
class MeshPeer:
    """One peer: its machine, its links, and what the simulation does to it."""

    index: int
    is_root: bool
    config: MeshConfig
    peer_id: PeerId
    address: HostPort
    links: SimLinks
    born_at: float
    is_alive: bool = True
    frozen_until: float = 0.0
    seen_version: int = -1
    life: int = 1
    joined_at: float | None = None
    cold_blame: int = 0
    """Cold restarts in a row that led to the last loss of a parent; 0 when none did."""

    @property
    def mesh(self) -> Mesh:
        return self.links.mesh


@dataclass(slots=True)
class Measures:
    """What a run shows; times in seconds."""

    join_times: list[float] = field(default_factory=list)
    join_messages: list[int] = field(default_factory=list)
    """Joins, inquiries and lookups until the first time at n parents, and their answers."""
    join_counts: list[tuple[int, int]] = field(default_factory=list)
    """The same as (joins and inquiries, lookups), without answers."""
    repair_times: list[float] = field(default_factory=list)
    """From when a peer noticed until it had n sound parents again."""
    restored: list[tuple[int, float]] = field(default_factory=list)
    """Which peer, and when."""
    cold_restarts: int = 0
    cold_depth: int = 0
    """The longest chain of cold restarts, each caused by the one before."""
    thaws: int = 0
    degraded: int = 0
    checks: int = 0
