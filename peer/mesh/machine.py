"""The mesh machine: membership, parents, children, repair. Pure: it is given `now` and randomness, and does no I/O.

Theory of operation. Inputs are what happened on links (`receive_join`, `link_opened`, `receive_message`, ...), the
clock (`handle_timeout`), the directory's answers (`add_candidates`) and the owner's commands (`start_root`, `start`,
`leave`). After each input the owner runs `take_effects()` in order, drains `next_event()`, and calls again no later
than `next_timeout()`. Nothing here is decided twice: levels by `levels.py`, states by the table of `membership.py`,
silence by `liveness.py`, who may come in by `admission.py`, when to ask for parents by `seeking.py`, whom to ask, give
up or send away by a `placement`; this file lets them meet.

A repair is not a procedure but a difference: whenever sound parents and pending joins together are fewer than wanted,
joins are sent. Suspicion, loss, a parent that says it will leave and a parent that is no longer fed all make the same
difference. So races need no cases: an answer that comes too late finds the difference gone, and is declined.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dcp.admission import HostBuckets
from peer.mesh import messages
from peer.mesh.admission import Admission
from peer.mesh.advertising import Advertising
from peer.mesh.candidates import AVOIDANCE, CandidateCache
from peer.mesh.children import Child, ChildTable
from peer.mesh.events import (
    AcceptLink,
    ChildGained,
    ChildLost,
    ColdRestart,
    Degraded,
    Effect,
    Event,
    Inquiry,
    JoinTicket,
    Leaving,
    Left,
    LinkId,
    ParentGained,
    ParentLost,
    ParentSuspected,
    RefuseLink,
    Restored,
    SendMessage,
    Thawed,
)
from peer.mesh.hostport import HostPort
from peer.mesh.levels import ROOT_LEVEL, LevelRules
from peer.mesh.liveness import slept
from peer.mesh.membership import SEEKING, Input, Membership, MembershipError
from peer.mesh.messages import ROOT_RESILIENCE, UNPLACED, CloseReason, MalformedMessage, PeerId, RefuseReason
from peer.mesh.parents import Parent, ParentTable, PendingJoin
from peer.mesh.placement.scored import ScoredPlacement
from peer.mesh.seeking import Seeking
from peer.mesh.state import MeshState
from peer.mesh.surroundings import NoObserver, Surroundings
from peer.mesh.timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from peer.mesh.candidates import CandidateRecord
    from peer.mesh.config import MeshConfig
    from peer.mesh.placement.moves import Placement
    from peer.mesh.surroundings import LinkObserver

COLD_RETRY = 1.0
"""Seconds until an orphan that found nobody at any level looks again whether a cold restart would help."""
MAX_QUESTIONS_PER_SECOND = 40.0
"""Children(Q) that are answered; each is compared with every child's query. A peer that walks asks one per refusal."""
NEVER = float("inf")


class Mesh:
    """One peer's part in one stream's mesh."""

    def __init__(
        self,
        peer_id: PeerId,
        config: MeshConfig,
        *,
        rng: Random,
        placement: Placement | None = None,
        rules: LevelRules | None = None,
        observer: LinkObserver | None = None,
        admits: Callable[[HostPort], bool] = lambda address: True,
        carries: Callable[[bytes], bool] = lambda query: True,
        covers: Callable[[bytes, bytes], bool] = lambda wide, narrow: not wide or wide == narrow,
        coverage: Callable[[bytes], float] = lambda query: 1.0,
        query: bytes = b"",
    ) -> None:
        """Queries are opaque here; an empty one is everything.

        `admits(address)`: may somebody from there be our child. `carries(query)`: do we have, or can we get, all of
        it. `covers(wide, narrow)`: for Children(Q), whose Q is a stranger's: it must be bounded and raise nothing.
        `coverage(query)`: the share of our own query in what a candidate carries. `query`: our own, for inquiries.
        """
        own = MeshState(peer_id, config, rules or LevelRules(config.level_step), rng)
        self._own = own
        self.parents = ParentTable(config)
        self.children = ChildTable(config)
        self.candidates = CandidateCache(peer_id, limit=config.max_candidates, lifetime=config.candidate_lifetime)
        self.pending: dict[LinkId, PendingJoin] = {}
        self._observer = observer or NoObserver()
        tables = self.parents, self.children, self.candidates, self.pending
        self._surroundings = Surroundings(own, *tables, observer=self._observer, coverage=coverage)
        self._placement = placement or ScoredPlacement()
        self._seeking = Seeking(own, *tables, placement=self._placement, surroundings=self._surroundings, query=query)
        self._admission = Admission(
            own,
            self.parents,
            self.children,
            placement=self._placement,
            surroundings=self._surroundings,
            admits=admits,
            carries=carries,
        )
        self._questions = HostBuckets(MAX_QUESTIONS_PER_SECOND, MAX_QUESTIONS_PER_SECOND / 2)
        self._advertising = Advertising(own)
        self._covers = covers
        self._now = float("-inf")
        self._probes = 0
        self._root_beat = 0
        self._short_since: float | None = None

    # Commands

    def start_root(self, *, now: float) -> None:
        self._enter(now)
        self._own.step(Input.START_ROOT)
        self._own.set_level(ROOT_LEVEL)
        self._advertising.touch(now)

    def start(self, *, now: float) -> None:
        """As a router, or with a capacity of 0 as a leaf."""
        self._enter(now)
        own = self._own
        own.step(Input.START)
        self._short_since = now
        own.timers.set(Timer.SEEK, now)
        own.timers.set(Timer.LOOKUP, now + own.jittered(own.config.lookup_interval))
        own.timers.set(Timer.REPLACE, now + own.jittered(own.config.replace_interval))
        self._seeking.look_up(now)

    def leave(self, *, now: float) -> None:
        """Withdraw, tell everybody, feed the children for a moment more, go."""
        self._enter(now)
        own = self._own
        own.step(Input.LEAVE)
        self._seeking.give_up()
        for timer in (Timer.SEEK, Timer.COLD, Timer.PRUNE, Timer.REPLACE, Timer.LOOKUP, Timer.PUBLISH):
            own.timers.stop(timer)
        self._advertising.withdraw()
        own.events.append(Leaving(len(self.children)))
        if own.state is Membership.LEFT or not self.children:
            self._finish(now)
            return
        own.timers.set(Timer.LEAVE, now + own.config.leave_grace)
        self._send_beat(now)

    def add_candidates(self, records: Iterable[CandidateRecord], *, now: float) -> None:
        """What the directory found. May be called at any time, asked or not."""
        self._enter(now)
        self._seeking.candidates.add_records(records, now)
        self._seeking.wake_if_starved(now)

    def carried_changed(self, *, now: float) -> None:
        """What the record says of our query is no longer so."""
        self._enter(now)
        self._advertising.touch(now)

    def drop_child(self, link: LinkId, reason: CloseReason, *, now: float) -> None:
        """A child has come to want what it can't have here; it keeps its other parents, and finds another for us."""
        self._enter(now)
        child = self.children.links.get(link)
        if child is not None:
            self._own.counters[f"dropped_{reason.name.lower()}"] += 1
            self._lose_child(child, reason, now)

    # Inputs from links

    def receive_join(
        self, ticket: JoinTicket, address: HostPort, hello: bytes, *, now: float, query: bytes = b""
    ) -> None:
        """Somebody opens a link to us; answered at once, with AcceptLink or RefuseLink."""
        self._enter(now)
        own = self._own
        try:
            join = messages.decode_join_untrusted(hello)
        except MalformedMessage:
            own.counters["malformed"] += 1
            own.effects.append(RefuseLink(ticket, RefuseReason.MALFORMED, b""))
            return
        judged = self._admission.judge(join, address, query=query, rooted=self.is_rooted, now=now)
        if isinstance(judged, RefuseReason):
            own.counters[f"refused_{judged.name.lower()}"] += 1
            helps = judged in (RefuseReason.FULL, RefuseReason.TOO_MANY_JOINS)
            referrals = self.children.referrals(join, own.rng) if helps else ()
            own.effects.append(RefuseLink(ticket, judged, messages.encode_refuse(messages.Refuse(referrals))))
            return
        link = own.new_link()
        self.children.add(link, join, address, query=query, now=now)  # before the other goes: never empty in between
        own.version += 1
        own.counters["accepted"] += 1
        if judged.closes is not None:
            own.counters[judged.reason.name.lower()] += 1
            self._lose_child(judged.closes, judged.reason, now)
        accept = messages.Accept(own.level, self.hops, self.resilience, self._feed(now))
        own.effects.append(AcceptLink(ticket, link, messages.encode_accept(accept)))
        own.events.append(ChildGained(link, join.peer_id, address, query))
        own.timers.set_earlier(Timer.BEAT, now + own.config.beat_interval)
        own.timers.set_earlier(Timer.WATCH, now + own.config.confirm_timeout)
        self._advertising.touch(now)

    def link_opened(self, link: LinkId, reply: bytes, *, now: float) -> None:
        """Our join was accepted. Whether we still want it is decided now, not when it was sent."""
        self._enter(now)
        own = self._own
        join = self._seeking.take_answered(link, now)
        if join is None:  # R7: nobody waits for this answer any more
            own.counters["accept_not_pending"] += 1
            own.close(link, CloseReason.NOT_PENDING)
            return
        try:
            accept = messages.decode_accept_untrusted(reply)
        except MalformedMessage:
            own.counters["malformed"] += 1
            self._seeking.decline(link, join, CloseReason.MALFORMED, AVOIDANCE[RefuseReason.MALFORMED], now)
            return
        why = self._why_decline(join, accept)
        if why is not None:
            reason, avoid = why
            own.counters[f"declined_{reason.name.lower()}"] += 1
            self._seeking.decline(link, join, reason, avoid, now)
            return
        self.parents.add(link, join, accept, now)
        own.version += 1
        own.counters["parents_gained"] += 1
        self._seeking.succeeded()
        self._relevel()
        own.effects.append(SendMessage((link,), messages.encode_link_message(self._report())))
        own.events.append(ParentGained(link, join.peer_id, join.address, accept.level))
        own.timers.set_earlier(Timer.REPORT, now + own.config.report_interval)
        own.timers.set_earlier(Timer.WATCH, now + own.config.suspect_after)
        if join.replaces is not None and len(self.parents.sound()) > own.config.parents_wanted:
            own.counters["moved_nearer"] += 1
            own.timers.set(Timer.PRUNE, now)
        self._advertising.touch(now)
        self._review(now)

    def link_refused(self, link: LinkId, reason: int, body: bytes, *, now: float) -> None:
        self._enter(now)
        self._seeking.refused(link, reason, body, now)

    def open_timed_out(self, link: LinkId, *, now: float) -> None:
        self._enter(now)
        self._seeking.unanswered(link, now)

    def link_closed(self, link: LinkId, reason: int, *, now: float) -> None:
        """The other end closed."""
        self._enter(now)
        try:
            why = CloseReason(reason).name.lower()
        except ValueError:
            why = f"reason {reason}"
        self._link_ended(link, f"closed by it: {why}", now)

    def link_reset(self, link: LinkId, *, now: float) -> None:
        """The other end does not know the link: it restarted, or dropped it while we slept."""
        self._enter(now)
        self._link_ended(link, "reset", now)

    def receive_message(self, link: LinkId, body: bytes, *, now: float) -> None:
        self._enter(now)
        try:
            message = messages.decode_link_message_untrusted(body)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return
        parent = self.parents.links.get(link)
        if parent is not None:
            if isinstance(message, messages.Beat):
                self._on_beat(parent, message, now)
            elif isinstance(message, messages.Echo) and self.parents.echoed(parent, message.number, now):
                self._review(now)
            return
        child = self.children.links.get(link)
        if child is None:
            return
        self.children.hear(child, now)
        if isinstance(message, messages.Report):
            child.report = message
        elif isinstance(message, messages.Probe):
            echo = messages.Echo(message.number)
            self._own.effects.append(SendMessage((link,), messages.encode_link_message(echo)))

    # Inquiries

    def answer_inquiry(self, request: bytes, address: HostPort, *, now: float) -> bytes | None:
        """The answer to send, or None for nonsense and for too many questions that cost work (both counted)."""
        self._enter(now)
        try:
            asked = messages.decode_request_untrusted(request)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return None
        match asked:
            case messages.ChildrenRequest(query):
                if query and not self._questions.allows(now, address[0]):
                    self._own.counters["inquiries_refused"] += 1
                    return None
                peers = self.children.answer(query, self._covers, self._own.rng)
                return messages.encode_answer(messages.Peers(peers))
            case messages.ParentsRequest():
                return messages.encode_answer(messages.Peers(self.parents.answer()))
            case messages.StatusRequest():
                return messages.encode_answer(self.status())
            case messages.WantsRequest():
                return messages.encode_answer(messages.Wanted(self._observer.wanted()))

    def inquiry_answered(self, inquiry: Inquiry, answer: bytes, *, now: float) -> None:
        self._enter(now)
        self._seeking.inquiry_answered(inquiry, answer, now)

    def inquiry_timed_out(self, inquiry: Inquiry, *, now: float) -> None:
        self._enter(now)
        self._seeking.inquiry_timed_out(inquiry)

    # The clock and the outputs

    def next_timeout(self) -> float | None:
        return self._own.timers.next_timeout()

    def handle_timeout(self, *, now: float) -> None:
        self._enter(now)
        for timer in self._own.timers.expired(now):
            _HANDLERS[timer](self, now)

    def take_effects(self) -> list[Effect]:
        effects, self._own.effects = self._own.effects, []
        return effects

    def next_event(self) -> Event | None:
        events = self._own.events
        return events.popleft() if events else None

    # What can be seen

    @property
    def peer_id(self) -> PeerId:
        return self._own.peer_id

    @property
    def config(self) -> MeshConfig:
        return self._own.config

    @property
    def state(self) -> Membership:
        return self._own.state

    @property
    def level(self) -> int:
        return self._own.level

    @property
    def version(self) -> int:
        """Rises whenever the level or a table of links changes."""
        return self._own.version

    @property
    def counters(self) -> Counter[str]:
        """What happened so far, by name; the names are listed in docs/mesh.md."""
        return self._own.counters

    @property
    def hops(self) -> int:
        return 0 if self._own.is_root else self.parents.hops()

    @property
    def resilience(self) -> int:
        return ROOT_RESILIENCE if self._own.is_root else self.parents.resilience()

    @property
    def is_rooted(self) -> bool:
        """A root, or with a sound parent: fed, heard, certain."""
        return self._own.is_root or any(p.is_sound for p in self.parents.links.values())

    def status(self) -> messages.State:
        return messages.State(
            self.peer_id,
            self.level,
            self.hops,
            self.resilience,
            self.is_rooted,
            len(self.parents),
            0 if self._own.is_root else self.config.parents_wanted,
            len(self.children),
            self.config.capacity,
        )

    # Links, level and state

    def _why_decline(self, join: PendingJoin, accept: messages.Accept) -> tuple[CloseReason, float] | None:
        """Why an Accept is not taken, and for how long not to ask again."""
        own = self._own
        if not own.rules.may_take(own.level, accept.level, has_children=bool(self.children)):
            return CloseReason.LEVEL, AVOIDANCE[RefuseReason.LEVEL]
        if own.config.requires_resilient_parents and accept.resilience < own.config.parents_wanted:
            return CloseReason.EXCESS, AVOIDANCE[RefuseReason.QUERY_NOT_CARRIED]
        enough = join.replaces is None and len(self.parents.sound()) >= own.config.parents_wanted
        if enough or join.peer_id in self.parents.peer_ids():
            return CloseReason.EXCESS, 0.0
        return None

    def _on_beat(self, parent: Parent, beat: messages.Beat, now: float) -> None:
        if beat.level != parent.told and parent.probe is None:
            parent.told = self._own.rules.told(parent.told, beat.level)
            self._relevel()
        if self.parents.hear(parent, beat, now):
            self._advertising.touch(now)
            self._review(now)

    def _relevel(self) -> None:
        """Keep the level above every parent: rise where R4 lets it, fall where R5 lets it and it pays."""
        own = self._own
        told = self.parents.told()
        if not told or own.is_root:
            return
        if own.level == UNPLACED or own.level <= max(told):
            if own.rules.may_rise(has_children=bool(self.children)):
                own.set_level(own.rules.place(told, own.rng))
            return
        lower = own.rules.lowered(own.level, told, own.rng)
        if lower is not None and own.rules.may_fall(lower, told):
            own.set_level(lower)

    def _link_ended(self, link: LinkId, reason: str, now: float) -> None:
        if self._seeking.unanswered(link, now):
            return
        if link in self.parents.links:
            self._lose_parent(self.parents.links[link], reason, now)
        elif link in self.children.links:
            self._lose_child(self.children.links[link], reason, now)

    def _lose_parent(self, parent: Parent, reason: CloseReason | str, now: float) -> None:
        """A CloseReason closes the link; words mean that it is gone already."""
        own = self._own
        del self.parents.links[parent.link]
        own.version += 1
        own.counters["parents_lost"] += 1
        if isinstance(reason, CloseReason):
            own.close(parent.link, reason)
            reason = reason.name.lower()
        own.events.append(ParentLost(parent.link, parent.peer_id, reason))
        self._seeking.candidates.failed(parent.peer_id, now=now)
        self._advertising.touch(now)
        self._relevel()
        self._seeking.soon(now)
        self._review(now)

    def _lose_child(self, child: Child, reason: CloseReason | str, now: float) -> None:
        own = self._own
        del self.children.links[child.link]
        own.version += 1
        if isinstance(reason, CloseReason):
            own.close(child.link, reason)
            reason = reason.name.lower()
        own.events.append(ChildLost(child.link, child.peer_id, reason))
        if own.state is Membership.LEAVING:
            if not self.children:
                self._finish(now)
            return
        self._advertising.touch(now)
        if not self.children:
            self._review(now)

    def _review(self, now: float) -> None:
        """Sum up the parents as one input of the table, and act on the difference."""
        own = self._own
        if own.state not in SEEKING:
            return
        wanted = own.config.parents_wanted
        sound = len(self.parents.sound())
        if sound >= wanted:
            given = Input.COMPLETE
        elif self.parents:
            given = Input.SHORT
        else:
            given = Input.BARE if self.children else Input.FREE
        before = own.state
        own.step(given)
        if own.state is not Membership.ORPHANED:
            own.timers.stop(Timer.COLD)
        elif before is not Membership.ORPHANED:
            own.timers.set(Timer.COLD, now + own.config.cold_after)
        if given is Input.FREE:
            own.set_level(UNPLACED)
        if sound >= wanted:
            if self._short_since is not None:
                own.events.append(Restored(wanted, now - self._short_since))
                self._short_since = None
            if len(self.parents) > wanted:
                own.timers.set_earlier(Timer.PRUNE, now + own.config.spare_patience)
            return
        if self._short_since is None:
            self._short_since = now
            own.events.append(Degraded(sound, wanted))
            self._seeking.soon(now)
        own.timers.set_earlier(Timer.SEEK, now + own.config.backoff_limit)

    # Timers

    def _on_beat_due(self, now: float) -> None:
        if self.children:
            self._send_beat(now)

    def _send_beat(self, now: float) -> None:
        own = self._own
        if own.is_root:
            self._root_beat += 1
        leaving = own.state is Membership.LEAVING
        beat = messages.Beat(own.level, self.hops, self.resilience, leaving, self._feed(now))
        own.effects.append(SendMessage(tuple(self.children.links), messages.encode_link_message(beat)))
        own.timers.set(Timer.BEAT, now + own.config.beat_interval)

    def _on_report_due(self, now: float) -> None:
        own = self._own
        if self.parents:
            own.effects.append(SendMessage(tuple(self.parents.links), messages.encode_link_message(self._report())))
            self._send_probes()
            own.timers.set(Timer.REPORT, now + own.config.report_interval)

    def _send_probes(self) -> None:
        for parent in self.parents.links.values():
            if parent.probe is not None:
                probe = messages.Probe(parent.probe)
                self._own.effects.append(SendMessage((parent.link,), messages.encode_link_message(probe)))

    def _on_watch(self, now: float) -> None:
        own = self._own
        joins_at = self._seeking.expire(now)
        gone, children_at = self.children.silent(now, self._observer.heard_at)
        for child in gone:
            if child.link in self.children.links:
                self._lose_child(child, CloseReason.SILENT, now)
        if own.state is Membership.LEFT:
            return
        found = self.parents.judge(now, self._observer.heard_at)
        for parent in found.suspected:
            own.counters["suspected"] += 1
            own.events.append(ParentSuspected(parent.link, parent.peer_id))
        for parent in found.dead:
            self._lose_parent(parent, CloseReason.SILENT, now)
        if found.suspected or found.starved:
            self._advertising.touch(now)
            self._seeking.soon(now)
        self._review(now)
        next_at = min(joins_at, children_at, found.next_at)
        if next_at < NEVER:
            own.timers.set_earlier(Timer.WATCH, max(next_at, now + own.config.beat_interval / 4))

    def _on_cold(self, now: float) -> None:
        """R6: no parent at all for too long. Only worth it if somebody, at whatever level, might take us then."""
        if self._own.state is not Membership.ORPHANED:
            return
        if not self.candidates.eligible(now, below=UNPLACED, exclude=self.children.peer_ids()):
            self._seeking.look_up(now, below=UNPLACED)
            self._own.timers.set(Timer.COLD, now + COLD_RETRY)
            return
        self._restart_cold(now)

    def _restart_cold(self, now: float) -> None:
        """Let the children go with the reason, forget the level, start over."""
        own = self._own
        own.step(Input.COLD)
        own.counters["cold_restarts"] += 1
        own.events.append(ColdRestart(len(self.children)))
        for child in self.children.links.values():
            own.close(child.link, CloseReason.COLD_RESTART)
            own.events.append(ChildLost(child.link, child.peer_id, CloseReason.COLD_RESTART.name.lower()))
        self.children.links.clear()
        own.version += 1
        self._seeking.give_up()
        own.set_level(UNPLACED)
        self._advertising.withdraw()
        self._seeking.soon(now)

    def _on_seek(self, now: float) -> None:
        self._seeking.seek(now)

    def _on_prune(self, now: float) -> None:
        """Down to n, only while n sound ones remain."""
        wanted = self.config.parents_wanted
        while len(self.parents) > wanted <= len(self.parents.sound()):
            move = self._placement.surplus(self._surroundings.at(now))
            parent = None if move is None else self.parents.links.get(move.parent)
            if parent is None:
                return
            self._own.counters["pruned"] += 1
            self._lose_parent(parent, CloseReason.EXCESS, now)

    def _on_replace(self, now: float) -> None:
        """STEADY, with nothing pending: the moment to look for a better place."""
        own = self._own
        own.timers.set(Timer.REPLACE, now + own.jittered(own.config.replace_interval))
        if own.state is Membership.STEADY and not self.pending:
            self._seeking.improve(now)

    def _on_lookup(self, now: float) -> None:
        self._seeking.look_up(now)
        self._own.timers.set(Timer.LOOKUP, now + self._own.jittered(self.config.lookup_interval))

    def _on_publish(self, now: float) -> None:
        self._advertising.publish(
            self.status(), free=self.children.free, free_for_repair=self.children.room_for_repair, now=now
        )

    def _finish(self, now: float) -> None:
        own = self._own
        if own.state is Membership.LEAVING:
            own.step(Input.GONE)
        for link in (*self.children.links, *self.parents.links):
            own.close(link, CloseReason.LEAVING)
        self.children.links.clear()
        self.parents.links.clear()
        own.version += 1
        own.timers.clear()
        own.events.append(Left())

    # Time, feed and words

    def _enter(self, now: float) -> None:
        """The head of every input: time goes forward, and a sleep is noticed before anything is believed."""
        if now < self._now:
            raise MembershipError(f"time went back from {self._now} to {now}")
        self._now = now
        late = slept(now, self._own.timers.next_timeout(), thaw_after=self._own.config.thaw_after)
        if late:
            self._thaw(late, now)

    def _thaw(self, late: float, now: float) -> None:
        """We slept through our own deadlines: parents must prove themselves, joins and candidates are forgotten.

        Levels need nothing: their rules assume no clock. The timers are moved to now, so that this is done once.
        """
        own = self._own
        own.counters["thaws"] += 1
        own.events.append(Thawed(late))
        own.timers.overdue_to(now)
        self._seeking.give_up()
        self.candidates.clear()
        self.children.excuse(now)
        self._probes += 1
        self.parents.distrust(now, self._probes)
        self._send_probes()
        if own.state in SEEKING:
            self._seeking.look_up(now, below=own.rules.ceiling(own.level, has_children=bool(self.children)))
            self._seeking.soon(now)
            own.timers.set_earlier(Timer.WATCH, now)
            self._advertising.touch(now)
            self._review(now)

    def _feed(self, now: float) -> messages.RootProof:
        if self._own.is_root:
            return messages.RootProof(self._own.run, self._root_beat, 0)
        return self.parents.best_feed(now)

    def _report(self) -> messages.Report:
        leaving = self.state is Membership.LEAVING
        serving = self.is_rooted and not leaving
        return messages.Report(
            min(self.level, messages.MAX_LEVEL),
            self.hops,
            self.resilience,
            leaving,
            len(self.parents.sound()),
            len(self.children),
            self.children.free if serving else 0,
            self.children.room_for_repair if serving else 0,
        )


_HANDLERS: dict[Timer, Callable[[Mesh, float], None]] = {
    Timer.BEAT: Mesh._on_beat_due,
    Timer.REPORT: Mesh._on_report_due,
    Timer.WATCH: Mesh._on_watch,
    Timer.COLD: Mesh._on_cold,
    Timer.SEEK: Mesh._on_seek,
    Timer.PRUNE: Mesh._on_prune,
    Timer.REPLACE: Mesh._on_replace,
    Timer.LOOKUP: Mesh._on_lookup,
    Timer.PUBLISH: Mesh._on_publish,
    Timer.LEAVE: Mesh._finish,
}
