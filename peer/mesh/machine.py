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

from peer.mesh import encoding, messages
from peer.mesh.admission import Admission
from peer.mesh.advertising import Advertising
from peer.mesh.candidates import AVOIDANCE, CandidateCache
from peer.mesh.children import ChildTable
from peer.mesh.disputes import DisputeMemory
from peer.mesh.events import (
    AcceptLink,
    ChildGained,
    Effect,
    Event,
    Inquiry,
    JoinTicket,
    Leaving,
    LinkId,
    ParentGained,
    RefuseLink,
    SendMessage,
    Thawed,
)
from peer.mesh.guidance import Guidance, Guide
from peer.mesh.hostport import HostPort
from peer.mesh.inquiries import Inquiries
from peer.mesh.levels import ROOT_LEVEL
from peer.mesh.liveness import slept
from peer.mesh.membership import SEEKING, Input, Membership, MembershipError
from peer.mesh.messages import CloseReason, MalformedMessage, OtherVersionMessage, PeerId, RefuseReason
from peer.mesh.parents import Parent, ParentTable, PendingJoin
from peer.mesh.placement.scored import ScoredPlacement
from peer.mesh.reporting import Reporting
from peer.mesh.seeking import Seeking
from peer.mesh.state import MeshState
from peer.mesh.surroundings import NoObserver, Surroundings
from peer.mesh.timers import Timer
from peer.mesh.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from peer.mesh.candidates import CandidateRecord
    from peer.mesh.config import MeshConfig
    from peer.mesh.levels import LevelRules
    from peer.mesh.placement.moves import Placement
    from peer.mesh.surroundings import LinkObserver


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
        placement = placement or ScoredPlacement()
        own = MeshState(peer_id, config, rules or placement.rules(config), rng)
        self._own = own
        self.parents = ParentTable(config)
        self.children = ChildTable(config)
        self.candidates = CandidateCache(peer_id, limit=config.max_candidates, lifetime=config.candidate_lifetime)
        self.pending: dict[LinkId, PendingJoin] = {}
        observer = observer or NoObserver()
        tables = self.parents, self.children, self.candidates, self.pending
        disputes = DisputeMemory(config.dispute_lifetime)
        surroundings = Surroundings(own, *tables, disputes=disputes, observer=observer, coverage=coverage)
        guide = placement if isinstance(placement, Guide) else None
        self._seeking = Seeking(own, *tables, placement=placement, surroundings=surroundings, query=query)
        self.guidance = Guidance(own, *tables[:3], surroundings, guide, self._seeking)
        self._admission = Admission(
            own, *tables[:2], placement=placement, surroundings=surroundings, admits=admits, carries=carries
        )
        self._advertising = Advertising(own)
        self._reporting = Reporting(own, self.parents, self.children, self.guidance)
        self._inquiries = Inquiries(own, *tables[:2], reporting=self._reporting, observer=observer, covers=covers)
        self._upkeep = Upkeep(
            own,
            self.parents,
            self.children,
            seeking=self._seeking,
            advertising=self._advertising,
            placement=placement,
            surroundings=surroundings,
            observer=observer,
            disputes=disputes,
            guidance=self.guidance,
        )
        self._now = float("-inf")
        self._probes = 0

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
        self._upkeep.short_since = now
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
            self._upkeep.finish(now)
            return
        own.timers.set(Timer.LEAVE, now + own.config.leave_grace)
        self._reporting.send_beat(now)

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
            self._upkeep.lose_child(child, reason, now)

    def parent_disputed(self, link: LinkId, *, after: int, until: int, reason: str, now: float) -> None:
        """What a parent said about (after, until] is contradicted; see `disputes.py`."""
        self._enter(now)
        parent = self.parents.links.get(link)
        if parent is not None:
            self._upkeep.dispute(parent, after=after, until=until, reason=reason, now=now)

    def parent_convicted(self, link: LinkId, *, an: int, reason: str, closes: bool, now: float) -> None:
        """A parent was proved to lie: it is avoided for minutes, and left at once if it forges packets."""
        self._enter(now)
        parent = self.parents.links.get(link)
        if parent is not None:
            self._upkeep.convict(parent, an=an, reason=reason, closes=closes, now=now)

    def starved(self, *, head: int, seconds: float, now: float) -> None:
        """The stream goes on, up to `head`, and no parent has brought anything of it."""
        self._enter(now)
        self._upkeep.starve(head=head, seconds=seconds, now=now)

    def want_spare(self, wanted: bool, *, now: float) -> None:
        """Hold one parent beyond those that are wanted, if one can be had; or no longer."""
        self._enter(now)
        self._own.wants_spare = wanted
        self._own.counters["spares_wanted"] += wanted
        if wanted:
            self._seeking.soon(now)
        self._upkeep.review(now)

    # Inputs from links

    def receive_join(
        self, ticket: JoinTicket, address: HostPort, hello: bytes, *, now: float, query: bytes = b""
    ) -> None:
        """Somebody opens a link to us; answered at once, with AcceptLink or RefuseLink."""
        self._enter(now)
        own = self._own
        try:
            join = encoding.decode_join_untrusted(hello)
        except MalformedMessage as error:
            is_other = isinstance(error, OtherVersionMessage)
            own.counters["refused_version" if is_other else "malformed"] += 1
            why_not = RefuseReason.VERSION if is_other else RefuseReason.MALFORMED
            own.effects.append(
                RefuseLink(ticket, why_not, encoding.encode_refuse(messages.Refuse(())) if is_other else b"")
            )
            return
        judged = self._admission.judge(join, address, query=query, rooted=self.is_rooted, now=now)
        if isinstance(judged, RefuseReason):
            own.counters[f"refused_{judged.name.lower()}"] += 1
            helps = judged in (RefuseReason.FULL, RefuseReason.TOO_MANY_JOINS)
            referrals = self.children.referrals(join, own.rng) if helps else ()
            own.effects.append(RefuseLink(ticket, judged, encoding.encode_refuse(messages.Refuse(referrals))))
            return
        link = own.new_link()
        self.children.add(link, join, address, query=query, now=now)  # before the other goes: never empty in between
        own.version += 1
        own.counters["accepted"] += 1
        if judged.closes is not None:
            own.counters[judged.reason.name.lower()] += 1
            self._upkeep.lose_child(judged.closes, judged.reason, now)
        accept = messages.Accept(own.level, self.hops, self.resilience, self._reporting.proof(now))
        own.effects.append(AcceptLink(ticket, link, encoding.encode_accept(accept)))
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
            accept = encoding.decode_accept_untrusted(reply)
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
        self._upkeep.relevel()
        self._reporting.send_report(link)
        own.events.append(ParentGained(link, join.peer_id, join.address, accept.level))
        own.timers.set_earlier(Timer.REPORT, now + own.config.report_interval)
        own.timers.set_earlier(Timer.WATCH, now + own.config.suspect_after)
        if join.replaces is not None and len(self.parents.sound()) > own.parents_to_hold:
            own.counters["moved_nearer"] += 1
            own.timers.set(Timer.PRUNE, now + self.guidance.arrived(link, join.peer_id))
        self._advertising.touch(now)
        self._upkeep.review(now)

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
        if self.guidance.speaks(body):
            self.guidance.receive(link, body, now)
            return
        try:
            message = encoding.decode_link_message_untrusted(body)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return
        parent = self.parents.links.get(link)
        if parent is not None:
            if isinstance(message, messages.Beat):
                self._on_beat(parent, message, now)
            elif isinstance(message, messages.Echo) and self.parents.echoed(parent, message.number, now):
                self._upkeep.review(now)
            return
        child = self.children.links.get(link)
        if child is None:
            return
        self.children.hear(child, now)
        if isinstance(message, messages.Report):
            child.report = message
        elif isinstance(message, messages.Probe):
            echo = messages.Echo(message.number)
            self._own.effects.append(SendMessage((link,), encoding.encode_link_message(echo)))

    # Inquiries

    def answer_inquiry(self, request: bytes, address: HostPort, *, now: float) -> bytes | None:
        """The answer to send, or None for nonsense and for too many questions that cost work (both counted)."""
        self._enter(now)
        answers = self.guidance if self.guidance.speaks(request) else self._inquiries
        return answers.answer(request, address, now)

    def inquiry_answered(self, inquiry: Inquiry, answer: bytes, *, now: float) -> None:
        self._enter(now)
        if not self.guidance.answered(inquiry, answer, now):
            self._seeking.inquiry_answered(inquiry, answer, now)

    def inquiry_timed_out(self, inquiry: Inquiry, *, now: float) -> None:
        self._enter(now)
        if not self.guidance.timed_out(inquiry):
            self._seeking.inquiry_timed_out(inquiry, now)

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
        return self._reporting.hops

    @property
    def resilience(self) -> int:
        return self._reporting.resilience

    @property
    def is_rooted(self) -> bool:
        """A root, or with a sound parent: fed, heard, certain."""
        return self._reporting.is_rooted

    def status(self) -> messages.State:
        return self._reporting.status()

    # Links

    def _why_decline(self, join: PendingJoin, accept: messages.Accept) -> tuple[CloseReason, float] | None:
        """Why an Accept is not taken, and for how long not to ask again."""
        own = self._own
        if not own.rules.may_take(own.level, accept.level, has_children=bool(self.children)):
            return CloseReason.LEVEL, AVOIDANCE[RefuseReason.LEVEL]
        if own.config.requires_resilient_parents and accept.resilience < own.config.parents_wanted:
            return CloseReason.EXCESS, AVOIDANCE[RefuseReason.QUERY_NOT_CARRIED]
        enough = join.replaces is None and len(self.parents.sound()) >= own.parents_to_hold
        if enough or join.peer_id in self.parents.peer_ids():
            return CloseReason.EXCESS, 0.0
        return None

    def _on_beat(self, parent: Parent, beat: messages.Beat, now: float) -> None:
        if beat.level != parent.reported and parent.probe is None:
            parent.reported = self._own.rules.reported(parent.reported, beat.level)
            self._upkeep.relevel()
        if self.parents.hear(parent, beat, now):
            self._advertising.touch(now)
            self._upkeep.review(now)

    def _link_ended(self, link: LinkId, reason: str, now: float) -> None:
        if self._seeking.unanswered(link, now):
            return
        if link in self.parents.links:
            self._upkeep.lose_parent(self.parents.links[link], reason, now)
        elif link in self.children.links:
            self._upkeep.lose_child(self.children.links[link], reason, now)

    # Timers

    def _on_lookup(self, now: float) -> None:
        self._seeking.look_up(now)
        self._own.timers.set(Timer.LOOKUP, now + self._own.jittered(self.config.lookup_interval))

    def _on_publish(self, now: float) -> None:
        self._advertising.publish(
            self.status(), free=self.children.free, free_for_repair=self.children.room_for_repair, now=now
        )

    # Time

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
        self._reporting.send_probes()
        if own.state in SEEKING:
            self._seeking.look_up(now, below=own.rules.ceiling(own.level, has_children=bool(self.children)))
            self._seeking.soon(now)
            own.timers.set_earlier(Timer.WATCH, now)
            self._advertising.touch(now)
            self._upkeep.review(now)


_HANDLERS: dict[Timer, Callable[[Mesh, float], None]] = {
    Timer.BEAT: lambda mesh, now: mesh._reporting.on_beat_due(now),
    Timer.REPORT: lambda mesh, now: mesh._reporting.on_report_due(now),
    Timer.WATCH: lambda mesh, now: mesh._upkeep.on_watch(now),
    Timer.COLD: lambda mesh, now: mesh._upkeep.on_cold(now),
    Timer.SEEK: lambda mesh, now: mesh._seeking.seek(now),
    Timer.PRUNE: lambda mesh, now: mesh._upkeep.on_prune(now),
    Timer.REPLACE: lambda mesh, now: mesh._upkeep.on_replace(now),
    Timer.LOOKUP: Mesh._on_lookup,
    Timer.PUBLISH: Mesh._on_publish,
    Timer.LEAVE: lambda mesh, now: mesh._upkeep.finish(now),
}
