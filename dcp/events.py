"""What the machines tell their owner."""

from __future__ import annotations

from typing import NamedTuple

from dcp.links.link import SocketAddress


class Packet(NamedTuple):
    """The next packet of the stream. In stream mode `an` is the position after its last byte."""

    an: int
    payload: bytes


class Gap(NamedTuple):
    """What lies in (after, until] can't be had from anybody, and was skipped. Never silent, never repeated."""

    after: int
    until: int


class Started(NamedTuple):
    """The stream begins after this position.

    A second one says that its numbering has begun again: what was published in between is not known, and what follows
    may repeat earlier numbers and packets.
    """

    position: int


class QuerySwitched(NamedTuple):
    """The old query holds up to and including `position`, the new one after it."""

    position: int
    query: bytes


class Omitted(NamedTuple):
    """A packet that a parent had claimed was not there; later ones were handed over before it.

    It was wanted and is handed over once, like any other, but out of order.
    """

    an: int
    payload: bytes


Content = Packet | Gap | Started | QuerySwitched | Omitted


class LinkOpened(NamedTuple):
    """A parent accepted us."""

    stream: str
    link: int
    address: SocketAddress
    reply: bytes
    public_key: bytes = b""
    """The parent's Ed25519 key, which it has proved to hold. Empty: the link is not encrypted."""
    credentials: bytes = b""


class LinkRefused(NamedTuple):
    """A parent refused us, or did not answer in time (`Reason.TIMED_OUT`). `link` is the id that `add_sender` gave."""

    stream: str
    link: int
    address: SocketAddress
    reason: int
    body: bytes


class LinkLost(NamedTuple):
    """A parent's link has ended, by its word or its silence."""

    stream: str
    link: int
    address: SocketAddress
    reason: int
    body: bytes


class OpeningReceived(NamedTuple):
    """A child whose address is proved asks for a link: answer with `accept(ticket, ...)` or `refuse(ticket, ...)`."""

    stream: str
    ticket: int
    address: SocketAddress
    query: bytes
    hello: bytes
    public_key: bytes = b""
    """The child's Ed25519 key, which it has proved to hold. Empty: the link will not be encrypted."""
    credentials: bytes = b""
    """What else it showed (`links.keying`)."""


class ChildOpened(NamedTuple):
    """A child has confirmed its link, and data flows."""

    stream: str
    link: int
    address: SocketAddress


class ChildLost(NamedTuple):
    stream: str
    link: int
    address: SocketAddress
    reason: int
    body: bytes


class WiderQueryWanted(NamedTuple):
    """A child waits for packets that this peer's own query does not bring: change it to cover `query` too."""

    stream: str
    link: int
    query: bytes


class CopyRefused(NamedTuple):
    """A parent's copy of the packet `an` was not accepted (`accepts`). Other parents are asked for it.

    A parent that sends such copies all the time is damaged or hostile; leaving it is the owner's decision.
    """

    stream: str
    link: int
    address: SocketAddress
    an: int


class ParentWanted(NamedTuple):
    """Losses come in runs of `run` packets on average, which another parent mends better than repairs (rule T7).

    `wanted` False: not any longer.
    """

    stream: str
    wanted: bool
    run: float


class Stranded(NamedTuple):
    """All parents are below our position, and advance there: their numbering may have begun again.

    `Receiver.begin_again` starts over with what they have; until then their packets are dropped as old.
    """

    stream: str
    position: int
    head: int


class Disputed(NamedTuple):
    """What this parent said about (after, until] contradicts another parent, or itself.

    One of the two is wrong. Without signatures nobody can say which: a parent that forges a packet makes the honest one
    look as if it had left that out. So the link stays, and the owner decides which parent to replace.
    """

    stream: str
    link: int
    address: SocketAddress
    after: int
    until: int
    reason: str


class Contradicted(NamedTuple):
    """A parent of a signed stream said that the packet `an` is not there, and we hold it: show it the packet.

    A router that was misled by all its own parents then corrects itself, and is not convicted.
    """

    stream: str
    link: int
    an: int


class Convicted(NamedTuple):
    """A parent of a signed stream has lied about the packet `an`: this is proved, not suspected.

    From now on its packets are taken and its emptiness is ignored, until the owner removes it (make before break).
    """

    stream: str
    link: int
    address: SocketAddress
    an: int
    reason: str


class Starved(NamedTuple):
    """Heads advance, and no parent's claims do, since `since`: the stream goes on somewhere, but not for us.

    `head` is the highest position that was reported. Said once for each such time.
    """

    stream: str
    head: int
    since: float


class MessageReceived(NamedTuple):
    """An opaque message on a link, from the owner of the other end."""

    stream: str
    link: int
    data: bytes


class InquiryReceived(NamedTuple):
    """A question from outside any link, from an address that is proved. Answer with `answer(ticket, ...)` or not."""

    ticket: int
    address: SocketAddress
    body: bytes


class InquiryAnswered(NamedTuple):
    """The answer to `inquire`; None when none came in time."""

    inquiry: int
    address: SocketAddress
    body: bytes | None


Event = (
    LinkOpened
    | LinkRefused
    | LinkLost
    | OpeningReceived
    | ChildOpened
    | ChildLost
    | WiderQueryWanted
    | CopyRefused
    | ParentWanted
    | Stranded
    | Disputed
    | Contradicted
    | Convicted
    | Starved
    | MessageReceived
    | InquiryReceived
    | InquiryAnswered
)
