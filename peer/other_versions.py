"""Refusals that somebody has to do something about, in words: another version of a protocol (docs/operations,
Upgrading), encryption or a grant that one end lacks, another peer than the one that was asked for."""

from __future__ import annotations

from dcp import wire
from dcp.control import Reason
from dcp.links.address import SocketAddress
from dht.addresses import endpoint_text
from dht.identity import PUBLIC_KEY_BYTES
from peer.mesh.events import LinkDenied, OtherVersion
from peer.trust.doors import other_peer_in_words

MAX_WORDS = 512


def of_refusal(address: SocketAddress, reason: int, body: bytes) -> OtherVersion | LinkDenied | None:
    """What dcp's refusal says; None if only the mesh has to know of it."""
    if reason == Reason.VERSION:
        lowest, highest = body[:2]
        return OtherVersion(address[:2], "DCP", lowest, highest, wire.VERSION)
    if reason == Reason.OTHER_PEER and len(body) == PUBLIC_KEY_BYTES:
        return LinkDenied(address[:2], other_peer_in_words(body))
    if reason in (Reason.ENCRYPTION, Reason.OTHER_PEER, Reason.DENIED):
        return LinkDenied(address[:2], printable_untrusted(body))
    return None


def printable_untrusted(body: bytes) -> str:
    """A sentence of a stranger, as it may be shown."""
    text = body[:MAX_WORDS].decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in text)


def in_words(event: OtherVersion | LinkDenied) -> str:
    if isinstance(event, LinkDenied):
        return f"no link with {endpoint_text(event.address)}: {event.why}"
    theirs = f"{event.lowest}" if event.lowest == event.highest else f"{event.lowest} to {event.highest}"
    behind = "this peer" if event.lowest > event.ours else "that peer"
    return (
        f"{endpoint_text(event.address)} speaks {event.protocol} {theirs} and this peer {event.protocol} {event.ours}: "
        f"they can't be linked until {behind} is upgraded"
    )
