"""The default placement: the best of a few random candidates.

Random first, so that a crowd does not fall on the one best peer; best of a few, so that the mesh stays shallow. At
1,000 peers it cost 11 messages per join in the placement model, the walk from the roots 377.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.candidates import network_prefix
from peer.mesh.placement.choosing import ChoosingPlacement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from peer.mesh.placement.neighbourhood import CandidateView, Neighbourhood

SAME_HOST_PENALTY = 1.0
"""In hops. Two parents on one host die together, so a second one is worth one hop more; but no more than that, or a
mesh on one machine (a demo) would have no parents at all."""
SAME_PREFIX_PENALTY = 0.5
COVERAGE_PENALTY = 2.0
"""For a candidate that carries nothing of the query; it would first have to widen its own."""
ROUND_TRIP_HOP = 0.1
"""Seconds of round trip that weigh as much as one hop."""
JITTER = 0.5
"""Up to so many hops at random, so that equal candidates share the joins."""


class ScoredPlacement(ChoosingPlacement):
    """The best of a few random candidates; one that says it is full only if there is no other."""

    def pick(self, candidates: Sequence[CandidateView], around: Neighbourhood, rng: Random) -> CandidateView | None:
        if not candidates:
            return None
        open_ones = [c for c in candidates if not is_full(c, around)]
        pool = open_ones or candidates
        choices = around.config.repair_choices if around.children else around.config.choices
        few = rng.sample(pool, min(len(pool), choices))
        return min(few, key=lambda c: score(c, around) + rng.random() * JITTER)


def is_full(candidate: CandidateView, around: Neighbourhood) -> bool:
    return (candidate.free_for_repair if around.children else candidate.free) <= 0


def score(candidate: CandidateView, around: Neighbourhood) -> float:
    """Hops and hop-equivalents; lower is better. The parts are listed in docs/mesh.md."""
    total = candidate.hops + candidate.load
    total += COVERAGE_PENALTY * (1.0 - around.coverage(candidate.query))
    if candidate.round_trip is not None:
        total += candidate.round_trip / ROUND_TRIP_HOP
    hosts = {parent.address[0] for parent in around.parents}
    if candidate.host in hosts:
        total += SAME_HOST_PENALTY
    elif candidate.prefix in {network_prefix(host) for host in hosts}:
        total += SAME_PREFIX_PENALTY
    return total
