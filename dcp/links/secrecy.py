"""Datagrams of an encrypted link: nothing is readable but the routing byte, the link id and a counter.

    byte 0     0xf0: an encrypted packet of an open link
    bytes 1-4  link id, chosen by the side that receives the packet
    bytes 5-8  counter, its low 32 bits
    then       the AEAD's output: version|epoch u8, flags u8, AN u32, previous AN u32, body; and a tag of 16 bytes

The nonce is the direction's random IV, XOR the 64-bit counter. A counter is used once: what is sent again is encrypted
again, because retransmissions repeat ANs. Every `UPDATE_EVERY` datagrams both ends replace the direction's secret with
its hash: somebody who gets hold of the present keys can't read what was sent before. The counter says which key it is,
so an update takes no message.

What was opened looks like a packet without a seal (`wire`): nothing else in dcp knows how it came.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from dcp import wire
from dcp.errors import MalformedDatagram
from dcp.serial import extend

ROUTING: Final = 0xF0
AES_128_GCM: Final = 0x01
CHACHA20_POLY1305: Final = 0x02
SUITES: Final = AES_128_GCM | CHACHA20_POLY1305

UPDATE_EVERY: Final = 1 << 16
MAX_UPDATES_AT_ONCE: Final = 4
"""More datagrams than this many updates apart are not lost in a row on a link that lives; each step costs a hash."""
REPLAY_WINDOW: Final = 8_192
"""Datagrams may come this late. The fragments of a packet wait while others overtake them."""

_OUTER: Final = struct.Struct("!BII")
_INNER: Final = struct.Struct("!BBII")
TAG_BYTES: Final = 16
OVERHEAD: Final = _OUTER.size + _INNER.size + TAG_BYTES
MORE_THAN_SEALED: Final = OVERHEAD - wire.BODY_AT
"""Bytes of a datagram that encryption takes beyond the header and the seal."""
_NO_SEAL: Final = bytes(6)


class _Aead(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...
    def decrypt(self, nonce: bytes, data: memoryview, associated_data: bytes) -> bytes: ...


class _Generation:
    """The keys of one direction between two updates."""

    __slots__ = ("_iv", "_secret", "aead", "number", "suite")

    def __init__(self, suite: int, secret: bytes, number: int = 0) -> None:
        self.suite = suite
        self.number = number
        self._secret = secret
        if suite == AES_128_GCM:
            self.aead: _Aead = AESGCM(_derive(secret, b"key")[:16])
        else:
            self.aead = ChaCha20Poly1305(_derive(secret, b"key"))
        self._iv = int.from_bytes(_derive(secret, b"iv")[:12], "big")

    def nonce(self, counter: int) -> bytes:
        return (self._iv ^ counter).to_bytes(12, "big")

    def next(self) -> _Generation:
        return _Generation(self.suite, _derive(self._secret, b"update"), self.number + 1)

    def forget_secret(self) -> None:
        """Only the keys stay, for datagrams that come late."""
        self._secret = b""


def _derive(secret: bytes, what: bytes) -> bytes:
    return hmac.digest(secret, b"dcp1 " + what, hashlib.sha256)


class OutgoingCipher:
    """What this end sends on a link."""

    __slots__ = ("_counter", "_generation")

    def __init__(self, suite: int, secret: bytes) -> None:
        self._generation = _Generation(suite, secret)
        self._counter = 0

    def encode(self, epoch: int, flags: int, an: int, prev: int, link: int, body: bytes) -> bytes:
        """As `wire.encode_bound`."""
        counter = self._counter
        self._counter = counter + 1
        generation = self._generation
        if counter // UPDATE_EVERY != generation.number:
            generation = self._generation = generation.next()
        outer = _OUTER.pack(ROUTING, link, counter & 0xFFFFFFFF)
        inner = _INNER.pack(0x10 | (epoch & 15), flags, an & 0xFFFFFFFF, prev & 0xFFFFFFFF)
        return outer + generation.aead.encrypt(generation.nonce(counter), inner + body, outer)


class IncomingCipher:
    """What the other end sends. Each datagram is taken once."""

    __slots__ = ("_current", "_highest", "_missing", "_previous")

    def __init__(self, suite: int, secret: bytes) -> None:
        self._current = _Generation(suite, secret)
        self._previous: _Generation | None = None
        self._highest = -1
        self._missing: set[int] = set()  # below `highest`, and not taken yet

    def open_untrusted(self, data: bytes) -> bytes:
        """The packet in the layout of `wire`, with no seal."""
        if len(data) < OVERHEAD:
            raise MalformedDatagram("short", f"{len(data)} bytes")
        low = int.from_bytes(data[5:9], "big")
        highest = self._highest
        counter = extend(low, max(highest, 0))
        if counter <= highest and (counter not in self._missing or highest - counter >= REPLAY_WINDOW):
            raise MalformedDatagram("replayed")
        generation = self._generation_of(counter // UPDATE_EVERY)
        try:
            plain = generation.aead.decrypt(generation.nonce(counter), memoryview(data)[9:], data[:9])
        except InvalidTag:
            raise MalformedDatagram("seal") from None
        if plain[0] >> 4 != wire.VERSION or plain[1] & wire.OPEN:
            raise MalformedDatagram("version", "encrypted")
        if counter < highest:
            self._missing.discard(counter)
        else:
            self._highest = counter
            if counter > highest + 1:
                self._skip(highest + 1, counter)
            if generation is not self._current:
                self._update(generation)
        return b"".join((plain[:2], b"\0\0", plain[2:10], data[1:5], _NO_SEAL, plain[10:]))

    def _skip(self, first: int, counter: int) -> None:
        """From `first` on, everything before this counter may still come, if it is not too late for that."""
        oldest = counter - REPLAY_WINDOW + 1
        self._missing.update(range(max(first, oldest), counter))
        if len(self._missing) > REPLAY_WINDOW:
            self._missing = {number for number in self._missing if number >= oldest}

    def _generation_of(self, number: int) -> _Generation:
        """The keys that a counter belongs to; nothing changes here until a datagram has proved genuine."""
        current = self._current
        ahead = number - current.number
        if ahead == 0:
            return current
        if ahead < 0:
            if self._previous is None or self._previous.number != number:
                raise MalformedDatagram("replayed", "older than the keys kept")
            return self._previous
        if ahead > MAX_UPDATES_AT_ONCE:
            raise MalformedDatagram("seal", "beyond the next keys")
        for _ in range(ahead):
            current = current.next()
        return current

    def _update(self, generation: _Generation) -> None:
        if generation.number == self._current.number + 1:
            self._previous = self._current
            self._previous.forget_secret()
        else:
            self._previous = None
        self._current = generation


def is_encrypted(data: bytes) -> bool:
    return data[:1] == b"\xf0"
