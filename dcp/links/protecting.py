"""The parent's side of protection: repairs that go out unasked behind the live packets of one child (rules T2 to T6).

After every few datagrams comes the sum of the last ones (`coding`), from which the child computes one that was lost
without asking for it. The window slides: a repair covers several times as many datagrams as come between two repairs,
so that what one can't mend the next one may. A copy is a repair with one member, sent a little later than the datagram.

The child decides what it wants (`Protect`), we cap it: members, bytes, and nothing while the window is full, since loss
from congestion is not mended by sending more. A repair is also a claim (rule T5): "in (prev, an] exactly these match".
So the window holds only datagrams that follow one another without a hole, and is cleared when the child is
repositioned, changes its query, or a packet is put into the log behind it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dcp import wire
from dcp.coding import ROWS, coefficient, combined
from dcp.cursor import DataClaim, EmptyClaim, LogClaim
from dcp.links.window import SendWindow
from dcp.protection import MAX_MEMBERS, Group, Protect, Repair, encode_repair, symbol_of
from dcp.serial import QUARTER

MAX_EVERY = 16
MAX_REPAIRS = 2
MAX_SPAN = 8
MAX_DELAY = 0.1
MAX_COPIES_WAITING = 64
# With UDP and IP headers a datagram is longer by this.
_HEADERS = 28
# A repair is somewhat longer than what it protects: its list of members is not held against the budget.
BUDGET_SLACK = 1.3
# Bytes that may be saved up for repairs.
MAX_CREDIT = 64 << 10
LATE_KEEP_ALIVE = 0.15
"""While copies show the loss of a tail, the first keep-alive comes this late (rule T6)."""


class Outlet(Protocol):
    max_datagram: int

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes: ...


class Protection:
    """What one child asked for, and the window from which its repairs are made."""

    def __init__(self, link: Outlet, window: SendWindow, *, max_budget: float, first_key: int) -> None:
        """`first_key`: different at the parents of one child, so that their repairs add up (rule T4)."""
        self.every = 0
        self.sent_repairs = 0
        self.sent_bytes = 0
        self.held_back = 0
        """Repairs that were not sent: over the budget, or while the window was full."""
        self._link = link
        self._flow = window
        self._max_budget = max_budget
        self._revision: int | None = None
        self._repairs = 1
        self._span = 1
        self._delay = 0.0
        self._budget = 0.0
        self._credit = 0.0
        self._key = first_key % ROWS
        self._since_repair = 0
        self._members: deque[tuple[Group, bytes]] = deque()
        self._packets = 0
        self._prev = 0
        """Where the claim of the first member begins."""
        self._covered = -1
        """Up to here the members, and emptiness between them, follow one another without a break."""
        self._copies: deque[tuple[float, bytes]] = deque()

    def ask(self, protect: Protect) -> bool:
        """The child wants this. False for an older wish that came late."""
        if self._revision is not None and (protect.revision - self._revision) & 0xFFFFFFFF >= 1 << 31:
            return False
        if protect.revision == self._revision:
            return True
        self._revision = protect.revision
        self.every = min(protect.every, MAX_EVERY)
        self._repairs = min(max(protect.repairs, 1), MAX_REPAIRS)
        self._span = min(max(protect.span, 1), MAX_SPAN, max(1, MAX_MEMBERS // max(1, self.every)))
        self._delay = min(protect.delay, MAX_DELAY)
        self._budget = min(protect.budget / 100, self._max_budget) * BUDGET_SLACK
        self._credit = 0.0
        self.clear()
        return True

    @property
    def copies(self) -> bool:
        return self.every == 1

    def clear(self) -> None:
        """Nothing that was sent before may be part of a claim any longer."""
        self._members.clear()
        self._copies.clear()
        self._packets = self._since_repair = 0
        self._covered = -1

    def inserted(self, an: int) -> None:
        """A packet was put into the log: no repair may deny it."""
        if self._prev < an <= self._covered:
            self.clear()

    # --- what goes out ------------------------------------------------------------------------------------------------

    def sent(self, claim: LogClaim, now: float) -> list[bytes]:
        """A live claim goes out. The repairs that follow it at once."""
        if not self.every:
            return []
        if isinstance(claim, EmptyClaim):
            if claim.prev <= self._covered < claim.until:
                self._covered = claim.until
            return []
        if not isinstance(claim, DataClaim):
            self.clear()  # a hole: no claim reaches over it
            return []
        prev, packets = claim
        symbol = symbol_of([payload for _, payload in packets]) if len(packets) <= MAX_MEMBERS else b""
        last = packets[-1][0]
        if not symbol or len(symbol) > self._room(len(packets)):
            self.clear()  # in fragments, or more than a repair can list
            return []
        if prev > self._covered or last - self._prev > QUARTER:
            self.clear()
            self._prev = prev
        self._members.append((tuple(an for an, _ in packets), symbol))
        self._packets += len(packets)
        self._covered = last
        self._credit = min(self._credit + (len(symbol) + wire.BODY_AT + _HEADERS) * self._budget, MAX_CREDIT)
        while len(self._members) > self.every * self._span or self._packets > MAX_MEMBERS:
            group, _ = self._members.popleft()
            self._packets -= len(group)
            self._prev = group[-1]
        self._since_repair += 1
        if self._since_repair < self.every:
            return []
        self._since_repair = 0
        if self._is_congested():
            self.held_back += 1
            return []
        repairs = [repair for _ in range(self._repairs) if (repair := self._next_repair()) is not None]
        if self.copies and self._delay:
            for repair in repairs:
                if len(self._copies) < MAX_COPIES_WAITING:
                    self._copies.append((now + self._delay, repair))
            return []
        return repairs

    def _is_congested(self) -> bool:
        """More than half of the window is on its way: what is lost now is lost for want of room (rule T6)."""
        return 2 * self._flow.bytes > self._flow.size

    def _room(self, packets: int) -> int:
        """For the symbol, in a repair with so many members in its own group."""
        return self._link.max_datagram - wire.BODY_AT - 4 - 1 - 5 * packets

    def _next_repair(self) -> bytes | None:
        """The sum of the window; of its later part, when the list of members would not fit."""
        members = list(self._members)
        prev = self._prev
        room = self._link.max_datagram - wire.BODY_AT - 4
        sizes = [len(symbol) for _, symbol in members]
        lists = [1 + 5 * len(group) for group, _ in members]
        while len(members) > 1 and max(sizes) + sum(lists) > room:
            prev = members[0][0][-1]
            del members[0], sizes[0], lists[0]
        self._key = (self._key + 1) % ROWS
        groups = [group for group, _ in members]
        if len(members) == 1:
            coded = members[0][1]  # a copy: nothing to compute at either end
        else:
            coded = combined([(coefficient(self._key, group[-1]), symbol) for group, symbol in members])
        body = encode_repair(prev, Repair(self._key, groups, coded))
        if self._credit < len(body) + wire.BODY_AT + _HEADERS:
            self.held_back += 1
            return None
        self._credit -= len(body) + wire.BODY_AT + _HEADERS
        datagram = self._link.encode(wire.CONTROL, groups[-1][-1], prev, body)
        self.sent_repairs += 1
        self.sent_bytes += len(datagram)
        return datagram

    def due(self, now: float) -> list[bytes]:
        """Copies whose time has come."""
        found = []
        while self._copies and self._copies[0][0] <= now + 1e-9:
            found.append(self._copies.popleft()[1])
        return found

    def next_timeout(self) -> float | None:
        return self._copies[0][0] if self._copies else None
