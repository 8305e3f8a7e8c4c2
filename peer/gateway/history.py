"""What the stream brought lately, and readers that follow it, each with a query of its own. Pure.

A reader is a place in the history: it takes what it can, when it can. A slow one costs no memory of its own; when the
history has moved past it, it is told so by a gap. Every packet is matched once against the queries of all readers;
what lies before a reader's query came is matched for that reader alone, when it gets there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from dcp import Gap, Omitted, Packet, Started
from peer.items import Content, QuerySwitched
from xmlswitch import MalformedDocument, Query, Switch

MAX_QUERY_BYTES = 4_096
ENTRY_BYTES = 256
"""What an entry costs beside its payload, about."""


class Entry(NamedTuple):
    """One item, where the stream stood after it, and for which slots it matched, or passed unmatched."""

    position: int
    item: Content
    mask: int = 0
    passed: int = 0


class Event(NamedTuple):
    """What a reader is given. `is_filtered`: False for a packet that passed because matching it would take too long."""

    item: Content
    position: int
    is_filtered: bool = True


class History:
    """Bounded by `max_bytes`; `put` what comes, `open` a reader for each client."""

    def __init__(self, max_bytes: int, *, max_readers: int) -> None:
        self.max_readers = max_readers
        self.evicted = 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: deque[Entry] = deque()
        self._first = 0  # the number of the first entry; entries are numbered without end
        self._floor: int | None = None  # all up to here was evicted, or was never here
        self._position: int | None = None
        self._switch: Switch[Query] = Switch()
        self._readers: dict[int, Reader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def position(self) -> int | None:
        """Where the stream stands; None before it has started."""
        return self._position

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._first + len(self._entries)

    # --- what comes -----------------------------------------------------------------------------------------------

    def put(self, item: Content) -> None:
        match item:
            case Packet(an, payload):
                self._add(Entry(an, item, *self._match(payload)), len(payload))
            case Omitted(_, payload):
                self._add(Entry(self._position or 0, item, *self._match(payload)), len(payload))
            case Gap(_, until):
                self._add(Entry(until, item), 0)
            case Started(position):
                is_again = self._position is not None
                self._position = self._floor = position
                if is_again:  # the numbers have begun again: older ones mean something else now
                    self._first = self.end
                    self._entries.clear()
                    self._bytes = 0
                    self._add(Entry(position, item), 0)
            case QuerySwitched():
                pass  # of the gateway's own query: readers have theirs

    def _match(self, payload: bytes) -> tuple[int, int]:
        """For which slots it matches, and for which it passes because matching would take too long."""
        try:
            mask = self._switch.match_mask(payload)
        except MalformedDocument:
            return 0, 0
        passed = 0
        for slot, count in self._switch.cut_offs.items():
            reader = self._readers[slot]
            if count != reader.cut_off:
                passed |= 1 << slot
                reader.cut_off = count
        return mask, passed

    def _add(self, entry: Entry, size: int) -> None:
        self._position = entry.position
        self._entries.append(entry)
        self._bytes += size + ENTRY_BYTES
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            gone = self._entries.popleft()
            self._first += 1
            self.evicted += 1
            self._floor = gone.position
            self._bytes -= _size(gone.item) + ENTRY_BYTES

    # --- who listens ----------------------------------------------------------------------------------------------

    def open(self, query: Query | None, *, after: int | None = None) -> Reader:
        """A reader from now on, or of what came after the packet `after`. ValueError when there are too many."""
        if len(self._readers) >= self.max_readers:
            raise ValueError(f"this gateway serves at most {self.max_readers} clients")
        slot = next(number for number in range(len(self._readers) + 1) if number not in self._readers)
        reader = Reader(self, slot, query)
        self._readers[slot] = reader
        self._switch.add_link(slot, slot=slot)
        self._subscribe(slot, query)
        reader.begin(after)
        return reader

    def close(self, reader: Reader) -> None:
        if self._readers.get(reader.slot) is reader:
            del self._readers[reader.slot]
            self._switch.remove_link(reader.slot)

    def change(self, reader: Reader, query: Query | None) -> None:
        self._switch.remove_link(reader.slot)
        self._switch.add_link(reader.slot, slot=reader.slot)
        self._subscribe(reader.slot, query)
        reader.cut_off = 0

    def _subscribe(self, slot: int, query: Query | None) -> None:
        if query is not None:
            self._switch.subscribe(slot, query)

    def place_after(self, an: int) -> int:
        """The number of the first entry behind the packet `an`."""
        return self._first + bisect_right(self._entries, an, key=lambda entry: entry.position)

    def entry(self, number: int) -> Entry:
        return self._entries[number - self._first]

    @property
    def first(self) -> int:
        return self._first

    @property
    def floor(self) -> int:
        return self._floor or 0


class Reader:
    """One client's place in the history. Made by `History.open`."""

    def __init__(self, history: History, slot: int, query: Query | None) -> None:
        self.slot = slot
        self.query = query
        self.position: int | None = None
        """Everything up to here that matches was taken, or was a gap."""
        self.cut_off = 0
        """Packets that passed because matching them would have taken too long, as last seen."""
        self._history = history
        self._next = history.end
        self._matched_from = history.end  # from here on the mask of an entry knows our query
        self._own: Switch[Query] | None = None
        self._pending: list[Event] = []

    def begin(self, after: int | None) -> None:
        history = self._history
        head = history.position
        if after is None or head is None or after > head:
            self._start(head)
            return
        self.position = after
        self._next = history.place_after(after)
        if after < history.floor:
            self._skip_to_floor()

    def _start(self, position: int | None) -> None:
        self.position = position
        if position is not None:
            self._pending.append(Event(Started(position), position))

    def _skip_to_floor(self) -> None:
        floor = self._history.floor
        assert self.position is not None
        self._pending.append(Event(Gap(self.position, floor), floor))
        self.position = floor
        self._next = self._history.first

    def change_query(self, query: Query | None) -> None:
        """From the next entry that was not taken yet."""
        self._history.change(self, query)
        self.query = query
        self._own = None
        self._matched_from = self._history.end
        self._pending.append(Event(QuerySwitched(self.position or 0, query), self.position or 0))

    def take(self, most: int) -> list[Event]:
        """Up to `most` events; none when there is nothing new. Looks at a bounded number of entries."""
        history = self._history
        if self.position is None and history.position is not None:  # the stream has started since
            self._start(history.floor)
        if self._next < history.first:
            if self.position is not None and self.position < history.floor:
                self._skip_to_floor()
            self._next = history.first
        taken, self._pending = self._pending, []
        for _ in range(4 * most):
            if len(taken) >= most or self._next >= history.end:
                break
            entry = history.entry(self._next)
            if (event := self._event(entry)) is not None:
                taken.append(event)
            self._next += 1
            self.position = entry.position
        return taken

    @property
    def is_behind(self) -> bool:
        return bool(self._pending) or self._next < self._history.end

    def _event(self, entry: Entry) -> Event | None:
        item = entry.item
        if not isinstance(item, Packet | Omitted) or self.query is None:
            return Event(item, entry.position)
        if self._next >= self._matched_from:
            if not entry.mask >> self.slot & 1:
                return None
            return Event(item, entry.position, not entry.passed >> self.slot & 1)
        if self._own is None:
            self._own = Switch()
            self._own.add_link(0, slot=0)
            self._own.subscribe(0, self.query)
        before = self._own.cut_off(0)
        try:
            matches = self._own.match_mask(item.payload) != 0
        except MalformedDocument:
            return None
        return Event(item, entry.position, self._own.cut_off(0) == before) if matches else None


def _size(item: Content) -> int:
    return len(item.payload) if isinstance(item, Packet | Omitted) else 0
