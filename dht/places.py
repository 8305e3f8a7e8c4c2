"""Places: where on a line of 160 bits each peer of a stream lies, and which records are near a place. Pure.

For placement by a reference tree (docs/tree.md), routers are listed by place, whether they have room or not. A list
splits where it is full: the list of depth d holds the places that share their first 2 d bits. A record lies in the
shallowest list that had room for it, so all lists above a place are read to know what is near it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dht.record import PeerRecord

PLACE_BYTES = 20
PLACES = 1 << (8 * PLACE_BYTES)
PREFIX_BITS = 2
MAX_PLACE_DEPTH = 8  # 65,536 lists


@lru_cache(maxsize=16_384)
def place_of(stream: str, peer_id: bytes) -> int:
    """Where a peer lies on the line of a stream."""
    name = stream.encode("ascii")
    digest = hashlib.sha256(b"skymesh place v1\0" + bytes([len(name)]) + name + peer_id).digest()
    return int.from_bytes(digest[:PLACE_BYTES], "big")


def prefix_of(place: int, depth: int) -> int:
    return place >> (8 * PLACE_BYTES - PREFIX_BITS * depth)


def edges(place: int, depth: int) -> tuple[int, int]:
    """The first and the last place of the list that holds `place`."""
    width = 8 * PLACE_BYTES - PREFIX_BITS * depth
    low = prefix_of(place, depth) << width
    return low, low + (1 << width) - 1


def nearest(records: Iterable[PeerRecord], near: int, count: int) -> list[PeerRecord]:
    """Up to `count` records on each side of a place, in the order of their places. One at the place is above it."""
    ordered = sorted((place_of(record.stream, record.peer_id), record.peer_id, record) for record in records)
    below = [record for place, _, record in ordered if place < near]
    above = [record for place, _, record in ordered if place >= near]
    return below[len(below) - min(count, len(below)) :] + above[:count]
