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
from dcp.audit import Asking, Audit
from dcp.buffer import ReorderBuffer
from dcp.claims import Claim, Packets, Report
from dcp.config import Config
from dcp.control import Hole, Index
from dcp.epochs import QueryChange
from dcp.evidence import Book
from dcp.handover import Handover
from dcp.kinds import StreamKind
from dcp.lateness import Lateness
from dcp.parent import Parent
from dcp.reach import Reach
from dcp.serial import QUARTER
from dcp.tails import Tail


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

    def is_held_up(self, now: float) -> bool:
        """Something has been missing at the position for so long that it is not merely late."""

    def came_late(self, an: int, payload: bytes, now: float) -> None:
        """A packet was handed over that we had passed before."""


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
        reach: Reach,
        audit: Audit,
        owner: Owner,
    ) -> None:
        self.position: int | None = None
        self.position_at = 0.0
        """When the position last rose."""
        self.parents = parents
        self.change = change
        self.handover = handover
        self.buffer = ReorderBuffer(config.max_buffer_packets, config.max_buffer_bytes)
        self.reach = reach
        self.audit = audit
        self.claimed = 0
        """How far the farthest claim or hole goes that was believed."""
        self._tail = Tail(audit, parents, reach)
        self._last = 0
        """The last thing that was handed over: a packet beyond it is in order, however late it comes."""
        self._kind = kind
        self._recovered = recovered
        self._acceptance = acceptance
        self._owner = owner
        self._lateness = Lateness()
        self.packets = self.bytes = self.duplicates = 0
        self.refused = 0
        """Copies that the owner did not accept."""
        self.overrun = self.recovered = self.gaps = self.too_wide = self.beyond_reach = 0
        self.omitted = 0
        """Packets that were handed over after later ones."""

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
            acceptance.open_account(parent, refused, now)
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
        if self.position is not None and self._is_bad(parent, an):
            parent.add_hole(Hole(epoch, prev, an), self.position)
            self._owner.hole_heard(parent, now)

    def _is_bad(self, parent: Parent, an: int) -> bool:
        """Hold a refused copy against its parent, unless it can't be judged yet: then it counts as lost."""
        self.refused += 1
        if self._acceptance is None or an in self._acceptance.undecided:
            return False
        parent.refused += 1
        self._owner.copy_refused(parent, an)
        return True

    def hear_report(self, report: Report, now: float) -> None:
        parent, epoch, sent_until, head, settled = report
        if settled is not None and (parent.settled is None or settled > parent.settled):
            parent.settled = settled
        if sent_until is not None and head - sent_until > QUARTER:
            self.too_wide += 1
            self.reach.refused(parent, head, now, is_packet=False)
        elif self.believes(parent, head, now):
            parent.report_head(head, now)
            if sent_until is not None:
                parent.heard_claim = True
                if head > sent_until:
                    self.take(Claim(parent, epoch, sent_until, head, []), now)
                is_ours = epoch == self.change.epoch
                if is_ours and sent_until > parent.sent_until and sent_until > self.tail_of(parent):
                    parent.sent_until = sent_until
        self._owner.watch(now)

    def hear_hole(self, parent: Parent, hole: Hole, now: float) -> None:
        assert self.position is not None
        parent.heard_claim = True
        if not self.believes(parent, hole.end, now):
            return
        parent.report_head(hole.end, now)
        if hole.end > self.claimed:
            self.claimed = hole.end
        if (book := self.audit.book_of(hole.epoch)) is not None:
            account = book.account(parent.link.id)
            account.ledger.say_hole(hole.start, hole.end)
            account.unanswered_since = None
            account.knows_query = True
        if hole.end > self.position:
            parent.add_hole(hole, self.position)
            self.advance_tail(now)
            self._owner.hole_heard(parent, now)

    def hear_piece(self, parent: Parent, epoch: int, prev: int, an: int, before: tuple[int, ...] = ()) -> None:
        """A piece of a large packet, or a repair that lists others `before` it: the parent has them, here or not."""
        parent.heard_claim = True
        book = self.audit.book_of(epoch)
        if book is not None and self.position is not None:
            said = (an - 1, an, (an,)) if parent.is_convicted else (prev, an, (*before, an))
            book.account(parent.link.id).ledger.say(*said)

    def hear_index(self, parent: Parent, index: Index, asking: Asking, now: float) -> None:
        """A parent lists what it has of a stretch that we passed (rule L6)."""
        assert self.position is not None
        self.audit.hear_index(parent, index, self.position, asking, now)

    def believes(self, parent: Parent, an: int, now: float, *, is_packet: bool = False) -> bool:
        """Whether what a parent says about `an` is not too far ahead of the other parents to be believed (rule L2)."""
        epoch = self.change.epoch
        if is_packet or an <= self.reach.limit_alone(epoch, now):
            is_known = an <= parent.reach and now <= parent.reach_until
            if is_known or self.reach.allows(parent, an, epoch, now):
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
            self._take_of_the_past(claim, now)
            return
        asked_for = 0
        if packets:
            asked_for = self._recovered(packets)
            parent.count(len(packets), asked_for, self.packets)
            if until > self.reach.seen:
                self.reach.seen = until
        if until > self.claimed:
            self.claimed = until
        if self.audit.book is not None or parent.is_convicted:
            if not packets:
                self._hold(claim, now)
                return
            if parent.is_convicted and until - prev > 1:
                self._take_apart(claim, now)
                return
            if epoch == self.change.epoch and self.audit.book is not None:
                prev = self._keep(self.audit.book, claim, now)
        if until <= position:
            if packets:
                self._old(parent, packets, now)
            return
        if prev > position:
            self.buffer.add(epoch, prev, until, packets)
            if epoch == self.change.epoch:
                self.handover.put_early(packets)
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
        if self._tail.held_until > until:
            self.advance_tail(now)

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
                self._lateness.first(parent, packets, now)
            self.handover.put(packets, size, query)
            self._last = packets[-1][0]
            if self.audit.book is not None:
                self.audit.book.took([an for an, _ in packets])
        self.handover.advance(until, query)
        self.position = until

    def drain(self, now: float) -> None:
        """Apply what waited for the position to come so far."""
        while len(self.buffer) and self.position is not None and self.handover.has_room(self.position):
            found = self.buffer.take(self.position, self.change.current_epochs())
            if found is None:
                return
            self._apply(*found, None, now)

    def _old(self, parent: Parent, packets: Packets, now: float) -> None:
        """Copies that another parent had brought before."""
        self._lateness.again(parent, packets, now)
        self.duplicates += len(packets)
        parent.old_in_a_row += 1
        if parent.old_in_a_row >= 8 and now >= parent.squelch_at:
            parent.squelch_at = now + max(parent.link.rtt.smoothed, 0.05)
            parent.old_in_a_row = 0
            self._owner.is_steadily_late(parent, now)

    def begin(self, position: int, now: float, *, again: bool) -> None:
        """The stream begins after `position`."""
        self.position = position
        self.position_at = now
        self._last = self.claimed = position
        self._tail.held_until = 0
        self.reach.begin(position)
        self.audit.begin()
        self.audit.parents_changed(self.change.epoch, position)
        self.handover.start(position, again=again)

    def switch(self, now: float) -> None:
        """From here on the new query holds. What waits under the old one is forgotten."""
        change = self.change
        query_before = change.query
        change.switch(list(self.parents.values()), now)
        self.audit.switch(change.epoch, self.position, query_before, now)
        self._tail.held_until = 0
        self.buffer.keep_epoch(change.epoch)
        for parent in self.parents.values():
            parent.sent_until = 0
        if self.position is not None:
            self.handover.put_switch(self.position, change.query)
            self._last = self.position
        self._owner.switched(now)

    def skip(self, until: int) -> None:
        """Up to here nobody can supply anything."""
        assert self.position is not None
        self.gaps += 1
        self.handover.put_gap(self.position, until)
        if self.audit.book is not None:
            self.audit.book.skipped(self.position, until)
        self.position = self._last = until

    # --- what must not be believed alone (rules L1, L5) ---------------------------------------------------------------

    def _keep(self, book: Book, claim: Claim, now: float) -> int:
        """Write down what a parent says, and hand over what we had passed. Where its claim begins is returned.

        A claim reaches back over the emptiness that the same parent stated before, and that still waits for others:
        data moves the position at once (rule L1a).
        """
        parent, _, prev, until, packets = claim
        position = self.position
        assert position is not None
        ledger = book.account(parent.link.id).ledger
        if prev > position:
            prev = ledger.quiet_since(prev)
        ans = [an for an, _ in packets]
        ledger.say(prev, until, ans)
        if ans[0] <= position and not book.has_all(ans):
            self._hand_over_late(book, parent, packets, now)
        return prev

    def _hold(self, claim: Claim, now: float) -> None:
        """Emptiness moves the position only as far as every parent that counts has stated it (rule L1)."""
        parent, epoch, prev, until, _ = claim
        position = self.position
        assert position is not None
        if epoch != self.change.epoch:
            if not prev <= position < until:
                return
            self.switch(now)  # the first claim of the new query that applies, whatever it moves
        book = self.audit.book
        if book is None or parent.is_convicted:
            return
        book.account(parent.link.id).ledger.say(prev, until, ())
        if until > self._tail.held_until:
            self._tail.held_until = until
        self.advance_tail(now)

    @property
    def is_holding(self) -> bool:
        """Whether somebody's emptiness waits."""
        return self.position is not None and self._tail.held_until > self.position

    def advance_tail(self, now: float) -> None:
        """Go as far as the emptiness that waits is agreed on."""
        while self.position is not None and self._tail.held_until > self.position:
            position, epoch = self.position, self.change.epoch
            until, is_one_word, hole_end = self._tail.agreed(
                position, epoch, is_held_up=lambda: self._owner.is_held_up(now), stuck_since=self.position_at, now=now
            )
            if is_one_word:
                # Only as far as data that waits, or the hole: one parent's word must not carry us ahead of the stream.
                known = self.buffer.first_known(position, epoch)
                until = min(until, hole_end if known is None else known)
            if until <= position or not self.handover.has_room(position):
                return
            self._apply(epoch, until, [], None, now)
            if len(self.buffer):
                self.drain(now)
            self._owner.advanced(now)

    def tail_of(self, parent: Parent) -> int:
        """Our position as this parent is to see it."""
        assert self.position is not None
        return self._tail.of(parent, self.position)

    def _take_apart(self, claim: Claim, now: float) -> None:
        """Of a convicted parent: its packets count, and what it says is not there does not (rule L10)."""
        parent, epoch, _, _, packets = claim
        for an, payload in packets:
            self.take(Claim(parent, epoch, an - 1, an, [(an, payload)]), now)

    def _take_of_the_past(self, claim: Claim, now: float) -> None:
        """A claim under a query that is over. While its book is open, a packet that we passed is handed over."""
        parent, epoch, prev, until, packets = claim
        book = self.audit.book_of(epoch)
        if book is not None and packets and parent.link.id in book.accounts:
            narrow = packets[0][0] - 1 if parent.is_convicted else prev
            book.accounts[parent.link.id].ledger.say(narrow, until, [an for an, _ in packets])
            self._hand_over_late(book, parent, packets, now)
        self._owner.is_in_another_epoch(parent, now)

    def lacks(self, epoch: int, an: int) -> bool:
        """Whether we went past this packet as if it were not there."""
        book = self.audit.book_of(epoch)
        return book is not None and self.position is not None and book.lacks(an, self.position)

    def _hand_over_late(self, book: Book, parent: Parent, packets: Packets, now: float) -> None:
        """What somebody said is not there (rule L5): in order while nothing beyond it was handed over."""
        position = self.position
        assert position is not None
        for an, payload in packets:
            if not book.lacks(an, position):
                continue
            if self.is_refused(parent, an, payload, now):
                self._is_bad(parent, an)
                continue
            if not self.handover.has_room(position):
                self.overrun += 1
                book.account(parent.link.id).ledger.unsay([an])
                continue
            parent.first_copies += 1
            self._put_late(book, an, payload, now)

    def _put_late(self, book: Book, an: int, payload: bytes, now: float) -> None:
        book.add_late(an, now)
        in_order = an > self._last
        if in_order:
            self._last = an
        else:
            self.omitted += 1
        self.packets += 1
        self.bytes += len(payload)
        self.handover.put_late(an, payload, in_order=in_order)
        self._owner.came_late(an, payload, now)

    def take_found(self, found: Packets, now: float) -> None:
        """Packets that match our query, found at a peer that is not one of our parents: those that we passed."""
        book = self.audit.book
        for an, payload in found:
            if book is not None and self.lacks(book.epoch, an) and self.handover.has_room(self.position or 0):
                self._put_late(book, an, payload, now)

    # --- what is missing ----------------------------------------------------------------------------------------------

    def sent_until(self) -> int:
        """Up to here one of the parents has sent all that matches."""
        furthest = 0
        for parent in self.parents.values():  # asked for every claim: a generator costs twice as much
            if parent.sent_until > furthest and parent.up:
                furthest = parent.sent_until
        return furthest
