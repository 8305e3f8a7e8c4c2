"""What a peer is, and every knob of the machines inside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from dcp import Config, Start
from peer.flow import FlowConfig
from peer.mesh.config import MeshConfig
from peer.role import Role
from xmlswitch import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """What this peer is, and the knobs of the machines inside."""

    stream: str
    role: Role
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dcp: Config = field(default_factory=Config)
    query: Query | None = None
    """What the client here wants; None for everything."""
    dynamic: bool = False
    """A router asks its parents only for what its children and its client want; False: it carries everything."""
    carry: Query | None = None
    """The most that a router takes upon itself: children that want more are refused. None for everything."""
    children_from: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks whose peers may be children here; none named: all."""
    deliver: bool = True
    """Hand packets to a client here. False for a router that only passes them on."""
    start: Start = Start.NEW
    position: int | None = None
    narrow_after: float = 10.0
    """A dynamic router asks for less only so long after it asked for more: children come back."""
    inquiry_timeout: float = 1.0
    fallbacks: tuple[Query, ...] = ()
    """Narrower queries, the widest first, for a client that can't keep up with `query` (see `peer.flow`)."""
    flow: FlowConfig = field(default_factory=FlowConfig)
