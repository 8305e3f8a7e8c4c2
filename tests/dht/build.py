"""Identities and records for tests, the same in every run."""

from __future__ import annotations

from dht.identity import Identity
from dht.record import PeerRecord, Role, SignedRecord, sign_record

NOW = 1_800_000_000.0


def identity(number: int) -> Identity:
    return Identity.from_seed(number.to_bytes(32, "big"))


def record_of(who: Identity, **fields) -> PeerRecord:
    defaults = {
        "stream": "asdi",
        "peer_id": who.peer_id,
        "addresses": (("192.0.2.7", 4700),),
        "role": Role.ROUTER,
        "level": 700,
        "capacity": 6,
        "free_slots": 4,
        "version": 1,
        "expires_at": int(NOW) + 180,
    }
    return PeerRecord(**{**defaults, **fields})


def signed(number: int, **fields) -> SignedRecord:
    who = identity(number)
    return sign_record(record_of(who, **fields), who)
