"""Payload envelopes: one byte says how the rest is packed. Each packet stands alone, since a child hears many parents.

The root packs once; hops pass the bytes on untouched and unpack only to look inside; the client unpacks. A dictionary
shared by the stream is what makes small packets small: alone, one compresses hardly at all.

    0x00 plain   0x01 zlib   0x02 zstd   0x03 zstd with the stream's dictionary (its id is in the zstd frame)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable
from typing import Final

from dcp.claims import Packets
from dcp.control import MAX_PAYLOAD_BYTES
from dcp.errors import EnvelopeUnknown, PayloadRefused

PLAIN: Final = 0x00
PLAIN_MARK: Final = b"\x00"
ZLIB: Final = 0x01
ZSTD: Final = 0x02
ZSTD_DICTIONARY: Final = 0x03

KINDS: Final = ("none", "zlib", "zstd")

# Opened payloads that wait for the application.
MAX_OPENED_BYTES: Final = 8 << 20


class Compressor:
    """Packs at the root, unpacks anywhere. `dictionary` is a trained zstd dictionary, the same at every peer."""

    def __init__(self, kind: str = "none", *, level: int = 3, dictionary: bytes | None = None) -> None:
        if kind not in KINDS:
            raise ValueError(f"compression must be one of {', '.join(KINDS)}, got {kind!r}")
        if dictionary is not None and kind == "zlib":
            raise ValueError("a dictionary needs zstd compression, not zlib")
        self.kind = kind
        self._level = level
        self._dictionary = dictionary
        self._pack: object | None = None
        self._unpack: object | None = None
        self._unpack_with_dictionary: object | None = None

    def pack(self, payload: bytes) -> bytes:
        """The envelope; plain whenever packing would not make it smaller."""
        if self.kind == "none":
            return b"\x00" + payload
        if self.kind == "zlib":
            packed, mark = zlib.compress(payload, self._level), b"\x01"
        else:
            packed, mark = self._zstd_pack(payload), b"\x03" if self._dictionary else b"\x02"
        return mark + packed if len(packed) < len(payload) else b"\x00" + payload

    def pack_many(self, payloads: Iterable[bytes]) -> list[bytes]:
        if self.kind == "none":
            return [PLAIN_MARK + payload for payload in payloads]
        return [self.pack(payload) for payload in payloads]

    def unpack_untrusted(self, envelope: bytes, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        """The payload. A bomb is refused before it is unpacked; raises PayloadRefused only."""
        if not envelope:
            raise PayloadRefused("an empty envelope")
        mark = envelope[0]
        if mark == PLAIN:
            if len(envelope) - 1 > limit:
                raise PayloadRefused(f"{len(envelope) - 1} bytes, the limit is {limit}")
            return envelope[1:]
        if mark == ZLIB:
            return _zlib_unpack(envelope[1:], limit)
        if mark in (ZSTD, ZSTD_DICTIONARY):
            return self._zstd_unpack(mark, envelope[1:], limit)
        raise EnvelopeUnknown(f"unknown envelope 0x{mark:02x}")

    def _zstd_pack(self, payload: bytes) -> bytes:
        import zstandard

        if self._pack is None:
            shared = zstandard.ZstdCompressionDict(self._dictionary) if self._dictionary else None
            self._pack = zstandard.ZstdCompressor(level=self._level, dict_data=shared, write_checksum=False)
        assert isinstance(self._pack, zstandard.ZstdCompressor)
        return self._pack.compress(payload)

    def _zstd_unpack(self, mark: int, packed: bytes, limit: int) -> bytes:
        import zstandard

        try:
            size = zstandard.frame_content_size(packed)
        except zstandard.ZstdError as error:
            raise PayloadRefused(f"not a zstd frame: {error}") from None
        # Our frames always state their size; one that does not could grow without end.
        if size < 0 or size > limit:
            raise PayloadRefused(f"a zstd frame of {size} bytes, the limit is {limit}")
        if mark == ZSTD:
            if self._unpack is None:
                self._unpack = zstandard.ZstdDecompressor()
            decompressor = self._unpack
        else:
            if self._dictionary is None:
                raise EnvelopeUnknown("compressed with a dictionary that this peer does not have")
            if self._unpack_with_dictionary is None:
                shared = zstandard.ZstdCompressionDict(self._dictionary)
                self._unpack_with_dictionary = zstandard.ZstdDecompressor(dict_data=shared)
            decompressor = self._unpack_with_dictionary
        assert isinstance(decompressor, zstandard.ZstdDecompressor)
        try:
            return decompressor.decompress(packed, max_output_size=limit)
        except zstandard.ZstdError as error:
            raise PayloadRefused(f"zstd: {error}") from None


class EnvelopeCheck:
    """An `accepts` for receivers: refuses envelopes that are broken, so that another parent's copy can win.

    What it can't judge, because it is of a later version or needs a dictionary that is not here, is accepted: a router
    passes it on to those who can open it.

    `remember`: keep what was opened until `open` asks for it, so that a client opens each envelope only once.
    """

    def __init__(self, unpack: Callable[[bytes], bytes], *, remember: bool = False) -> None:
        """`unpack` raises PayloadRefused, as `Compressor.unpack_untrusted` does."""
        self._unpack = unpack
        self._remember = remember
        self._opened: dict[int, tuple[bytes, bytes]] = {}  # AN -> (envelope, payload)
        self._bytes = 0

    def __call__(self, an: int, payload: bytes) -> bool:
        if payload[:1] == PLAIN_MARK:
            return True  # as large as any packet may be, and no larger when opened
        try:
            opened = self._unpack(payload)
        except EnvelopeUnknown:
            return True
        except PayloadRefused:
            return False
        if self._remember:
            self._keep(an, payload, opened)
        return True

    def refused(self, packets: Packets) -> Collection[int]:
        # A plain envelope, which is the rule, is looked at here: a call per packet would cost more than the check.
        return [an for an, payload in packets if payload[:1] != PLAIN_MARK and not self(an, payload)]

    def open(self, an: int, envelope: bytes) -> bytes:
        """The payload; PayloadRefused as `unpack`."""
        known = self._opened.pop(an, None)
        if known is None:
            return self._unpack(envelope)
        self._bytes -= len(known[1])
        return known[1] if known[0] is envelope else self._unpack(envelope)

    def _keep(self, an: int, envelope: bytes, opened: bytes) -> None:
        if self._bytes + len(opened) > MAX_OPENED_BYTES:
            self._opened.clear()  # packets that were never asked for, or an application that takes none
            self._bytes = 0
        known = self._opened.get(an)
        self._opened[an] = (envelope, opened)
        self._bytes += len(opened) - (len(known[1]) if known is not None else 0)


def _zlib_unpack(packed: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(packed, limit + 1)
    except zlib.error as error:
        raise PayloadRefused(f"zlib: {error}") from None
    if len(payload) > limit:
        raise PayloadRefused(f"more than {limit} bytes")
    if not stream.eof:
        raise PayloadRefused("zlib: the payload is cut off")
    return payload
