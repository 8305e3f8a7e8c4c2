"""Getting parents: joins, refusals, time-outs, hedging, back-off, and asking the directory.

Knows the candidates and what is pending; whether more parents are needed at all is summed up here from the parent
table, and what a new parent means is the mesh machine's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.candidates import AVOIDANCE, Candidate, CandidateCache
from peer.mesh.encoding import decode_answer_untrusted, decode_refuse_untrusted, encode_join, encode_request
from peer.mesh.events import CandidatesWanted, Inquire, Inquiry, LinkId, OpenLink, OtherVersion
from peer.mesh.membership import SEEKING, Membership
from peer.mesh.messages import (
    VERSION,
    ChildrenRequest,
    CloseReason,
    Join,
    MalformedMessage,
    PeerId,
    Peers,
    RefuseReason,
)
from peer.mesh.parents import ParentTable, PendingJoin
from peer.mesh.placement.moves import Replace
from peer.mesh.timers import Timer

if TYPE_CHECKING:
    from peer.mesh.children import ChildTable
    from peer.mesh.hostport import HostPort
    from peer.mesh.placement.moves import Placement, Trade, Vacate
    from peer.mesh.placement.neighbourhood import Neighbourhood
    from peer.mesh.state import MeshState
    from peer.mesh.surroundings import Surroundings

LOOKUP_COUNT = 24
"""Candidates asked of the directory at once: three choices of eight."""
MAX_DOUBLINGS = 16
URGENT_ROUNDS = 2
"""After so many rounds without a parent the goal's limits on children no longer count for us."""
MAX_INQUIRIES = 32
"""Children inquiries in flight; the walk asks one a refusal, and a refusal beyond this is only a refusal."""


class Seeking:
    """Invariant: a candidate is pending at most once; every pending join has a deadline that WATCH will see."""

    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        candidates: CandidateCache,
        pending: dict[LinkId, PendingJoin],
        *,
        placement: Placement,
        surroundings: Surroundings,
        query: bytes,
    ) -> None:
        self._own, self._config = own, own.config
        self._parents, self._children = parents, children
        self._placement, self._surroundings, self._query = placement, surroundings, query
        self.candidates = candidates
        self.pending = pending
        self._inquiries: dict[Inquiry, PeerId] = {}
        self._probes: set[Inquiry] = set()
        self._joins = 0
        self._tries = 0
        self._rounds = 0
        self._is_starved = False
        self._looked_at = float("-inf")

    # When to seek

    def soon(self, now: float) -> None:
        """A new difference: start at once, with no back-off left over from an earlier one."""
        self._tries = self._rounds = 0
        if self._own.state in SEEKING:
            self._own.timers.set_earlier(Timer.SEEK, now)

    def wake_if_starved(self, now: float) -> None:
        """New candidates came, and there had been none."""
        if self._is_starved and self._own.state in SEEKING:
            self._own.timers.set_earlier(Timer.SEEK, now)

    def succeeded(self) -> None:
        self._tries = self._rounds = 0

    def seek(self, now: float) -> None:
        """Send as many joins as parents are missing. A join that is slow to be answered no longer counts (hedging)."""
        if self._own.state not in SEEKING:
            return
        young = [join.sent_at for join in self.pending.values() if now - join.sent_at < self._config.hedge_after]
        if young:  # whatever woke us took the timer with which the oldest of these would be hedged
            self._own.timers.set_earlier(Timer.SEEK, min(young) + self._config.hedge_after + 0.001)
        need = self._own.parents_to_hold - len(self._parents.sound()) - len(young)
        if need <= 0:
            return
        if self._own.state is not Membership.STEADY:
            self.look_up(now)
        self._is_starved = False
        for _ in range(need):
            candidate = self._next_candidate(now) if self._tries < self._config.joins_per_round else None
            if candidate is None:
                self._is_starved = self._tries < self._config.joins_per_round
                self._back_off(now)
                return
            self._join(candidate, now)

    def _back_off(self, now: float) -> None:
        low, high = self._config.backoff_base
        delay = min(self._own.rng.uniform(low, high) * 2.0**self._rounds, self._config.backoff_limit)
        self._tries = 0
        self._rounds = min(self._rounds + 1, MAX_DOUBLINGS)
        self._own.counters["rounds_failed"] += 1
        self._own.timers.set(Timer.SEEK, now + delay)

    # Whom to ask

    def _next_candidate(self, now: float) -> Candidate | None:
        around = self._surroundings.at(now)
        move = self._placement.wanted(around, self._own.rng)
        return None if move is None else self._allowed(move.candidate, around)

    def improve(self, now: float) -> Vacate | Trade | None:
        """Make before break: a better parent is joined first, then one is given up. What needs more than a join is
        returned."""
        move = self._placement.better(self._surroundings.at(now), self._own.rng)
        if isinstance(move, Replace):
            self.replace(move.candidate, move.parent, now)
            return None
        return move

    def replace(self, peer_id: PeerId, parent: LinkId, now: float, *, is_trade: bool = False) -> bool:
        """Join a candidate, beside the parent that it is to replace; False if levels or our experience forbid it."""
        candidate = self._allowed(peer_id, self._surroundings.at(now))
        if candidate is not None:
            self._join(candidate, now, replaces=parent, is_trade=is_trade)
        return candidate is not None

    def probe(self, now: float) -> None:
        """Ask a peer on whose life our place depends whether it lives."""
        peer_id = self._placement.probe(self._surroundings.at(now))
        candidate = self.candidates.find(peer_id) if peer_id is not None else None
        if candidate is not None and len(self._inquiries) < MAX_INQUIRIES:
            self._probes.add(self._inquire(candidate.peer_id, candidate.address))

    def _allowed(self, peer_id: PeerId, around: Neighbourhood) -> Candidate | None:
        """The candidate behind a move, unless the level rules or our experience forbid to ask it."""
        candidate = self.candidates.find(peer_id) if around.may_ask(peer_id) else None
        if candidate is None:
            self._own.counters["moves_vetoed"] += 1
        return candidate

    def look_up(self, now: float, *, below: int | None = None) -> None:
        """Ask the directory, not too often; with `below` given, at once."""
        if below is None:
            if now - self._looked_at < self._config.lookup_patience:
                return
            below = self._own.rules.ceiling(self._own.level, has_children=bool(self._children))
        self._looked_at = now
        self._own.counters["lookups"] += 1
        places = self._placement.keys(self._surroundings.at(now))
        self._own.effects.append(CandidatesWanted(below, bool(self._children), LOOKUP_COUNT, places))

    # Joins

    def _join(
        self, candidate: Candidate, now: float, *, replaces: LinkId | None = None, is_trade: bool = False
    ) -> None:
        own = self._own
        link = own.new_link()
        self._joins += 1
        self._tries += 1
        candidate.joins += 1
        deadline_at = now + self._config.join_timeout
        self.pending[link] = PendingJoin(candidate.peer_id, candidate.address, now, deadline_at, replaces)
        has_children = bool(self._children)
        hello = Join(
            own.peer_id,
            own.run,
            self._joins,
            own.rules.ceiling(own.level, has_children=has_children),
            self._config.parents_wanted,
            len(self._parents.sound()),
            self._parents.resilience(),
            is_repair=own.is_repairing and replaces is None,
            has_children=has_children,
            is_optional=replaces is not None,
            is_trade=is_trade,
            is_urgent=replaces is None and self._rounds >= URGENT_ROUNDS,
        )
        own.counters["joins_sent"] += 1
        own.effects.append(OpenLink(link, candidate.peer_id, candidate.address, encode_join(hello)))
        own.timers.set_earlier(Timer.WATCH, deadline_at)
        if replaces is None:
            own.timers.set_earlier(Timer.SEEK, now + self._config.hedge_after + 0.001)

    def take_answered(self, link: LinkId, now: float) -> PendingJoin | None:
        """The join that this answer belongs to, if it still counts."""
        join = self.pending.pop(link, None)
        if join is not None:
            self.candidates.answered(join.peer_id, round_trip=now - join.sent_at, now=now)
        return join

    def refused(self, link: LinkId, reason: int, body: bytes, now: float) -> None:
        join = self.take_answered(link, now)
        if join is None:
            return
        own = self._own
        own.counters["joins_refused"] += 1
        try:
            why = RefuseReason(reason)
        except ValueError:
            why = RefuseReason.POLICY  # a reason from a later version: leave that peer alone
        self.candidates.refused(join.peer_id, why, until=now + AVOIDANCE[why] * own.rng.uniform(0.75, 1.25))
        if why is RefuseReason.VERSION and body:
            own.events.append(OtherVersion(join.address, "mesh", body[0], body[0], VERSION))
            body = b""
        try:
            referrals = decode_refuse_untrusted(body).referrals if body else ()
        except MalformedMessage:
            own.counters["malformed"] += 1
        else:
            self.candidates.add_hearsay(referrals, teller=self.candidates.find(join.peer_id), now=now)
        if self._placement.after_refusal(join.peer_id, why) is not None and len(self._inquiries) < MAX_INQUIRIES:
            self._inquire(join.peer_id, join.address)
        self._failed(join, now)

    def _inquire(self, peer_id: PeerId, address: HostPort) -> Inquiry:
        inquiry = Inquiry(self._own.new_link())
        self._inquiries[inquiry] = peer_id
        self._own.counters["inquiries"] += 1
        self._own.effects.append(Inquire(inquiry, address, encode_request(ChildrenRequest(self._query))))
        return inquiry

    def decline(self, link: LinkId, join: PendingJoin, reason: CloseReason, avoid: float, now: float) -> None:
        """An Accept that we do not take."""
        self._own.close(link, reason)
        self.candidates.avoid(join.peer_id, until=now + avoid)
        self._failed(join, now)

    def unanswered(self, link: LinkId, now: float) -> bool:
        """An opening that ended without an answer; says whether it was one."""
        join = self.pending.pop(link, None)
        if join is None:
            return False
        self._own.counters["joins_unanswered"] += 1
        self.candidates.failed(join.peer_id, now=now)
        self._failed(join, now)
        return True

    def expire(self, now: float) -> float:
        """Give up what is overdue; says when the next will be."""
        for link in [link for link, join in self.pending.items() if join.deadline_at <= now]:
            self._own.close(link, CloseReason.NOT_PENDING)
            self.unanswered(link, now)
        return min((join.deadline_at for join in self.pending.values()), default=float("inf"))

    def give_up(self) -> None:
        for link in self.pending:
            self._own.close(link, CloseReason.NOT_PENDING)
        self.pending.clear()

    def _failed(self, join: PendingJoin, now: float) -> None:
        if join.replaces is None and self._own.state in SEEKING:
            self._own.timers.set_earlier(Timer.SEEK, now)

    # Children answers, for the walk

    def inquiry_answered(self, inquiry: Inquiry, answer: bytes, now: float) -> None:
        asked = self._inquiries.pop(inquiry, None)
        self._probes.discard(inquiry)
        if asked is None:
            return
        try:
            peers = decode_answer_untrusted(answer)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return
        if isinstance(peers, Peers):
            self.candidates.add_hearsay(peers.peers, teller=self.candidates.find(asked), now=now)
            self.wake_if_starved(now)

    def inquiry_timed_out(self, inquiry: Inquiry, now: float) -> None:
        asked = self._inquiries.pop(inquiry, None)
        if inquiry in self._probes:
            self._probes.discard(inquiry)
            if asked is not None:
                self.candidates.failed(asked, now=now)
