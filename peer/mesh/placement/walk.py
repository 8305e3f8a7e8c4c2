"""The paper's Figure 5: from the roots down, through the children of peers that refuse, nearest to the roots first.

It needs no directory beyond the roots, and costs many messages per join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.messages import RefuseReason
from peer.mesh.placement.choosing import ChoosingPlacement
from peer.mesh.placement.moves import AskChildren

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from peer.mesh.messages import PeerId
    from peer.mesh.placement.neighbourhood import CandidateView, Neighbourhood

ASKS_ITS_CHILDREN = frozenset({RefuseReason.FULL, RefuseReason.TOO_MANY_JOINS, RefuseReason.QUERY_NOT_CARRIED})


class WalkPlacement(ChoosingPlacement):
    """The candidate fewest steps from a root, the least often asked among equals."""

    def pick(self, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random) -> CandidateView | None:
        if not candidates:
            return None
        least = min((c.walk_depth, c.joins) for c in candidates)
        return rng.choice([c for c in candidates if (c.walk_depth, c.joins) == least])

    def after_refusal(self, peer: PeerId, reason: RefuseReason) -> AskChildren | None:
        return AskChildren(peer) if reason in ASKS_ITS_CHILDREN else None
