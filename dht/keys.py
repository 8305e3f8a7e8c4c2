"""Where records lie: stream -> DHT keys.

Roots lie under one key a stream. Candidates are spread twice, so that no key grows with the mesh:
- by level bucket, doubling in width, so that few keys hold every level from a root to the deepest leaf;
- by shard, in a tree that grows only where it is full. Depth 0 is one key for the whole bucket, depth d has 4^d. A
  publisher goes one deeper when the replicas of its shard say that they are full; a reader sees the same and does
  likewise. A small mesh is read with one lookup a bucket, a large one never crowds a key.
Routers that want to be found by their place lie under a third kind of key (`dht.places`), which splits likewise.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, NewType

from dht.places import MAX_PLACE_DEPTH, place_of, prefix_of
from dht.record import PeerRecord, Role

if TYPE_CHECKING:
    from dht.ids import PeerId

Key = NewType("Key", bytes)

KEY_BYTES = 20
FIRST_BUCKET_WIDTH = 512  # levels are sparse: a child is 512 to 1,024 above its highest parent
MAX_LEVEL_BUCKET = 23  # bucket of the highest level that 32 bits hold
SHARD_BITS = 2
MAX_SHARD_DEPTH = 8  # 65,536 shards per bucket


def roots_key(stream: str) -> Key:
    return _key(b"roots", stream)


def level_bucket(level: int) -> int:
    """0: [0, 512), 1: [512, 1024), 2: [1024, 2048), and so on, each twice as wide."""
    return (level // FIRST_BUCKET_WIDTH).bit_length()


def candidates_key(stream: str, *, bucket: int, depth: int, shard: int) -> Key:
    return _key(b"candidates", stream, bytes([bucket, depth]) + shard.to_bytes(4, "big"))


def shard_of(peer_id: PeerId, depth: int) -> int:
    """The first `depth` digits of a hash, so that the shards of one depth split those of the depth before."""
    digest = hashlib.sha256(b"skymesh shard\0" + peer_id).digest()
    return int.from_bytes(digest[:4], "big") >> (32 - SHARD_BITS * depth)


def candidate_key_of(record: PeerRecord, *, depth: int) -> Key:
    return candidates_key(
        record.stream, bucket=level_bucket(record.level), depth=depth, shard=shard_of(record.peer_id, depth)
    )


def places_key(stream: str, *, depth: int, prefix: int) -> Key:
    return _key(b"places", stream, bytes([depth]) + prefix.to_bytes(4, "big"))


def place_key_of(record: PeerRecord, *, depth: int) -> Key:
    return places_key(record.stream, depth=depth, prefix=prefix_of(place_of(record.stream, record.peer_id), depth))


def keys_of(record: PeerRecord) -> Iterator[Key]:
    """Every key that the record may lie under; a storing node takes it under no other.

    A withdrawn record belongs where the record that it withdraws lay, room or not.
    """
    if record.role is Role.ROOT:
        yield roots_key(record.stream)
    if record.has_room or record.withdrawn:
        for depth in range(MAX_SHARD_DEPTH + 1):
            yield candidate_key_of(record, depth=depth)
    if record.role is Role.ROUTER:
        for depth in range(MAX_PLACE_DEPTH + 1):
            yield place_key_of(record, depth=depth)


def buckets_below(level: int | None) -> list[int]:
    """The buckets that can hold a level under `level` (every bucket in use by a mesh of sane depth for None)."""
    if level is None:
        return list(range(_DEEPEST_READ + 1))
    if level <= 0:
        return []
    return list(range(min(level_bucket(level - 1), MAX_LEVEL_BUCKET) + 1))


def random_shard(depth: int, rng: random.Random) -> int:
    return rng.randrange(1 << (SHARD_BITS * depth))


# A reader that names no level looks this far: bucket 6 ends at level 32,768, some 40 hops below a root.
_DEEPEST_READ = 6


def _key(kind: bytes, stream: str, rest: bytes = b"") -> Key:
    name = stream.encode("ascii")
    return Key(
        hashlib.sha256(b"skymesh key v1\0" + kind + b"\0" + bytes([len(name)]) + name + rest).digest()[:KEY_BYTES]
    )
