"""A child's place in the log, and the next claim from there.

Every claim is computed from the log alone (rule S2): DATA(prev, an) says "in (prev, an] only `an` matches", the same on
the first sending, on a retransmission and after a squelch. `prev` is the last matching AN before, or the lower edge of
what is covered without a break; it lags behind `position` while nothing matches, so that a child that missed the
keep-alives between can still take the next packet.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from dcp.control import ENTRY
from dcp.log import Interest, Log
from dcp.queries import EVERYTHING
from dcp.serial import QUARTER

# Between two packets of a bundle: 32 bits.
MAX_STEP = 0xFFFFFFFF


class DataClaim(NamedTuple):
    """In (prev, last an] exactly these packets match."""

    prev: int
    packets: list[tuple[int, bytes]]


class EmptyClaim(NamedTuple):
    """Nothing matches in (prev, until]."""

    prev: int
    until: int


class BytesClaim(NamedTuple):
    """Of a byte stream: the bytes in (start, start + len(data)] are these."""

    start: int
    data: bytes


class HoleClaim(NamedTuple):
    """(start, end] can't be supplied."""

    start: int
    end: int


LogClaim = DataClaim | BytesClaim | EmptyClaim | HoleClaim
"""What follows a cursor, computed from the log."""


class Paused(NamedTuple):
    """Too much history for one turn: nothing to say yet, and the cursor stands where it left off."""


PAUSED = Paused()


class Cursor:
    __slots__ = ("_ordinal", "position", "prev")

    def __init__(self, log: Log, position: int) -> None:
        self.position = position
        self.prev = position
        self._ordinal = log.ordinal_after(position)

    def move(self, log: Log, position: int) -> None:
        self.position = position
        self.prev = position
        self._ordinal = log.ordinal_after(position)

    def inserted(self, log: Log, an: int) -> None:
        """A packet was put into the log. One behind us: no claim from here reaches back over it.

        One before us must not be missed: what was examined and not said yet lies before the ordinal that we kept.
        """
        if self.prev < an <= self.position:
            self.prev = an
        self._ordinal = log.ordinal_after(self.position)

    def has_more(self, log: Log, limit: int) -> bool:
        return self.position < log.head and self.position < limit

    def next_claim(
        self, log: Log, interest: Interest, *, limit: int, room: int, max_packets: int
    ) -> LogClaim | Paused | None:
        """The claim that follows, moving past it; None when there is nothing new to say up to `limit`.

        History is examined in slices (`log.history`). When one is used up and nothing was found, everything in (prev,
        position] has been examined all the same, so that claims about it are true.

        `room` is how many bytes of entries fit a datagram: a single packet larger than that comes back alone.
        """
        position = self.position
        stop = min(limit, log.head)
        if position >= stop:
            return None
        covered, edge = log.stretch(position, interest.query)
        if not covered:
            if self.prev < position:
                # Nothing matched in (prev, position]: say so first, or the child could not place the hole.
                prev, self.prev = self.prev, position
                return EmptyClaim(max(prev, position - QUARTER), position)
            self.move(log, edge)
            return HoleClaim(position, edge)
        end = min(edge, stop)
        prev = self.prev
        if interest.slot is None:
            packets = self._next_of_all(log, end, room, max_packets)
            while packets and log.hides_any(interest):
                kept = [packet for packet in packets if not log.hides(interest, packet[0])]
                if kept:
                    packets = kept
                    break
                packets = self._next_of_all(log, end, room, max_packets)
        else:
            packets, paused_at = self._next_wanted(log, interest, end, room, max_packets)
            if paused_at is not None and not packets:
                self.position = max(position, paused_at)
                return PAUSED
        if packets:
            self.position = self.prev = packets[-1][0]
            # A true claim may always be made narrower: 32 bits can't say one wider than a quarter of their space.
            return DataClaim(max(prev, packets[0][0] - QUARTER), packets)
        self.position = end
        if end == log.head:
            return None  # the keep-alive says so when its time comes
        if edge == end and end < limit:
            self.prev = end  # the edge of what is covered: beyond it no claim may reach back over it
        return EmptyClaim(max(prev, end - QUARTER), end)

    def next_bytes(self, log: Log, *, limit: int, room: int) -> BytesClaim | HoleClaim | None:
        """The same for a byte stream: up to `room` bytes, wherever the chunks in the log begin and end.

        Nothing is ever pruned from a byte stream, so there is no empty claim: a stretch has bytes or is a hole.
        """
        position = self.position
        stop = min(limit, log.head)
        if position >= stop:
            return None
        covered, edge = log.stretch(position, EVERYTHING)
        if not covered:
            self.move(log, edge)
            return HoleClaim(position, edge)
        end = min(edge, stop, position + room)
        base, ans, payloads, _ = log.columns()
        index = max(self._ordinal, log.first_ordinal) - base
        parts: list[bytes] = []
        at = position
        while at < end:
            an = ans[index]
            if an > at:
                start = an - len(payloads[index])
                parts.append(payloads[index][at - start : end - start])
                at = min(an, end)
            if an <= at:
                index += 1
        self._ordinal = base + index
        self.position = self.prev = at
        return BytesClaim(position, b"".join(parts))

    def _next_of_all(self, log: Log, end: int, room: int, max_packets: int) -> list[tuple[int, bytes]]:
        """For a child that wants everything, without looking at each packet."""
        base, ans, payloads, weights = log.columns()
        first = max(self._ordinal, log.first_ordinal) - base
        if first < len(ans) and ans[first] <= self.position:
            first = bisect_right(ans, self.position, first)  # squelched ahead of the log, which has grown since
        fitting = bisect_right(weights, weights[first] + room, first) - 1
        last = min(bisect_right(ans, end, first), first + max_packets, max(fitting, first + 1))
        if last > first and ans[last - 1] - ans[first] > MAX_STEP:
            last = first + 1  # a step may be too wide for a bundle: one by one then
        self._ordinal = base + last
        return list(zip(ans[first:last], payloads[first:last], strict=True))

    def _next_wanted(
        self, log: Log, interest: Interest, end: int, room: int, max_packets: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """The packets, and, when the slice of history was used up, the AN of the last one that was examined."""
        packets: list[tuple[int, bytes]] = []
        paused_at: int | None = None
        base, ans, payloads, _ = log.columns()
        since = interest.since - base
        index = max(self._ordinal, log.first_ordinal) - base
        size = last_an = 0
        while index < len(ans):
            an = ans[index]
            if an > end:
                break
            if log.hides(interest, an):
                wanted: bool | None = False
            elif index < since and an > self.position:
                wanted = log.known_answer(interest, base + index)
                if wanted is None:
                    if not log.history.is_open:
                        paused_at = ans[index - 1] if index else 0
                        break
                    wanted = log.ask(interest, base + index)
            else:
                # At or below the position: squelched ahead of the log, which has grown since.
                wanted = an > self.position and log.wanted(interest, base + index)
            if wanted:
                payload = payloads[index]
                size += ENTRY.size + len(payload)
                if packets and (size > room or len(packets) >= max_packets or an - last_an > MAX_STEP):
                    break
                packets.append((an, payload))
                last_an = an
            index += 1
        self._ordinal = base + index
        return packets, paused_at
