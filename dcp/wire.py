"""How a DCP packet looks: the paper's 12-byte header, the binding to a link, and the seal.

    byte 0     version (high 4 bits, 1) and query epoch (low 4 bits)
    byte 1     flags
    bytes 2-3  checksum
    bytes 4-7  AN
    bytes 8-11 previous AN

Every packet without the OPEN flag belongs to a link and goes on with

    bytes 12-15  link id, chosen by the side that receives the packet
    bytes 16-21  seal

The checksum is keyed: it is the first two bytes of an eight-byte BLAKE2b MAC over the whole packet, under the key of
this direction of this link; the seal is the other six. So the session is bound into every datagram, and an outsider
who merely knows an address can neither inject nor acknowledge. Both may be switched off for a link (all zero).
A packet with the OPEN flag comes before there is a key: its checksum is the same hash without one.

This file knows bytes only. What the bodies mean is in `control`; extension of ANs to 64 bits is in `serial`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from dcp.errors import MalformedDatagram

VERSION: Final = 1

# Flags. The numbers are the protocol.
ACK_REQUEST: Final = 0x80
ACK: Final = 0x40
NACK: Final = 0x20
KEEP_ALIVE: Final = 0x10
OPEN: Final = 0x08
CLOSE: Final = 0x04
STREAM: Final = 0x02
CONTROL: Final = 0x01

# A packet is data when none of these is set.
NOT_DATA: Final = ACK | NACK | KEEP_ALIVE | OPEN | CLOSE | CONTROL

# version|epoch u8, flags u8, checksum u16, AN u32, previous AN u32
HEADER: Final = struct.Struct("!BBHII")
# the same and the link id u32: what the MAC covers, with the checksum zero
BOUND_HEADER: Final = struct.Struct("!BBHIII")
BODY_AT: Final = BOUND_HEADER.size + 6
LINK_ID: Final = struct.Struct("!I")

DEFAULT_DATAGRAM_BYTES: Final = 1_400  # fits IPv6 over common tunnels without fragmentation
LOOPBACK_DATAGRAM_BYTES: Final = 32_768  # loopback has an MTU of 65,536: one system call carries a hundred packets


class Seal:
    """The keyed checksum of one direction of one link."""

    __slots__ = ("_base",)

    def __init__(self, key: bytes) -> None:
        # Copying a hash that has taken its key already saves one compression per packet.
        self._base = hashlib.blake2b(key=key, digest_size=8)

    def mac(self, header: bytes, body: bytes | memoryview) -> bytes:
        h = self._base.copy()
        h.update(header)
        h.update(body)
        return h.digest()


def encode_bound(seal: Seal | None, epoch: int, flags: int, an: int, prev: int, link: int, body: bytes) -> bytes:
    """A packet of an open link. `an` and `prev` are cut to 32 bits here."""
    header = BOUND_HEADER.pack(0x10 | (epoch & 15), flags, 0, an & 0xFFFFFFFF, prev & 0xFFFFFFFF, link)
    if seal is None:
        return header + b"\0\0\0\0\0\0" + body
    mac = seal.mac(header, body)
    return b"".join((header[:2], mac[:2], header[4:], mac[2:], body))


def seal_is_valid(seal: Seal | None, data: bytes) -> bool:
    """Whether a bound packet was sealed with this key. The caller has checked that it is at least BODY_AT long."""
    if seal is None:
        return data[2:4] == b"\0\0" and data[16:22] == b"\0\0\0\0\0\0"
    mac = seal.mac(data[:2] + b"\0\0" + data[4:16], memoryview(data)[BODY_AT:])
    return hmac.compare_digest(mac, data[2:4] + data[16:22])


def encode_open(kind: int, body: bytes, *, version: int = VERSION) -> bytes:
    """A packet that comes before there is a link: the header, a type byte, the body."""
    header = HEADER.pack(version << 4, OPEN, 0, 0, 0)
    rest = bytes((kind,)) + body
    check = _plain_checksum(header, rest)
    return b"".join((header[:2], check, header[4:], rest))


def decode_open_untrusted(data: bytes) -> tuple[int, bytes]:
    """The type and the body of a packet with the OPEN flag."""
    if len(data) < HEADER.size + 1:
        raise MalformedDatagram("short", f"{len(data)} bytes")
    header = data[:2] + b"\0\0" + data[4 : HEADER.size]
    if _plain_checksum(header, data[HEADER.size :]) != data[2:4]:
        raise MalformedDatagram("checksum")
    return data[HEADER.size], data[HEADER.size + 1 :]


def decode_header_untrusted(data: bytes) -> tuple[int, int]:
    """Version nibble and length are right: the flags and the epoch's low bits. Nothing else was looked at."""
    if len(data) < HEADER.size:
        raise MalformedDatagram("short", f"{len(data)} bytes")
    if data[0] >> 4 != VERSION:
        raise MalformedDatagram("version", f"{data[0] >> 4}")
    flags = data[1]
    if not flags & OPEN and len(data) < BODY_AT:
        raise MalformedDatagram("short", f"{len(data)} bytes")
    return flags, data[0] & 15


def derive_key(child_nonce: bytes, parent_nonce: bytes, *, towards_child: bool) -> bytes:
    """The key of one direction. Both nonces are fresh, so delayed data of an earlier life never verifies."""
    person = b"dcp1 to child" if towards_child else b"dcp1 to parent"
    return hashlib.blake2b(child_nonce + parent_nonce, digest_size=32, person=person).digest()


def _plain_checksum(header: bytes, rest: bytes) -> bytes:
    return hashlib.blake2b(header + rest, digest_size=2).digest()
