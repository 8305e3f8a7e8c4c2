"""Everything that a program may choose about a peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcp import Config, Start
from dcp.links.link import is_loopback
from peer.coreconfig import CoreConfig, Role
from peer.flow import FlowConfig
from peer.mesh.config import MAX_PARENTS, MeshConfig
from peer.mesh.selection import RootWalk, ScoredSelection, SelectionPolicy
from xmlswitch import Query

if TYPE_CHECKING:
    from dht.ids import PeerId

HostPort = tuple[str, int]

DEFAULT_CAPACITY = 6
MAX_CAPACITY = 4_096
"""Children. Each costs a link's buffers and a share of every packet's work; records and messages count in 16 bits."""
SELECTIONS: dict[str, Callable[[], SelectionPolicy]] = {"scored": ScoredSelection, "walk": RootWalk}
NETWORKS = ("lan", "wan")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Everything that a program may choose about a peer. The defaults join on this host."""

    stream: str
    role: Role = Role.ROUTER
    query: str | None = None
    namespaces: Mapping[str, str] = field(default_factory=dict)
    parents: int = 2
    resilient_parents: bool = False
    """Take only parents that have as many parents themselves, up to the roots."""
    selection: str = "scored"
    """How parents are chosen: one of SELECTIONS."""
    network: str = "lan"
    """How long a silence is borne: one of NETWORKS, the same at every peer of a mesh."""
    capacity: int = DEFAULT_CAPACITY
    listen: HostPort | None = None
    """None: this host alone, unless `bootstrap` names somebody elsewhere; then every interface."""
    bootstrap: Sequence[HostPort] = ()
    beacon: bool = True
    """Find peers on this host and LAN by multicast."""
    identity: Path | None = None
    """Key file, made when it is not there; None: a key for this run only."""
    state: Path | None = None
    """Folder in which contacts and pinned owners are remembered; None: nothing is."""
    numbers: Path | None = None
    """Folder in which a root keeps its last AN over restarts; None: that of `state`, if there is one."""
    owner_id: str | None = None
    """Fingerprint of the stream's owner, when several call themselves so. A root's must be its own."""
    raw: bool = False
    """Packets need not be XML: a root publishes any bytes. Queries match none that is not XML."""
    start: Start = Start.NEW
    position: int | None = None
    dynamic: bool = False
    carry: str | None = None
    """The most that a router carries; children that want more are refused."""
    children_from: Sequence[str] = ()
    """Networks (`10.0.0.0/8`) whose peers may be children; none named: all."""
    deliver: bool = True
    compress: str = "none"
    dictionary: bytes | None = None
    grant: Path | None = None
    """A root's grant from the stream's owner (`python -m dht grant`), so that several roots serve one stream."""
    owner: Path | None = None
    """In place of a grant: the owner's own key file, with which this root vouches for itself."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dcp: Config = field(default_factory=Config)
    fallbacks: Sequence[str] = ()
    """Narrower queries, the widest first, to step down to when this program can't keep up with `query`."""
    flow: FlowConfig = field(default_factory=FlowConfig)

    def __post_init__(self) -> None:
        for name, value, known in (("selection", self.selection, SELECTIONS), ("network", self.network, NETWORKS)):
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
        if not 1 <= self.parents <= MAX_PARENTS:
            raise ValueError(f"parents is 1 to {MAX_PARENTS}, not {self.parents}")
        if (
            isinstance(self.capacity, bool)
            or not isinstance(self.capacity, int)
            or not 0 <= self.capacity <= MAX_CAPACITY
        ):
            raise ValueError(f"capacity is 0 to {MAX_CAPACITY} children, not {self.capacity!r}")
        if self.owner_id is not None:
            self.chosen_owner()
        for address in self.bootstrap:
            if not _is_address(address) or not address[1]:
                raise ValueError(f"bootstrap is a list of (host, port), and {address!r} is none")
        if self.listen is not None and not _is_address(self.listen):
            raise ValueError(f"listen is a (host, port), not {self.listen!r}")

    def chosen_owner(self) -> PeerId | None:
        """The owner that `owner_id` names; ValueError when it is not a fingerprint, or not the one in the name."""
        from dht import parse_id_text
        from dht.streams import owner_of_name

        if self.owner_id is None:
            return None
        try:
            owner = parse_id_text(self.owner_id)
        except ValueError as error:
            raise ValueError(f"owner_id is the fingerprint of an owner: {error}") from None
        if (owner_of_name(self.stream) or owner) != owner:
            raise ValueError(f"{self.stream} names another owner than {self.owner_id}")
        return owner

    def on_any_port(self, **changes: Any) -> PeerOptions:
        """The same for a second peer in this process: a socket and a key of its own, and nothing remembered."""
        listen = (self.listen[0], 0) if self.listen is not None else None
        return replace(self, listen=listen, identity=None, state=None, numbers=None, **changes)

    def core(self) -> CoreConfig:
        capacity = 0 if self.role is Role.LEAF else self.capacity
        mesh = self.mesh.wan() if self.network == "wan" else self.mesh
        strict = self.resilient_parents or mesh.requires_resilient_parents
        mesh = replace(mesh, parents_wanted=self.parents, capacity=capacity, requires_resilient_parents=strict)
        return CoreConfig(
            stream=self.stream,
            role=self.role,
            mesh=mesh,
            dcp=self.dcp,
            query=Query.parse(self.query, self.namespaces) if self.query is not None else None,
            dynamic=self.dynamic,
            carry=Query.parse(self.carry, self.namespaces) if self.carry is not None else None,
            children_from=tuple(ip_network(network) for network in self.children_from),
            deliver=self.deliver,
            start=self.start,
            position=self.position,
            fallbacks=tuple(Query.parse(query, self.namespaces) for query in self.fallbacks),
            flow=self.flow,
        )


def _is_address(given: object) -> bool:
    """A program may give anything, and a string has characters in place of addresses."""
    match given:
        case (str(host), int(port)):
            return bool(host) and 0 <= port < 1 << 16
    return False


def default_listen(bootstrap: Sequence[HostPort]) -> HostPort:
    """Loopback unless `bootstrap` names a peer elsewhere; by IPv6 when it is named so."""
    families = {":" in host for host, _ in bootstrap}
    if all(is_loopback(address) for address in bootstrap) and len(families) < 2:
        return ("::1" if True in families else "127.0.0.1"), 0
    return ("::" if True in families else "0.0.0.0"), 0  # `::` takes IPv4 as well
