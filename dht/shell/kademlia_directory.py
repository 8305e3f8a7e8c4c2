"""`Directory` over a Kademlia node: reads by stream, level bucket and shard, and a cache that is kept warm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dht.cache import RecordCache
from dht.directory import ANYONE, NEAR, CandidateQuery, Published, Snapshot, choose
from dht.errors import DhtError, DirectoryUnavailable
from dht.keys import MAX_SHARD_DEPTH, SHARD_BITS, buckets_below, candidates_key, places_key, random_shard, roots_key
from dht.pins import Pins
from dht.places import MAX_PLACE_DEPTH, PLACES, edges, nearest, place_of, prefix_of
from dht.shell.publisher import Publisher
from dht.streams import check_stream_name

if TYPE_CHECKING:
    from dht.identity import Identity
    from dht.ids import PeerId
    from dht.keys import Key
    from dht.record import PeerRecord
    from dht.results import ReadResult
    from dht.shell.node import Node

log = logging.getLogger(__name__)

WATCH_INTERVAL = 20.0  # seconds between refreshes of a watched stream
_ENOUGH_CANDIDATES = 16  # when no limit is named: twice what a repair chooses from
_MAX_ROUNDS = 3  # of reading deeper shards for one question
_MAX_FULL_LISTS = 4_096  # remembered; of more, the lists below are not read
_MAX_LISTS = 16  # of places that are read beside the one that was asked for


class KademliaDirectory:
    """All methods belong to the node's asyncio loop; `dht.open_directory` brings them to trio."""

    def __init__(self, node: Node, identity: Identity, *, pins: Pins | None = None) -> None:
        self.node = node
        self.pins = pins if pins is not None else Pins()
        self.cache = RecordCache(identity.peer_id, self.pins)
        self._publisher = Publisher(node, identity)
        self._depths: dict[tuple[str, int], int] = {}  # (stream, bucket) -> the deepest shards known to be in use
        self._full_lists: set[Key] = set()
        self._watches: dict[KademliaWatch, None] = {}

    async def publish(self, record: PeerRecord, *, placed: bool = False) -> Published:
        return await self._publisher.publish(record, placed=placed)

    async def withdraw(self, stream: str | None = None) -> None:
        await self._publisher.withdraw(stream)

    async def roots(self, stream: str) -> list[PeerRecord]:
        check_stream_name(stream)
        result = await self.node.read(roots_key(stream), everything=True)
        self._learn(stream, result)
        roots = self.cached_roots(stream)
        if not roots:
            self._check_answers([result])
        return roots

    async def claimed_roots(self, stream: str) -> list[PeerRecord]:
        check_stream_name(stream)
        result = await self.node.read(roots_key(stream), everything=True)
        self._learn(stream, result)
        claimed = self.cache.claimed_roots(stream, now=self.node.clock())
        if not claimed:
            self._check_answers([result])
        return claimed

    async def candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        check_stream_name(stream)
        buckets = buckets_below(query.below_level)
        if not buckets:
            return []
        enough = query.limit if query.limit is not None else _ENOUGH_CANDIDATES
        for _ in range(_MAX_ROUNDS):
            results = await asyncio.gather(*(self._read_bucket(stream, bucket) for bucket in buckets))
            for result in results:
                self._learn(stream, result)
            chosen = self.cached_candidates(stream, query)
            if len(chosen) >= enough or not any(result.is_full for result in results):
                break
        if not chosen:
            self._check_answers(results)
        return chosen

    async def places(self, stream: str, near: int, count: int = NEAR) -> list[PeerRecord]:
        check_stream_name(stream)
        found: dict[PeerId, PeerRecord] = {}
        seen: set[Key] = set()
        results: list[ReadResult] = []
        low, high = await self._read_places(stream, near, found, seen, results)
        for _ in range(_MAX_LISTS):  # neighbors may lie in the next lists
            live = self._live(found.values(), low, high)
            places = [place_of(stream, record.peer_id) for record in live]
            if sum(place < near for place in places) < count and low > 0:
                low, _ = await self._read_places(stream, low - 1, found, seen, results)
            elif sum(place >= near for place in places) < count and high < PLACES - 1:
                _, high = await self._read_places(stream, high + 1, found, seen, results)
            else:
                break
        live = self._live(found.values(), low, high)
        if not live:
            self._check_answers(results)
        return nearest(live, near, count)

    async def _read_places(
        self, stream: str, near: int, found: dict[PeerId, PeerRecord], seen: set[Key], results: list[ReadResult]
    ) -> tuple[int, int]:
        """Read the lists above a place, down to one that is not full; between the edges of that one none is missing."""
        for depth in range(MAX_PLACE_DEPTH + 1):
            key = places_key(stream, depth=depth, prefix=prefix_of(near, depth))
            is_full = False
            if key not in seen:
                seen.add(key)
                result = await self.node.read(key, everything=True)
                results.append(result)
                self._learn(stream, result)
                is_full = result.is_full
                for peer_id, signed in result.records.items():
                    known = found.get(peer_id)
                    if known is None or known.version < signed.record.version:
                        found[peer_id] = signed.record
                if is_full and len(self._full_lists) < _MAX_FULL_LISTS:
                    self._full_lists.add(key)
                else:
                    self._full_lists.discard(key)
            if key not in self._full_lists:
                break
        return edges(near, depth)

    def _live(self, records: Iterable[PeerRecord], low: int, high: int) -> list[PeerRecord]:
        """Those between two places: lists above hold others too, but not all of them."""
        now = self.node.clock()
        live = [record for record in records if not record.withdrawn and not record.is_expired(now)]
        return [record for record in live if low <= place_of(record.stream, record.peer_id) <= high]

    def cached_roots(self, stream: str) -> list[PeerRecord]:
        return self.cache.roots(check_stream_name(stream), now=self.node.clock())

    def cached_candidates(self, stream: str, query: CandidateQuery = ANYONE) -> list[PeerRecord]:
        now = self.node.clock()
        return choose(
            self.cache.peers(check_stream_name(stream), now=now),
            query,
            now=now,
            rng=self.node.rng,
        )

    def watch(
        self, stream: str, callback: Callable[[Snapshot], None], *, below_level: int | None = None
    ) -> KademliaWatch:
        watch = KademliaWatch(self, check_stream_name(stream), callback, below_level)
        self._watches[watch] = None
        return watch

    def forget(self, stream: str, peer_id: PeerId) -> None:
        self.cache.forget(stream, peer_id)

    def snapshot(self, stream: str, below_level: int | None) -> Snapshot:
        candidates = self.cached_candidates(stream, CandidateQuery(below_level=below_level, repair=True))
        candidates.sort(key=lambda record: record.peer_id)
        roots, problem = self.cache.trusted_roots(stream, now=self.node.clock())
        return Snapshot(stream, tuple(roots), tuple(candidates), problem)

    def forget_watch(self, watch: KademliaWatch) -> None:
        self._watches.pop(watch, None)

    async def close(self) -> None:
        for watch in list(self._watches):
            watch.close()
        await self._publisher.close()

    async def _read_bucket(self, stream: str, bucket: int) -> ReadResult:
        """One shard of a bucket, drawn among all in use: readers spread as records do."""
        rng = self.node.rng
        deepest = self._depths.get((stream, bucket), 0)
        weights = [1 << (SHARD_BITS * depth) for depth in range(deepest + 1)]
        depth = rng.choices(range(deepest + 1), weights)[0]
        shard = random_shard(depth, rng)
        result = await self.node.read(candidates_key(stream, bucket=bucket, depth=depth, shard=shard))
        if result.is_full:
            self._depths[stream, bucket] = max(deepest, min(depth + 1, MAX_SHARD_DEPTH))
        elif depth == deepest and depth and not result.records:
            self._depths[stream, bucket] = depth - 1
        return result

    def _learn(self, stream: str, result: ReadResult) -> None:
        self.cache.learn(stream, (signed.record for signed in result.records.values()), now=self.node.clock())

    def _check_answers(self, results: list[ReadResult]) -> None:
        if self.node.knows_somebody and not any(result.answers for result in results):
            raise DirectoryUnavailable("no DHT node answered: none of the known contacts and bootstrap addresses")


class KademliaWatch:
    """Refresh a stream until closed, and report changes. An outage is reported too, and ends by itself."""

    def __init__(
        self,
        directory: KademliaDirectory,
        stream: str,
        callback: Callable[[Snapshot], None],
        below_level: int | None,
    ) -> None:
        self._directory, self._stream = directory, stream
        self._callback, self._below_level = callback, below_level
        self._query = CandidateQuery(below_level=below_level, repair=True)
        self._task = directory.node.loop.create_task(self._run())

    def close(self) -> None:
        self._directory.forget_watch(self)
        self._task.cancel()

    async def _run(self) -> None:
        directory, node = self._directory, self._directory.node
        last: Snapshot | None = None
        while True:
            problem: DhtError | None = None
            try:
                await directory.roots(self._stream)
                await directory.candidates(self._stream, self._query)
            except DhtError as exc:
                problem = exc
            snapshot = directory.snapshot(self._stream, self._below_level)
            if problem is not None and snapshot.problem is None:
                snapshot = Snapshot(self._stream, snapshot.roots, snapshot.candidates, problem)
            if snapshot.is_news_after(last):
                if snapshot.problem is not None:
                    log.warning("%s: %s", self._stream, snapshot.problem)
                last = snapshot
                self._callback(snapshot)
            await asyncio.sleep(WATCH_INTERVAL * node.rng.uniform(0.75, 1.25))
