"""What one node keeps for others: for each key a bounded set of verified records, the newest of each peer.

Pure: the clock is an argument. Nothing enters unverified, under a wrong key or past a bound, and every refusal has its
reason. When a key or the whole store is full, crowded sources give way to new ones, so that a flood from one address
fills only the room that nobody else wants. A record is charged to the source that brought it: the peer itself, or the
node that handed it on until the peer comes itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dht.config import DEFAULT_LIMITS, StoreLimits
from dht.errors import RecordRejected, Refusal
from dht.keys import Key, keys_of
from dht.shares import Shares

if TYPE_CHECKING:
    from dht.ids import PeerId
    from dht.record import PeerRecord, RecordVerifier


@dataclass(slots=True)
class Held:
    record: PeerRecord
    wire: bytes
    source: str
    handed: bool  # by another storing node, not by the peer itself
    stored_at: float


@dataclass(frozen=True, slots=True)
class Page:
    """One answer's worth of a key's set, in circular order of peer ids from the place that was asked for."""

    total: int
    is_full: bool
    wires: tuple[bytes, ...]


EMPTY_PAGE = Page(0, False, ())


class RecordStore:
    """Invariants: every bound of `limits` holds after every call; counts by publisher equal what is held."""

    def __init__(self, verifier: RecordVerifier, limits: StoreLimits = DEFAULT_LIMITS) -> None:
        self.verifier = verifier
        self.limits = limits
        self.refused: Counter[Refusal] = Counter()
        self.evicted = 0  # from a full key
        self.evicted_from_store = 0  # from a full store
        self._keys: dict[Key, dict[PeerId, Held]] = {}
        self._of_publisher: Counter[PeerId] = Counter()
        self._shares: Shares[tuple[Key, PeerId]] = Shares()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> list[Key]:
        return list(self._keys)

    def put(self, key: Key, wire: bytes, *, source: str, now: float, handed: bool = False) -> Refusal | None:
        """Take a record in; None when it is held now (also when exactly it was held already)."""
        try:
            self._put(key, wire, source=source, now=now, handed=handed)
        except RecordRejected as exc:
            self.refused[exc.reason] += 1
            return exc.reason
        return None

    def page(self, key: Key, *, start: bytes, budget: int, now: float) -> Page:
        """As many records as fit `budget` bytes (each costs its length and 3), beginning at peer id `start`."""
        held = self._keys.get(key)
        if not held:
            return EMPTY_PAGE
        self._expire_key(key, now)
        held = self._keys.get(key)
        if not held:
            return EMPTY_PAGE
        order = sorted(held)
        first = bisect_left(order, start)
        wires = []
        for peer_id in order[first:] + order[:first]:
            wire = held[peer_id].wire
            if len(wire) + 3 > budget:
                break
            budget -= len(wire) + 3
            wires.append(wire)
        return Page(len(order), len(order) >= self.limits.max_records_per_key, tuple(wires))

    def version_held(self, key: Key, peer_id: PeerId) -> int:
        """The version held of a peer, 0 for none: what a publisher that was refused as stale must exceed."""
        held = self._keys.get(key, {}).get(peer_id)
        return held.record.version if held else 0

    def records(self, key: Key, *, now: float) -> list[Held]:
        self._expire_key(key, now)
        return list(self._keys.get(key, {}).values())

    def unrefreshed(self, *, older_than: float, now: float) -> list[tuple[Key, Held]]:
        """Records not stored again since `older_than`: their publisher may not reach us anymore."""
        self.expire(now=now)
        return [
            (key, held) for key, of_key in self._keys.items() for held in of_key.values() if held.stored_at < older_than
        ]

    def expire(self, *, now: float) -> None:
        for key in list(self._keys):
            self._expire_key(key, now)

    def _put(self, key: Key, wire: bytes, *, source: str, now: float, handed: bool) -> None:
        record = self.verifier.verify(wire, now=now).record
        if key not in keys_of(record):
            raise RecordRejected(Refusal.WRONG_KEY)
        held = self._keys.get(key, {})
        known = held.get(record.peer_id)
        if known is not None:
            if known.wire == wire:
                known.stored_at = now
                if known.handed and not handed and self._refusal_of_source(held, record.peer_id, source) is None:
                    self._charge(key, known, source)
                return
            if known.record.version >= record.version:
                raise RecordRejected(Refusal.STALE)
            # Another node that hands on a newer version is not thereby its source.
            if not handed:
                self._check_source(held, record.peer_id, source)
                self._charge(key, known, source)
            known.record, known.wire, known.stored_at = record, wire, now
            return
        if self._of_publisher[record.peer_id] >= self.limits.max_keys_per_publisher:
            raise RecordRejected(Refusal.PUBLISHER_QUOTA)
        self._expire_key(key, now)
        held = self._keys.get(key, {})
        self._make_room(key, held, record.peer_id, source=source, handed=handed, now=now)
        self._keys.setdefault(key, {})[record.peer_id] = Held(record, wire, source, handed, now)
        self._shares.add(source, (key, record.peer_id))
        self._of_publisher[record.peer_id] += 1
        self._size += 1

    def _charge(self, key: Key, item: Held, source: str) -> None:
        """From now on the record counts as brought by its own peer, from this source."""
        place = key, item.record.peer_id
        self._shares.remove(item.source, place)
        self._shares.add(source, place)
        item.source, item.handed = source, False

    def _refusal_of_source(self, held: dict[PeerId, Held], peer_id: PeerId, source: str) -> Refusal | None:
        """Whether a source may bring one more record, beside what it has brought of this peer under this key."""
        known = held.get(peer_id)
        is_its_own = known is not None and known.source == source
        same = sum(1 for other, item in held.items() if item.source == source and other != peer_id)
        if same >= self.limits.max_per_source_per_key:
            return Refusal.SOURCE_QUOTA
        if self._shares.count(source) - is_its_own >= self.limits.max_per_source:
            return Refusal.HOST_QUOTA
        return None

    def _check_source(self, held: dict[PeerId, Held], peer_id: PeerId, source: str) -> None:
        refusal = self._refusal_of_source(held, peer_id, source)
        if refusal is not None:
            raise RecordRejected(refusal)

    def _make_room(
        self, key: Key, held: dict[PeerId, Held], peer_id: PeerId, *, source: str, handed: bool, now: float
    ) -> None:
        limits = self.limits
        self._check_source(held, peer_id, source)
        if handed:
            if sum(item.handed for item in held.values()) >= limits.max_handed_per_key:
                raise RecordRejected(Refusal.SOURCE_QUOTA)
            if len(held) >= limits.max_records_per_key:
                raise RecordRejected(Refusal.KEY_FULL)
        elif len(held) >= limits.max_records_per_key:
            self._remove(key, self._who_gives_way(held, source))
            self.evicted += 1
        if self._size >= limits.max_records:
            self.expire(now=now)
            if self._size >= limits.max_records:
                self._make_room_in_store(source)

    def _make_room_in_store(self, newcomer: str) -> None:
        """Take one record from the source that holds the most, if that is more than the newcomer's would then hold.

        A record that it handed on goes first, then the one that expires first. STORE_FULL when nobody holds more.
        """
        largest = self._shares.largest()
        if largest is None or self._shares.count(largest) <= self._shares.count(newcomer) + 1:
            raise RecordRejected(Refusal.STORE_FULL)
        key, peer_id = min(self._shares.of(largest), key=self._who_goes_first)
        self._remove(key, peer_id)
        self.evicted_from_store += 1

    def _who_goes_first(self, place: tuple[Key, PeerId]) -> tuple[bool, int, PeerId]:
        key, peer_id = place
        item = self._keys[key][peer_id]
        return not item.handed, item.record.expires_at, peer_id

    def _who_gives_way(self, held: dict[PeerId, Held], newcomer: str) -> PeerId:
        """A record that was handed on, else one of the most crowded source if that is more crowded than the newcomer's.

        Of those the one that expires first. KEY_FULL when nobody is more crowded.
        """
        handed = [item for item in held.values() if item.handed]
        if handed:
            return min(handed, key=lambda item: item.record.expires_at).record.peer_id
        crowd = Counter(item.source for item in held.values())
        source, most = max(crowd.items(), key=lambda pair: (pair[1], pair[0]))
        if most <= crowd[newcomer] + 1:
            raise RecordRejected(Refusal.KEY_FULL)
        crowded = [item for item in held.values() if item.source == source]
        return min(crowded, key=lambda item: (item.record.expires_at, item.record.peer_id)).record.peer_id

    def _expire_key(self, key: Key, now: float) -> None:
        held = self._keys.get(key)
        if held is None:
            return
        for peer_id in [peer_id for peer_id, item in held.items() if item.record.is_expired(now)]:
            self._remove(key, peer_id)

    def _remove(self, key: Key, peer_id: PeerId) -> None:
        held = self._keys[key]
        self._shares.remove(held.pop(peer_id).source, (key, peer_id))
        if not held:
            del self._keys[key]
        self._size -= 1
        self._of_publisher[peer_id] -= 1
        if not self._of_publisher[peer_id]:
            del self._of_publisher[peer_id]

    def check_invariants(self) -> None:
        """For tests: the bounds and the counts."""
        assert self._size == sum(len(held) for held in self._keys.values()) <= self.limits.max_records
        publishers: Counter[PeerId] = Counter()
        for key, held in self._keys.items():
            assert 0 < len(held) <= self.limits.max_records_per_key, key.hex()
            sources = Counter(item.source for item in held.values())
            assert max(sources.values(), default=0) <= self.limits.max_per_source_per_key
            publishers.update(held.keys())
        assert publishers == self._of_publisher
        self._shares.check_invariants()
        everywhere = Counter(item.source for held in self._keys.values() for item in held.values())
        assert everywhere == {source: self._shares.count(source) for source in everywhere}
        assert len(everywhere) == len(self._shares)
        assert max(everywhere.values(), default=0) <= self.limits.max_per_source
        assert max(publishers.values(), default=0) <= self.limits.max_keys_per_publisher
