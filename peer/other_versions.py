"""Peers that speak another version of a protocol, in words that say who has to upgrade (docs/operations, Upgrading)."""

from __future__ import annotations

from dcp import wire
from dcp.links.address import SocketAddress
from dht.addresses import endpoint_text
from peer.mesh.events import OtherVersion


def of_dcp(address: SocketAddress, body: bytes) -> OtherVersion:
    """From the body of a refusal with `Reason.VERSION`."""
    lowest, highest = body[:2]
    return OtherVersion(address[:2], "DCP", lowest, highest, wire.VERSION)


def in_words(event: OtherVersion) -> str:
    theirs = f"{event.lowest}" if event.lowest == event.highest else f"{event.lowest} to {event.highest}"
    behind = "this peer" if event.lowest > event.ours else "that peer"
    return (
        f"{endpoint_text(event.address)} speaks {event.protocol} {theirs} and this peer {event.protocol} {event.ours}: "
        f"they can't be linked until {behind} is upgraded"
    )
