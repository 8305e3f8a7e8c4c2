"""Datagrams in a byte stream: each after its length, 16 bits, big-endian. Pure.

An empty frame and one that no UDP datagram could hold are errors: what sends them does not speak this protocol, and the
connection ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from dcp.errors import MalformedDatagram

MAX_FRAME_BYTES = 65_507
"""The largest UDP datagram."""

_LENGTH = struct.Struct("!H")


def frame(datagrams: Iterable[bytes]) -> bytes:
    """The bytes of these datagrams in a stream."""
    return b"".join([part for datagram in datagrams for part in (_LENGTH.pack(len(datagram)), datagram)])


class Unframer:
    """Bytes in, as they come; whole datagrams out. Holds less than one frame between two calls."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_partial(self) -> bool:
        """A frame has begun and not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """MalformedDatagram when this can't be frames: the connection is of no use any more."""
        data = self._rest + data if self._rest else data
        found, at = [], 0
        while at + 2 <= len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            if not 0 < length <= MAX_FRAME_BYTES:
                raise MalformedDatagram("frame", f"length {length}")
            if at + 2 + length > len(data):
                break
            found.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        self._rest = data[at:]
        return found
