"""The keys of a stream's roots, passed down from hop to hop with the owner's grants: each peer checks them itself.

A peer that knows them needs no look-up in the directory before it can tell a signed packet from a forgery. Entries of
132 bytes: the root's public key 32, its grant 100 (`dht.Grant`), which is all zero for the owner itself.
"""

from __future__ import annotations

from collections.abc import Callable

from dht.identity import PUBLIC_KEY_BYTES, peer_id_of
from dht.ids import PeerId
from dht.streams import GRANT_BYTES, Grant

MAX_ROOT_KEYS = 8
"""Those of more roots come from the directory."""
_ENTRY_BYTES = PUBLIC_KEY_BYTES + GRANT_BYTES
_NO_GRANT = bytes(GRANT_BYTES)


class RootKeys:
    def __init__(self, stream: str, learned: Callable[[bytes, int | None], None]) -> None:
        """`learned(public key, expiry)` is called for each key that is new here; None: it does not expire."""
        self._stream = stream
        self._learned = learned
        self._entries: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, public_key: bytes, grant: Grant | None) -> None:
        """Of a root that signs, as the directory or its own operator says."""
        entry = public_key + (grant.encode() if grant is not None else _NO_GRANT)
        if public_key in self._entries or len(self._entries) < MAX_ROOT_KEYS:
            self._entries[public_key] = entry

    @property
    def entries(self) -> list[bytes]:
        return list(self._entries.values())

    def encode(self) -> bytes:
        return b"".join(self._entries.values())

    def learn_untrusted(self, data: bytes, owner: PeerId) -> None:
        """Take those that the owner vouches for."""
        if len(data) % _ENTRY_BYTES or len(data) > MAX_ROOT_KEYS * _ENTRY_BYTES:
            return
        for at in range(0, len(data), _ENTRY_BYTES):
            entry = data[at : at + _ENTRY_BYTES]
            public_key, granted = entry[:PUBLIC_KEY_BYTES], entry[PUBLIC_KEY_BYTES:]
            if self._entries.get(public_key) == entry:
                continue
            peer_id = peer_id_of(public_key)
            grant = None
            if peer_id != owner:
                grant = Grant.decode(granted, stream=self._stream, peer_id=peer_id)
                if grant.owner != owner or not grant.is_genuine():
                    continue
            self.add(public_key, grant)
            self._learned(public_key, grant.expires_at if grant is not None else None)
