"""The face that a peer sees: publish oneself, find roots, find candidates for a parent.

`Directory` is a protocol with two implementations that pass one suite of tests: `KademliaDirectory`, and
`MemoryDirectory` for simulations. What they share, the choice among records, is here and pure.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dht.record import PeerRecord

if TYPE_CHECKING:
    from dht.errors import DhtError, Refusal
    from dht.ids import PeerId

# Whether a candidate's query covers the one that somebody wants served. `dht` knows no XPath: the caller compares
# `record.query.text` (canonical, when short) or `record.query.hash`.
Covers = Callable[[PeerRecord], bool]


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
    problem: DhtError | None = None  # why the roots are missing: nobody answers, or whose they are is not settled

    def is_news_after(self, earlier: Snapshot | None) -> bool:
        """Renewals change versions and expiries alone: no news."""
        return earlier is None or _content(self) != _content(earlier)


class Watch(Protocol):
    """A standing interest in a stream; it keeps the cache warm until it is closed."""

    def close(self) -> None: ...


class Directory(Protocol):
    """Records come back verified, unexpired, not withdrawn, the newest of each peer, and never one's own."""

    async def publish(self, record: PeerRecord) -> Published:
        """Say of oneself what `record` says, now and (renewed by itself) until it changes or is withdrawn.

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

    async def candidates(
        self,
        stream: str,
        *,
        below_level: int | None = None,
        covering: Covers | None = None,
        exclude: Collection[PeerId] = (),
        limit: int | None = None,
        repair: bool = False,
    ) -> list[PeerRecord]:
        """A fair sample of peers with room below a level: room for new children, or with `repair` for either."""

    def cached_roots(self, stream: str) -> list[PeerRecord]:
        """What is known without asking anybody; the same for candidates below. For a repair that cannot wait."""

    def cached_candidates(
        self,
        stream: str,
        *,
        below_level: int | None = None,
        covering: Covers | None = None,
        exclude: Collection[PeerId] = (),
        limit: int | None = None,
        repair: bool = False,
    ) -> list[PeerRecord]: ...

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


def choose(
    records: Iterable[PeerRecord],
    *,
    now: float,
    rng: random.Random,
    below_level: int | None,
    covering: Covers | None,
    exclude: Collection[PeerId],
    limit: int | None,
    repair: bool,
) -> list[PeerRecord]:
    """The records that fit, in random order, at most `limit`: no peer is favoured by where it lies in the DHT."""
    if limit is not None and limit < 0:
        raise ValueError("limit must not be negative")
    fitting = [
        record
        for record in records
        if not record.is_expired(now)
        and not record.withdrawn
        and (record.has_room if repair else record.free_slots > 0)
        and (below_level is None or record.level < below_level)
        and record.peer_id not in exclude
        and (covering is None or covering(record))
    ]
    # Sorted before the shuffle, so that the choice depends on the random numbers alone.
    fitting.sort(key=lambda record: record.peer_id)
    rng.shuffle(fitting)
    return fitting[:limit]
