"""A directory in memory: what the Kademlia one shows to peers, without a network. For simulations and tests.

The hub is synchronous and takes the clock as a function, so a heap simulator drives it without any event loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from dht.cache import without_other_owners
from dht.config import DEFAULT_CONFIG
from dht.directory import ANYONE, NEAR, CandidateQuery, Published, Snapshot, choose
from dht.errors import OwnerError
from dht.pins import Pins
from dht.places import nearest
from dht.record import PeerRecord, Role, check_root
from dht.streams import check_stream_name

if TYPE_CHECKING:
    from dht.ids import PeerId


class MemoryHub:
    """The records of all peers of one simulated world."""

    def __init__(self, clock: Callable[[], float], *, lifetime: float = DEFAULT_CONFIG.record_lifetime) -> None:
        self.clock = clock
        self.lifetime = lifetime
        self._records: dict[tuple[str, PeerId], PeerRecord] = {}
        self._placed: set[tuple[str, PeerId]] = set()
        self._version = 0
        self._watches: dict[MemoryWatch, None] = {}

    def publish(self, record: PeerRecord, *, placed: bool = False) -> None:
        check_stream_name(record.stream)
        if record.role is Role.ROOT:
            check_root(record)
        self._version += 1
        stamped = record.stamped(version=self._version, expires_at=int(self.clock() + self.lifetime))
        self._records[record.stream, record.peer_id] = stamped
        if placed and record.role is Role.ROUTER:
            self._placed.add((record.stream, record.peer_id))
        else:
            self._placed.discard((record.stream, record.peer_id))
        self._tell(record.stream)

    def withdraw(self, stream: str, peer_id: PeerId) -> None:
        if self._records.pop((stream, peer_id), None) is not None:
            self._tell(stream)

    def records(self, stream: str) -> list[PeerRecord]:
        now = self.clock()
        for key in [key for key, record in self._records.items() if record.is_expired(now)]:
            del self._records[key]
        return [record for (name, _), record in self._records.items() if name == stream]

    def placed(self, stream: str) -> list[PeerRecord]:
        return [record for record in self.records(stream) if (stream, record.peer_id) in self._placed]

    def _tell(self, stream: str) -> None:
        for watch in list(self._watches):
            if watch.stream == stream and watch in self._watches:
                watch.tell()

    def add_watch(self, watch: MemoryWatch) -> None:
        self._watches[watch] = None

    def remove_watch(self, watch: MemoryWatch) -> None:
        self._watches.pop(watch, None)


class MemoryWatch:
    def __init__(
        self, directory: MemoryDirectory, stream: str, callback: Callable[[Snapshot], None], below_level: int | None
    ) -> None:
        self.stream = stream
        self._directory, self._callback, self._below_level = directory, callback, below_level
        self._last: Snapshot | None = None

    def tell(self) -> None:
        snapshot = self._directory.snapshot(self.stream, self._below_level)
        if snapshot.is_news_after(self._last):
            self._last = snapshot
            self._callback(snapshot)

    def close(self) -> None:
        self._directory.hub.remove_watch(self)


class MemoryDirectory:
    """One peer's view of the hub; `dht.directory.Directory`.

    A record lives for the hub's lifetime. `renew` what a living peer published, as the Kademlia directory does by
    itself; a peer that crashed is seen by others until its record expires.
    """

    def __init__(self, hub: MemoryHub, peer_id: PeerId, *, rng: random.Random, pins: Pins | None = None) -> None:
        self.hub = hub
        self._peer_id, self._rng = peer_id, rng
        self._pins = pins if pins is not None else Pins()
        self._published: dict[str, tuple[PeerRecord, bool]] = {}
        self._forgotten: dict[tuple[str, PeerId], int] = {}

    async def publish(self, record: PeerRecord, *, placed: bool = False) -> Published:
        if record.peer_id != self._peer_id:
            raise ValueError("a peer can only publish its own record")
        self.hub.publish(record, placed=placed)
        self._published[record.stream] = record, placed
        return Published(1)

    async def withdraw(self, stream: str | None = None) -> None:
        for name in [stream] if stream is not None else list(self._published):
            self._published.pop(name, None)
            self.hub.withdraw(name, self._peer_id)

    def renew(self) -> None:
        """What the Kademlia directory does in the background; a simulation calls it as often."""
        for record, placed in self._published.values():
            self.hub.publish(record, placed=placed)

    async def roots(self, stream: str) -> list[PeerRecord]:
        return self.cached_roots(stream)

    def cached_roots(self, stream: str) -> list[PeerRecord]:
        check_stream_name(stream)
        roots = [record for record in self._others(stream) if record.role is Role.ROOT]
        return sorted(self._pins.trusted(stream, roots), key=lambda record: record.peer_id)

    async def claimed_roots(self, stream: str) -> list[PeerRecord]:
        check_stream_name(stream)
        return [record for record in self._others(stream) if record.role is Role.ROOT]

    async def candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        return self.cached_candidates(stream, query)

    def cached_candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        check_stream_name(stream)
        return choose(
            without_other_owners(self._others(stream), self._pins.owner(stream)),
            query,
            now=self.hub.clock(),
            rng=self._rng,
        )

    async def places(self, stream: str, near: int, count: int = NEAR) -> list[PeerRecord]:
        check_stream_name(stream)
        return nearest(self.hub.placed(stream), near, count)

    def forget(self, stream: str, peer_id: PeerId) -> None:
        for record in self.hub.records(stream):
            if record.peer_id == peer_id:
                self._forgotten[stream, peer_id] = record.version

    def watch(
        self, stream: str, callback: Callable[[Snapshot], None], *, below_level: int | None = None
    ) -> MemoryWatch:
        check_stream_name(stream)
        watch = MemoryWatch(self, stream, callback, below_level)
        self.hub.add_watch(watch)
        watch.tell()
        return watch

    def snapshot(self, stream: str, below_level: int | None) -> Snapshot:
        candidates = self.cached_candidates(stream, CandidateQuery(below_level=below_level, repair=True))
        candidates.sort(key=lambda record: record.peer_id)
        try:
            return Snapshot(stream, tuple(self.cached_roots(stream)), tuple(candidates))
        except OwnerError as exc:
            return Snapshot(stream, (), tuple(candidates), exc)

    def _others(self, stream: str) -> list[PeerRecord]:
        return [
            record
            for record in self.hub.records(stream)
            if record.peer_id != self._peer_id and record.version > self._forgotten.get((stream, record.peer_id), 0)
        ]
