"""A peer that follows a goal: what it knows of its neighbours and candidates, what it says, and what paths are worth.

What it does about that is `placement.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from peer.goals.signed import MalformedGoal, OwnedGoal, read_goal_untrusted
from peer.goals.syntax import Decider, Kind, Over
from peer.goals.units import TIME
from peer.goals.vocabulary import VOCABULARY, Vocabulary
from peer.mesh.levels import ROOT_LEVEL
from peer.mesh.messages import PeerId
from peer.mesh.placement.neighbourhood import LinkQuality
from peer.mesh.placement.scored import ScoredPlacement
from peer.optimizer.blending import shares
from peer.optimizer.course import NODE_MEASURED, Course
from peer.optimizer.periods import Choice, Periods, independent, newest
from peer.optimizer.said import MAX_WEIGHT, Said, read_said_untrusted

if TYPE_CHECKING:
    from peer.mesh.placement.neighbourhood import Neighbourhood

MAX_KNOWN = 256
"""Peers of which something was heard or measured; beyond it the oldest is forgotten."""
KNOWN_FOR = 90.0
"""Seconds that what a peer said is used."""
SAMPLES = 4
WIDEST = 1e12
"""Bytes per second: the bandwidth of a link that was not measured yet."""
LATER = 0.001
"""Seconds by which copies must come later for that to mean anything."""
LEAST_SCALE = 0.25
NEAR_WORST = 0.01
"""A cost so near to the worst one counts as the worst."""


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


class GoalFollower(ScoredPlacement):
    """Holds the goal and what was heard and measured."""

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        self._words = vocabulary or VOCABULARY
        self._stream, self._owner = "", b""
        self._held: OwnedGoal | None = None
        self._course: Course | None = None
        self._known: dict[PeerId, Known] = {}
        self._periods = Periods()
        self._limit: tuple[Course, int, int | None] | None = None

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

    def values(self, around: Neighbourhood, parent: PeerId | None = None) -> Mapping[int, bytes]:
        if self._held is None:
            return {}
        config, limit = around.config, self.limit(around.config.capacity)
        if limit is not None:
            config = replace(config, capacity=min(limit, config.capacity))
        room = max(0, config.capacity - config.reserved_slots - len(around.children))
        own = self._node(around)
        said = Said(
            self._held.version,
            self._held.digest,
            hops=around.hops,
            free=room,
            problem=self.problem,
            node=tuple(own.get(name, 0.0) for name in NODE_MEASURED),
        )
        path = self._own_path(around) if self.course is not None else None
        if self.course is not None and path is not None:
            standing = self.course.standing(path, own)
            worst = max(standing.broken, key=lambda b: b[1], default=("", 0.0))
            said = replace(said, path=tuple(path), cost=standing.cost, violation=standing.violation, broken=worst[0])
        if parent is not None:
            said = replace(said, weight=self._share(around, parent) * self.weight(around), height=self.height(around))
        if self.course is not None and self.course.goal.by is Decider.ROOT:
            said = replace(said, **self._coordinated(around, up=parent is not None))
        return said.as_values()

    def _coordinated(self, around: Neighbourhood, *, up: bool) -> dict[str, Any]:
        """What the root's periods need: proposals and the worst cost go up, choices go down."""
        below = self._below(around)
        if up:
            bids = independent([*self._periods.proposed(around.now), *(bid for said in below for bid in said.bids)])
            return {"bids": tuple(bids), "worst": self.worst(around)}
        if around.level != ROOT_LEVEL:
            return {"choices": self._choices(around)}
        bids = [bid for said in below for bid in said.bids]
        worst = max((said.worst for said in below if said.worst is not None), default=0.0)
        return {"choices": (self._periods.choose(around.own, bids, worst, around.now),)}

    def _choices(self, around: Neighbourhood) -> tuple[Choice, ...]:
        """The roots' last choices, as parents pass them down."""
        known = (self._known.get(parent.peer_id) for parent in around.sound_parents)
        return newest([choice for one in known if one is not None for choice in one.said.choices])

    def worst(self, around: Neighbourhood) -> float:
        """The highest cost of this peer and those below."""
        path = self._own_path(around) if self.course is not None else None
        own = -math.inf if path is None else self._worth(path, self._node(around))
        return max([own, *(said.worst for said in self._below(around) if said.worst is not None)])

    def is_critical(self, around: Neighbourhood) -> bool:
        """Whether a move of this peer can change the system's cost: for `min` and `max` only above the worst peer."""
        choices = self._choices(around)
        if self.course is None or self.course.goal.cost.function.kind is not Kind.BOTTLENECK or not choices:
            return True
        worst = max(choice.worst for choice in choices)
        return self.worst(around) >= worst - NEAR_WORST * abs(worst)

    # Who is below

    def weight(self, around: Neighbourhood) -> float:
        """By how much the sum of all costs grows when ours grows by 1 (rule O5)."""
        course = self.course
        over = course.goal.cost.over if course is not None else Over.PEERS
        own = over is Over.PEERS or (around.has_client if over is Over.CLIENTS else around.config.capacity > 0)
        below = sum(said.weight for said in self._below(around))
        return min(own + below, MAX_WEIGHT)

    def height(self, around: Neighbourhood) -> int:
        """Links to the farthest peer below."""
        return max((1 + said.height for said in self._below(around)), default=int(bool(around.children)))

    def _below(self, around: Neighbourhood) -> list[Said]:
        known = (self._known.get(child.peer_id) for child in around.children)
        return [one.said for one in known if one is not None and around.now - one.heard_at <= KNOWN_FOR]

    def _share(self, around: Neighbourhood, parent: PeerId) -> float:
        """The part of our cost that comes through this parent: how often its copy is expected to be the first."""
        ways = self._parent_ways(around)
        if self.course is None or parent not in ways:
            return 0.0
        node = self._node(around)
        ranked = sorted(ways, key=lambda p: (self._worth(ways[p], node), p))
        return shares(len(ranked))[ranked.index(parent)]

    def limit(self, capacity: int) -> int | None:
        """The most children that the goal allows."""
        course = self.course
        if course is None:
            return None
        if self._limit is None or self._limit[:2] != (course, capacity):
            self._limit = course, capacity, course.child_limit(capacity)
        return self._limit[2]

    def heard(self, peer: PeerId, values: Mapping[int, bytes], now: float) -> bool:
        known = self._note(peer, values, now)
        self._periods.hear(known.said.choices)
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

    def _way(self, peer: PeerId, quality: LinkQuality, around: Neighbourhood) -> list[float] | None:
        """Path values through this peer; None if it did not say, or if the link was not measured.

        What can't be known before a link stands is assumed to be as good as it can be: the trial will show it.
        """
        known, course, held = self._known.get(peer), self.course, self._held
        if known is None or course is None or held is None or around.now - known.heard_at > KNOWN_FOR:
            return None
        trip = quality.round_trip if quality.round_trip is not None else known.round_trip
        if trip is None or known.said.version != held.version or len(known.said.path) != len(course.aggregates):
            return None
        link = {
            "latency": trip / 2,
            "loss": quality.loss or 0.0,
            "lateness": quality.lateness or 0.0,
            "rate": quality.rate if quality.rate is not None else around.measures().get("incoming", 0.0),
            "bandwidth": min(quality.bandwidth if quality.bandwidth is not None else WIDEST, WIDEST),
        }
        return course.through(known.said.path, link, dict(zip(NODE_MEASURED, known.said.node, strict=False)))

    def _parent_ways(self, around: Neighbourhood) -> dict[PeerId, list[float]]:
        qualities, found = around.qualities(), {}
        for parent in around.sound_parents:
            way = self._way(parent.peer_id, qualities.get(parent.link, LinkQuality()), around)
            if way is not None:
                found[parent.peer_id] = way
        late = {p.peer_id: q.lateness for p in around.sound_parents if (q := qualities.get(p.link)) is not None}
        self._believe(found, late, self._node(around))
        return found

    def _believe(
        self, ways: dict[PeerId, list[float]], late: Mapping[PeerId, float | None], node: Mapping[str, float]
    ) -> None:
        """A parent may say what it likes, but if its copies come later than another's, its path is no shorter."""
        if self.course is None or self.course.goal.cost.cost.dimension != TIME:
            return
        known = sorted((seconds, peer) for peer, seconds in late.items() if seconds is not None and peer in ways)
        for place, (seconds, peer) in enumerate(known):
            for sooner, other in known[:place]:
                if seconds > sooner + LATER and self._worth(ways[peer], node) < self._worth(ways[other], node):
                    ways[peer] = ways[other]

    def _worth(self, way: Sequence[float], node: Mapping[str, float]) -> float:
        assert self.course is not None
        return self.course.worth(way, node)

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
            **around.measures(),
            "fanout": children,
            "load": children / max(1, around.config.capacity),
            "hops": float(around.hops),
            "parents": float(len(around.sound_parents)),
        }
