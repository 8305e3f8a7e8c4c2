"""Signed envelopes: a Merkle tree over the packets of a batch, one Ed25519 signature for it, the path in each packet.

Each packet proves itself, whatever was pruned or lost around it. Envelope, network order:

    kind 1 (0x04) | signer 4 | time 4 | salt 8 | AN - start 4 | end - AN 4 | count 2 | index 2 | signature 64
    path: 16 bytes for each level of the tree at which the packet's node has a sibling | the inner envelope

    leaf = SHA-256(0x00, salt, AN 8, stream, 0x00, inner)[:16]   node = SHA-256(0x01, left, right)[:16]
    signed: domain | signer 4 | time 4 | start 8 | end 8 | count 2 | salt 8 | top 16 | stream

The batch has exactly `count` packets in (start, end]. The salt is drawn after the content is fixed. `signer` is the
beginning of a hash of the public key: a hint for which key to try, and two keys may share it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from dcp.errors import PayloadRefused
from peer.trust.beats import RootBeats
from peer.trust.keys import SIGNER_BYTES, SigningKeys, signer_of

if TYPE_CHECKING:
    from peer.trust.keys import SigningKey

SIGNED = 0x04
SIGNED_MARK = b"\x04"
MAX_BATCH = 512
"""Packets under one signature: 200 at 100,000 packets per second. More are signed as several batches."""
NODE_BYTES = 16
SALT_BYTES = 8
SIGNATURE_BYTES = 64
_DOMAIN = b"skymesh batch v1\0"
_HEAD = struct.Struct(f">B{SIGNER_BYTES}sI{SALT_BYTES}sIIHH")
_PLACE = struct.Struct(">HH")
_SIGNED = struct.Struct(">IQQH")
_AN = struct.Struct(">Q")
_PATH_AT = _HEAD.size + SIGNATURE_BYTES
MAX_OVERHEAD = _PATH_AT + NODE_BYTES * (MAX_BATCH - 1).bit_length()
"""Bytes that signing adds to a packet at most."""
MAX_SPAN = (1 << 32) - 1
_HEIGHT_AT = (MAX_BATCH - 1).bit_length()
MAX_BATCHES_REMEMBERED = 128
"""Batches whose verified nodes are kept: a quarter of a second of the fastest stream."""


class Verdict(Enum):
    GOOD = "good"
    FORGED = "forged"
    """No key of the stream has signed this."""
    UNKNOWN = "unknown"
    """Signed with a key, or after a time, that we know no grant for: it may be good."""


def _leaf(salt: bytes, an: int, stream: bytes, inner: bytes) -> bytes:
    return sha256(b"".join((b"\0", salt, _AN.pack(an), stream, b"\0", inner))).digest()[:NODE_BYTES]


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()[:NODE_BYTES]


def _signed(
    signer: bytes, time: int, start: int, end: int, count: int, salt: bytes, top: bytes, stream: bytes
) -> bytes:
    return b"".join((_DOMAIN, signer, _SIGNED.pack(time, start, end, count), salt, top, stream))


@lru_cache(maxsize=4 * MAX_BATCH)
def inner_at(index: int, count: int) -> int:
    """Where the inner envelope begins in packet `index` of a batch of `count`."""
    at = _PATH_AT
    while count > 1:
        if index ^ 1 < count:
            at += NODE_BYTES
        index, count = index >> 1, (count + 1) >> 1
    return at


def inner_at_untrusted(envelope: bytes) -> int:
    """Where in a signed envelope begins what was signed, which is not empty; PayloadRefused when it is cut off."""
    if len(envelope) > _PATH_AT:
        count, index = _PLACE.unpack_from(envelope, _HEAD.size - _PLACE.size)
        if index < count <= MAX_BATCH:
            at = inner_at(index, count)
            if len(envelope) > at:
                return at
    raise PayloadRefused("a signed envelope that is cut off")


def inner_untrusted(envelope: bytes) -> bytes:
    """What was signed, without a look at the signature; PayloadRefused when it is cut off."""
    return envelope[inner_at_untrusted(envelope) :]


class Stated(NamedTuple):
    """What a signed packet says about its batch, which has exactly so many packets in (start, end]."""

    start: int
    end: int
    packets: int
    place: int


def stated(an: int, envelope: bytes) -> Stated:
    """Of a packet that was verified."""
    *_, before, after, count, index = _HEAD.unpack_from(envelope)
    return Stated(an - before, an + after, count, index)


class BatchSigner:
    """`sign` signs with the key whose public half is `public_key`; `salt()` gives 8 fresh random bytes."""

    def __init__(
        self, stream: str, public_key: bytes, *, sign: Callable[[bytes], bytes], salt: Callable[[], bytes]
    ) -> None:
        self.signer = signer_of(public_key)
        self._stream = stream.encode("ascii")
        self._sign = sign
        self._salt = salt
        self.signatures = 0

    def beats(self) -> RootBeats:
        """What signs how far the stream goes, with the same key."""
        return RootBeats(self._stream.decode("ascii"), self.signer, self._sign, self._salt)

    def seal(self, packets: list[tuple[int, bytes]], *, start: int, time: int) -> list[bytes]:
        """The envelopes of a batch: (AN, inner envelope) in order, all in (start, last AN]."""
        count, end = len(packets), packets[-1][0]
        if not (0 < count <= MAX_BATCH and start < packets[0][0] and end - start <= MAX_SPAN):
            raise ValueError(f"not a batch: {count} packets in ({start}, {end}]")
        salt = self._salt()
        levels = [[_leaf(salt, an, self._stream, inner) for an, inner in packets]]
        while len(nodes := levels[-1]) > 1:
            pairs = [_node(nodes[at], nodes[at + 1]) for at in range(0, len(nodes) - 1, 2)]
            levels.append(pairs if len(nodes) % 2 == 0 else [*pairs, nodes[-1]])
        signature = self._sign(_signed(self.signer, time, start, end, count, salt, levels[-1][0], self._stream))
        self.signatures += 1
        return [
            b"".join(
                (
                    _HEAD.pack(SIGNED, self.signer, time, salt, an - start, end - an, count, index),
                    signature,
                    *_siblings(levels, index),
                    inner,
                )
            )
            for index, (an, inner) in enumerate(packets)
        ]


def _siblings(levels: list[list[bytes]], index: int) -> Iterable[bytes]:
    for nodes in levels[:-1]:
        if index ^ 1 < len(nodes):
            yield nodes[index ^ 1]
        index >>= 1


def _parent_of(name: int) -> int:
    return ((name >> _HEIGHT_AT) + 1) << _HEIGHT_AT | (name & ((1 << _HEIGHT_AT) - 1)) >> 1


class _Batch:
    """A batch whose signature was right: the nodes of its tree that are known to be its own.

    A node is known by `height << _HEIGHT_AT | index`. `above` has the path from a node to the top as it is in packets:
    the siblings, one after the other. It is known for each node that has a known child.
    """

    __slots__ = ("above", "key", "nodes")

    def __init__(self, key: SigningKey) -> None:
        self.key = key
        self.nodes: dict[int, bytes] = {}
        self.above: dict[int, bytes] = {}

    def learn(self, fresh: list[tuple[int, bytes, int]], envelope: bytes, end: int) -> None:
        """Nodes of a packet that was verified, each with the place in its envelope where its parent's path begins."""
        for name, node, path_at in fresh:
            self.nodes[name] = node
            self.above[_parent_of(name)] = envelope[path_at:end]

    def goes_on(self, height: int, at: int, width: int, envelope: bytes, path_at: int, end: int) -> bool:
        """Whether a path that leads to a known node is above it as it should be."""
        if width <= 1:
            return path_at == end
        if at ^ 1 < width:
            if self.nodes[height << _HEIGHT_AT | at ^ 1] != envelope[path_at : path_at + NODE_BYTES]:
                return False
            path_at += NODE_BYTES
        return self.above[(height + 1) << _HEIGHT_AT | at >> 1] == envelope[path_at:end]


class BatchVerifier:
    """Remembers verified nodes, so that a client of the whole stream pays about two hashes per packet.

    The whole path is compared with what is known, also above the first known node: who took an altered path because of
    what it remembers would pass it on to somebody who remembers nothing, and be blamed for a forgery.

    A batch is known by everything that was signed: known by its salt and signature alone, an altered time or range
    would pass.
    """

    def __init__(self, stream: str, keys: SigningKeys) -> None:
        self._stream = stream.encode("ascii")
        self._keys = keys
        self._batches: dict[tuple[bytes, int, bytes, int, int, int, bytes], _Batch] = {}
        self.signatures = 0
        """Signatures that were checked."""
        self.inner_at = 0
        """Where the inner envelope of the last good packet begins."""

    def verify(self, an: int, envelope: bytes) -> Verdict:
        if len(envelope) <= _PATH_AT:
            return Verdict.FORGED
        kind, signer, time, salt, before, after, count, index = _HEAD.unpack_from(envelope)
        if kind != SIGNED or index >= count or count > MAX_BATCH or not 0 < before <= an or count > before + after:
            return Verdict.FORGED
        offset = inner_at(index, count)
        if len(envelope) <= offset:
            return Verdict.FORGED
        tag = (signer, time, salt, an - before, an + after, count, envelope[_HEAD.size : _PATH_AT])
        batch = self._batches.get(tag)
        nodes = batch.nodes if batch is not None else {}
        node = _leaf(salt, an, self._stream, envelope[offset:])
        fresh: list[tuple[int, bytes, int]] = []  # node, its hash, and where the path of its parent begins
        height, at, width, path_at = 0, index, count, _PATH_AT
        while (expected := nodes.get(height << _HEIGHT_AT | at)) is None and width > 1:
            if at ^ 1 < width:
                sibling = envelope[path_at : path_at + NODE_BYTES]
                path_at += NODE_BYTES
                fresh.append((height << _HEIGHT_AT | at ^ 1, sibling, path_at))
                fresh.append((height << _HEIGHT_AT | at, node, path_at))
                node = _node(sibling, node) if at & 1 else _node(node, sibling)
            else:
                fresh.append((height << _HEIGHT_AT | at, node, path_at))
            height, at, width = height + 1, at >> 1, (width + 1) >> 1
        if batch is None:
            keys = self._keys.named(signer)
            if not keys:
                return Verdict.UNKNOWN
            key = self._signed_by(keys, tag, node)
            if key is None:
                return Verdict.FORGED
            batch = self._remember(tag, key)
            batch.nodes[height << _HEIGHT_AT | at] = node
        elif expected != node or not batch.goes_on(height, at, width, envelope, path_at, offset):
            return Verdict.FORGED
        if fresh:
            batch.learn(fresh, envelope, offset)
        if not batch.key.covers(time):
            return Verdict.UNKNOWN
        self.inner_at = offset
        return Verdict.GOOD

    def _signed_by(
        self, keys: list[SigningKey], tag: tuple[bytes, int, bytes, int, int, int, bytes], top: bytes
    ) -> SigningKey | None:
        signer, time, salt, start, end, count, signature = tag
        message = _signed(signer, time, start, end, count, salt, top, self._stream) if end < 1 << 64 else b""
        for key in keys:
            self.signatures += 1
            if key.has_signed(signature, message):
                return key
        return None

    def _remember(self, tag: tuple[bytes, int, bytes, int, int, int, bytes], key: SigningKey) -> _Batch:
        batch = self._batches[tag] = _Batch(key)
        if len(self._batches) > MAX_BATCHES_REMEMBERED:
            del self._batches[next(iter(self._batches))]
        return batch
