"""What a placement may see: this peer, its parents, its children and the candidates, read-only, at one moment.

The views are protocols with read-only members, so that no copy is made and mypy refuses a placement that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from peer.mesh.config import MeshConfig
    from peer.mesh.events import LinkId
    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import PeerId, Report


NOBODY = cast("PeerId", b"")


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """What was measured on one link; None where nothing was, or not yet."""

    round_trip: float | None = None
    """Seconds."""
    loss: float | None = None
    """Share of the packets that a parent did not bring unasked."""
    rate: float | None = None
    """Bytes per second."""
    bandwidth: float | None = None
    """The highest rate of the last minute: what the link has been seen to carry."""
    first_share: float | None = None
    """Share of the packets, since a parent's first one, of which its copy came first."""
    lateness: float | None = None
    """Seconds by which a parent's copy comes after the first one, on average."""


class PeerView(Protocol):
    @property
    def peer_id(self) -> PeerId: ...
    @property
    def address(self) -> HostPort: ...


class LinkView(PeerView, Protocol):
    @property
    def link(self) -> LinkId: ...


class ParentView(LinkView, Protocol):
    @property
    def reported(self) -> int: ...
    @property
    def hops(self) -> int: ...
    @property
    def resilience(self) -> int: ...
    @property
    def since(self) -> float: ...
    @property
    def is_suspect(self) -> bool: ...
    @property
    def is_fed(self) -> bool: ...
    @property
    def is_leaving(self) -> bool: ...
    @property
    def is_sound(self) -> bool: ...
    @property
    def dispute(self) -> str | None: ...


class ChildView(LinkView, Protocol):
    @property
    def query(self) -> bytes: ...
    @property
    def report(self) -> Report | None: ...
    @property
    def is_childless(self) -> bool: ...


class CandidateView(PeerView, Protocol):
    @property
    def host(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def level(self) -> int: ...
    @property
    def hops(self) -> int: ...
    @property
    def load(self) -> float: ...
    @property
    def free(self) -> int: ...
    @property
    def free_for_repair(self) -> int: ...
    @property
    def resilience(self) -> int | None: ...
    @property
    def is_root(self) -> bool: ...
    @property
    def capacity(self) -> int: ...
    @property
    def query(self) -> bytes: ...
    @property
    def walk_depth(self) -> int: ...
    @property
    def round_trip(self) -> float | None: ...
    @property
    def joins(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Everything that a placement decides on. The candidates have passed the level rules: each may be asked."""

    now: float
    config: MeshConfig
    level: int
    hops: int
    parents: Sequence[ParentView]
    children: Sequence[ChildView]
    candidates: Sequence[CandidateView]
    """Those that may be asked to be a parent: below our ceiling, not avoided, not parent, child or pending already."""
    silent_candidates: Sequence[CandidateView]
    """The same, but avoided because they did not answer some time ago: for when there is nobody else."""
    placed: Sequence[CandidateView] = ()
    """Everybody that is listed by place and has not fallen silent, whether it may be asked or not."""
    roots: Sequence[CandidateView] = ()
    pending: Sequence[HostPort] = ()
    """Where joins are on their way to."""
    disputed: Collection[PeerId] = frozenset()
    """Peers whose word about the stream was disputed lately: asked only if there is nobody else."""
    coverage: Callable[[bytes], float] = lambda query: 1.0
    """Share of our query that a candidate carries, from its record's `query`, 0.0 to 1.0."""
    qualities: Callable[[], Mapping[LinkId, LinkQuality]] = dict
    """What was measured, by link; links without measurements are missing. A call takes a snapshot."""
    measures: Callable[[], Mapping[str, float]] = dict
    """What this peer measured of itself, by the names of the metrics in goals."""
    own: PeerId = NOBODY
    """This peer."""
    has_client: bool = False
    """Whether packets are handed to a client here."""

    @property
    def sound_parents(self) -> list[ParentView]:
        return [parent for parent in self.parents if parent.is_sound]

    def may_ask(self, peer_id: PeerId) -> bool:
        return any(candidate.peer_id == peer_id for candidate in (*self.candidates, *self.silent_candidates))
