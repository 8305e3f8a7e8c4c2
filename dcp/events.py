"""What the machines tell their owner."""

from __future__ import annotations

from typing import NamedTuple

from dcp.links.link import Address


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


Content = Packet | Gap | Started | QuerySwitched


class LinkOpened(NamedTuple):
    """A parent accepted us."""

    stream: str
    link: int
    address: Address
    reply: bytes


class LinkRefused(NamedTuple):
    """A parent refused us, or did not answer in time (`Reason.TIMED_OUT`). `link` is the id that `add_sender` gave."""

    stream: str
    link: int
    address: Address
    reason: int
    body: bytes


class LinkLost(NamedTuple):
    """A parent's link has ended, by its word or its silence."""

    stream: str
    link: int
    address: Address
    reason: int
    body: bytes


class OpeningReceived(NamedTuple):
    """A child whose address is proved asks for a link: answer with `accept(ticket, ...)` or `refuse(ticket, ...)`."""

    stream: str
    ticket: int
    address: Address
    query: bytes
    hello: bytes


class ChildOpened(NamedTuple):
    """A child has confirmed its link, and data flows."""

    stream: str
    link: int
    address: Address


class ChildLost(NamedTuple):
    stream: str
    link: int
    address: Address
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
    address: Address
    an: int


class Stranded(NamedTuple):
    """All parents are below our position, and advance there: their numbering may have begun again.

    `Receiver.begin_again` starts over with what they have; until then their packets are dropped as old.
    """

    stream: str
    position: int
    head: int


class MessageReceived(NamedTuple):
    """An opaque message on a link, from the owner of the other end."""

    stream: str
    link: int
    data: bytes


class InquiryReceived(NamedTuple):
    """A question from outside any link, from an address that is proved. Answer with `answer(ticket, ...)` or not."""

    ticket: int
    address: Address
    body: bytes


class InquiryAnswered(NamedTuple):
    """The answer to `inquire`; None when none came in time."""

    inquiry: int
    address: Address
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
    | Stranded
    | MessageReceived
    | InquiryReceived
    | InquiryAnswered
)
