"""Large packets in fragments: those that wait to go out on a link, and those being put together.

A packet has one AN and the same bytes everywhere, so the first copy of each *byte range* wins, whichever sender it came
from, as the first copy of a packet does. Senders may cut at different places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from dcp.control import MAX_FRAGMENT_RANGES, Fragment, Range

# A mebibyte in the smallest datagrams, every second one lost, leaves about a thousand. More is no network's doing.
MAX_MISSING_RANGES = 4_096


class FragmentQueue:
    """Datagrams with pieces of large packets, cut for one link and waiting to go out."""

    __slots__ = ("_datagrams", "bytes")

    def __init__(self) -> None:
        self._datagrams: deque[bytes] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._datagrams)

    def add(self, datagram: bytes) -> None:
        self._datagrams.append(datagram)
        self.bytes += len(datagram)

    def next(self) -> bytes:
        datagram = self._datagrams.popleft()
        self.bytes -= len(datagram)
        return datagram

    def clear(self) -> None:
        self._datagrams.clear()
        self.bytes = 0


@dataclass(slots=True)
class _Partial:
    prev: int
    data: bytearray
    missing: list[Range] = field(default_factory=list)


class Assembler:
    def __init__(self, max_packets: int) -> None:
        self._max_packets = max_packets
        self._partials: dict[tuple[int, int], _Partial] = {}
        self.dropped = 0

    def add(self, epoch: int, prev: int, an: int, fragment: Fragment) -> tuple[int, bytes] | None:
        """(prev, payload) when this was the last piece. Every sender's claim is true, so the widest one is kept."""
        key = (an, epoch)
        partial = self._partials.get(key)
        if partial is None or len(partial.data) != fragment.total:
            partial = _Partial(prev, bytearray(fragment.total), [(0, fragment.total)])
            self._partials[key] = partial
            if len(self._partials) > self._max_packets:
                del self._partials[max(self._partials)]
                self.dropped += 1
        partial.prev = min(partial.prev, prev)
        start, end = fragment.offset, fragment.offset + len(fragment.data)
        # The missing ranges are in order and apart: only those that this piece touches are looked at.
        missing = partial.missing
        index = bisect_right(missing, start, key=_until)
        left: list[Range] = []
        stop = index
        while stop < len(missing) and missing[stop][0] < end:
            first, until = missing[stop]
            low, high = max(first, start), min(until, end)
            partial.data[low:high] = fragment.data[low - start : high - start]
            if first < low:
                left.append((first, low))
            if high < until:
                left.append((high, until))
            stop += 1
        if len(missing) + len(left) > MAX_MISSING_RANGES:
            self.dropped += 1  # the bytes are there, but not counted as such: they are asked for again
            return None
        missing[index:stop] = left
        if missing:
            return None
        self._partials.pop(key, None)
        return partial.prev, bytes(partial.data)

    def pieces_after(self, position: int, epoch: int) -> tuple[int, list[Range]] | None:
        """The AN and the missing bytes of the first half-built packet whose claim applies at `position`."""
        for an, e in sorted(self._partials):
            partial = self._partials[an, e]
            if e == epoch and partial.prev <= position < an:
                return an, partial.missing[:MAX_FRAGMENT_RANGES]
        return None

    def highest(self, position: int, epoch: int) -> int:
        return max((an for an, e in self._partials if e == epoch), default=position)

    def forget(self, position: int, epochs: tuple[int, ...]) -> None:
        """Drop what lies at or before `position`, or belongs to an epoch that is over."""
        for an, epoch in [key for key in self._partials if key[0] <= position or key[1] not in epochs]:
            del self._partials[an, epoch]

    def clear(self) -> None:
        self._partials.clear()

    def __len__(self) -> int:
        return len(self._partials)


def _until(missing: Range) -> int:
    return missing[1]
