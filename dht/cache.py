"""What a directory knows of its streams without asking: bounded, the newest record of each peer, pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dht.errors import OwnerError
from dht.record import PeerRecord, Role

if TYPE_CHECKING:
    from dht.ids import PeerId
    from dht.pins import Pins

MAX_CACHED_PER_STREAM = 1024  # a peer chooses among 8; the rest is for exclusions and levels
MAX_STREAMS = 64
MAX_FORGOTTEN = 1024  # beyond that the longest forgotten may be offered again


class RecordCache:
    def __init__(self, own_id: PeerId, pins: Pins) -> None:
        self._own_id, self._pins = own_id, pins
        self._streams: dict[str, dict[PeerId, PeerRecord]] = {}
        self._forgotten: dict[tuple[str, PeerId], PeerRecord] = {}

    def learn(self, stream: str, records: Iterable[PeerRecord], *, now: float) -> None:
        """Take in what a read brought. A withdrawn record replaces what it withdraws and hides it until it expires."""
        known = self._streams.setdefault(stream, {})
        if len(self._streams) > MAX_STREAMS:
            del self._streams[next(iter(self._streams))]
        for record in records:
            if record.peer_id == self._own_id or record.stream != stream:
                continue
            forgotten = self._forgotten.get((stream, record.peer_id))
            if forgotten is not None and record.version <= forgotten.version:
                continue
            earlier = known.get(record.peer_id)
            if earlier is None or earlier.version < record.version:
                known[record.peer_id] = record
        for peer_id in [peer_id for peer_id, record in known.items() if record.is_expired(now)]:
            del known[peer_id]
        if len(known) > MAX_CACHED_PER_STREAM:
            first_out = sorted(known.values(), key=lambda record: (record.expires_at, record.peer_id))
            for record in first_out[: len(known) - MAX_CACHED_PER_STREAM]:
                del known[record.peer_id]

    def forget(self, stream: str, peer_id: PeerId) -> None:
        """A peer was found dead: do not offer it until it publishes again."""
        record = self._streams.get(stream, {}).pop(peer_id, None)
        if record is not None:
            self._forgotten[stream, peer_id] = record
            if len(self._forgotten) > MAX_FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]

    def roots(self, stream: str, *, now: float) -> list[PeerRecord]:
        """StreamOwnerChanged when every root is another owner's than the pinned one; SeveralOwners without a pin."""
        return sorted(self._pins.trusted(stream, self.claimed_roots(stream, now=now)), key=lambda root: root.peer_id)

    def claimed_roots(self, stream: str, *, now: float) -> list[PeerRecord]:
        """Every peer that claims to be a root of the stream, of any owner."""
        return [record for record in self._live(stream, now) if record.role is Role.ROOT]

    def trusted_roots(self, stream: str, *, now: float) -> tuple[list[PeerRecord], OwnerError | None]:
        try:
            return self.roots(stream, now=now), None
        except OwnerError as exc:
            return [], exc

    def peers(self, stream: str, *, now: float) -> list[PeerRecord]:
        """All records except roots of other owners."""
        return without_other_owners(self._live(stream, now), self._pins.owner(stream))

    def _live(self, stream: str, now: float) -> list[PeerRecord]:
        known = self._streams.get(stream, {})
        return [record for record in known.values() if not record.withdrawn and not record.is_expired(now)]


def without_other_owners(records: list[PeerRecord], owner: PeerId | None) -> list[PeerRecord]:
    """The records without roots that `owner` does not vouch for; without any root if the right owner is unknown."""
    if owner is None:
        owners = {record.owner for record in records if record.role is Role.ROOT}
        if len(owners) <= 1:
            return records
    return [record for record in records if record.role is not Role.ROOT or record.owner == owner]
