"""A directory for simulations: late, forgetful of withdrawals by the dead, and sometimes a version behind."""

from __future__ import annotations

from bisect import bisect_left, insort
from random import Random
from typing import TYPE_CHECKING

from dht.places import PLACES, place_of
from peer.mesh.messages import UNPLACED

if TYPE_CHECKING:
    from peer.mesh.candidates import CandidateRecord
    from peer.mesh.events import CandidatesWanted
    from peer.mesh.messages import PeerId

STREAM = "simulation"
NEAR = 8
SHALLOW_SHARES = (0.05, 0.2, 0.5, 1.0)
"""A lookup draws from the lowest 5 %, 20 %, 50 % and all of the levels below the asker's, as the sharded keys do."""


class SimDirectory:
    def __init__(self, rng: Random, *, stale_share: float = 0.2, lifetime: float = 30.0) -> None:
        self._rng = rng
        self._stale_share = stale_share
        self._lifetime = lifetime
        self._now: dict[PeerId, tuple[CandidateRecord, float]] = {}
        self._before: dict[PeerId, CandidateRecord] = {}
        self._levels: list[tuple[int, PeerId]] = []
        self._places: list[tuple[int, PeerId]] = []
        self.lookups = 0

    def publish(self, record: CandidateRecord, now: float) -> None:
        old = self._now.get(record.peer_id)
        if old is not None:
            self._before[record.peer_id] = old[0]
        if old is None or old[0].level != record.level:
            self._unlist(record.peer_id)
            insort(self._levels, (record.level, record.peer_id))
        if record.is_placed and (old is None or not old[0].is_placed):
            insort(self._places, (place_of(STREAM, record.peer_id), record.peer_id))
        self._now[record.peer_id] = (record, now)

    def withdraw(self, peer_id: PeerId) -> None:
        self._unlist(peer_id)
        old = self._now.pop(peer_id, None)
        if old is not None:
            self._before[peer_id] = old[0]
            if old[0].is_placed:
                del self._places[bisect_left(self._places, (place_of(STREAM, peer_id), peer_id))]

    def roots(self, now: float) -> list[CandidateRecord]:
        end = bisect_left(self._levels, (1, b""))
        found = (self._find(peer_id, now) for _, peer_id in self._levels[:end])
        return [record for record in found if record is not None and record.is_root]

    def lookup(self, wanted: CandidatesWanted, now: float) -> list[CandidateRecord]:
        self.lookups += 1
        rng = self._rng
        found: dict[PeerId, CandidateRecord] = {r.peer_id: r for r in self.roots(now)[:4]}
        end = (
            len(self._levels)
            if wanted.below_level >= UNPLACED
            else bisect_left(self._levels, (wanted.below_level, b""))
        )
        for share in SHALLOW_SHARES:
            for _ in range(wanted.count // len(SHALLOW_SHARES)):
                if end == 0:
                    break
                _, peer_id = self._levels[rng.randrange(max(1, int(end * share)))]
                record = self._find(peer_id, now)
                if record is None:
                    end -= 1  # it had expired, and is unlisted now
                elif (record.free_for_repair if wanted.for_repair else record.free) > 0:
                    found[peer_id] = record
        for near in wanted.places:
            for peer_id in self._near(near):
                if (record := self._find(peer_id, now)) is not None:
                    found[peer_id] = record
        return list(found.values())

    def regions(self, places: tuple[int, ...]) -> int:
        """How many look-ups these places take: what lies in the stretch of an earlier answer is not asked again."""
        covered: list[tuple[int, int]] = []
        for near in places:
            if any(low <= near <= high for low, high in covered):
                continue
            at = bisect_left(self._places, (near, b""))
            low = self._places[at - NEAR][0] if at >= NEAR else 0
            high = self._places[at + NEAR - 1][0] if at + NEAR <= len(self._places) else PLACES - 1
            covered.append((low, high))
        return len(covered)

    def _near(self, near: int) -> list[PeerId]:
        """Who is listed next to a place, as `dht.places` answers."""
        at = bisect_left(self._places, (near, b""))
        return [peer_id for _, peer_id in self._places[max(0, at - NEAR) : at + NEAR]]

    def _find(self, peer_id: PeerId, now: float) -> CandidateRecord | None:
        entry = self._now.get(peer_id)
        if entry is None:
            return None
        record, published_at = entry
        if now - published_at > self._lifetime:
            self.withdraw(peer_id)
            return None
        if self._stale_share and self._rng.random() < self._stale_share:
            return self._before.get(peer_id, record)
        return record

    def _unlist(self, peer_id: PeerId) -> None:
        old = self._now.get(peer_id)
        if old is None:
            return
        at = bisect_left(self._levels, (old[0].level, peer_id))
        if at < len(self._levels) and self._levels[at] == (old[0].level, peer_id):
            del self._levels[at]
