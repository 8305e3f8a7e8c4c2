"""The placement of real peers: scored until the owner of the stream states a goal, then towards the goal.

Every peer decides for itself (local mode). About every 30 s it measures its grandparents and three strangers, and moves
to one with room if that gains enough. The new parent is held beside the old ones for a trial; then whichever is worth
least goes. A peer that is short of a parent, or has a disputed one, does what it would do without a goal: repair comes
first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from lazyclass import dataclass
from peer.goals.signed import MalformedGoal, OwnedGoal, read_goal_untrusted
from peer.goals.vocabulary import VOCABULARY, Vocabulary
from peer.mesh.levels import ROOT_LEVEL
from peer.mesh.placement.moves import Drop, Replace, Vacate
from peer.mesh.placement.scored import ScoredPlacement
from peer.optimizer.course import NODE_MEASURED, Course
from peer.optimizer.proposing import Hysteresis, Offer, Way, best_move
from peer.optimizer.said import Said, read_said_untrusted

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.messages import PeerId
    from peer.mesh.placement.neighbourhood import Neighbourhood, ParentView

MAX_KNOWN = 256
"""Peers of which something was heard or measured; beyond it the oldest is forgotten."""
KNOWN_FOR = 90.0
"""Seconds that what a peer said is used."""
SAMPLES = 4
STRANGERS = 3
TRIAL_SECONDS = 5.0
AVOID_SECONDS = 600.0
"""How long a parent that did not keep its promise in its trial is not tried again."""
LEAST_SCALE = 0.25
PROMISE = 0.8
"""A newcomer that says it is this much better than every other parent must bring first copies..."""
LEAST_FIRST = 0.1
"""...of at least this share."""


@dataclass(frozen=True, slots=True)
class GoalStanding:
    """A goal, and how one peer does, for people and programs."""

    text: str
    version: int
    """When the owner signed it, in milliseconds."""
    cost: float | None
    """In seconds and bytes; None while it cannot be computed."""
    broken: str
    """The constraint that this peer breaks most; empty if it breaks none."""
    problem: str
    """Why the goal is not followed here; empty if it is."""
    moves: int
    """Parents given up for better ones."""
    taken_back: int
    """Newcomers that did not keep their promise."""


@dataclass(slots=True)
class Known:
    """What is known of one peer."""

    heard_at: float
    round_trips: list[float] = field(default_factory=list)
    said: Said = field(default_factory=Said)

    @property
    def round_trip(self) -> float | None:
        """The shortest of the last few: what is longer waited somewhere."""
        return min(self.round_trips) if self.round_trips else None


class GoalPlacement(ScoredPlacement):
    """Satisfies `Placement` and `peer.mesh.guidance.Guide`. Without a goal it is a `ScoredPlacement`."""

    trial = TRIAL_SECONDS

    def __init__(self, vocabulary: Vocabulary | None = None, rules: Hysteresis | None = None) -> None:
        self._words, self._rules = vocabulary or VOCABULARY, rules or Hysteresis()
        self._stream, self._owner = "", b""
        self._held: OwnedGoal | None = None
        self._course: Course | None = None
        self._known: dict[PeerId, Known] = {}
        self._avoided: dict[PeerId, float] = {}
        self._moved_at = -math.inf
        self._trying: PeerId | None = None
        self.cpu: Callable[[], float] = lambda: 0.0
        """Seconds of processor time per packet, as the owner of this object measures it."""
        self.moves = 0
        self.taken_back = 0

    # The goal

    def follow(self, stream: str, owner: bytes) -> None:
        """Whose goals count. A goal of an earlier owner no longer does."""
        if (stream, owner) != (self._stream, self._owner):
            self._stream, self._owner = stream, owner
            self._held = self._course = None

    @property
    def is_active(self) -> bool:
        return self._held is not None

    @property
    def goal_data(self) -> bytes:
        return self._held.data if self._held is not None else b""

    @property
    def held(self) -> OwnedGoal | None:
        return self._held

    @property
    def problem(self) -> str:
        """Why the goal is not followed here; empty if it is, or if there is none."""
        if self._held is None:
            return ""
        return self._held.problem or (self._course.problem if self._course is not None else "")

    @property
    def course(self) -> Course | None:
        """The goal, if this peer can follow it."""
        return self._course if self._course is not None and not self._course.problem else None

    def take_goal(self, data: bytes) -> bool:
        if not self._owner:
            return False
        newest = self._held.version if self._held is not None else -1
        try:
            held = read_goal_untrusted(data, self._stream, self._owner, newer_than=newest, vocabulary=self._words)
        except MalformedGoal:
            return False
        self._held = held
        self._course = Course(held.goal, self._words) if held.goal is not None else None
        return True

    # What we say, and what others say

    def values(self, around: Neighbourhood) -> Mapping[int, bytes]:
        if self._held is None:
            return {}
        room = max(0, around.config.capacity - around.config.reserved_slots - len(around.children))
        own = self._node(around)
        said = Said(
            self._held.version,
            self._held.digest,
            hops=around.hops,
            free=room,
            problem=self.problem,
            node=tuple(own[name] for name in NODE_MEASURED),
        )
        path = self._own_path(around) if self.course is not None else None
        if self.course is not None and path is not None:
            standing = self.course.standing(path, own)
            worst = max(standing.broken, key=lambda b: b[1], default=("", 0.0))
            said = replace(said, path=tuple(path), cost=standing.cost, violation=standing.violation, broken=worst[0])
        return said.as_values()

    def heard(self, peer: PeerId, values: Mapping[int, bytes], now: float) -> bool:
        known = self._note(peer, values, now)
        return known.said.version > (self._held.version if self._held is not None else 0)

    def measured(self, peer: PeerId, round_trip: float, values: Mapping[int, bytes], now: float) -> None:
        known = self._note(peer, values, now)
        known.round_trips = [*known.round_trips[-SAMPLES + 1 :], round_trip]

    def _note(self, peer: PeerId, values: Mapping[int, bytes], now: float) -> Known:
        known = self._known.pop(peer, None) or Known(now)
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[peer] = known  # the last one heard is the last to be forgotten
        known.heard_at = now
        known.said = read_said_untrusted(values)
        return known

    # Ways

    def _way(self, peer: PeerId, round_trip: float | None, loss: float | None, now: float) -> list[float] | None:
        """Path values through this peer; None if it did not say, or if the link was not measured."""
        known, course, held = self._known.get(peer), self.course, self._held
        if known is None or course is None or held is None or now - known.heard_at > KNOWN_FOR:
            return None
        trip = round_trip if round_trip is not None else known.round_trip
        if trip is None or known.said.version != held.version or len(known.said.path) != len(course.aggregates):
            return None
        sender = dict(zip(NODE_MEASURED, known.said.node, strict=False))
        return course.through(known.said.path, {"latency": trip / 2, "loss": loss or 0.0}, sender)

    def _parent_ways(self, around: Neighbourhood) -> dict[PeerId, list[float]]:
        qualities, found = around.qualities(), {}
        for parent in around.sound_parents:
            quality = qualities.get(parent.link)
            trip = quality.round_trip if quality is not None else None
            way = self._way(parent.peer_id, trip, quality.loss if quality is not None else None, around.now)
            if way is not None:
                found[parent.peer_id] = way
        return found

    def _scale(self, around: Neighbourhood) -> float:
        """What a round trip on a link is to that of an inquiry, by the parents, of which both are known.

        An inquiry takes longer: a stranger has to prove its address first. Without this every candidate would look
        twice as far as it is.
        """
        qualities, ratios = around.qualities(), []
        for parent in around.sound_parents:
            quality, known = qualities.get(parent.link), self._known.get(parent.peer_id)
            trip = known.round_trip if known is not None else None
            if quality is not None and quality.round_trip is not None and trip:
                ratios.append(quality.round_trip / trip)
        from statistics import median  # loads decimals and fractions, which only a peer with a goal needs

        return min(1.0, max(LEAST_SCALE, median(ratios))) if ratios else 1.0

    def _own_path(self, around: Neighbourhood) -> list[float] | None:
        assert self.course is not None
        if around.level == ROOT_LEVEL:
            return self.course.start
        ways = list(self._parent_ways(around).values())
        return self.course.together(ways) if ways else None

    def _node(self, around: Neighbourhood) -> dict[str, float]:
        """What a peer knows of itself."""
        children = float(len(around.children))
        return {
            "cpu": self.cpu(),
            "fanout": children,
            "load": children / max(1, around.config.capacity),
            "hops": float(around.hops),
            "parents": float(len(around.sound_parents)),
        }

    # Decisions

    def to_probe(self, around: Neighbourhood, rng: Random) -> list[PeerId]:
        """Parents, so that their links are measured alike; then those nearer than they are, and some strangers."""
        if self.course is None:
            return []
        parents = [parent.peer_id for parent in around.parents]
        open_ones = [c for c in around.candidates if c.free > 0 and self._may_try(c.peer_id, around.now)]
        near = sorted(open_ones, key=lambda c: (c.level, c.peer_id))[:2]
        others = [c for c in open_ones if c not in near]
        few = rng.sample(others, min(STRANGERS, len(others)))
        return [*parents, *(c.peer_id for c in (*near, *few))]

    def _may_try(self, peer: PeerId, now: float) -> bool:
        return self._avoided.get(peer, -math.inf) <= now

    def better(self, around: Neighbourhood, rng: Random) -> Replace | Vacate | None:
        if self.course is None or any(parent.dispute is not None for parent in around.parents):
            return super().better(around, rng)
        if around.now - self._moved_at < self._rules.dwell:
            return None
        node, ways = self._node(around), self._parent_ways(around)
        if len(ways) < len(around.sound_parents):
            return None  # a parent that has not said anything yet cannot be compared
        worth, scale = self.course.worth, self._scale(around)
        held = [Way(p, worth(way, node), self._known[p].said.hops) for p, way in ways.items()]
        offers = []
        for candidate in around.candidates:
            known = self._known.get(candidate.peer_id)
            trip = known.round_trip if known is not None else None
            way = self._way(candidate.peer_id, None if trip is None else trip * scale, None, around.now)
            if way is None or known is None or known.said.free <= 0 or not self._may_try(candidate.peer_id, around.now):
                continue
            if candidate.peer_id not in around.disputed:
                offers.append(Offer(Way(candidate.peer_id, worth(way, node), known.said.hops), True, {}))
        best = best_move(held, offers, weight=1.0, rules=self._rules) if held else None
        if best is None:
            return None
        parent = next(p for p in around.parents if p.peer_id == best.old)
        self._trying = best.new
        return Replace(parent.link, best.new)

    def surplus(self, around: Neighbourhood) -> Drop | None:
        ways = self._parent_ways(around) if self.course is not None else {}
        sound = around.sound_parents
        plain = len(sound) < len(around.parents) or any(parent.dispute is not None for parent in sound)
        if self.course is None or plain or not ways or len(sound) <= around.config.parents_wanted:
            return super().surplus(around)
        node = self._node(around)
        worths = {p.peer_id: self.course.worth(ways[p.peer_id], node) for p in sound if p.peer_id in ways}
        goes = self._broke_its_promise(around, worths)
        if goes is not None:
            self._avoided = {p: until for p, until in self._avoided.items() if until > around.now}
            if len(self._avoided) < MAX_KNOWN:
                self._avoided[goes.peer_id] = around.now + AVOID_SECONDS
            self.taken_back += 1
        else:
            # One that has said nothing is worth less than any that has.
            goes = max(sound, key=lambda p: (worths.get(p.peer_id, math.inf), p.since, p.link))
            self.moves += goes.peer_id != self._trying
        self._moved_at = around.now
        self._trying = None
        return Drop(goes.link)

    def _broke_its_promise(self, around: Neighbourhood, worths: Mapping[PeerId, float]) -> ParentView | None:
        """The newcomer, if it said that it was by far the best and its copies did not come first (rule O11)."""
        newcomer = next((p for p in around.sound_parents if p.peer_id == self._trying), None)
        if newcomer is None or newcomer.peer_id not in worths:
            return None
        quality = around.qualities().get(newcomer.link)
        others = [worth for peer, worth in worths.items() if peer != newcomer.peer_id]
        if quality is None or quality.first_share is None or not others:
            return None
        is_promise = worths[newcomer.peer_id] < PROMISE * min(others)
        return newcomer if is_promise and quality.first_share < LEAST_FIRST else None
