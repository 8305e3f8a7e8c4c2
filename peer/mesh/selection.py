"""Whom to ask next: pluggable, pure policies over the candidates.

`ScoredSelection` is the default: the best of a few random candidates. Random first, so that a crowd does not fall on
the one best peer; best of a few, so that the mesh stays shallow. `RootWalk` is the paper's Figure 5: from the roots
down, through the children of whoever refuses. At 1,000 peers the walk cost 377 messages a join in the placement model
and the scored choice 11, but the walk needs no directory beyond the roots.

A policy sees only candidates that may be asked (below our ceiling, not avoided, no parent of ours already).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from peer.mesh.candidates import Candidate

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


@dataclass(frozen=True, slots=True)
class Seeker:
    """What a policy may know about the peer that seeks."""

    has_children: bool
    choices: int
    parent_hosts: frozenset[str]
    parent_prefixes: frozenset[str]
    coverage: Callable[[bytes], float]
    """Share of our query that a candidate carries, from its record's `query`, 0.0 to 1.0."""


class SelectionPolicy(Protocol):
    """Calls are synchronous and never nested; the same arguments and random state give the same answer."""

    walks: bool
    """Ask a refuser for its children, as the paper does."""

    def choose(self, candidates: Sequence[Candidate], seeker: Seeker, rng: Random) -> Candidate | None: ...


def score(candidate: Candidate, seeker: Seeker) -> float:
    """Hops and hop-equivalents; lower is better. The parts are listed in docs/mesh.md."""
    total = candidate.hops + candidate.load
    total += COVERAGE_PENALTY * (1.0 - seeker.coverage(candidate.query))
    if candidate.round_trip is not None:
        total += candidate.round_trip / ROUND_TRIP_HOP
    if candidate.host in seeker.parent_hosts:
        total += SAME_HOST_PENALTY
    elif candidate.prefix in seeker.parent_prefixes:
        total += SAME_PREFIX_PENALTY
    return total


def is_full(candidate: Candidate, seeker: Seeker) -> bool:
    return (candidate.free_for_repair if seeker.has_children else candidate.free) <= 0


class ScoredSelection:
    """The best of `seeker.choices` random candidates; one that says it is full only if nothing else is there."""

    walks = False

    def choose(self, candidates: Sequence[Candidate], seeker: Seeker, rng: Random) -> Candidate | None:
        if not candidates:
            return None
        open_ones = [c for c in candidates if not is_full(c, seeker)]
        pool = open_ones or candidates
        few = rng.sample(pool, min(len(pool), seeker.choices))
        return min(few, key=lambda c: score(c, seeker) + rng.random() * JITTER)


class RootWalk:
    """Figure 5: the roots first, then the children of those who declined, and so down, nearest to the roots first."""

    walks = True

    def choose(self, candidates: Sequence[Candidate], seeker: Seeker, rng: Random) -> Candidate | None:
        if not candidates:
            return None
        least = min((c.walk_depth, c.joins) for c in candidates)
        return rng.choice([c for c in candidates if (c.walk_depth, c.joins) == least])
