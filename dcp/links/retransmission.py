"""Repair by request: what a child asks for again goes out again, before anything new.

This is the protection that every link has (rule T1). Bounded whatever the child says: nothing twice within a round
trip, a budget of bytes, and nothing while more fragments are queued than the window holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dcp import control
from dcp.child import Child
from dcp.config import Config
from dcp.control import Range
from dcp.cursor import Cursor, LogClaim, Paused
from dcp.links.fragments import FragmentQueue
from dcp.links.framing import Framing, Outlet
from dcp.links.repairs import RecentRepairs, RepairBudget
from dcp.links.rtt import RoundTrip
from dcp.links.window import SendWindow
from dcp.serial import QUARTER

MAX_REPAIRS = 256
# Sent-at marks of the live cursor: what was sent less than a round trip ago is on its way, not lost.
MAX_MARKS = 512
# Packets of one repair datagram at most.
MAX_PACKETS = 256


class Retransmission:
    """What one child asked for again: stretches, each as a cursor with an end."""

    def __init__(
        self,
        child: Child,
        config: Config,
        framing: Framing,
        *,
        link: Outlet,
        window: SendWindow,
        fragments: FragmentQueue,
        rtt: RoundTrip,
    ) -> None:
        self.requests = 0
        """NACKs of this child."""
        self.budget = RepairBudget()
        self.queue: deque[tuple[Cursor, int]] = deque()
        self._child = child
        self._config = config
        self._framing = framing
        self._link = link
        self._window = window
        self._fragments = fragments
        self._rtt = rtt
        self._recent = RecentRepairs(MAX_REPAIRS)
        self._marks: deque[tuple[int, float]] = deque()

    def sent(self, an: int, size: int, now: float) -> None:
        """Live data went out, up to `an`."""
        self.budget.earn(size)
        marks = self._marks
        if not marks or marks[-1][1] < now:
            if len(marks) >= MAX_MARKS:
                marks.popleft()
            marks.append((an, now))

    def clear(self) -> None:
        """The child's position was set: requests from before say nothing about what is claimed now."""
        self.queue.clear()
        self._recent.clear()
        self._marks.clear()

    def inserted(self, an: int) -> None:
        """A packet was put into the log: no claim under way may deny it."""
        for cursor, _ in self.queue:
            cursor.inserted(self._child.log, an)

    def request(
        self, position: int, highest: int, missing: Sequence[Range], pieces: Sequence[Range], now: float
    ) -> bool:
        """Send again what is missing, unless it went out within the last round trip.

        False when there is nothing to send again: then the child wants to hear where we stand.

        The round trip is what the child's echoes make of it: it is never taken as shorter than `min_rto`, or a child
        that lies about it gets the same bytes again with every NACK.
        """
        self.requests += 1
        head = self._child.cursor.position
        rtt = max(self._rtt.smoothed, self._config.min_rto)
        stale_before = self._sent_before(now - rtt)
        ranges = list(missing)
        beyond = max(highest, position)
        if missing:
            # A full list may have left something out: then nothing is known beyond its last stretch.
            self._window.heard_of(beyond if len(missing) < control.MAX_RANGES else missing[-1][1], missing)
        if stale_before > beyond:
            ranges.append((beyond, stale_before))  # sent more than a round trip ago, and never heard of
        if not ranges and head <= position:
            return False
        if self._fragments.bytes > self._window.size or not self.budget.allows(now):
            self.budget.refused += 1
            return True
        wanted = [(max(start, position), min(end, head)) for start, end in ranges]
        wanted = [(start, end) for start, end in wanted if start < end]
        again = self._recent.without_recent(wanted, now - rtt)
        for start, end in again:
            if len(self.queue) >= MAX_REPAIRS:
                break
            self._recent.add((start, end), now)
            if pieces and missing[0] == (start, end) and self._repeat_pieces(start, end, pieces):
                continue
            self.queue.append((Cursor(self._child.log, start), end))
        if again:
            self._window.lost(now, rtt)
        return True

    def _repeat_pieces(self, start: int, an: int, pieces: Sequence[Range]) -> bool:
        """Send again only these bytes of the large packet `an`, if that is what follows `start` here too."""
        child = self._child
        if child.interest is None:
            return False
        claim = Cursor(child.log, start).next_claim(
            child.log, child.interest, limit=child.acked + QUARTER, room=1, max_packets=1
        )
        before = self._fragments.bytes
        if not self._framing.repeat_pieces(self._link, claim, an, pieces):
            return False
        self.budget.spend(self._fragments.bytes - before)
        return True

    def _sent_before(self, when: float) -> int:
        """The highest AN of the live cursor that went out before `when`."""
        highest = 0
        for an, sent_at in self._marks:
            if sent_at > when:
                break
            highest = an
        return min(highest, self._child.cursor.position)

    def next_claim(self, now: float, limit: int, room: int) -> LogClaim | Paused | None:
        """The next claim that goes out again; None when there is nothing (more) to repeat."""
        child = self._child
        assert child.interest is not None
        while self.queue:
            if not self.budget.allows(now):
                self.budget.refused += 1
                self.queue.clear()  # the child asks again
                return None
            cursor, end = self.queue[0]
            claim = self._framing.next_claim(
                cursor, child.log, child.interest, limit=min(end, limit), room=room, max_packets=MAX_PACKETS
            )
            if claim is not None:
                return claim
            self.queue.popleft()
        return None
