"""What a peer is, and every knob of the machines inside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from dcp import Config, Start
from dcp.profile import PLAIN, Profile
from peer.flow import FlowConfig
from peer.mesh.config import MeshConfig
from peer.mesh.hostport import HostPort
from peer.role import Role
from peer.standing import StandingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """What this peer is, and the knobs of the machines inside."""

    stream: str
    role: Role
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dcp: Config = field(default_factory=Config)
    query: StandingQuery | None = None
    """What the client here wants; None for everything."""
    dynamic: bool = False
    """A router asks its parents only for what its children and its client want; False: it carries everything."""
    carry: StandingQuery | None = None
    """The most that a router takes upon itself: children that want more are refused. None for everything."""
    children_from: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks whose peers may be children here; none named: all."""
    label: str = ""
    """How people call this peer."""
    sources: tuple[str, ...] = ()
    """Of a combined stream: what it consists of (`peer.combine`)."""
    deliver: bool = True
    """Hand packets to a client here. False for a router that only passes them on."""
    start: Start = Start.NEW
    position: int | None = None
    narrow_after: float = 10.0
    """A dynamic router asks for less only so long after it asked for more: children come back."""
    inquiry_timeout: float = 1.0
    fallbacks: tuple[StandingQuery, ...] = ()
    """Narrower queries, the widest first, for a client that can't keep up with `query` (see `peer.flow`)."""
    flow: FlowConfig = field(default_factory=FlowConfig)
    audit_share: float = 0.01
    """Of a signed stream: the part of it that is compared with what other peers have (`peer.trust.audits`). 0: none."""
    profile: Profile = PLAIN
    """What the subscription wants: how long to wait for a lost packet, in which order, at what cost in bytes."""

    def admits(self, address: HostPort) -> bool:
        """Whether a peer from there may be a child here."""
        if not self.children_from:
            return True
        host = ip_address(address[0])
        if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
            host = host.ipv4_mapped  # how a socket of both families shows IPv4
        return any(host in network for network in self.children_from)
