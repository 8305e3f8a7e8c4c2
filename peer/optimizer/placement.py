"""The placement of real peers: scored until the owner of the stream states a goal, then towards the goal.

Every peer decides for itself, or proposes and waits for the root's choice (`periods.py`), as the goal says. About every
30 s it measures its grandparents and three strangers, and moves to one with room, or exchanges slots with one without,
if that gains enough. The new parent is held beside the old ones for a trial; then whichever is worth least goes. A peer
that is short of a parent, or has a disputed one, does what it would do without a goal: repair comes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from peer.goals.syntax import Decider
from peer.goals.vocabulary import Vocabulary
from peer.mesh.messages import PeerId
from peer.mesh.placement.moves import Drop, Replace, Trade, Vacate
from peer.mesh.placement.neighbourhood import LinkQuality
from peer.optimizer.blending import blend
from peer.optimizer.following import MAX_KNOWN, GoalFollower, GoalStanding
from peer.optimizer.periods import Bid, short_name
from peer.optimizer.proposing import Hysteresis, Offer, Slot, Way, best_move
from peer.optimizer.said import read_said_untrusted

if TYPE_CHECKING:
    from random import Random

    from peer.mesh.events import LinkId
    from peer.mesh.messages import PeerAt
    from peer.mesh.placement.neighbourhood import Neighbourhood, ParentView

STRANGERS = 3
TRIAL_SECONDS = 5.0
AVOID_SECONDS = 600.0
"""How long a parent that did not keep its promise in its trial is not tried again."""
TRADE_AGAIN = 90.0
"""Seconds until an exchange with the same peer is tried again."""
MOST_LOSS = 1.5
"""A peer that is asked to go elsewhere does so if its cost does not grow beyond this times."""
MAX_HOPS = 12
PROMISE = 0.8
"""A newcomer that says it is this much better than every other parent must bring first copies..."""
LEAST_FIRST = 0.1
"""...of at least this share."""


class GoalPlacement(GoalFollower):
    """Satisfies `Placement` and `peer.mesh.guidance.Guide`. Without a goal it is a `ScoredPlacement`."""

    trial = TRIAL_SECONDS

    def __init__(self, vocabulary: Vocabulary | None = None, rules: Hysteresis | None = None) -> None:
        super().__init__(vocabulary)
        self._rules = rules or Hysteresis()
        self._avoided: dict[PeerId, float] = {}
        self._moved_at = -math.inf
        self._trying: PeerId | None = None
        self._leaving: PeerId | None = None
        """The parent to give up for the one that is tried, if that is settled already."""
        self._traded: dict[PeerId, float] = {}
        self.moves = 0
        """Parents given up for better ones."""
        self.taken_back = 0
        """Newcomers that did not keep their promise."""

    def standing(self, values: Mapping[int, bytes]) -> GoalStanding | None:
        """The goal, and how this peer does, from what it says of itself; None without a goal."""
        if self._held is None:
            return None
        said = read_said_untrusted(values)
        held = self._held
        return GoalStanding(held.text, held.version, said.cost, said.broken, said.problem, self.moves, self.taken_back)

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
        if best is None or not self._is_my_turn(best.gain, (around.own, best.old, best.new), around):
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

    def _is_my_turn(self, gain: float, peers: tuple[PeerId, ...], around: Neighbourhood) -> bool:
        """Whether this peer decides; if the root does, propose, unless it has just chosen us."""
        if self.course is None or self.course.goal.by is Decider.PEERS:
            return True
        if self._periods.is_chosen(around.own):
            self._periods.done(around.own)
            return True
        if self.is_critical(around):
            self._periods.propose(Bid(gain, tuple(short_name(peer) for peer in peers)), around.now)
        return False

    def is_due(self, own: PeerId) -> bool:
        """Whether the root has just chosen our proposal; said once."""
        return self._periods.is_news(own)

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
