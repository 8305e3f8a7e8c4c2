"""Peers that speak another version of the protocol: each is told which versions this one speaks.

What every version keeps, so that peers of any two versions can tell each other:

    byte 0     the sender's version in the high 4 bits (0 is the DHT's, 15 an encrypted packet: `links.secrecy`)
    byte 1     the flag OPEN (0x08) for packets that open a link or ask a question
    bytes 2-3  the checksum of such a packet (`wire`)
    byte 12    its type; VERSIONS is 0x7F in every version
    VERSIONS   lowest u8, highest u8, then the first 37 bytes of the body of the packet that it answers

An opening of another version is answered with VERSIONS, never with more bytes than it had, and at a limited rate. The
echo holds the nonce of a request of ours: an outsider can't refuse a link in another peer's name. This file is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dcp import wire
from dcp.control import Reason
from dcp.errors import MalformedDatagram
from dcp.handshake import NONCE_BYTES, Refuse
from dcp.links.address import SocketAddress

TYPE: Final = 0x7F
ENCRYPTED: Final = 15
"""Never a version: the nibble of encrypted packets."""
ECHO_BYTES: Final = 37
"""Enough for the nonce of a request, whatever a later version puts before it."""
NONCE_AT: Final = 5
"""Of our requests: mode u8 and link id u32 come first."""


def encode_versions(echo: bytes, *, version: int = wire.VERSION) -> bytes:
    return wire.encode_open(TYPE, bytes((version, version)) + echo[:ECHO_BYTES], version=version)


def is_opening_of_other_version(data: bytes) -> bool:
    """A packet outside any link of a version that is not ours. The DHT's datagrams begin with a zero nibble."""
    version = data[0] >> 4 if data else 0
    return len(data) > wire.HEADER.size and version not in (0, wire.VERSION, ENCRYPTED) and bool(data[1] & wire.OPEN)


def refusal_untrusted(
    data: bytes, address: SocketAddress, send: Callable[[bytes, SocketAddress], object]
) -> Refuse | None:
    """What a packet of another version means for an opening of ours: its body is the lowest and highest version.

    What says nothing about versions is answered with ours.
    """
    kind, body = wire.decode_open_untrusted(data)
    if kind != TYPE:
        reply = encode_versions(body)
        if len(reply) <= len(data):
            send(reply, address)
        return None
    if len(body) < 2 or not 1 <= body[0] <= body[1] < ENCRYPTED:
        raise MalformedDatagram("versions")
    return Refuse(body[2 + NONCE_AT : 2 + NONCE_AT + NONCE_BYTES], Reason.VERSION, body[:2])
