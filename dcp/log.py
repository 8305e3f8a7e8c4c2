"""The peer's one log: what it knows of the stream, and under which query it came to know it.

The log describes (low, head]. Packets are at their ANs; *segments* say of every stretch under which query it was
received, or that it was not (a hole). A claim to a child may be made over a stretch only where the query in force
covers the child's query: over anything else we do not know what was there (rule S1, S2).

Eviction raises `low`. Packets carry a *mask*: bit i is set when the interest with slot i matches. An interest opened
later than a packet was logged asks the policy instead.

Everything here is in 64-bit positions. Packets have a running *ordinal*, which stays valid while older ones are
evicted, so that a link can keep its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from operator import add
from typing import Final

from dcp.control import ENTRY
from dcp.events import Gap
from dcp.queries import ALL_SLOTS, EVERYTHING, QueryPolicy

HOLE: Final = None


@dataclass(slots=True)
class Segment:
    """(start, end] was received under `query`, or is a hole."""

    start: int
    end: int
    query: bytes | None


class Interest:
    """One child's query in one epoch."""

    __slots__ = ("bit", "query", "since", "slot")

    def __init__(self, query: bytes, slot: int | None, since: int) -> None:
        self.query = query
        self.slot = slot
        """None: wants everything, and costs nothing."""
        self.bit = 0 if slot is None else 1 << slot
        self.since = since
        """Masks of packets from this ordinal on know about the slot."""


class Log:
    def __init__(self, policy: QueryPolicy, *, max_packets: int, max_bytes: int, max_segments: int) -> None:
        self.policy = policy
        self.max_packets = max_packets
        self._max_bytes = max_bytes
        self._max_segments = max_segments
        self.low = 0
        self.head = 0
        self.started = False
        self.bytes = 0
        self.evicted = 0
        self._segments: list[Segment] = []
        self._ans: list[int] = []
        self._payloads: list[bytes] = []
        self._masks: list[int] = []
        self._weights: list[int] = [0]  # one more than packets: what all before an index would take in a bundle
        self._first = 0  # index of the oldest packet that is still held
        self._base = 0  # ordinal of index 0
        self._slots: set[int] = set()
        self._covers: dict[tuple[bytes, bytes], bool] = {}

    # --- growth -------------------------------------------------------------------------------------------------------

    def start(self, position: int) -> None:
        """The log begins after `position`: whatever was there before is not known, and never will be."""
        self._base += len(self._ans) + 1  # ordinals of before are older than everything now
        self._first = 0
        self._ans.clear()
        self._payloads.clear()
        self._masks.clear()
        self._weights = [0]
        self._segments.clear()
        self.bytes = 0
        self.low = self.head = position
        self.started = True

    def append(self, an: int, payload: bytes, query: bytes = EVERYTHING) -> None:
        """In (head, an] only `an` matched `query`, and this is it."""
        self._ans.append(an)
        self._payloads.append(payload)
        self._masks.append(self.policy.route(payload) if self._slots else ALL_SLOTS)
        self._weights.append(self._weights[-1] + len(payload) + ENTRY.size)
        self.bytes += len(payload)
        segments = self._segments
        if segments and segments[-1].query == query:
            segments[-1].end = self.head = an
        else:
            self._extend(an, query)
        if len(self._ans) - self._first > self.max_packets or self.bytes > self._max_bytes:
            self._evict()

    def append_many(self, ans: Sequence[int], payloads: Sequence[bytes], query: bytes = EVERYTHING) -> None:
        """The same as `append` for each of them, at a tenth of the cost."""
        if not ans:
            return
        self._ans += ans
        self._payloads += payloads
        self._masks += map(self.policy.route, payloads) if self._slots else repeat(ALL_SLOTS, len(payloads))
        sizes = list(map(len, payloads))
        weights = map(add, sizes, repeat(ENTRY.size))
        self._weights += islice(accumulate(weights, initial=self._weights[-1]), 1, None)
        self.bytes += sum(sizes)
        self._extend(ans[-1], query)
        if len(self._ans) - self._first > self.max_packets or self.bytes > self._max_bytes:
            self._evict()

    def advance(self, to: int, query: bytes = EVERYTHING) -> None:
        """Nothing in (head, to] matched `query`."""
        if to > self.head:
            self._extend(to, query)

    def hole(self, to: int) -> None:
        """(head, to] was not had, and will not be."""
        if to > self.head:
            self._extend(to, HOLE)

    def _extend(self, to: int, query: bytes | None) -> None:
        segments = self._segments
        if segments and segments[-1].query == query:
            segments[-1].end = to
        else:
            segments.append(Segment(self.head, to, query))
            if len(segments) > self._max_segments:
                self._raise_low(segments[0].end)
        self.head = to

    def _evict(self) -> None:
        """Make room, a little more than is needed: evicting one packet for each that comes costs more than it holds."""
        ans, payloads = self._ans, self._payloads
        room = self.max_packets - self.max_packets // 64
        excess = self.bytes - self._max_bytes
        last = len(ans) - 1
        first = max(self._first, len(ans) - room)
        excess -= self._bytes_between(self._first, first)
        while excess > 0 and first < last:
            excess -= len(payloads[first])
            first += 1
        if first > self._first:
            self._raise_low(ans[first - 1])

    def _raise_low(self, low: int) -> None:
        self.low = max(self.low, low)
        first = bisect_right(self._ans, self.low, self._first)
        gone = first - self._first
        if gone:
            self.bytes -= self._bytes_between(self._first, first)
            self._payloads[self._first : first] = [b""] * gone
            self.evicted += gone
        self._first = first
        if first > 64 and first * 2 > len(self._ans):
            del self._ans[:first], self._payloads[:first], self._masks[:first], self._weights[:first]
            self._base += first
            self._first = 0
        segments = self._segments
        while segments and segments[0].end <= self.low:
            del segments[0]
        if segments and segments[0].start < self.low:
            segments[0].start = self.low

    def _bytes_between(self, start: int, end: int) -> int:
        """Of payload, from one index up to but not including another."""
        return self._weights[end] - self._weights[start] - (end - start) * ENTRY.size

    # --- reading ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ans) - self._first

    @property
    def next_ordinal(self) -> int:
        return self._base + len(self._ans)

    @property
    def first_ordinal(self) -> int:
        return self._base + self._first

    def ordinal_after(self, position: int) -> int:
        """The ordinal of the first packet beyond `position`."""
        return self._base + bisect_right(self._ans, position, self._first)

    def columns(self) -> tuple[int, list[int], list[bytes], list[int]]:
        """(ordinal of index 0, ANs, payloads, weights), to be read in place: a cursor's walk is a sender's hot path.

        Packets i up to but not including j take weights[j] - weights[i] bytes in a bundle.
        """
        return self._base, self._ans, self._payloads, self._weights

    def an_at(self, ordinal: int) -> int:
        return self._ans[ordinal - self._base]

    def payload_at(self, ordinal: int) -> bytes:
        return self._payloads[ordinal - self._base]

    def wanted(self, interest: Interest, ordinal: int) -> bool:
        if interest.slot is None:
            return True
        index = ordinal - self._base
        if ordinal >= interest.since:
            return bool(self._masks[index] & interest.bit)
        return self.policy.matches(interest.query, self._payloads[index])

    def matching(self, interest: Interest, start: int, end: int) -> list[tuple[int, bytes]]:
        """The packets in (start, end] that the interest wants."""
        found = []
        ordinal = self.ordinal_after(start)
        last = self.next_ordinal
        while ordinal < last and self.an_at(ordinal) <= end:
            if self.wanted(interest, ordinal):
                found.append((self.an_at(ordinal), self.payload_at(ordinal)))
            ordinal += 1
        return found

    def replay(self, after: int, most: int) -> tuple[list[tuple[int, bytes] | Gap], int]:
        """What is held beyond `after`, at most `most` items, and how far that reaches: for an owner that fell behind.

        What was evicted, and holes, come as gaps; stretches that our own query pruned are passed over.
        """
        found: list[tuple[int, bytes] | Gap] = []
        if after < self.low:
            found.append(Gap(after, self.low))
            after = self.low
        for segment in self._segments:
            if segment.end <= after:
                continue
            if segment.query is HOLE:
                found.append(Gap(max(after, segment.start), segment.end))
            else:
                ordinal, last = self.ordinal_after(after), self.next_ordinal
                while ordinal < last and (an := self.an_at(ordinal)) <= segment.end:
                    if len(found) >= most:
                        return found, after
                    found.append((an, self.payload_at(ordinal)))
                    after = an
                    ordinal += 1
            after = segment.end
        return found, after

    def covered(self, segment: Segment, query: bytes) -> bool:
        return segment.query is not HOLE and self.covers(segment.query, query)

    def covers(self, outer: bytes, inner: bytes) -> bool:
        """The policy's answer, remembered: it is asked for every packet, and it may be costly."""
        if outer in (EVERYTHING, inner):
            return True
        key = (outer, inner)
        known = self._covers.get(key)
        if known is None:
            if len(self._covers) >= 4096:
                self._covers.clear()
            known = self._covers[key] = self.policy.covers(outer, inner)
        return known

    def stretch(self, position: int, query: bytes) -> tuple[bool, int]:
        """Whether what follows `position` is covered for `query`, and how far that answer holds (to `head` at most)."""
        if position < self.low:
            return False, self.low
        segments = self._segments
        last = segments[-1] if segments else None
        if last is None or position >= self.head:
            return True, self.head
        if last.start <= position:
            return self.covered(last, query), last.end
        index = bisect_right(segments, position, key=lambda s: s.end)
        state = self.covered(segments[index], query)
        while index + 1 < len(segments) and self.covered(segments[index + 1], query) == state:
            index += 1
        return state, segments[index].end

    def covered_since(self, query: bytes) -> int:
        """Where the continuous coverage of `query` that reaches the head begins."""
        since = self.head
        for segment in reversed(self._segments):
            if not self.covered(segment, query):
                return since
            since = segment.start
        return max(since, self.low)

    # --- interests ----------------------------------------------------------------------------------------------------

    def open_interest(self, query: bytes) -> Interest:
        if query == EVERYTHING:
            return Interest(query, None, 0)
        slot = 0
        while slot in self._slots:
            slot += 1
        self.policy.open_slot(slot, query)
        self._slots.add(slot)
        # Bits that a former owner of the slot left in older masks are never read: they lie before `since`.
        return Interest(query, slot, self.next_ordinal)

    def close_interest(self, interest: Interest) -> None:
        if interest.slot is not None:
            self._slots.discard(interest.slot)
            self.policy.close_slot(interest.slot)
