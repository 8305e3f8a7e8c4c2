"""Whose word about the stream was disputed lately: a bounded memory, for preference only.

In an unsigned stream nobody can say which of two parents lied: a forged packet makes the honest one look as if it had
left that out. So a dispute bans nobody. The parent is replaced when somebody offers a place who was not disputed, one
parent at a time and not too often; it stays if nobody does; and after a while it is forgotten.
"""

from __future__ import annotations

from peer.mesh.messages import PeerId

MAX_REMEMBERED = 256
"""Peers; beyond it the one whose dispute is oldest is forgotten."""


class DisputeMemory:
    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._at: dict[PeerId, float] = {}

    def __len__(self) -> int:
        return len(self._at)

    def remember(self, peer_id: PeerId, now: float) -> None:
        self._at.pop(peer_id, None)  # the order of the table is that of the last dispute
        if len(self._at) >= MAX_REMEMBERED:
            del self._at[next(iter(self._at))]
        self._at[peer_id] = now

    def recent(self, now: float) -> frozenset[PeerId]:
        """Those whose dispute is not forgotten yet."""
        while self._at:
            oldest = next(iter(self._at))
            if now - self._at[oldest] < self._lifetime:
                break
            del self._at[oldest]
        return frozenset(self._at)
