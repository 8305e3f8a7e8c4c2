"""What parent and child say about a multicast group, and the bytes of what goes to one.

GROUP and HEARD are control messages on the sealed link of each member. A datagram to a group is a bound packet whose
link id is the group's, without a seal (a key that all members have would let any of them forge), followed by a number,
which shows loss, and an Ed25519 signature over everything before it. The key lives as long as the group, and members
know it from the sealed link.

Where the links are encrypted, GROUP carries a cipher key too, and the bound packet is the body of another one,
encrypted with AES-128-GCM under the number as nonce: members can read it, others on the LAN can't, and only the parent
signs.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag

from dcp import wire
from dcp.control import ControlType
from dcp.errors import MalformedDatagram

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_NUMBER: Final = struct.Struct("!I")
TRAILER_BYTES: Final = _NUMBER.size + SIGNATURE_BYTES
LEFT: Final = (1 << 64) - 1
"""In HEARD: the child no longer listens."""

CIPHER_KEY_BYTES: Final = 16
MAX_NUMBER: Final = (1 << 32) - 1
"""Numbers are not used twice with one key: the group ends before."""
ENCRYPTED_BYTES: Final = wire.BODY_AT + 16
"""What encryption adds to a datagram."""

# type, group id, epoch, public key, port; a cipher key of 16 bytes or nothing; the address, 4 or 16 bytes
_GROUP: Final = struct.Struct("!BII32sH")
_HEARD: Final = struct.Struct("!BIQ")  # type, group id, the highest number heard

# Only these: a parent must not be able to make a child listen to what routers and other programs send.
_SCOPED_V4: Final = IPv4Network("239.0.0.0/8")
_SCOPED_V6: Final = (b"\xff\x02", b"\xff\x12")
_LEAST_PORT: Final = 1_024


class Group(NamedTuple):
    """ "This group gets what you get": sent by a parent, again until the child says HEARD or LEFT."""

    id: int
    epoch: int
    key: bytes
    port: int
    host: str
    cipher_key: bytes = b""
    """Empty: the group's datagrams are not encrypted."""


class Heard(NamedTuple):
    id: int
    highest: int


def encode_group(group: Group) -> bytes:
    head = _GROUP.pack(ControlType.GROUP, group.id, group.epoch, group.key, group.port)
    return head + group.cipher_key + ip_address(group.host).packed


def decode_group_untrusted(body: bytes) -> Group:
    packed = body[_GROUP.size :]
    cipher_key = b""
    if len(packed) in (CIPHER_KEY_BYTES + 4, CIPHER_KEY_BYTES + 16):
        cipher_key, packed = packed[:CIPHER_KEY_BYTES], packed[CIPHER_KEY_BYTES:]
    if len(body) < _GROUP.size or len(packed) not in (4, 16):
        raise MalformedDatagram("short", "group")
    _, group_id, epoch, key, port = _GROUP.unpack_from(body)
    host = IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
    is_scoped = host in _SCOPED_V4 if isinstance(host, IPv4Address) else packed[:2] in _SCOPED_V6
    if not group_id or not is_scoped or port < _LEAST_PORT:
        raise MalformedDatagram("group", "not a scoped multicast address")
    return Group(group_id, epoch, key, port, str(host), cipher_key)


def encode_heard(heard: Heard) -> bytes:
    return _HEARD.pack(ControlType.HEARD, *heard)


def decode_heard_untrusted(body: bytes) -> Heard:
    if len(body) != _HEARD.size:
        raise MalformedDatagram("short", "heard")
    _, group_id, highest = _HEARD.unpack(body)
    return Heard(group_id, highest)


def sign(datagram: bytes, number: int, key: Ed25519PrivateKey) -> bytes:
    """A bound packet without a seal becomes one for a group."""
    numbered = datagram + _NUMBER.pack(number & 0xFFFFFFFF)
    return numbered + key.sign(numbered)


def encrypt(datagram: bytes, group_id: int, number: int, cipher: AESGCM) -> bytes:
    """A bound packet without a seal becomes the body of another one."""
    body = cipher.encrypt(number.to_bytes(12, "big"), datagram, None)
    return wire.encode_bound(None, 0, wire.CONTROL, 0, 0, group_id, body)


def decrypt_untrusted(datagram: bytes, number: int, cipher: AESGCM) -> bytes:
    """The inverse, for a datagram that its parent has signed."""
    try:
        return cipher.decrypt(number.to_bytes(12, "big"), datagram[wire.BODY_AT :], None)
    except (InvalidTag, ValueError):
        raise MalformedDatagram("seal", "group datagram") from None


def group_of_untrusted(data: bytes) -> int:
    """The group that a datagram says it is for."""
    if len(data) < wire.BODY_AT + TRAILER_BYTES:
        raise MalformedDatagram("short", "group datagram")
    (group_id,) = wire.LINK_ID.unpack_from(data, wire.BOUND_HEADER.size - 4)
    return int(group_id)


def number_of(data: bytes) -> int:
    (number,) = _NUMBER.unpack_from(data, len(data) - TRAILER_BYTES)
    return int(number)


def checked(data: bytes, key: Ed25519PublicKey) -> bytes:
    """The bound packet in a datagram of a group; MalformedDatagram when its parent did not sign it."""
    try:
        key.verify(data[-SIGNATURE_BYTES:], data[:-SIGNATURE_BYTES])
    except InvalidSignature:
        raise MalformedDatagram("signature", "group datagram") from None
    return data[:-TRAILER_BYTES]
