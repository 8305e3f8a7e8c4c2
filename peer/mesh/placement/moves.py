"""What a placement may answer: moves, as values. The mesh machine carries them out, if the level rules allow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.config import MeshConfig
    from peer.mesh.events import LinkId
    from peer.mesh.hostport import HostPort
    from peer.mesh.levels import LevelRules
    from peer.mesh.messages import Join, PeerId, RefuseReason
    from peer.mesh.placement.neighbourhood import Neighbourhood


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this candidate to be one more parent."""

    candidate: PeerId


@dataclass(frozen=True, slots=True)
class Replace:
    """Ask this candidate first; once it is a parent, `Placement.surplus` says which one goes."""

    parent: LinkId
    candidate: PeerId


@dataclass(frozen=True, slots=True)
class Trade:
    """Try to exchange the slot at this parent for one at a candidate that is full (`peer.mesh.trading`)."""

    parent: LinkId
    candidate: PeerId
    most: float
    """What another peer's move may cost for it."""


@dataclass(frozen=True, slots=True)
class Vacate:
    """Let the children go, so that the level can rise: they have other parents, and find us again where we belong."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up this parent."""

    parent: LinkId


@dataclass(frozen=True, slots=True)
class Evict:
    """Send this child elsewhere so that a joiner gets its slot."""

    child: LinkId
    for_join: PeerId


@dataclass(frozen=True, slots=True)
class AskChildren:
    """Ask this peer, which refused us, who its children are."""

    peer: PeerId


class Placement(Protocol):
    """Calls are synchronous and never nested. The same view and random state give the same answer."""

    def wanted(self, around: Neighbourhood, rng: Random) -> Ask | None:
        """A parent is missing: the next candidate to ask."""

    def better(self, around: Neighbourhood, rng: Random) -> Replace | Vacate | Trade | None:
        """Nothing is missing and nothing is pending: a parent worth moving to."""

    def surplus(self, around: Neighbourhood) -> Drop | None:
        """More parents than wanted, and enough sound ones: the one to give up, or None to wait."""

    def room(self, around: Neighbourhood, join: Join, address: HostPort) -> Evict | None:
        """Every slot is taken: the child that has to give up its own for this join, or None to refuse."""

    def rules(self, config: MeshConfig) -> LevelRules:
        """How levels are chosen under this placement; what they may do is the same for all."""

    def keys(self, around: Neighbourhood) -> tuple[int, ...]:
        """Places of the line (`dht.places`) next to which the directory is asked; none for most placements."""

    def probe(self, around: Neighbourhood) -> PeerId | None:
        """A candidate whose death would change our place: it is asked whether it lives."""

    def after_refusal(self, peer: PeerId, reason: RefuseReason) -> AskChildren | None:
        """A candidate refused us: whether to ask it for its children."""
