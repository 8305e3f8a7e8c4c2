"""The receiving side of one stream: n parents, one ordered stream, nothing skipped in silence.

Theory of operation. Every message of a parent is a *claim* about a stretch of the stream and one query, true whenever
and however often it is heard. `intake` takes claims and moves the position; a claim that has to wait there shows that
something is missing: after the reordering window a NACK goes to all parents, with the stretches that are missing, and
again with back-off (`links.replies`). What nobody can supply is declared a gap, in bounded time (`gaps`). Keep-alives
are claims too ("nothing matches in ..."): they show the loss of a tail and carry the position through what was pruned.

The query is changed in two steps (`epochs`): prepare it with every parent while the old one goes on, then switch at a
position that the application learns.

What is true about the stream is apart from how datagrams cross a link: `links.incoming` turns datagrams into claims,
`links.replies` our answers into datagrams, `links.dialing` opens links. Here the parts meet, with the timers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from dcp import control, events, handshake, wire
from dcp.acceptance import Acceptance, Accepts
from dcp.arrival import handover_of
from dcp.audit import Audit
from dcp.authority import Authority
from dcp.config import Config
from dcp.control import Reason
from dcp.deadlines import DeadlineWatch
from dcp.delivery import DeliveredStream
from dcp.epochs import QueryChange
from dcp.gaps import GapWatch
from dcp.group_messages import Group
from dcp.handshake import Start
from dcp.intake import Intake
from dcp.kinds import PACKETS, StreamKind
from dcp.lateral import Siblings
from dcp.links.carriage import carriage_of
from dcp.links.dialing import Dialing
from dcp.links.fragments import Assembler
from dcp.links.incoming import Incoming
from dcp.links.keying import Keying
from dcp.links.link import SocketAddress
from dcp.links.losses import LossWatch
from dcp.links.mending import Mending
from dcp.links.replies import Replies
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.links.ways import Ways
from dcp.log import Log
from dcp.parent import Parent
from dcp.placing import Placing
from dcp.profile import PLAIN, Profile
from dcp.queries import EVERYTHING
from dcp.reach import Reach
from dcp.serial import QUARTER
from dcp.starting import StartChoice
from dcp.starving import StarvationWatch
from dcp.stats import ReceiverStatistics
from dcp.switching import Switching
from dcp.tails import HELD_UP
from dcp.verdicts import Verdicts


class Receiver(DeliveredStream):
    """Use through `Hub`, which finds the link that a datagram belongs to."""

    def __init__(
        self,
        stream: str,
        config: Config,
        rng: random.Random,
        *,
        new_link_id: Callable[[], int],
        forget_link: Callable[[int], None],
        emit: Callable[[events.Event], None],
        send_open: Callable[[handshake.Opening, SocketAddress], None],
        ways: Ways,
        keying: Keying,
        group_offered: Callable[[Receiver, Uplink, Group, float], None],
        siblings_named: Callable[[Uplink, Siblings], None],
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        log: Log | None = None,
        deliver: bool = True,
        kind: StreamKind = PACKETS,
        accepts: Accepts | None = None,
        authority: Authority | None = None,
        profile: Profile = PLAIN,
        children_deadline: Callable[[], float | None] | None = None,
        on_switch: Callable[[bytes, float], None] | None = None,
        on_late: Callable[[int, bytes, float], object] | None = None,
    ) -> None:
        kind.check_query(query)
        if accepts is not None and kind.is_dense:
            raise ValueError("a byte stream has no packets to accept")
        if profile != PLAIN and kind.is_dense:
            raise ValueError("a byte stream has no profile: every byte is needed, in order")
        handover = handover_of(profile, config, deliver=deliver, log=log)
        super().__init__(stream, kind, handover)
        self.profile = profile
        self.malformed = 0
        self.change = QueryChange(query, config, policy=log.policy if log is not None else None)
        self._config = config
        self._emit = emit
        self._on_switch = on_switch
        self._on_late = on_late
        self._children_deadline = children_deadline
        self._log = log
        if log is not None:
            log.is_final = False  # it is as good as what our parents say
        self._ack_at: float | None = None
        self._audit_at = 0.0

        carriage = carriage_of(kind, config)
        self._uplinks = Uplinks(stream, config, rng, new_link_id=new_link_id, forget_link=forget_link, emit=emit)
        self.links = self._uplinks.by_id
        self.parents = self._uplinks.parents
        self._losses = LossWatch(config, carriage.timing, self._uplinks.fastest_rtt)
        reach = Reach(config, self.parents, slack=kind.reach_slack, authority=authority)
        self._verdicts = Verdicts(stream, config, self.parents, reach, authority=authority, emit=emit)
        self.audit = Audit(
            config,
            self.parents,
            reach,
            self._verdicts,
            is_needed=not kind.is_dense,
            query=lambda: self.change.query,
        )
        self._starvation = StarvationWatch(config, authority)
        self._intake = Intake(
            config,
            kind,
            self.change,
            handover,
            self.parents,
            recovered=self._losses.recovered,
            acceptance=Acceptance(accepts) if accepts is not None else None,
            reach=reach,
            audit=self.audit,
            owner=self,
        )
        self._gaps = GapWatch(config, self._intake)
        self._deadline: DeadlineWatch | None = None
        self.set_deadline(profile.deadline)
        self._assembler = Assembler(config.max_partial_packets)
        self._replies = Replies(
            self._intake,
            self._uplinks,
            self._assembler,
            self._losses,
            carriage.timing,
            config,
            asks_again=profile.asks_again,
            policy=log.policy if log is not None else None,
        )
        self._switching = Switching(self.change, self._intake, self._replies, give_up=self.give_up)
        self._placing = Placing(
            stream,
            StartChoice(start, position, config, reach.signed_limit),
            config,
            self._intake,
            self._uplinks,
            self._replies,
            emit=emit,
            on_switch=on_switch,
            forget=self._forget,
        )
        self._dialing = Dialing(
            stream,
            kind,
            config,
            self._uplinks,
            ways,
            keying,
            send_open=send_open,
            wish=self._placing.wish,
            accepted=self._accepted,
        )
        self.mending = Mending(stream, profile, config, self._intake, self._losses, self._uplinks, emit=emit)
        self._incoming = Incoming(
            stream,
            self._intake,
            carriage.framing,
            self._assembler,
            self._replies,
            self._uplinks,
            emit=emit,
            start_proposed=self._placing.consider_start,
            prepared=self._switching.receive_prepared,
            group_offered=lambda link, group, now: group_offered(self, link, group, now),
            siblings_named=siblings_named,
            max_late_packets=config.max_partial_packets,
            mending=self.mending if self.mending.is_wanted else None,
        )
        self.receive = self._incoming.receive
        """Takes a datagram of one of our links, whose seal is right. Raises MalformedDatagram only."""
        self.receive_opening = self._dialing.receive_answer
        """Takes an answer to an opening; False when it is not ours."""
        self.next_datagrams = self._uplinks.next_datagrams
        self.take_found = self._intake.take_found

    def set_deadline(self, seconds: float | None) -> None:
        """How long a missing packet may take from the first sign of its loss (rule T8); None: see `gaps`."""
        if seconds is None:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = DeadlineWatch(seconds, self._config, self._intake, self._losses)
        else:
            self._deadline.seconds = seconds

    @property
    def position(self) -> int | None:
        return self._intake.position

    @property
    def epoch(self) -> int:
        return self.change.epoch

    @property
    def query(self) -> bytes:
        """The query in force."""
        return self.change.query

    # --- parents ------------------------------------------------------------------------------------------------------

    def add_sender(self, address: SocketAddress, hello: bytes = b"", *, now: float) -> int:
        """Open a link to one more sender. Nothing is lost or repeated, whenever this is called."""
        link = self._uplinks.add(address, hello, now)
        self._placing.begin_where_asked(now)
        self.audit.parents_changed(self.epoch, self.position)
        self._dialing.send_request(link, now)
        return link.id

    def remove_sender(self, link_id: int, reason: int = Reason.NORMAL, body: bytes = b"") -> None:
        """Leave a sender. Its claims that are still under way no longer count."""
        link = self.links.get(link_id)
        if link is not None:
            self._uplinks.leave(link, reason, body)

    def give_up(self, link_id: int, reason: int) -> None:
        """Leave a sender, and tell the owner, as when its link was lost."""
        link = self.links.get(link_id)
        if link is not None:
            self._uplinks.give_up(link, reason)

    def send_message(self, link_id: int, data: bytes) -> bool:
        """False when it did not go out: no such link, not open yet, or too much is waiting already."""
        link = self.links.get(link_id)
        if link is None or not link.parent.up:
            return False
        return self._uplinks.send(link, wire.CONTROL, 0, 0, control.encode_message(data))

    def send_control(self, link: Uplink, body: bytes) -> None:
        """A message about how the link is carried; repeated by its owner."""
        if link.parent.up:
            self._uplinks.send(link, wire.CONTROL, 0, 0, body)

    def receive_reset(self, link: Uplink, now: float) -> None:
        """Somebody says that the sender does not know this link: ask, and close it if nothing valid comes."""
        if self._dialing.doubt(link, now):
            self._replies.acknowledge(link, 0, now, probe=True)

    def _accepted(self, link: Uplink, accept: handshake.Accept, now: float) -> None:
        if self._ack_at is None:
            self._ack_at = now + self._config.ack_interval
        self._placing.accepted(link, accept, now)
        self.mending.accepted(link, accept.status, now)
        self.audit.parents_changed(self.epoch, self.position)
        self._switching.step(now)

    # --- what the intake tells ----------------------------------------------------------------------------------------

    def watch(self, now: float) -> None:
        self._replies.watch(now)
        if self._deadline is not None:
            self._deadline.note(now)

    def advanced(self, now: float) -> None:
        """The position rose: the timers of what was missing start over."""
        position = self._intake.position
        assert position is not None
        self._intake.position_at = now
        self._losses.advanced(position, now)
        if len(self._assembler):
            self._assembler.forget(position, self.change.current_epochs())
        self.watch(now)
        if self.change.is_waiting:
            self._switching.step(now)

    def hole_heard(self, parent: Parent, now: float) -> None:
        self._gaps.hole_heard(parent, now)
        self.watch(now)
        if self._deadline is not None and parent.hole is not None:
            self._deadline.hole_heard(*parent.hole, now)
        self._decide_gap(now)

    def copy_refused(self, parent: Parent, an: int) -> None:
        self._emit(events.CopyRefused(self.stream, parent.link.id, parent.link.address, an))
        self._verdicts.refused(parent, an)

    def is_held_up(self, now: float) -> bool:
        since = self._losses.missing_since
        return since is not None and now - since > self._held_up_after()

    def _held_up_after(self) -> float:
        """What is missing for longer than this is not merely late: one parent's word suffices then (rule L1c)."""
        return max(HELD_UP, 2 * self._uplinks.fastest_rtt())

    def came_late(self, an: int, payload: bytes, now: float) -> None:
        if self._on_late is not None:
            self._on_late(an, payload, now)

    def is_in_another_epoch(self, parent: Parent, now: float) -> None:
        link = self.links.get(parent.link.id)
        if link is not None:
            self._replies.announce_epoch(link, now)

    def is_steadily_late(self, parent: Parent, now: float) -> None:
        self._replies.squelch(parent, now)

    def switched(self, now: float) -> None:
        self.mending.switched()
        if self.position is not None:
            self._assembler.forget(self.position, self.change.current_epochs())
        else:
            self._replies.acknowledge_all(now)
        if self._on_switch is not None:
            self._on_switch(self.query, now)

    def _decide_gap(self, now: float) -> None:
        """Give up, in bounded time, what nobody can supply."""
        while (until := self._gap_end(now)) is not None:
            after = self.position
            assert after is not None
            self._intake.skip(until)
            self._intake.position_at = now
            self._losses.given_up()
            if until - after > QUARTER:
                self._renew()
            self._intake.drain(now)
            self.advanced(now)
            self._replies.acknowledge_all(now)

    def _gap_end(self, now: float) -> int | None:
        until = self._gaps.end(self._losses.missing_since, now)
        if until is None and self._deadline is not None:
            until = self._deadline.gap_end(now)
        return until

    def _renew(self) -> None:
        """After a jump over a quarter of the AN space 32-bit numbers under way could be misread: new sessions."""
        self._intake.buffer.clear()
        self._assembler.clear()
        self.mending.clear()
        for link in list(self.links.values()):
            self._uplinks.give_up(link, Reason.RENEW)

    def _forget(self) -> None:
        self._gaps.forget()
        if self._deadline is not None:
            self._deadline.clear()
        self._losses.given_up()
        self._renew()

    # --- a numbering that begins again --------------------------------------------------------------------------------

    def set_run(self, link_id: int, run: bytes, *, now: float) -> None:
        """Which run of the stream a sender is fed from, according to its owner; roots that number alike are one run.

        When all senders that are heard belong to one other run than ours, we begin again with that.
        """
        parent = self.parents.get(link_id)
        if parent is not None:
            self._placing.set_run(parent, run, now)

    def begin_again(self) -> None:
        """The numbering has begun again: leave all senders, and start with the oldest that they have.

        The owner opens the links again, as after any other loss; the application gets another `Started`.
        """
        self._placing.begin_again()

    # --- changing the query -------------------------------------------------------------------------------------------

    def change_query(self, query: bytes, *, now: float) -> None:
        """Ask for other packets from some position on, which `QuerySwitched` names. The last query asked for wins."""
        self.kind.check_query(query)
        self.change.want(query)
        self._switching.step(now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        for link in list(self.links.values()):
            if self._dialing.look_after(link, now):
                self._placing.confirm_again(link, now)
        self._placing.begin_if_due(now)
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = now + self._config.ack_interval
            self._replies.acknowledge_all(now)
        self._switching.step(now)
        self._gaps.handle_timeout(now)
        self._placing.consider_runs(now)
        if self.position is not None:
            self._placing.look_for_heads(now)
            self._replies.handle_timeout(now)
            if now >= self._audit_at:
                self._audit_at = now + self._config.audit_interval
                self._look_back(now)
            self._intake.advance_tail(now)
            self._decide_gap(now)
        if self._children_deadline is not None and (wanted := self._children_deadline()) != self.mending.deadline:
            self.mending.deadline = wanted
            self.set_deadline(wanted)
        self.mending.handle_timeout(now)

    def _look_back(self, now: float) -> None:
        """Compare what parents said, ask for what they did not say, and see whether anybody speaks at all."""
        position = self.position
        assert position is not None
        self.audit.look(position, self._replies, now)
        self._incoming.forget_late()
        self.handover.settle(self.audit.settled)
        claimed = max(self._intake.claimed, position)
        starved = self._starvation.look(claimed, self.parents.values(), has_room=not self.has_closed_window, now=now)
        if starved is not None:
            self._emit(events.Starved(self.stream, *starved))

    def next_timeout(self, now: float) -> float | None:
        times = self._placing.next_timeouts()
        for link in self.links.values():
            times += link.deadlines(self._config, has_position=self.position is not None)
        if self.links:
            times += [self._ack_at, self.mending.next_timeout()]
            if self.position is not None:
                times += [self._replies.next_timeout(), self._audit_at]
                times.append(self._gaps.next_timeout(self._losses.missing_since, now))
                if self._deadline is not None:
                    times.append(self._deadline.due_at())
                since = self._losses.missing_since
                if since is not None and self._intake.is_holding and not self.is_held_up(now):
                    times.append(since + self._held_up_after() + 1e-3)
            if self.change.is_waiting:
                times.append(self._switching.next_timeout(now))
        soonest = min([at for at in times if at is not None], default=math.inf)
        return None if soonest == math.inf else soonest

    # --- output -------------------------------------------------------------------------------------------------------

    def reopen_window(self, now: float) -> None:
        """The application has taken packets: if the senders believe that there is no room, tell them that there is."""
        handover = self.handover
        if len(handover) > handover.limit // 2 or handover.bytes > handover.max_bytes // 2:
            return
        if handover.turned_away:
            handover.turned_away = False
            self._intake.drain(now)
            self.advanced(now)
            self._replies.request_from_all(now)
        elif handover.announced_little_room:
            self._replies.acknowledge_all(now)
            handover.announced_little_room = False  # with no link there was nobody to tell

    def statistics(self, now: float) -> ReceiverStatistics:
        intake, replies = self._intake, self._replies
        return ReceiverStatistics(
            position=intake.position,
            epoch=self.epoch,
            packets=intake.packets,
            bytes=intake.bytes,
            duplicates=intake.duplicates,
            refused=intake.refused,
            buffered=len(intake.buffer),
            ready=len(self.handover),
            overrun=intake.overrun,
            buffer_dropped=intake.buffer.dropped + self._assembler.dropped,
            gaps=intake.gaps,
            recovered=intake.recovered,
            expired=self._deadline.expired if self._deadline is not None else 0,
            skipped=self.handover.skipped,
            nacks=replies.nacks,
            slow_nacks=replies.slow_nacks,
            squelches=replies.squelches,
            resets=self._dialing.resets,
            beyond_reach=intake.beyond_reach,
            too_wide=intake.too_wide,
            omitted=intake.omitted,
            starved=self._starvation.episodes,
            index_requests=self.audit.index_requests,
            fetched=self.audit.fetched,
            unchecked=self.audit.unchecked,
            restarts=self._placing.restarts,
            unsent=self._uplinks.unsent,
            reorder_window=self._losses.delay(),
            malformed=self.malformed,
            protection=self.mending.statistics(now),
            links=tuple(p.statistics(intake.position or 0, intake.packets, now) for p in self.parents.values()),
        )
