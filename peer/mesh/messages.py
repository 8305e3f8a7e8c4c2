"""What peers say to each other about the mesh; how it looks as bytes is `encoding.py`. Knows neither links nor time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from peer.mesh.hostport import HostPort

PeerId = NewType("PeerId", bytes)

VERSION = 1

UNPLACED = 0xFFFF_FFFF
"""The level in a join of a peer that has no children: it can go above any parent. No peer stands at this level."""
MAX_LEVEL = UNPLACED - 1
MAX_HOPS = 255
ROOT_RESILIENCE = 255
MAX_REFERRALS = 4
MAX_PEERS_IN_ANSWER = 16
MAX_QUERY_BYTES = 1_024
MAX_AGE_MS = 0xFFFF


class RefuseReason(IntEnum):
    """Why a join was refused. Append only. What the child does about each: `candidates.AVOIDANCE`."""

    FULL = 0x01
    LEVEL = 0x02
    POLICY = 0x03
    QUERY_NOT_CARRIED = 0x04
    STREAM_UNKNOWN = 0x05
    SHUTTING_DOWN = 0x06
    NOT_ROOTED = 0x07
    TOO_MANY_JOINS = 0x08
    STALE = 0x09
    MALFORMED = 0x0A
    VERSION = 0x0B  # the body begins with the version of the peer that refuses, as every body does


class CloseReason(IntEnum):
    """Why a link was closed by an end that held it. Append only."""

    LEAVING = 0x01
    COLD_RESTART = 0x02
    MAKE_ROOM = 0x03
    EXCESS = 0x04
    LEVEL = 0x05
    NOT_PENDING = 0x06
    SILENT = 0x07
    REPLACED = 0x08
    MALFORMED = 0x09
    QUERY_NOT_CARRIED = 0x0A
    FORGED = 0x0B


class MalformedMessage(ValueError):
    """Bytes that are not a message of the mesh. The caller counts and drops them."""


class OtherVersionMessage(MalformedMessage):
    """A body of a version that this peer does not read."""


@dataclass(frozen=True, slots=True)
class PeerAt:
    """A peer somebody may try as a parent: a referral, a child, a parent."""

    peer_id: PeerId
    address: HostPort
    level: int


@dataclass(frozen=True, slots=True)
class RootProof:
    """Proof that a root lived: its `run` (random for each start), its beat counter, and how old that beat is here.

    The counter makes a loop of believers run dry (nobody can advance it but the root), the age bounds what a newcomer
    that hears a counter for the first time can be made to believe.
    """

    run: int
    beat: int
    age_ms: int


UNFED = RootProof(0, 0, MAX_AGE_MS)


@dataclass(frozen=True, slots=True)
class Join:
    """The hello of an opening: let me be your child."""

    peer_id: PeerId
    run: int
    """Random for each start of the peer, so that a parent tells a restart from an old copy of a join."""
    number: int
    """Rises with each join of this run: an older one never replaces a newer link."""
    level: int
    """Every parent must be below it; UNPLACED when the peer has no children and so can still move."""
    wanted: int
    parents: int
    """Sound ones that it has now: a parent that makes room moves only a child that has more."""
    resilience: int
    is_repair: bool
    """It lost a parent and has not been complete since."""
    has_children: bool
    is_optional: bool = False
    """It has its parents and only seeks a better place: no slot kept for repairs, and nobody has to go for it."""
    is_trade: bool = False
    """It was promised a slot in an exchange, which may be one kept for repairs (`trading.py`)."""
    is_urgent: bool = False
    """It has found no parent for a while: the goal's limit on children does not count for it."""


@dataclass(frozen=True, slots=True)
class Accept:
    level: int
    hops: int
    resilience: int
    feed: RootProof


@dataclass(frozen=True, slots=True)
class Refuse:
    """The body of a refusal; the reason travels in dcp's own field."""

    referrals: tuple[PeerAt, ...] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    """Parent to child, ten times a second."""

    level: int
    hops: int
    resilience: int
    is_leaving: bool
    feed: RootProof


@dataclass(frozen=True, slots=True)
class Report:
    """Child to parent, twice a second: that it lives, and what a referral or the choice of whom to move needs."""

    level: int
    hops: int
    resilience: int
    is_leaving: bool
    parents: int
    """Sound ones, this one included: a child with a second parent may be asked to move."""
    children: int
    free: int
    free_for_repair: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Child to parent after a sleep: do you still hold this link? What lay in the socket meanwhile proves nothing."""

    number: int


@dataclass(frozen=True, slots=True)
class Echo:
    number: int


@dataclass(frozen=True, slots=True)
class ChildrenRequest:
    query: bytes


@dataclass(frozen=True, slots=True)
class ParentsRequest:
    pass


@dataclass(frozen=True, slots=True)
class StatusRequest:
    pass


@dataclass(frozen=True, slots=True)
class Peers:
    peers: tuple[PeerAt, ...]


@dataclass(frozen=True, slots=True)
class State:
    peer_id: PeerId
    level: int
    hops: int
    resilience: int
    is_rooted: bool
    parents_held: int
    parents_wanted: int
    children: int
    capacity: int


@dataclass(frozen=True, slots=True)
class WantsRequest:
    """What does the client there ask for?"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The query as it goes to parents, empty for everything; None when there is no client or it is too long."""

    query: bytes | None


@dataclass(frozen=True, slots=True)
class AboutRequest:
    """Who is there, and how is it?"""


@dataclass(frozen=True, slots=True)
class About:
    """What people want to know about a peer. What it does not say is empty or None."""

    stream: str
    name: str = ""
    version: str = ""
    packets_per_second: float | None = None
    loss: float | None = None
    """The share of packets that its parents did not bring unasked."""
    disputes: str = ""
    """Which of its parents are contradicted about the stream, and why, in words."""
    protection: str = ""
    """What it asks its parents to send unasked: plain, copy, 1 per 8, ..."""
    sources: tuple[str, ...] = ()
    """What a combined stream consists of; empty for every other."""
    tree_degree: int | None = None
    """Of the reference tree that it follows."""


LinkMessage = Beat | Report | Probe | Echo
InquiryRequest = ChildrenRequest | ParentsRequest | StatusRequest | WantsRequest | AboutRequest
Answer = Peers | State | Wanted | About
