"""The placement of real peers: scored until the owner of the stream states a goal, then towards the goal.

Every peer decides for itself (local mode). About every 30 s it measures its grandparents and three strangers, and moves
to one with room if that gains enough. The new parent is held beside the old ones for a trial; then whichever is worth
least goes. A peer that is short of a parent, or has a disputed one, does what it would do without a goal: repair comes
first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from peer.goals.signed import MalformedGoal, OwnedGoal, read_goal_untrusted
from peer.goals.syntax import Over
from peer.goals.units import TIME
from peer.goals.vocabulary import VOCABULARY, Vocabulary
from peer.mesh.levels import ROOT_LEVEL
from peer.mesh.messages import PeerId
from peer.mesh.placement.moves import Drop, Replace, Trade, Vacate
from peer.mesh.placement.neighbourhood import LinkQuality
from peer.mesh.placement.scored import ScoredPlacement
from peer.optimizer.blending import blend, shares
from peer.optimizer.course import NODE_MEASURED, Course
from peer.optimizer.proposing import Hysteresis, Offer, Slot, Way, best_move
from peer.optimizer.said import MAX_WEIGHT, Said, read_said_untrusted

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.events import LinkId
    from peer.mesh.messages import PeerAt
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
TRADE_AGAIN = 90.0
"""Seconds until an exchange with the same peer is tried again."""
MOST_LOSS = 1.5
"""A peer that is asked to go elsewhere does so if its cost does not grow beyond this times."""
MAX_HOPS = 12
WIDEST = 1e12
"""Bytes per second: the bandwidth of a link that was not measured yet."""
LATER = 0.001
"""Seconds by which copies must come later for that to mean anything."""
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
        self._leaving: PeerId | None = None
        """The parent to give up for the one that is tried, if that is settled already."""
        self._traded: dict[PeerId, float] = {}
        self._limit: tuple[Course, int, int | None] | None = None
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
        return said.as_values()

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

    # Decisions

    def to_probe(self, around: Neighbourhood, rng: Random) -> list[PeerId]:
        """Parents, so that their links are measured alike; then those nearer than they are, and some strangers."""
        if self.course is None:
            return []
        parents = [parent.peer_id for parent in around.parents]
        able = [c for c in around.candidates if self._may_try(c.peer_id, around.now)]
        near = sorted(able, key=lambda c: (c.level, c.peer_id))[:2]
        others = [c for c in able if c not in near and c.free > 0]
        few = rng.sample(others, min(STRANGERS, len(others)))
        return [*parents, *(c.peer_id for c in (*near, *few))]

    def _may_try(self, peer: PeerId, now: float) -> bool:
        return self._avoided.get(peer, -math.inf) <= now

    def better(self, around: Neighbourhood, rng: Random) -> Replace | Vacate | Trade | None:
        if self.course is None or any(parent.dispute is not None for parent in around.parents):
            return super().better(around, rng)
        if around.now - self._moved_at < self._rules.dwell:
            return None
        node, ways = self._node(around), self._parent_ways(around)
        if len(ways) < len(around.sound_parents):
            return None  # a parent that has not said anything yet cannot be compared
        self._leaving, scale, weight = None, self._scale(around), self.weight(around)
        held = [Way(p, self._worth(way, node), self._known[p].said.hops) for p, way in ways.items()]
        anybody = {p: [Slot(PeerId(b""), 1.0, 0.0)] for p in ways}  # who makes room, and at what price, they will say
        offers = []
        for candidate in around.candidates:
            known = self._known.get(candidate.peer_id)
            trip = known.round_trip if known is not None else None
            quality = LinkQuality(round_trip=None if trip is None else trip * scale)
            way = self._way(candidate.peer_id, quality, around)
            if way is None or known is None or not self._may_try(candidate.peer_id, around.now):
                continue
            has_room = known.said.free > 0
            if candidate.peer_id not in around.disputed and (has_room or self._may_trade(candidate.peer_id, around)):
                offers.append(Offer(Way(candidate.peer_id, self._worth(way, node), known.said.hops), has_room, anybody))
        height = self.height(around)
        best = best_move(held, offers, weight=weight, height=height, rules=self._rules) if held and weight else None
        if best is None:
            return None
        parent = next(p for p in around.parents if p.peer_id == best.old)
        self._trying = best.new
        if best.gives_way is None:
            return Replace(parent.link, best.new)
        if len(self._traded) >= MAX_KNOWN:
            del self._traded[next(iter(self._traded))]
        self._traded[best.new] = around.now + TRADE_AGAIN
        spared = self._rules.share * weight * abs(blend([way.cost for way in held]))
        return Trade(parent.link, best.new, best.gain - spared)

    def _may_trade(self, peer: PeerId, around: Neighbourhood) -> bool:
        return self._traded.get(peer, -math.inf) <= around.now and len(around.sound_parents) == len(around.parents)

    # Exchanges

    def givers(self, around: Neighbourhood, old: PeerAt) -> list[LinkId]:
        said = {child.link: self._known.get(child.peer_id) for child in around.children}
        able = [
            child
            for child in around.children
            if child.report is not None and not child.report.is_leaving and child.report.parents > 1
            and child.peer_id != old.peer_id
        ]  # fmt: skip
        weights = {link: known.said.weight if known is not None else 0.0 for link, known in said.items()}
        return [child.link for child in sorted(able, key=lambda c: (weights[c.link], c.link))]

    def price(self, around: Neighbourhood, parent: PeerId, new: PeerId) -> float | None:
        now, after, hops = self._with(around, parent, new)
        if now is None or after is None or around.now - self._moved_at < self._rules.dwell:
            return None
        deepest = 1 + max(p.hops for p in around.parents)
        if hops > deepest and hops + self.height(around) > MAX_HOPS:
            return None
        return self.weight(around) * (after - now)

    def swap(self, parent: PeerId, new: PeerId) -> None:
        self._leaving, self._trying = parent, new

    def elsewhere(self, around: Neighbourhood, parent: LinkId) -> PeerId | None:
        leaving = next((p.peer_id for p in around.parents if p.link == parent), None)
        found: list[tuple[float, PeerId]] = []
        for candidate in around.candidates:
            known = self._known.get(candidate.peer_id)
            if leaving is None or known is None or known.said.free <= 0:
                continue
            now, after, hops = self._with(around, leaving, candidate.peer_id)
            is_deep = hops + self.height(around) > MAX_HOPS
            if now is not None and after is not None and after - now <= (MOST_LOSS - 1) * abs(now) and not is_deep:
                found.append((after, candidate.peer_id))
        return min(found)[1] if found else None

    def _with(self, around: Neighbourhood, parent: PeerId, new: PeerId) -> tuple[float | None, float | None, int]:
        """Our cost now and with `new` instead of `parent`, and how many hops away we are then."""
        ways, node, known = self._parent_ways(around), self._node(around), self._known.get(new)
        trip = known.round_trip if known is not None else None
        quality = LinkQuality(round_trip=None if trip is None else trip * self._scale(around))
        way = self._way(new, quality, around)
        if way is None or known is None or parent not in ways or len(ways) < len(around.sound_parents):
            return None, None, MAX_HOPS
        costs = {p: self._worth(w, node) for p, w in ways.items()}
        rest = [cost for p, cost in costs.items() if p != parent]
        hops = 1 + max([*(p.hops for p in around.parents if p.peer_id != parent), known.said.hops])
        return blend(list(costs.values())), blend([*rest, self._worth(way, node)]), hops

    # What is given up

    def surplus(self, around: Neighbourhood) -> Drop | None:
        sound = around.sound_parents
        plain = len(sound) < len(around.parents) or any(parent.dispute is not None for parent in sound)
        if self.course is None or plain or len(sound) <= around.config.parents_wanted:
            return super().surplus(around)
        settled = next((p for p in sound if p.peer_id == self._leaving), None)
        if settled is not None and any(p.peer_id == self._trying for p in sound):
            self._moved_at, self._leaving, self._trying = around.now, None, None
            self.moves += 1
            return Drop(settled.link)
        ways = self._parent_ways(around)
        if not ways:
            return super().surplus(around)
        node = self._node(around)
        worths = {p.peer_id: self._worth(ways[p.peer_id], node) for p in sound if p.peer_id in ways}
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
