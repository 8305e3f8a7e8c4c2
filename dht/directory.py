"""The face that a peer sees: publish oneself, find roots, find candidates for a parent.

`Directory` is a protocol with two implementations that pass one suite of tests: `KademliaDirectory`, and
`MemoryDirectory` for simulations. What they share, the choice among records, is here and pure.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dht.record import PeerRecord

if TYPE_CHECKING:
    from dht.errors import DhtError, Refusal
    from dht.ids import PeerId

# Whether a candidate's query covers the wanted one. `dht` does not know XPath: the caller compares
# `record.query.text` (canonical, when short) or `record.query.hash`.
Covers = Callable[[PeerRecord], bool]


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """Which peers of a stream are wanted: a fair sample of those with room that fit."""

    below_level: int | None = None
    """Only peers below this level; None for any."""
    covering: Covers | None = None
    exclude: frozenset[PeerId] = frozenset()
    limit: int | None = None
    """At most this many, chosen at random."""
    repair: bool = False
    """Slots kept for repairs count as room too."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"limit must not be negative, got {self.limit}")

    def fits(self, record: PeerRecord, *, now: float) -> bool:
        return (
            not record.is_expired(now)
            and not record.withdrawn
            and (record.has_room if self.repair else record.free_slots > 0)
            and (self.below_level is None or record.level < self.below_level)
            and record.peer_id not in self.exclude
            and (self.covering is None or self.covering(record))
        )


ANYONE = CandidateQuery()
NEAR = 8
"""Records on each side of a place."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a publication: how many nodes hold it, and why others refused."""

    replicas: int
    refused: Counter[Refusal] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a stream at a moment."""

    stream: str
    roots: tuple[PeerRecord, ...]
    candidates: tuple[PeerRecord, ...]
    problem: DhtError | None = None  # why roots are missing: no node answers, or the owner is unknown

    def is_news_after(self, earlier: Snapshot | None) -> bool:
        """Renewals change versions and expiries alone: no news."""
        return earlier is None or _content(self) != _content(earlier)


class Watch(Protocol):
    """A standing interest in a stream; it keeps the cache warm until it is closed."""

    def close(self) -> None: ...


class Directory(Protocol):
    """Records come back verified, unexpired, not withdrawn, the newest of each peer, and never one's own."""

    async def publish(self, record: PeerRecord, *, placed: bool = False) -> Published:
        """Say of oneself what `record` says, now and (renewed by itself) until it changes or is withdrawn.

        `placed`: a router is listed by its place too, with or without room (`places`).

        `version`, `expires_at` and `public_key` of the argument are ignored. Peers without room are in the directory
        only as roots, or not at all.
        """

    async def withdraw(self, stream: str | None = None) -> None:
        """Take back what was published for a stream (for all streams)."""

    async def roots(self, stream: str) -> list[PeerRecord]:
        """Every root that the stream's owner vouches for.

        DirectoryUnavailable; StreamOwnerChanged; SeveralOwners when no owner is pinned and several are there.
        """

    async def claimed_roots(self, stream: str) -> list[PeerRecord]:
        """Every peer that claims to be a root, of any owner; pins nothing. For roots that check before they serve."""

    async def candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        """A fair sample of the peers that fit."""

    async def places(self, stream: str, near: int, count: int = NEAR) -> list[PeerRecord]:
        """The routers listed by place next to `near`, up to `count` on each side, in order; in between none is missing.

        One's own record included, if it is listed.
        """

    def cached_roots(self, stream: str) -> list[PeerRecord]:
        """What is known without asking anybody; the same for candidates below. For a repair that cannot wait."""

    def cached_candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]: ...

    def forget(self, stream: str, peer_id: PeerId) -> None:
        """A peer was found dead: do not offer it again before it publishes again."""

    def watch(self, stream: str, callback: Callable[[Snapshot], None], *, below_level: int | None = None) -> Watch:
        """Refresh the stream in the background and call back, synchronously, whenever what is known has changed."""


def _content(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        tuple(replace(record, version=0, expires_at=0) for record in snapshot.roots),
        tuple(replace(record, version=0, expires_at=0) for record in snapshot.candidates),
        str(snapshot.problem),
    )


def choose(records: Iterable[PeerRecord], query: CandidateQuery, *, now: float, rng: random.Random) -> list[PeerRecord]:
    """The records that fit, in random order, at most `limit`: no peer is favoured by where it lies in the DHT."""
    # Sorted before the shuffle, so that the choice depends on the random numbers alone.
    fitting = sorted((record for record in records if query.fits(record, now=now)), key=lambda record: record.peer_id)
    rng.shuffle(fitting)
    return fitting[: query.limit]
