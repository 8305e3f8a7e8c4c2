"""Counters of a switch, copied out on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SwitchStats:
    """A snapshot. Numbers only ever grow, except those that say how much there is now."""

    packets: int
    """Packets that were matched, the malformed ones included."""
    unparsed: int
    """Of these, packets that all links wanted anyway, so that nobody looked inside."""
    by_shape: int
    """Of these, packets whose markup was known, so that only values were read."""
    malformed: Mapping[str, int] = field(default_factory=dict)
    """Refused packets by rule."""
    evaluated: int = 0
    """Single queries that had to be evaluated on a packet because the index could not decide."""
    cut_off: int = 0
    """Evaluations that would have cost too much: the packet was passed on for that query."""
    failures: int = 0
    """Evaluations, or whole packets, that raised what nobody expected: the packet was passed on."""
    links: int = 0
    """Links now."""
    queries: int = 0
    """Subscriptions now, counted a link."""
    conjunctions: int = 0
    """Distinct conjunctions in the index now."""
    states: int = 0
    """States of the automaton now."""
    automaton_resets: int = 0
    """How often the automaton hit its limit of states and was rebuilt."""
    shapes: int = 0
    """Markup shapes known now."""
