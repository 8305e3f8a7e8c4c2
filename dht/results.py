"""What came of a lookup, a read and a write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dht.errors import Refusal
from dht.ids import PeerId
from dht.record import SignedRecord
from dht.wire import Contact, Found


@dataclass(slots=True)
class LookupResult:
    """Who answered nearest to a key, nearest first, with what is needed to store there; and what it cost."""

    holders: list[tuple[Contact, Found]]
    queries: int


@dataclass(slots=True)
class ReadResult:
    """The union over replicas: of each peer the newest record, verified. Withdrawn ones included."""

    records: dict[PeerId, SignedRecord] = field(default_factory=dict)
    refused: list[tuple[bytes, Refusal]] = field(default_factory=list)
    is_full: bool = False  # some replica had to turn records away: the shards below may hold more
    answers: int = 0
    queries: int = 0


@dataclass(slots=True)
class WriteResult:
    """How many nodes hold the records now, and why others do not."""

    replicas: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    newest_version: int = 0
    answers: int = 0
    queries: int = 0
