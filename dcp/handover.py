"""What becomes of the stream at its position: the application gets it, and at a router the log that serves children.

Bounded: when the application is not consuming packets, claims are turned away; senders learned before that how little
room is left. A router's own slow application must not hold up its children, though: it is served from the log when it
comes for more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dcp import events
from dcp.claims import Packets
from dcp.events import Content, Packet
from dcp.log import Log

# Packets lie here as bare (AN, payload): a named tuple for each costs more than all else that is done with it.
Item = tuple[int, bytes] | Content
MAX_READY_BYTES = 64 << 20
# The last changes of the query that an application hears of when it fell behind. Older ones no longer matter to it.
MAX_SWITCHES = 64


class Handover:
    """Takes what lies at the position, in order, and hands it out as the application asks."""

    def __init__(
        self,
        limit: int,
        *,
        deliver: bool,
        log: Log | None,
        max_bytes: int = MAX_READY_BYTES,
        keeps_newest: bool = False,
    ) -> None:
        self.limit = limit
        self.max_bytes = max_bytes
        self.keeps_newest = keeps_newest
        """An application that falls behind loses the oldest packets, as a gap, instead of holding up the newest."""
        self.skipped = 0
        """Packets that were lost so."""
        self.bytes = 0
        """Of the packets that lie ready."""
        self.turned_away = False
        """Claims were not taken for lack of room: what they brought must be asked for again."""
        self.announced_little_room = False
        self._deliver = deliver
        self._log = log
        self._items: deque[Item] = deque()
        self._behind_from: int | None = None
        """The application gets what follows this position from the log."""
        self._switches: deque[events.QuerySwitched] = deque(maxlen=MAX_SWITCHES)
        """Of the time since then: the log does not have them."""

    def __len__(self) -> int:
        """What lies ready, without what is only in the log."""
        return len(self._items)

    # --- in -----------------------------------------------------------------------------------------------------------

    def has_room(self, position: int) -> bool:
        """Whether more may be put after this position. What is turned away is remembered."""
        if len(self._items) < self.limit and self.bytes < self.max_bytes:
            return True
        if self._log is None:
            if self.keeps_newest:
                self._skip_oldest()
                if len(self._items) < self.limit and self.bytes < self.max_bytes:
                    return True
            self.turned_away = True
            return False
        if self._behind_from is None:
            self._behind_from = position
        return True

    def room(self) -> int:
        """What senders may still send. A router takes everything, and so does who only wants the newest."""
        if self._log is not None or self.keeps_newest:
            return self.limit
        room = max(0, self.limit - len(self._items)) if self.bytes < self.max_bytes else 0
        self.announced_little_room = room < self.limit // 4
        return room

    def start(self, position: int, *, again: bool = False) -> None:
        if self._log is not None and (again or not self._log.started):
            self._log.start(position)
            if again and self._behind_from is not None:
                self._behind_from = None  # what the application had not taken yet went with the log
                self._switches.clear()
        self._add(events.Started(position))

    def put(self, packets: Packets, size: int, query: bytes) -> None:
        """Packets in order, and the bytes in them."""
        if self._deliver and self._behind_from is None:
            self._items.extend(packets)
            self.bytes += size
        if self._log is not None:
            ans, payloads = zip(*packets, strict=True)
            self._log.append_many(ans, payloads, query)

    def advance(self, position: int, query: bytes) -> None:
        """Up to here nothing more matches the query."""
        if self._log is not None:
            self._log.advance(position, query)

    def settle(self, until: int) -> None:
        """Up to here all parents agree (rule L7)."""
        if self._log is not None:
            self._log.settled = until

    def put_gap(self, after: int, until: int) -> None:
        self._add(events.Gap(after, until))
        if self._log is not None:
            self._log.hole(until)

    def put_early(self, packets: Packets) -> None:
        """Packets that wait for what lies before them: nothing is handed over out of order here (see `arrival`)."""

    def put_late(self, an: int, payload: bytes, *, in_order: bool) -> None:
        """A packet that was passed over as if it were not there. `in_order`: nothing after it was handed over yet.

        An application that fell behind gets it in its place from the log, if it has not come so far.
        """
        if self._deliver and (self._behind_from is None or an <= self._behind_from):
            self._items.append((an, payload) if in_order else events.Omitted(an, payload))
            self.bytes += len(payload)

    def put_switch(self, position: int, query: bytes) -> None:
        switched = events.QuerySwitched(position, query)
        self._add(switched)
        if self._behind_from is not None:
            self._switches.append(switched)

    def _skip_oldest(self) -> None:
        """Half of what lies ready becomes gaps; starts and switches of the query stay in their places."""
        items = self._items
        kept: list[Item] = []
        gap: events.Gap | None = None
        for item in [items.popleft() for _ in range((len(items) + 1) // 2)]:
            if isinstance(item, events.Started | events.QuerySwitched | events.Omitted):
                if gap is not None:
                    kept.append(gap)
                kept.append(item)
                gap = None
                continue
            if isinstance(item, events.Gap):
                after, until = item
            else:
                after, until = item[0] - 1, item[0]
                self.bytes -= len(item[1])
                self.skipped += 1
            gap = events.Gap(after if gap is None else gap.after, until)
        if gap is not None:
            kept.append(gap)
        items.extendleft(reversed(kept))

    def _add(self, event: Content) -> None:
        if self._deliver and self._behind_from is None:
            self._items.append(event)

    # --- out ----------------------------------------------------------------------------------------------------------

    @property
    def has_events(self) -> bool:
        """Whether something waits for the application, here or (a router's, that fell behind) in the log."""
        return len(self._items) > 0 or self._behind_from is not None

    @property
    def is_drained(self) -> bool:
        """Whether the application has everything, also what it may not take yet (`confirming`)."""
        return not self.has_events

    @property
    def backlog(self) -> float:
        """How full the application's queue is: 1 and more when it holds all it may."""
        if self._behind_from is not None:
            return 1.0
        return max(len(self._items) / self.limit, self.bytes / self.max_bytes)

    def next(self, position: int | None) -> Content | None:
        """The next packet, gap, start or query switch, in the order of the stream, which ends at `position` for now."""
        return next(iter(self.take(1, position)), None)

    def take(self, most: int, position: int | None) -> list[Content]:
        """Up to `most` of them at once."""
        new = tuple.__new__
        taken = self.take_plain(most, position)
        return [new(Packet, item) if type(item) is tuple else item for item in taken]  # type: ignore[misc]

    def take_plain(self, most: int, position: int | None) -> list[Item]:
        """The same, with packets as bare (AN, payload): for an owner that makes something else of them anyway."""
        items = self._items
        if not items and self._behind_from is not None and position is not None:
            self._refill(self._behind_from, position)
        if len(items) <= most:
            taken = list(items)
            items.clear()
            self.bytes = 0
            return taken
        pop = items.popleft
        taken = [pop() for _ in range(most)]
        self.bytes -= bytes_of(taken)
        return taken

    def _refill(self, behind_from: int, position: int) -> None:
        """Go on from the log; what was evicted meanwhile is a gap."""
        assert self._log is not None
        items, reached = self._log.replay(behind_from, self.limit // 2 or 1)
        for item in items:
            self._take_switches(item.after if isinstance(item, events.Gap) else item[0] - 1)
            self._items.append(item)
        self.bytes += bytes_of(items)
        self._take_switches(reached)
        self._behind_from = None if reached >= position else reached

    def _take_switches(self, position: int) -> None:
        while self._switches and self._switches[0].position <= position:
            self._items.append(self._switches.popleft())


def bytes_of(items: Sequence[Any]) -> int:
    """Of the packets among them; Any, since mypy does not tell a bare tuple from a named one."""
    return sum([len(item[1]) for item in items if type(item) is tuple or type(item) is events.Omitted])
