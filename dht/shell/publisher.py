"""Keep our own record published: sign it again before it expires, move it when level or room change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dht.directory import Published
from dht.errors import DirectoryUnavailable, Refusal
from dht.faults import border
from dht.keys import MAX_SHARD_DEPTH, Key, candidate_key_of, place_key_of, roots_key
from dht.places import MAX_PLACE_DEPTH
from dht.record import MAX_LIFETIME, PeerRecord, Role, sign_record

if TYPE_CHECKING:
    from dht.identity import Identity
    from dht.results import WriteResult
    from dht.shell.node import Node

log = logging.getLogger(__name__)

_CROWDED = (Refusal.KEY_FULL, Refusal.SOURCE_QUOTA)
_CLOCK = (Refusal.EXPIRED, Refusal.TOO_LONG_LIVED)


class _KeyOf(Protocol):
    def __call__(self, record: PeerRecord, *, depth: int) -> Key: ...


@dataclass(slots=True)
class _Publication:
    """What is published for one stream, and where."""

    wanted: PeerRecord
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    version: int = 0
    depth: int = 0
    is_listed: bool = False  # by its place
    place_depth: int = 0
    placed: dict[Key, PeerRecord] = field(default_factory=dict)  # what lies where, as far as we put it there
    renew_at: float = 0.0
    is_withdrawn: bool = False
    work: asyncio.Task[Published] | None = None  # what is being placed at the moment
    done: tuple[PeerRecord, Published] | None = None  # the last record placed, and how that went


class Publisher:
    def __init__(self, node: Node, identity: Identity) -> None:
        if node.config.record_lifetime > MAX_LIFETIME:
            raise ValueError(f"record_lifetime must be at most {MAX_LIFETIME:.0f} s")
        self._node, self._identity = node, identity
        self._publications: dict[str, _Publication] = {}
        self._task: asyncio.Task[None] | None = None
        self._warned_of_clock = False

    async def publish(self, record: PeerRecord, *, placed: bool = False) -> Published:
        record = replace(record, public_key=self._identity.public_key, withdrawn=False)
        sign_record(
            replace(record, version=1, expires_at=1), self._identity
        )  # whatever does not fit fails here, at once
        publication = self._publications.get(record.stream)
        if publication is None:
            publication = self._publications[record.stream] = _Publication(record)
        publication.wanted, publication.is_withdrawn = record, False
        publication.is_listed = placed and record.role is Role.ROUTER
        if self._task is None:
            self._task = self._node.loop.create_task(self._renew())
        return await self._place(publication, is_renewal=False)

    async def withdraw(self, stream: str | None = None) -> None:
        """Whatever was placed is taken back, by a publication that was cancelled or is still under way too.

        A call that is cancelled may be repeated: what it has not taken back yet is still known.
        """
        for name in [stream] if stream is not None else list(self._publications):
            publication = self._publications.get(name)
            if publication is None:
                continue
            publication.is_withdrawn = True  # a call that waits for the lock must not publish again
            if publication.work is not None:
                publication.work.cancel()  # dead nodes can keep it for seconds, and who withdraws may have only one
            async with publication.lock:
                publication.done = None
                version = self._next_version(publication)
                await self._take_back(publication, list(publication.placed), version=version)
            if publication.is_withdrawn and self._publications.get(name) is publication:
                del self._publications[name]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            due = min((item.renew_at for item in self._publications.values()), default=None)
            now = self._node.loop.time()
            # Woken at least every few seconds: publications come and go while we sleep.
            await asyncio.sleep(min(max(due - now, 0.05), 5.0) if due is not None else 5.0)
            for publication in list(self._publications.values()):
                if publication.renew_at <= self._node.loop.time():
                    with border("dht renewal"), contextlib.suppress(DirectoryUnavailable):
                        await self._place(publication, is_renewal=True)

    async def _place(self, publication: _Publication, *, is_renewal: bool) -> Published:
        async with publication.lock:
            node = self._node
            publication.renew_at = node.loop.time() + node.config.republish_interval * node.rng.uniform(0.8, 1.0)
            record = publication.wanted
            if publication.is_withdrawn:
                return Published(0)
            if publication.done is not None and publication.done[0] is record and not is_renewal:
                return publication.done[1]  # while this call waited its turn, another placed what is wanted now
            publication.work = node.loop.create_task(self._place_now(publication, record))
            try:
                published = await publication.work
            except asyncio.CancelledError:
                if _is_being_cancelled():
                    raise
                return Published(0)  # by `withdraw`
            finally:
                publication.work = None
            publication.done = (record, published)
            return published

    async def _place_now(self, publication: _Publication, record: PeerRecord) -> Published:
        """Store the wanted record under its keys, and take it back from keys it no longer belongs to."""
        node = self._node
        results = []
        # Taken before the record's own version: a reader that sees both must believe the record.
        gone_version = self._next_version(publication)
        # A record that was full a while ago may fit a shallower shard by now, where readers look first.
        if publication.depth and node.rng.random() < _RETRY_SHALLOWER:
            publication.depth -= 1
        wanted_keys: list[Key] = []
        if record.role is Role.ROOT:
            key = roots_key(record.stream)
            wanted_keys.append(key)
            results.append(await self._put(publication, key, record))
        if record.has_room:
            key, result, publication.depth = await self._put_where_room_is(
                publication, record, candidate_key_of, publication.depth, MAX_SHARD_DEPTH
            )
            wanted_keys.append(key)
            results.append(result)
        if publication.is_listed:
            if publication.place_depth and node.rng.random() < _RETRY_SHALLOWER:
                publication.place_depth -= 1
            key, result, publication.place_depth = await self._put_where_room_is(
                publication, record, place_key_of, publication.place_depth, MAX_PLACE_DEPTH
            )
            wanted_keys.append(key)
            results.append(result)
        left = [key for key in publication.placed if key not in wanted_keys]
        await self._take_back(publication, left, version=gone_version)
        return self._published(publication, results)

    async def _put_where_room_is(
        self, publication: _Publication, record: PeerRecord, key_of: _KeyOf, depth: int, deepest: int
    ) -> tuple[Key, WriteResult, int]:
        """Under the key of this depth, or of the next one whose replicas are not crowded."""
        while True:
            key = key_of(record, depth=depth)
            result = await self._put(publication, key, record)
            if not _is_crowded(result) or depth >= deepest:
                return key, result, depth
            depth += 1

    async def _put(self, publication: _Publication, key: Key, record: PeerRecord) -> WriteResult:
        for _ in range(2):
            stamped = self._stamp(publication, record)
            # Before the write, not after it: one that is cancelled may have stored the record all the same.
            publication.placed[key] = stamped
            result = await self._node.write(key, [sign_record(stamped, self._identity).wire])
            if result.newest_version < publication.version:
                return result
            # Others hold a newer version: our clock went back since. Go past it.
            publication.version = result.newest_version
        return result

    async def _take_back(self, publication: _Publication, keys: list[Key], *, version: int) -> None:
        await asyncio.gather(*(self._take_back_one(publication, key, version=version) for key in keys))

    async def _take_back_one(self, publication: _Publication, key: Key, *, version: int) -> None:
        last = publication.placed[key]
        if not last.is_expired(self._node.clock()):
            # It lives as long as what it withdraws: an earlier version cannot come back before both are gone.
            gone = replace(last, withdrawn=True, version=version)
            await self._node.write(key, [sign_record(gone, self._identity).wire])
        publication.placed.pop(key, None)

    def _stamp(self, publication: _Publication, record: PeerRecord) -> PeerRecord:
        expires_at = int(self._node.clock() + self._node.config.record_lifetime)
        return record.stamped(version=self._next_version(publication), expires_at=expires_at)

    def _next_version(self, publication: _Publication) -> int:
        # Milliseconds of the clock: monotonic over restarts without a file, unless the clock goes back (see _put).
        publication.version = max(publication.version + 1, int(self._node.clock() * 1000))
        return publication.version

    def _published(self, publication: _Publication, results: list[WriteResult]) -> Published:
        refused: Counter[Refusal] = Counter()
        for result in results:
            refused += result.refused
        replicas = min((result.replicas for result in results), default=0)
        if results and sum(refused[reason] for reason in _CLOCK) > replicas and not self._warned_of_clock:
            self._warned_of_clock = True
            log.warning(
                "most nodes reject our record because of its times (%s): check this machine's clock", dict(refused)
            )
        if results and not any(result.answers for result in results) and self._node.knows_somebody:
            publication.renew_at = self._node.loop.time() + 2 * self._node.config.rejoin_min_delay
            raise DirectoryUnavailable("no DHT node answered; the record will be published when one does")
        return Published(replicas, refused)


def _is_being_cancelled() -> bool:
    """Whether the current task itself was canceled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_crowded(result: WriteResult) -> bool:
    return sum(result.refused[reason] for reason in _CROWDED) > result.replicas


_RETRY_SHALLOWER = 0.1
