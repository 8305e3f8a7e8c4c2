"""Peers that might be parents: the warm cache from which a repair starts at once.

It is fed by the directory (signed records), by referrals in refusals and by Children answers (hearsay), and by our own
experience (refusals, time-outs, measured round trips). It decides nothing: choosing is `placement`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from peer.mesh.hostport import HostPort
from peer.mesh.messages import MAX_LEVEL, PeerAt, PeerId, RefuseReason

AVOIDANCE: dict[RefuseReason, float] = {
    RefuseReason.FULL: 2.0,  # about how long a record says the old number of free slots
    RefuseReason.LEVEL: 5.0,  # its record is old; the next one brings the level
    RefuseReason.POLICY: 300.0,
    RefuseReason.QUERY_NOT_CARRIED: 10.0,
    RefuseReason.STREAM_UNKNOWN: 300.0,
    RefuseReason.SHUTTING_DOWN: 60.0,
    RefuseReason.NOT_ROOTED: 1.0,  # it is itself repairing
    RefuseReason.TOO_MANY_JOINS: 0.3,  # its bucket fills again at once; the crowd has spread by then
    RefuseReason.STALE: 0.2,
    RefuseReason.MALFORMED: 300.0,
    RefuseReason.VERSION: 300.0,
}
"""How long, in seconds, not to ask a peer again that refused for this reason."""

FINAL = frozenset({RefuseReason.POLICY, RefuseReason.STREAM_UNKNOWN, RefuseReason.MALFORMED, RefuseReason.VERSION})
"""Reasons that a newer record does not change."""

AVOID_SILENT = 5.0
"""The same after a time-out or after it went silent as a parent, doubled for each time in a row."""
MAX_AVOID_SILENT = 40.0
AVOID_CONVICTED = 300.0
"""The same after it was proved to lie about the stream, doubled for each time..."""
MAX_AVOID_CONVICTED = 86_400.0
MAX_CONVICTED = 256
"""Peers; beyond it the oldest conviction is forgotten."""
RETRY_SILENT = 2.0
"""How long not to ask a silent one when there is nobody else: it may have thawed, or the way to it healed."""


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """A peer's own word about itself, from the directory."""

    peer_id: PeerId
    address: HostPort
    level: int
    hops: int
    load: float
    """Children / capacity."""
    free: int
    """Slots for anybody."""
    free_for_repair: int
    """Slots for a peer that has children."""
    resilience: int
    is_root: bool = False
    capacity: int = 0
    is_placed: bool = False
    """It is listed by its place: it is in the reference tree."""
    query: bytes = b""
    """What it carries, as the directory summarises it; empty for everything."""
    version: int = 0
    """Rises with each publication. A newer one lifts what we held against an older: the peer lives, and has changed."""


@dataclass(slots=True)
class Candidate:
    """One peer in the cache. What the default values say is a guess, for one known from hearsay only."""

    peer_id: PeerId
    address: HostPort
    level: int
    seen_at: float
    walk_depth: int
    """Steps from a root on the paper's walk: roots 0, a refuser's children one more than the refuser."""
    hops: int
    load: float = 0.5
    free: int = 1
    free_for_repair: int = 1
    resilience: int | None = None
    is_root: bool = False
    capacity: int = 0
    is_placed: bool = False
    query: bytes = b""
    version: int = 0
    avoid_until: float = float("-inf")
    is_barred: bool = False
    """It refused for a reason that no newer record lifts."""
    failures: int = 0
    """Times in a row that it did not answer."""
    silent_at: float = float("-inf")
    """When it last did not."""
    round_trip: float | None = None
    joins: int = 0
    """Joins sent to it since its record was last renewed: the least tried goes first on a walk."""

    def take(self, record: CandidateRecord, now: float) -> None:
        """What it says about itself replaces what was known."""
        self.version = record.version
        self.address = record.address
        self.level = record.level
        self.hops = record.hops
        self.load = record.load
        self.free = record.free
        self.free_for_repair = record.free_for_repair
        self.resilience = record.resilience
        self.is_root = record.is_root
        self.capacity = record.capacity
        self.is_placed = record.is_placed or (self.is_placed and not record.is_root)
        self.query = record.query
        self.seen_at = now
        self.joins = 0

    @property
    def host(self) -> str:
        return self.address[0]

    @property
    def prefix(self) -> str:
        return network_prefix(self.address[0])


@lru_cache(maxsize=4_096)
def network_prefix(host: str) -> str:
    """The /24 or /48 a host is in: near enough to "may fail together"."""
    address = ip_address(host)
    return f"{address.version}/{address.packed[: 3 if address.version == 4 else 6].hex()}"


class CandidateCache:
    """At most `limit` candidates, one a peer; `evicted` counts how often the limit was hit."""

    def __init__(self, own: PeerId, *, limit: int, lifetime: float) -> None:
        self._own = own
        self._limit = limit
        self._lifetime = lifetime
        self._known: dict[PeerId, Candidate] = {}
        self._convicted: dict[PeerId, tuple[int, float]] = {}  # how often, and avoided until when
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, peer_id: PeerId) -> Candidate | None:
        return self._known.get(peer_id)

    def add_records(self, records: Iterable[CandidateRecord], now: float) -> int:
        """Take what peers say about themselves in the directory. Returns how many were new."""
        new = 0
        for record in records:
            if record.peer_id == self._own or not 0 <= record.level <= MAX_LEVEL:
                continue
            known = self._known.get(record.peer_id)
            if known is None:
                new += 1
                depth = 0 if record.is_root else record.hops
                known = self._add(Candidate(record.peer_id, record.address, record.level, now, depth, record.hops))
            elif record.version < known.version:
                continue
            elif record.version > known.version and not known.is_barred:
                known.avoid_until = float("-inf")
                known.failures = 0
            known.take(record, now)
        return new

    def add_hearsay(self, peers: Iterable[PeerAt], *, teller: Candidate | None, now: float) -> int:
        """Take another peer's word about its children. It never moves a peer whose signed record we have."""
        new = 0
        depth = teller.walk_depth + 1 if teller else 1
        hops = teller.hops + 1 if teller else 1
        for peer in peers:
            if peer.peer_id == self._own or not 0 <= peer.level <= MAX_LEVEL:
                continue
            known = self._known.get(peer.peer_id)
            if known is None:
                new += 1
                self._add(Candidate(peer.peer_id, peer.address, peer.level, now, depth, hops))
            elif known.address == peer.address:
                known.level = peer.level
                known.seen_at = now
                known.free = max(known.free, 1)
                known.free_for_repair = max(known.free_for_repair, 1)
                known.walk_depth = min(known.walk_depth, depth)
        return new

    def _add(self, candidate: Candidate) -> Candidate:
        """Keep a peer that was not known; at the limit, it replaces the one that is worth least."""
        if len(self._known) >= self._limit:
            # Roots are few and always worth knowing; then whom we avoid anyway; then whom we have not heard of longest.
            now = candidate.seen_at
            worst = min(self._known.values(), key=lambda c: (c.is_root, c.avoid_until <= now, c.seen_at))
            del self._known[worst.peer_id]
            self.evicted += 1
        self._known[candidate.peer_id] = candidate
        return candidate

    def avoid(self, peer_id: PeerId, *, until: float) -> None:
        candidate = self._known.get(peer_id)
        if candidate is not None:
            candidate.avoid_until = max(candidate.avoid_until, until)

    def refused(self, peer_id: PeerId, reason: RefuseReason, *, until: float) -> None:
        self.avoid(peer_id, until=until)
        candidate = self._known.get(peer_id)
        if candidate is not None:
            candidate.is_barred = reason in FINAL

    def failed(self, peer_id: PeerId, *, now: float) -> None:
        """It did not answer, or fell silent."""
        candidate = self._known.get(peer_id)
        if candidate is not None:
            candidate.avoid_until = now + min(AVOID_SILENT * 2**candidate.failures, MAX_AVOID_SILENT)
            candidate.failures += 1
            candidate.silent_at = now

    def convicted(self, peer_id: PeerId, *, now: float) -> None:
        """It was proved to lie. No newer record lifts this, and a sleep of ours does not either."""
        times, _ = self._convicted.pop(peer_id, (0, 0.0))
        if len(self._convicted) >= MAX_CONVICTED:
            del self._convicted[next(iter(self._convicted))]
        self._convicted[peer_id] = times + 1, now + min(AVOID_CONVICTED * 2**times, MAX_AVOID_CONVICTED)

    def answered(self, peer_id: PeerId, *, round_trip: float, now: float) -> None:
        candidate = self._known.get(peer_id)
        if candidate is not None:
            candidate.failures = 0
            candidate.seen_at = now
            candidate.round_trip = round_trip

    def clear(self) -> None:
        self._known.clear()

    def eligible(self, now: float, *, below: int, exclude: Collection[PeerId]) -> list[Candidate]:
        """Those below the level, not excluded, not to be avoided now, heard of recently; in a repeatable order."""
        return [c for c in self._within(now, below, exclude) if c.avoid_until <= now]

    def placed(self, now: float) -> list[Candidate]:
        """Those that are listed by place, and did not fall silent; whatever their level."""
        born = now - self._lifetime
        return [c for c in self._known.values() if c.is_placed and not c.failures and c.seen_at >= born]

    def witnesses(self, now: float, *, below: int, exclude: Collection[PeerId]) -> list[Candidate]:
        """Those that have everything, by their records, and are above us: what they have does not come from us."""
        return [c for c in self.eligible(now, below=below, exclude=exclude) if c.version and not c.query]

    def roots(self, now: float) -> list[Candidate]:
        born = now - self._lifetime
        return [c for c in self._known.values() if c.is_root and not c.failures and c.seen_at >= born]

    def last_resort(self, now: float, *, below: int, exclude: Collection[PeerId]) -> list[Candidate]:
        """When none is eligible: those that are avoided for no more than silence, if that was not just now."""
        silent_by = now - RETRY_SILENT
        return [
            c for c in self._within(now, below, exclude) if c.failures and not c.is_barred and c.silent_at <= silent_by
        ]

    def _within(self, now: float, below: int, exclude: Collection[PeerId]) -> list[Candidate]:
        born = now - self._lifetime
        avoided = {peer_id for peer_id, (_, until) in self._convicted.items() if until > now}
        return [
            c
            for c in self._known.values()
            if c.level < below and c.seen_at >= born and c.peer_id not in exclude and c.peer_id not in avoided
        ]
