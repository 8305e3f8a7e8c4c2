"""What the mesh machine asks its owner to do (effects), and what it tells the application (events).

Link numbers are the machine's own, one series for parents and children; the owner maps them to dcp's links. Effects
must be run in the order given and before the next input; those on a link that has just ended are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import CloseReason, PeerId, RefuseReason

LinkId = NewType("LinkId", int)
JoinTicket = NewType("JoinTicket", int)
"""The owner's name for a join that waits for our answer."""
Inquiry = NewType("Inquiry", int)


# Effects


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Ask for a link; ends in `link_opened`, `link_refused` or `open_timed_out`, or in our own CloseLink."""

    link: LinkId
    peer_id: PeerId
    address: HostPort
    hello: bytes


@dataclass(frozen=True, slots=True)
class AcceptLink:
    """Mint the nonce, enter the link under this number, then answer."""

    ticket: JoinTicket
    link: LinkId
    reply: bytes


@dataclass(frozen=True, slots=True)
class RefuseLink:
    ticket: JoinTicket
    reason: RefuseReason
    body: bytes


@dataclass(frozen=True, slots=True)
class SendMessage:
    """One body for several links: beats are many and all alike."""

    links: tuple[LinkId, ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close, or give up an opening. No input about this link may follow."""

    link: LinkId
    reason: CloseReason


@dataclass(frozen=True, slots=True)
class Inquire:
    """Ends in `inquiry_answered` or `inquiry_timed_out`."""

    inquiry: Inquiry
    address: HostPort
    request: bytes


@dataclass(frozen=True, slots=True)
class CandidatesWanted:
    """Ask the directory; the answer is `add_candidates`, whenever and as often as it likes."""

    below_level: int
    """Only peers below this level are of use; UNPLACED when every level is."""
    for_repair: bool
    """Slots kept for repairs count as free for us."""
    count: int
    places: tuple[int, ...] = ()
    """Also those that are listed next to these places."""


@dataclass(frozen=True, slots=True)
class PublishRecord:
    level: int
    hops: int
    resilience: int
    children: int
    capacity: int
    free: int
    free_for_repair: int
    parents_held: int
    parents_wanted: int
    is_root: bool


@dataclass(frozen=True, slots=True)
class WithdrawRecord:
    pass


Effect = (
    OpenLink
    | AcceptLink
    | RefuseLink
    | SendMessage
    | CloseLink
    | Inquire
    | CandidatesWanted
    | PublishRecord
    | WithdrawRecord
)


# Events


@dataclass(frozen=True, slots=True)
class ParentGained:
    link: LinkId
    peer_id: PeerId
    address: HostPort
    level: int


@dataclass(frozen=True, slots=True)
class ParentLost:
    """The link is gone. `reason` says who ended it and why, in words for people and tests."""

    link: LinkId
    peer_id: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class ParentSuspected:
    """Silent for too long: a spare is being sought, the link still stands."""

    link: LinkId
    peer_id: PeerId


@dataclass(frozen=True, slots=True)
class ChildGained:
    link: LinkId
    peer_id: PeerId
    address: HostPort
    query: bytes


@dataclass(frozen=True, slots=True)
class ChildLost:
    link: LinkId
    peer_id: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class Degraded:
    """Fewer than the wanted number of sound parents; the stream goes on with what there is."""

    sound: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The wanted number of sound parents, `after` seconds since it was last so, or since the start."""

    wanted: int
    after: float


@dataclass(frozen=True, slots=True)
class ResilienceChanged:
    """So many sound parents now: one less can die without a stall. The shell says so, also to a new listener."""

    sound: int
    wanted: int

    @property
    def is_met(self) -> bool:
        return self.sound >= self.wanted


@dataclass(frozen=True, slots=True)
class ColdRestart:
    """No parent for too long: the children were let go and this peer starts over."""

    children: int


@dataclass(frozen=True, slots=True)
class Thawed:
    """This process slept; what it believed is being checked again."""

    slept: float


@dataclass(frozen=True, slots=True)
class Leaving:
    children: int


@dataclass(frozen=True, slots=True)
class Left:
    pass


@dataclass(frozen=True, slots=True)
class Disputed:
    """What this parent said about the packets after `after` up to `until` contradicts another parent, or itself.

    One of them is wrong; nothing is lost by it. The parent is replaced if another peer offers a place.
    """

    link: LinkId
    peer_id: PeerId
    address: HostPort
    after: int
    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class Starved:
    """Parents report new packets, up to `head`, but for `seconds` none has brought one or said that none is wanted."""

    head: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Of the packets in (after, until], which a root has counted and signed, some were never handed over, without a
    gap: all parents left them out together."""

    after: int
    until: int
    missing: int


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A random audit found `packets` signed packets in (after, until] at another peer, which all our parents had said
    were not there. They were handed over late."""

    peer_id: PeerId
    address: HostPort
    after: int
    until: int
    packets: int


@dataclass(frozen=True, slots=True)
class LinkDenied:
    """A peer refused a link, or was not linked with, for a reason that somebody has to do something about."""

    address: HostPort
    why: str


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A peer can't be a parent: of `protocol` ("DCP" or "mesh") it speaks the versions `lowest` to `highest` only."""

    address: HostPort
    protocol: str
    lowest: int
    highest: int
    ours: int


Event = (
    ParentGained
    | ParentLost
    | ParentSuspected
    | ChildGained
    | ChildLost
    | Degraded
    | Restored
    | ColdRestart
    | Thawed
    | Disputed
    | Starved
    | Incomplete
    | Uncovered
    | LinkDenied
    | OtherVersion
    | Leaving
    | Left
)
