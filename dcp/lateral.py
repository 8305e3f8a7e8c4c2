"""Lateral error correction inside a multicast group, as in Ricochet: members mend each other's losses.

After r datagrams of the group that a member received (`Config.lateral_every`), it sends their XOR to the siblings that
have lost something lately, at most c of them (`Config.lateral_siblings`). A sibling that lacks exactly one of them has
it then, without asking the parent. All members hold identical datagrams with the parent's signature, so what a
sibling's repair yields is checked like anything else: a sibling that lies wastes its own bytes, and is no longer
listened to after a few times.

The parent names the siblings (SIBLINGS), with a key for each pair. Nothing but a small beat goes to a sibling that has
not sent one itself, sealed with that key: a parent can't aim repairs at a victim.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from dcp import wire
from dcp.config import MAX_LATERAL_EVERY, Config
from dcp.control import ControlType
from dcp.errors import MalformedDatagram
from dcp.links.address import SocketAddress, is_same

MAX_SIBLINGS: Final = 4
MAX_COVERED_BYTES: Final = 1_300
"""Larger datagrams are not covered: a repair must fit a frame of the LAN."""
MAX_KEPT: Final = 64
BEAT_INTERVAL: Final = 1.0
ALIVE: Final = 3.5
"""How long a sibling's beat holds."""
LOSING: Final = 10.0
"""How long after a loss repairs are wanted."""
MAX_LIES: Final = 8

KEY_BYTES: Final = 16
_WANTS: Final = 1
_SIBLINGS: Final = struct.Struct("!BIB")  # type, group id, count
_SIBLING: Final = struct.Struct("!H16s")  # port, key; after the length of the address, 4 or 16, and the address
_LATERAL: Final = struct.Struct("!BBB")  # type, flags, count; then the numbers, and with them length and coded bytes
_LENGTH: Final = struct.Struct("!H")


class Sibling(NamedTuple):
    host: str
    port: int
    key: bytes


class Siblings(NamedTuple):
    group: int
    siblings: tuple[Sibling, ...]


class Lateral(NamedTuple):
    """A beat, or with numbers a repair: the XOR of the group's datagrams with these numbers, and of their lengths."""

    wants: bool
    numbers: tuple[int, ...] = ()
    length: int = 0
    coded: bytes = b""


def encode_siblings(message: Siblings) -> bytes:
    parts = [_SIBLINGS.pack(ControlType.SIBLINGS, message.group, len(message.siblings))]
    for host, port, key in message.siblings:
        packed = ip_address(host).packed
        parts += [bytes((len(packed),)), packed, _SIBLING.pack(port, key)]
    return b"".join(parts)


def decode_siblings_untrusted(body: bytes) -> Siblings:
    if len(body) < _SIBLINGS.size:
        raise MalformedDatagram("short", "siblings")
    _, group, count = _SIBLINGS.unpack_from(body)
    if count > MAX_SIBLINGS:
        raise MalformedDatagram("limit", "siblings")
    at, found = _SIBLINGS.size, []
    for _ in range(count):
        size = body[at] if at < len(body) else 0
        end = at + 1 + size + _SIBLING.size
        if size not in (4, 16) or end > len(body):
            raise MalformedDatagram("short", "siblings")
        packed = body[at + 1 : at + 1 + size]
        host = IPv4Address(packed) if size == 4 else IPv6Address(packed)
        port, key = _SIBLING.unpack_from(body, at + 1 + size)
        if not port or host.is_multicast or host.is_unspecified:
            raise MalformedDatagram("siblings", "not a peer's address")
        found.append(Sibling(str(host), port, key))
        at = end
    if at != len(body):
        raise MalformedDatagram("length", "siblings")
    return Siblings(group, tuple(found))


def encode_lateral(message: Lateral) -> bytes:
    body = _LATERAL.pack(ControlType.LATERAL, _WANTS * message.wants, len(message.numbers))
    if not message.numbers:
        return body
    numbers = struct.pack(f"!{len(message.numbers)}I", *message.numbers)
    return body + numbers + _LENGTH.pack(message.length) + message.coded


def decode_lateral_untrusted(body: bytes) -> Lateral:
    if len(body) < _LATERAL.size or body[0] != ControlType.LATERAL:
        raise MalformedDatagram("short", "lateral")
    _, flags, count = _LATERAL.unpack_from(body)
    wants = bool(flags & _WANTS)
    if not count:
        return Lateral(wants)
    at = _LATERAL.size + 4 * count
    if count > MAX_LATERAL_EVERY or not 0 < len(body) - at - _LENGTH.size <= MAX_COVERED_BYTES:
        raise MalformedDatagram("length", "lateral")
    numbers = struct.unpack_from(f"!{count}I", body, _LATERAL.size)
    if len(set(numbers)) != count:
        raise MalformedDatagram("numbers", "lateral")
    (length,) = _LENGTH.unpack_from(body, at)
    return Lateral(wants, numbers, length, body[at + _LENGTH.size :])


def pair_key(secret: bytes, one: int, other: int) -> bytes:
    """What two members have in common, by the ids of their links."""
    pair = struct.pack("!II", min(one, other), max(one, other))
    return hashlib.blake2b(pair, key=secret, digest_size=KEY_BYTES, person=b"dcp1 sibling").digest()


def _seal(key: bytes) -> wire.Seal:
    return wire.Seal(hashlib.blake2b(key, digest_size=32, person=b"dcp1 lateral").digest())


@dataclass(slots=True, eq=False)
class _Known:
    address: SocketAddress
    seal: wire.Seal
    key: bytes
    heard_at: float = float("-inf")
    wants: bool = False
    lies: int = 0


class Repairer:
    """One member's side of it."""

    def __init__(self, group_id: int, post: Callable[[bytes, SocketAddress], object], config: Config) -> None:
        self._every, self._most = config.lateral_every, config.lateral_siblings
        self.counters: Counter[str] = Counter()
        self._id = group_id
        self._post = post
        self._siblings: dict[tuple[str, int], _Known] = {}
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._since_repair: list[int] = []
        self._lost_at = float("-inf")
        self._beat_at = 0.0

    def set_siblings(self, siblings: tuple[Sibling, ...]) -> None:
        before = self._siblings
        self._siblings = {}
        for host, port, key in siblings:
            known = before.get((host, port))
            if known is None or known.key != key:
                known = _Known((host, port), _seal(key), key)
            self._siblings[host, port] = known

    def lost_something(self, now: float) -> None:
        self._lost_at = now

    # --- what the group brought ---------------------------------------------------------------------------------------

    def keep(self, number: int, datagram: bytes, now: float, *, was_rebuilt: bool = False) -> None:
        """A datagram of the group, whose signature is right. What was rebuilt makes no further repairs."""
        if len(datagram) > MAX_COVERED_BYTES or not self._siblings:
            return
        self._kept[number] = datagram
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        if was_rebuilt:
            return
        self._since_repair.append(number)
        if len(self._since_repair) >= self._every:
            numbers, self._since_repair = tuple(self._since_repair), []
            self._repair(numbers, now)

    def _repair(self, numbers: tuple[int, ...], now: float) -> None:
        wanting = [s for s in self._siblings.values() if s.wants and now - s.heard_at < ALIVE][: self._most]
        if not wanting or any(number not in self._kept for number in numbers):
            return
        length, coded = _combined([self._kept[number] for number in numbers])
        body = encode_lateral(Lateral(self._wants(now), numbers, length, coded))
        for sibling in wanting:
            self.counters["repairs sent"] += 1
            self._send(sibling, body)

    # --- what siblings say --------------------------------------------------------------------------------------------

    def receive(self, data: bytes, address: SocketAddress, now: float) -> tuple[_Known, int, bytes] | None:
        """From a sibling: the number and the bytes of a datagram that we lack, if it yields one. MalformedDatagram."""
        sibling = self._siblings.get(address[:2])
        if sibling is None or not is_same(sibling.address, address) or not wire.seal_is_valid(sibling.seal, data):
            raise MalformedDatagram("sibling")
        message = decode_lateral_untrusted(data[wire.BODY_AT :])
        sibling.heard_at, sibling.wants = now, message.wants
        if not message.numbers or sibling.lies >= MAX_LIES:
            return None
        missing = [number for number in message.numbers if number not in self._kept]
        if len(missing) != 1:
            return None
        others = [self._kept[number] for number in message.numbers if number != missing[0]]
        length, coded = _combined([*others, message.coded], message.length, len(others))
        if not wire.BODY_AT < length <= len(coded) or any(coded[length:]):
            self.blame(sibling)
            raise MalformedDatagram("length", "lateral")
        return sibling, missing[0], coded[:length]

    def blame(self, sibling: _Known) -> None:
        """What its repair yielded was not signed by the parent."""
        sibling.lies += 1
        self.counters["lies"] += 1

    # --- time ---------------------------------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        if now < self._beat_at:
            return
        self._beat_at = now + BEAT_INTERVAL
        body = encode_lateral(Lateral(self._wants(now)))
        for sibling in self._siblings.values():
            self._send(sibling, body)

    def _wants(self, now: float) -> bool:
        return now - self._lost_at < LOSING

    def _send(self, sibling: _Known, body: bytes) -> None:
        self._post(wire.encode_bound(sibling.seal, 0, wire.CONTROL, 0, 0, self._id, body), sibling.address)


def _combined(parts: list[bytes], length: int = 0, lengths_of: int | None = None) -> tuple[int, bytes]:
    """The XOR of all, as long as the longest, and of the lengths of the first `lengths_of`."""
    coded = 0
    for part in parts:
        coded ^= int.from_bytes(part, "little")
    for part in parts[:lengths_of]:
        length ^= len(part)
    return length, coded.to_bytes(max(len(part) for part in parts), "little")
