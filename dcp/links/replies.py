"""What a receiver sends to its parents: acknowledgments, requests for what is missing, and its query.

    acknowledge  up to where we have everything, and how much more we can take
    request      the same, and the stretches that are missing: a NACK
    prepare      the query that we want to change to, or our present one

When something is missing, and when to ask for it, is here too: after the reordering window, again with back-off, and
slowly when nothing comes at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dcp import control, wire
from dcp.config import Config
from dcp.control import MAX_RANGES, Range
from dcp.epochs import Step
from dcp.intake import Intake
from dcp.links.fragments import Assembler
from dcp.links.losses import LossWatch
from dcp.links.timing import Timing
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.parent import Parent
from dcp.queries import QueryPolicy
from dcp.query_parts import UNKNOWN, Have, Parting


class Replies:
    def __init__(
        self,
        intake: Intake,
        uplinks: Uplinks,
        assembler: Assembler,
        losses: LossWatch,
        timing: Timing,
        config: Config,
        *,
        asks_again: bool = True,
        policy: QueryPolicy | None = None,
    ) -> None:
        """`asks_again`: whether what was lost is asked for (not so with profile newest)."""
        self.nacks = 0
        self.slow_nacks = 0
        self.squelches = 0
        self._intake = intake
        self._uplinks = uplinks
        self._assembler = assembler
        self._losses = losses
        self._timing = timing
        self._config = config
        self._asks_again = asks_again
        self._parting = Parting(policy)

    # --- what is sent -------------------------------------------------------------------------------------------------

    def acknowledge(self, link: Uplink, asked: int, now: float, *, probe: bool = False) -> None:
        """`asked`: the AN, as it came, of the datagram that asked for it, or 0. `probe`: answer at once."""
        intake = self._intake
        epoch = intake.change.epoch_for(link.parent)
        if epoch is None:
            return
        position = control.NO_POSITION if intake.position is None else intake.tail_of(link.parent)
        ack = control.Acknowledgment(link.times(now), epoch, position, intake.handover.room())
        link.epoch = epoch
        flags = wire.ACK | (wire.ACK_REQUEST if probe else 0)
        self._uplinks.send(link, flags, position, asked, control.encode_acknowledgment(ack))

    def acknowledge_all(self, now: float) -> None:
        for link in self._uplinks.up():
            self.acknowledge(link, 0, now)

    def squelch(self, parent: Parent, now: float) -> None:
        """An unasked acknowledgment: what lies before our position need not be sent."""
        link = self._uplinks.by_id.get(parent.link.id)
        if link is not None:
            self.squelches += 1
            self.acknowledge(link, 0, now)

    def request(self, link: Uplink, now: float, *, probe: bool = False) -> None:
        intake = self._intake
        epoch = intake.change.epoch_for(link.parent)
        if intake.position is None or epoch is None:
            return
        position = intake.tail_of(link.parent) if epoch == intake.change.epoch else intake.position
        missing, highest = intake.buffer.missing(position, epoch, MAX_RANGES)
        pieces: list[Range] = []
        partial = self._assembler.pieces_after(position, epoch, link.id)
        if partial is not None:
            # The half-built packet lies at the front: ask for its bytes, and for what is missing beyond it.
            an, pieces = partial
            missing = [(position, an), *((max(s, an), e) for s, e in missing if e > an)]
            highest = max(highest, an)
        sent_until = intake.sent_until()
        if epoch == intake.change.epoch and sent_until > highest:
            missing.append((highest, sent_until))
            highest = sent_until
        ack = control.Acknowledgment(link.times(now), epoch, position, intake.handover.room())
        body = control.encode_nack(control.Nack(ack, highest, missing[:MAX_RANGES], pieces))
        link.epoch = epoch
        flags = wire.NACK | (wire.ACK_REQUEST if probe else 0)
        self._uplinks.send(link, flags, position, 0, body)

    def request_from(self, parents: Iterable[Parent], now: float) -> None:
        for parent in parents:
            if (link := self._uplinks.by_id.get(parent.link.id)) is not None:
                self.request(link, now)

    def request_from_all(self, now: float) -> None:
        for link in self._uplinks.up():
            self.request(link, now)

    def announce_epoch(self, link: Uplink, now: float) -> None:
        """It speaks of an epoch that is not ours: say which is."""
        parent = link.parent
        if parent.confirmed_epoch == self._intake.change.epoch and now - parent.query_sent_at > 2 * link.rtt.smoothed:
            parent.query_sent_at = now
            self.request(link, now)

    def prepare(self, step: Step, now: float) -> None:
        for parent, epoch, query in step.prepare:
            parent.query_sent_at = now
            link = self._uplinks.by_id.get(parent.link.id)
            if link is not None:
                self._send_query(link, epoch, query)

    def _send_query(self, link: Uplink, epoch: int, query: bytes) -> None:
        """Whole if it is short, else the parts that are next."""
        change = self._intake.change
        knows_ours = link.parent.confirmed_epoch == change.epoch != epoch
        base = (change.epoch, change.query) if knows_ours else None
        bodies = self._parting.next_for(link.parent, epoch, query, base)
        if bodies is None:
            bodies = [control.encode_prepare(control.Prepare(epoch, query))]
        for body in bodies:
            self._uplinks.send(link, wire.CONTROL, 0, 0, body)

    def heard_parts(self, link: Uplink, have: Have, now: float) -> None:
        """A parent has parts of our query: the next ones can go."""
        change, progress = self._intake.change, link.parent.query_parts
        if have.epoch != progress.epoch:
            return
        progress.unanswered = 0
        if have.number == UNKNOWN:
            if progress.from_nothing:
                return  # it is sent again by the clock
            progress.from_nothing, progress.have = True, 0
        elif have.number <= progress.have:
            return
        else:
            progress.have = have.number
        link.parent.query_sent_at = now
        if have.epoch in (change.epoch, change.pending_epoch):
            self._send_query(link, have.epoch, change.query_of(have.epoch))

    def ask_index(self, parent: Parent, epoch: int, ranges: list[Range]) -> None:
        """What it has of these stretches, which we have passed (rule L6)."""
        self._say(parent, control.encode_index_request(control.IndexRequest(epoch, ranges)))

    def fetch(self, parent: Parent, epoch: int, ans: list[int]) -> None:
        """These packets, which it has listed and we lack."""
        self._say(parent, control.encode_fetch(control.Fetch(epoch, ans)))

    def recall(self, parent: Parent, epoch: int, query: bytes) -> None:
        """The query of an epoch that was over before its link opened: it is asked about that, too."""
        self._say(parent, control.encode_prepare(control.Prepare(epoch, query)))

    def _say(self, parent: Parent, body: bytes) -> None:
        if (link := self._uplinks.by_id.get(parent.link.id)) is not None:
            self._uplinks.send(link, wire.CONTROL, 0, 0, body)

    # --- what is missing, and when to ask for it ----------------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Start or stop the clock for what was sent to us by now, and is not here."""
        intake = self._intake
        position = intake.position
        assert position is not None
        is_missing = len(intake.buffer) or len(self._assembler) or intake.sent_until() > position
        self._losses.watch(bool(is_missing), now)

    def handle_timeout(self, now: float) -> None:
        losses = self._losses
        if losses.nack_at is not None and now >= losses.nack_at and self._is_waiting_to_ask():
            self._request_missing(now)
        if now >= self._slow_at():
            self.slow_nacks += 1
            losses.nacked_at = now
            for link in self._uplinks.up():
                self.request(link, now, probe=True)

    def next_timeout(self) -> float:
        slow_at = self._slow_at()
        if self._losses.nack_at is not None and self._is_waiting_to_ask():
            return min(slow_at, self._losses.nack_at)
        return slow_at

    def _is_waiting_to_ask(self) -> bool:
        return self._asks_again and not self._intake.handover.turned_away

    def _request_missing(self, now: float) -> None:
        intake = self._intake
        assert intake.position is not None
        self.nacks += 1
        ranges, highest = intake.buffer.missing(intake.position, intake.change.epoch, MAX_RANGES)
        if intake.sent_until() > highest:
            ranges.append((highest, intake.sent_until()))
        nacks = self._losses.asked(ranges, now)
        self._losses.nack_at = now + self._timing.answer_time(self._uplinks.up(), nacks, now)
        for link in self._uplinks.up():
            if link.parent.confirmed_epoch is not None:
                self.request(link, now)

    def _slow_at(self) -> float:
        """When to ask although nothing shows a loss: nobody was heard, or somebody has more and does not send it."""
        intake = self._intake
        position = intake.position
        if position is None or intake.handover.turned_away:
            return math.inf
        quiet_since = -math.inf
        has_more = False
        for link in self._uplinks.up():  # asked after every datagram: generators would cost twice as much
            quiet_since = max(quiet_since, link.heard_at)
            highest = link.parent.highest
            has_more = has_more or (
                highest is not None and highest > position and highest > intake.tail_of(link.parent)
            )
        if quiet_since == -math.inf:
            return math.inf  # nobody is there
        if has_more:
            quiet_since = min(quiet_since, intake.position_at)
        return max(quiet_since, self._losses.nacked_at) + self._timing.slow_nack_interval
