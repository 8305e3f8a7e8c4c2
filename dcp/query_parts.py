"""A long query in parts: each fits into a datagram, and is read when it comes, so that neither a lost datagram nor the
time to read a thousand queries holds up anything else.

PART carries one of them, as a difference from the query of an epoch that the parent knows (or from nothing); HAVE says
how many came, from the first on. What the bytes of a part say is the policy's business (`queries.QueryPolicy`). When
all are there, the query is prepared as if PREPARE had brought it whole.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dcp.control import ControlType
from dcp.errors import MalformedDatagram
from dcp.parent import Parent
from dcp.queries import QueryPolicy

# type, epoch u32, base epoch u32, number u16, how many u16, digest of the whole query; the part follows
_PART: Final = struct.Struct("!BIIHH8s")
_HAVE: Final = struct.Struct("!BIH")  # type, epoch u32, how many from the first on
_DIGEST_BYTES: Final = 8

MAX_PARTS: Final = 256
MAX_PART_BYTES: Final = 1_300
NO_BASE: Final = 0xFFFFFFFF
"""The parts are the whole query, not a difference."""
UNKNOWN: Final = 0xFFFF
"""In HAVE: they don't fit what is known here. Send them as differences from nothing."""
WINDOW: Final = 2
"""Parts under way to one parent: reading one takes it some milliseconds."""
WHOLE_AFTER: Final = 20
"""Sent so often without an answer, the parent is of an earlier version: it gets the query whole."""


class Part(NamedTuple):
    epoch: int
    base: int
    number: int
    parts: int
    digest: bytes
    data: bytes


class Have(NamedTuple):
    epoch: int
    number: int


def encode_part(part: Part) -> bytes:
    return _PART.pack(ControlType.PART, *part[:5]) + part.data


def decode_part_untrusted(body: bytes) -> Part:
    if len(body) <= _PART.size:
        raise MalformedDatagram("short", "part of a query")
    _, epoch, base, number, count, digest = _PART.unpack_from(body)
    data = body[_PART.size :]
    if not number < count <= MAX_PARTS or len(data) > MAX_PART_BYTES:
        raise MalformedDatagram("limit", "part of a query")
    return Part(epoch, base, number, count, digest, data)


def encode_have(have: Have) -> bytes:
    return _HAVE.pack(ControlType.HAVE, *have)


def decode_have_untrusted(body: bytes) -> Have:
    if len(body) != _HAVE.size:
        raise MalformedDatagram("short", "have")
    _, epoch, count = _HAVE.unpack(body)
    return Have(epoch, count)


def digest_of(query: bytes) -> bytes:
    return hashlib.blake2b(query, digest_size=_DIGEST_BYTES).digest()


class Parting:
    """The child's side: which parts each parent is to get next."""

    def __init__(self, policy: QueryPolicy | None) -> None:
        self._policy = policy
        self._parts: dict[tuple[bytes | None, bytes], list[bytes] | None] = {}

    def next_for(self, parent: Parent, epoch: int, query: bytes, base: tuple[int, bytes] | None) -> list[bytes] | None:
        """The bodies to send now; None: PREPARE is to bring the query whole.

        `base`: an epoch that the parent knows, and its query.
        """
        progress = parent.query_parts
        if progress.epoch != epoch:
            progress.begin(epoch)
        if self._policy is None or progress.unanswered >= WHOLE_AFTER:
            return None
        if base is None or progress.from_nothing:
            base_epoch, old = NO_BASE, None
        else:
            base_epoch, old = base
        parts = self._split(old, query)
        if parts is None:
            return None
        progress.unanswered += 1
        digest = digest_of(query)
        first = min(progress.have, len(parts) - 1)  # the last one is repeated until PREPARED comes
        return [
            encode_part(Part(epoch, base_epoch, number, len(parts), digest, parts[number]))
            for number in range(first, min(first + WINDOW, len(parts)))
        ]

    def _split(self, old: bytes | None, query: bytes) -> list[bytes] | None:
        """The same for all parents; only the last change is kept."""
        assert self._policy is not None
        key = (old, query)
        if key not in self._parts:
            if len(self._parts) > 1:
                self._parts.clear()
            parts = self._policy.parts(old, query)
            self._parts[key] = parts if parts is not None and 0 < len(parts) <= MAX_PARTS else None
        return self._parts[key]


class Collected:
    """The parent's side: the parts of a query that have come so far."""

    __slots__ = ("_count", "_digest", "_read", "base", "epoch")

    def __init__(self, part: Part) -> None:
        self.epoch = part.epoch
        self.base = part.base
        self._count = part.parts
        self._digest = part.digest
        self._read: dict[int, Any] = {}

    def is_of(self, part: Part) -> bool:
        return (self.epoch, self.base, self._count, self._digest) == (part.epoch, part.base, part.parts, part.digest)

    def __contains__(self, number: int) -> bool:
        return number in self._read

    def add(self, number: int, read: Any) -> None:
        self._read[number] = read

    @property
    def have(self) -> int:
        return next((number for number in range(self._count) if number not in self._read), self._count)

    @property
    def is_complete(self) -> bool:
        return len(self._read) == self._count

    def whole(self, old: bytes | None, join: Callable[[bytes | None, list[Any]], bytes | None]) -> bytes | None:
        """The query, if it is the one that the child has."""
        query = join(old, [self._read[number] for number in range(self._count)])
        return query if query is not None and digest_of(query) == self._digest else None
