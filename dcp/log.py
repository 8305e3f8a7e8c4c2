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

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from operator import add
from typing import Final

from dcp.config import Config
from dcp.control import ENTRY
from dcp.events import Gap
from dcp.guard import fault
from dcp.history import Answers, HistorySlice
from dcp.queries import ALL_SLOTS, EVERYTHING, PredicatePolicy, QueryPolicy

HOLE: Final = None
# Remembered answers of `covers`, and the bytes of the queries in them: children's queries come from the network.
MAX_COVERS: Final = 4_096
MAX_COVERS_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Segment:
    """(start, end] was received under `query`, or is a hole."""

    start: int
    end: int
    query: bytes | None


class Interest:
    """One child's query in one epoch."""

    __slots__ = ("answers", "bit", "is_restricted", "query", "since", "slot")

    def __init__(self, query: bytes, slot: int | None, since: int, *, is_restricted: bool = False) -> None:
        self.query = query
        self.is_restricted = is_restricted
        """Packets that are withheld are outside it, whatever its query says."""
        self.slot = slot
        """None: wants everything, and costs nothing; or everything that is not withheld, which costs little."""
        self.bit = 0 if slot is None else 1 << slot
        self.since = since
        """Masks of packets from this ordinal on know about the slot."""
        self.answers: Answers | None = None
        """Of the policy, about older packets: each is asked for once, not again for every repair."""


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
        self.unrouted = 0
        """Packets for which the policy failed: they go to everybody."""
        self._segments: list[Segment] = []
        self._ans: list[int] = []
        self._payloads: list[bytes] = []
        self._masks: list[int] = []
        self._weights: list[int] = [0]  # one more than packets: what all before an index would take in a bundle
        self._first = 0  # index of the oldest packet that is still held
        self._base = 0  # ordinal of index 0
        self._slots: dict[int, Interest] = {}
        self.withholds: Callable[[bytes], bool] | None = None
        """The owner's: whether a packet must not reach restricted children. None: there are no such packets here."""
        self._withheld: set[int] = set()
        self._covers: dict[tuple[bytes, bytes], bool] = {}
        self._covers_bytes = 0
        self.settled = 0
        """A router's: how far its own parents agree about what is here (rule L7)."""
        self.is_final = True
        """It is a root's: all of it is settled."""
        self.history = HistorySlice()
        """How many older packets may be looked at before others get their turn."""

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
        self._withheld.clear()
        self.bytes = 0
        self.low = self.head = position
        self.started = True

    def append(self, an: int, payload: bytes, query: bytes = EVERYTHING) -> None:
        """In (head, an] only `an` matched `query`, and this is it."""
        mask = self._route(payload) if self._slots else ALL_SLOTS  # before the log is touched: all or nothing
        if self.withholds is not None and self._must_withhold(payload):
            self._withheld.add(an)
        self._ans.append(an)
        self._payloads.append(payload)
        self._masks.append(mask)
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
        if len(ans) != len(payloads):
            raise ValueError(f"{len(ans)} numbers for {len(payloads)} packets")
        sizes = list(map(len, payloads))
        masks = self._route_many(payloads) if self._slots else [ALL_SLOTS] * len(payloads)
        if self.withholds is not None:
            self._withheld.update(an for an, payload in zip(ans, payloads, strict=True) if self._must_withhold(payload))
        self._ans += ans
        self._payloads += payloads
        self._masks += masks
        weights = map(add, sizes, repeat(ENTRY.size))
        self._weights += islice(accumulate(weights, initial=self._weights[-1]), 1, None)
        self.bytes += sum(sizes)
        self._extend(ans[-1], query)
        if len(self._ans) - self._first > self.max_packets or self.bytes > self._max_bytes:
            self._evict()

    def _route_many(self, payloads: Sequence[bytes]) -> list[int]:
        try:
            return list(map(self.policy.route, payloads))
        except Exception:  # which one it was is found below, and only that one goes to everybody
            return list(map(self._route, payloads))

    def _route(self, payload: bytes) -> int:
        """Who wants it. When the policy fails unexpectedly, everybody: too much is better than a silent loss."""
        try:
            return self.policy.route(payload)
        except Exception as error:
            self.unrouted += 1
            fault("route", error)
            return ALL_SLOTS

    def _must_withhold(self, payload: bytes) -> bool:
        """When its owner fails to say, it is withheld: here too little is better than too much."""
        try:
            return self.withholds is not None and self.withholds(payload)
        except Exception as error:
            fault("withhold", error)
            return True

    def insert(self, an: int, payload: bytes) -> int | None:
        """Put a packet in its place that was passed over (rule L8); its ordinal, or None where nothing may be put.

        Ordinals from there on rise by one. A cursor that kept one finds its place again by its position.
        """
        index = bisect_right(self._ans, an, self._first)
        if not self.low < an <= self.head or (index > self._first and self._ans[index - 1] == an):
            return None
        if self._segments[bisect_left(self._segments, an, key=lambda s: s.end)].query is HOLE:
            return None
        mask = self._route(payload) if self._slots else ALL_SLOTS
        if self.withholds is not None and self._must_withhold(payload):
            self._withheld.add(an)
        weight = len(payload) + ENTRY.size
        self._ans.insert(index, an)
        self._payloads.insert(index, payload)
        self._masks.insert(index, mask)
        self._weights[index + 1 :] = [self._weights[index] + weight, *(w + weight for w in self._weights[index + 1 :])]
        self.bytes += len(payload)
        ordinal = self._base + index
        for interest in self._slots.values():
            if interest.since > ordinal:
                interest.since += 1
                interest.answers = None  # they go by ordinal
        if len(self._ans) - self._first > self.max_packets or self.bytes > self._max_bytes:
            self._evict()
        return ordinal if an > self.low else None

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
            if self._withheld:
                self._withheld.difference_update(self._ans[self._first : first])
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

    def share_after(self, position: int) -> float:
        """How much of what the log may hold lies beyond `position`: near 1, what follows it is about to be evicted."""
        first, last = bisect_right(self._ans, position, self._first), len(self._ans)
        return max((last - first) / self.max_packets, self._bytes_between(first, last) / self._max_bytes)

    def columns(self) -> tuple[int, list[int], list[bytes], list[int]]:
        """(ordinal of index 0, ANs, payloads, weights), to be read in place: a cursor's walk is a sender's hot path.

        Packets i up to but not including j take weights[j] - weights[i] bytes in a bundle.
        """
        return self._base, self._ans, self._payloads, self._weights

    def an_at(self, ordinal: int) -> int:
        return self._ans[ordinal - self._base]

    def payload_at(self, ordinal: int) -> bytes:
        return self._payloads[ordinal - self._base]

    def hides(self, interest: Interest, an: int) -> bool:
        """Whether a packet is withheld from a child."""
        return interest.is_restricted and an in self._withheld

    def hides_any(self, interest: Interest) -> bool:
        return interest.is_restricted and bool(self._withheld)

    def wanted(self, interest: Interest, ordinal: int) -> bool:
        if self.hides(interest, self._ans[ordinal - self._base]):
            return False
        if interest.slot is None:
            return True
        if ordinal >= interest.since:
            return bool(self._masks[ordinal - self._base] & interest.bit)
        known = self.known_answer(interest, ordinal)
        return self.ask(interest, ordinal) if known is None else known

    def known_answer(self, interest: Interest, ordinal: int) -> bool | None:
        """Of a packet older than the interest: what the policy said, if it was asked before."""
        return None if interest.answers is None else interest.answers.get(ordinal)

    def ask(self, interest: Interest, ordinal: int) -> bool:
        """The policy's answer about a packet older than the interest. This may be costly; it is remembered."""
        self.history.spent()
        try:
            answer = self.policy.matches(interest.query, self._payloads[ordinal - self._base])
        except Exception as error:
            self.unrouted += 1
            fault("match", error)
            answer = True  # as in `_route`
        if interest.answers is None:
            interest.answers = Answers(self.first_ordinal, interest.since)
        interest.answers.set(ordinal, answer)
        return answer

    def index(self, interest: Interest, start: int, end: int, *, most: int, scan: int) -> tuple[list[int], int]:
        """The ANs in (start, end] that an interest wants, and how far that list reaches.

        Shorter than asked for after `most` ANs, `scan` packets or the present slice of history. The stretch has to be
        covered.
        """
        ans = self._ans
        first, last = bisect_right(ans, start, self._first), bisect_right(ans, end, self._first)
        if last - first > scan:
            last = first + scan
            end = ans[last - 1]
        if interest.slot is None:
            found = ans[first:last]
        elif self._base + first >= interest.since:
            bit, masks = interest.bit, self._masks
            found = [ans[index] for index in range(first, last) if masks[index] & bit]
        else:
            found = []
            for index in range(first, last):
                ordinal = self._base + index
                is_old = ordinal < interest.since and self.known_answer(interest, ordinal) is None
                if is_old and not self.history.is_open:
                    end = ans[index - 1] if index > first else start
                    break
                if self.wanted(interest, ordinal):
                    found.append(ans[index])
        if self.hides_any(interest):
            found = [an for an in found if an not in self._withheld]
        if len(found) > most:
            found = found[:most]
            end = found[-1]
        return found, end

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
            if len(self._covers) >= MAX_COVERS or self._covers_bytes > MAX_COVERS_BYTES:
                self._covers.clear()
                self._covers_bytes = 0
            known = self._covers[key] = self._ask_covers(outer, inner)
            self._covers_bytes += len(outer) + len(inner)
        return known

    def forget_covers(self) -> None:
        """The policy knows more than it did: ask it again."""
        self._covers.clear()
        self._covers_bytes = 0

    def _ask_covers(self, outer: bytes, inner: bytes) -> bool:
        try:
            return self.policy.covers(outer, inner)
        except Exception as error:
            fault("covers", error)
            return False  # sound: then nothing is claimed over what was received under `outer`

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

    def covered_at(self, an: int, query: bytes) -> bool:
        """Whether claims about `an` may be made to a child with this query."""
        return self.low < an <= self.head and self.stretch(an - 1, query)[0]

    def covered_since(self, query: bytes) -> int:
        """Where the continuous coverage of `query` that reaches the head begins."""
        since = self.head
        for segment in reversed(self._segments):
            if not self.covered(segment, query):
                return since
            since = segment.start
        return max(since, self.low)

    def oldest_covered(self, query: bytes) -> int:
        """Where the first stretch begins that covers `query`; later ones may be holes. The head, if there is none."""
        for segment in self._segments:
            if self.covered(segment, query):
                return max(segment.start, self.low)
        return self.head

    # --- interests ----------------------------------------------------------------------------------------------------

    def open_interest(self, query: bytes, *, is_restricted: bool = False) -> Interest:
        if query == EVERYTHING:
            return Interest(query, None, 0, is_restricted=is_restricted)
        slot = 0
        while slot in self._slots:
            slot += 1
        try:
            self.policy.open_slot(slot, query)
        except Exception:
            with suppress(Exception):  # whatever of it was opened
                self.policy.close_slot(slot)
            raise
        # Bits that a former owner of the slot left in older masks are never read: they lie before `since`.
        interest = self._slots[slot] = Interest(query, slot, self.next_ordinal, is_restricted=is_restricted)
        return interest

    def close_interest(self, interest: Interest) -> None:
        if interest.slot is not None:
            self._slots.pop(interest.slot, None)
            self.policy.close_slot(interest.slot)


def log_of(config: Config, policy: QueryPolicy | None, clock: Callable[[], float] | None) -> Log:
    """A log with the limits of a configuration. With a clock, history is looked through in slices of time."""
    log = Log(
        policy or PredicatePolicy(),
        max_packets=config.max_log_packets,
        max_bytes=config.max_log_bytes,
        max_segments=config.max_segments,
    )
    log.history.set_clock(clock)
    return log
