"""Taking claims: which one moves the position, which waits for what lies before it, which is old.

The whole state of the stream is one number, `position`: everything up to it was handed over, pruned by our own query,
or declared a gap. A claim (prev, until] of the present epoch is taken when prev <= position < until, and then the
position is `until`. One that begins beyond the position waits in the buffer, and its waiting is what shows that
something is missing. It makes no difference which parent a claim comes from, nor how it crossed the link.

What this file must not know: datagrams, links, timers, what a query means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dcp.acceptance import Acceptance
from dcp.buffer import ReorderBuffer
from dcp.claims import Claim, Packets, Report
from dcp.config import Config
from dcp.control import Hole
from dcp.epochs import QueryChange
from dcp.handover import Handover
from dcp.kinds import StreamKind
from dcp.parent import Parent
from dcp.reach import Reach
from dcp.serial import QUARTER


class Owner(Protocol):
    """What the intake tells the receiver that it is part of."""

    def advanced(self, now: float) -> None:
        """The position rose."""

    def watch(self, now: float) -> None:
        """Something may be missing now, or no longer."""

    def hole_heard(self, parent: Parent, now: float) -> None:
        """A parent said what it will never supply."""

    def copy_refused(self, parent: Parent, an: int) -> None:
        """A parent's copy of a packet was not accepted."""

    def is_in_another_epoch(self, parent: Parent, now: float) -> None:
        """A parent speaks of an epoch that is not ours."""

    def is_steadily_late(self, parent: Parent, now: float) -> None:
        """A parent brings what others have brought before."""

    def switched(self, now: float) -> None:
        """The next query is in force."""


class Intake:
    def __init__(
        self,
        config: Config,
        kind: StreamKind,
        change: QueryChange,
        handover: Handover,
        parents: Mapping[int, Parent],
        *,
        recovered: Callable[[Packets], int],
        acceptance: Acceptance | None,
        owner: Owner,
    ) -> None:
        self.position: int | None = None
        self.position_at = 0.0
        """When the position last rose."""
        self.parents = parents
        self.change = change
        self.handover = handover
        self.buffer = ReorderBuffer(config.max_buffer_packets, config.max_buffer_bytes)
        self.reach = Reach(config, parents, slack=kind.reach_slack)
        self._kind = kind
        self._recovered = recovered
        self._acceptance = acceptance
        self._owner = owner
        self.packets = 0
        self.bytes = 0
        self.duplicates = 0
        self.refused = 0
        """Copies that the owner did not accept."""
        self.overrun = 0
        self.recovered = 0
        self.gaps = 0
        self.too_wide = 0
        self.beyond_reach = 0

    # --- what parents say ---------------------------------------------------------------------------------------------

    def hear(self, claim: Claim, now: float) -> None:
        """A claim with packets, straight from a parent."""
        parent, _, _, until, _ = claim
        if (until > parent.reach or now > parent.reach_until) and not self.believes(parent, until, now, is_packet=True):
            return
        parent.report_head(until, now)
        if self._acceptance is None:
            self.take(claim, now)
        else:
            self._take_accepted(claim, self._acceptance, now)

    def _take_accepted(self, claim: Claim, acceptance: Acceptance, now: float) -> None:
        """Take what is good of a claim. A packet that is refused splits it: nothing is known about that stretch."""
        parent, epoch, prev, until, packets = claim
        position = self.position
        assert position is not None
        if (
            until <= position
            or (prev > position and self.buffer.has(epoch, prev, until))
            or (epoch != self.change.epoch and not self.change.is_current(epoch))
        ):
            self.take(claim, now)  # of no use anyway: not worth a look
            return
        fresh = packets if packets[0][0] > position else [packet for packet in packets if packet[0] > position]
        has_account = parent.credit is not None
        refused = acceptance.refused(parent, fresh, now) if has_account else acceptance.check(fresh)
        if not refused:
            self.take(claim, now)
            return
        if not has_account:
            acceptance.open_account(parent, len(refused), now)
        good: Packets = []
        for packet in packets:
            an = packet[0]
            if an not in refused:
                good.append(packet)
                continue
            if good:
                self.take(Claim(parent, epoch, prev, good[-1][0], good), now)
                prev = good[-1][0]
            self.refuse(parent, epoch, prev, an, now)
            prev, good = an, []
        if good:
            self.take(Claim(parent, epoch, prev, until, good), now)

    def is_refused(self, parent: Parent, an: int, payload: bytes, now: float) -> bool:
        """Of a packet that `parent` completed: whether the owner refuses it."""
        return self._acceptance is not None and bool(self._acceptance.refused(parent, [(an, payload)], now))

    def refuse(self, parent: Parent, epoch: int, prev: int, an: int, now: float) -> None:
        """A parent's copy of `an` is bad: that parent will not supply it, but another one may."""
        assert self.position is not None
        self.refused += 1
        parent.refused += 1
        self._owner.copy_refused(parent, an)
        parent.add_hole(Hole(epoch, prev, an), self.position)
        self._owner.hole_heard(parent, now)

    def hear_report(self, report: Report, now: float) -> None:
        parent, epoch, sent_until, head = report
        if sent_until is not None and head - sent_until > QUARTER:
            self.too_wide += 1
        elif self.believes(parent, head, now):
            parent.report_head(head, now)
            if sent_until is not None:
                parent.heard_claim = True
                if epoch == self.change.epoch and sent_until > parent.sent_until:
                    parent.sent_until = sent_until
                if head > sent_until:
                    self.take(Claim(parent, epoch, sent_until, head, []), now)
        self._owner.watch(now)

    def hear_hole(self, parent: Parent, hole: Hole, now: float) -> None:
        assert self.position is not None
        parent.heard_claim = True
        if self.believes(parent, hole.end, now):
            parent.report_head(hole.end, now)
            parent.add_hole(hole, self.position)
            self._owner.hole_heard(parent, now)

    def believes(self, parent: Parent, an: int, now: float, *, is_packet: bool = False) -> bool:
        """Whether what a parent says about `an` is not too far ahead of the other parents to be believed (rule L2)."""
        if an <= parent.reach and now <= parent.reach_until:
            return True
        if self.reach.allows(parent, an, self.change.epoch, now):
            return True
        self.beyond_reach += 1
        parent.heard_claim = True
        self.reach.refused(parent, an, now, is_packet=is_packet)
        return False

    # --- the position -------------------------------------------------------------------------------------------------

    def take(self, claim: Claim, now: float) -> None:
        """A claim that is believed."""
        parent, epoch, prev, until, packets = claim
        position = self.position
        assert position is not None
        parent.heard_claim = True
        if epoch != self.change.epoch and not self.change.is_current(epoch):
            self._owner.is_in_another_epoch(parent, now)
            return
        asked_for = 0
        if packets:
            asked_for = self._recovered(packets)
            parent.count(len(packets), asked_for, self.packets)
            if until > self.reach.seen:
                self.reach.seen = until
        if until <= position:
            if packets:
                self._old(parent, len(packets), now)
            return
        if prev > position:
            self.buffer.add(epoch, prev, until, packets)
            self._owner.watch(now)
            return
        if not self.handover.has_room(position):
            self.overrun += len(packets)
            return
        parent.old_in_a_row = 0
        self._apply(epoch, until, packets, parent, now, asked_for)
        if len(self.buffer):
            self.drain(now)
        self._owner.advanced(now)

    def _apply(
        self,
        epoch: int,
        until: int,
        packets: Packets,
        parent: Parent | None,
        now: float,
        asked_for: int | None = None,
    ) -> None:
        """Take a claim that begins at or before the position. `asked_for`: how many of it NACKs brought, if known."""
        if epoch != self.change.epoch:
            self.switch(now)
        position = self.position
        assert position is not None
        query = self.change.query
        if packets and packets[0][0] <= position:
            fresh = [packet for packet in packets if packet[0] > position]
            if parent is not None:
                parent.duplicates += len(packets) - len(fresh)
            self.duplicates += len(packets) - len(fresh)
            packets, asked_for = fresh, None
        if packets:
            packets = self._kind.unseen(packets, position)
            self.recovered += self._recovered(packets) if asked_for is None else asked_for
            self.packets += len(packets)
            size = sum([len(payload) for _, payload in packets])
            self.bytes += size
            if parent is not None:
                parent.first_copies += len(packets)
            self.handover.put(packets, size, query)
        self.handover.advance(until, query)
        self.position = until

    def drain(self, now: float) -> None:
        """Apply what waited for the position to come so far."""
        while len(self.buffer) and self.position is not None and self.handover.has_room(self.position):
            found = self.buffer.take(self.position, self.change.current_epochs())
            if found is None:
                return
            self._apply(*found, None, now)

    def _old(self, parent: Parent, packets: int, now: float) -> None:
        """Copies that another parent had brought before."""
        parent.duplicates += packets
        self.duplicates += packets
        parent.old_in_a_row += 1
        if parent.old_in_a_row >= 8 and now >= parent.squelch_at:
            parent.squelch_at = now + max(parent.link.rtt.smoothed, 0.05)
            parent.old_in_a_row = 0
            self._owner.is_steadily_late(parent, now)

    def begin(self, position: int, now: float, *, again: bool) -> None:
        """The stream begins after `position`."""
        self.position = position
        self.position_at = now
        self.reach.begin(position)
        self.handover.start(position, again=again)

    def switch(self, now: float) -> None:
        """From here on the new query holds. What waits under the old one is forgotten."""
        change = self.change
        change.switch(list(self.parents.values()), now)
        self.buffer.keep_epoch(change.epoch)
        for parent in self.parents.values():
            parent.sent_until = 0
        if self.position is not None:
            self.handover.put_switch(self.position, change.query)
        self._owner.switched(now)

    def skip(self, until: int) -> None:
        """Up to here nobody can supply anything."""
        assert self.position is not None
        self.gaps += 1
        self.handover.put_gap(self.position, until)
        self.position = until

    # --- what is missing ----------------------------------------------------------------------------------------------

    def sent_until(self) -> int:
        """Up to here one of the parents has sent all that matches."""
        furthest = 0
        for parent in self.parents.values():  # asked for every claim: a generator costs twice as much
            if parent.sent_until > furthest and parent.up:
                furthest = parent.sent_until
        return furthest

    def abandoned_until(self) -> int | None:
        """Nobody announced a hole and nothing came: the next thing we know of, or the nearest head beyond."""
        position = self.position
        assert position is not None
        known = self.buffer.first_known(position, self.change.epoch)
        if known is not None:
            return known
        heads = [p.highest for p in self.parents.values() if p.up and p.highest is not None and p.highest > position]
        return min(heads, default=None)
