"""Large packets in fragments: those that wait to go out on a link, and those being put together.

A packet has one AN and the same bytes everywhere, so the first copy of each *byte range* wins, whichever sender it came
from, as the first copy of a packet does. Senders may cut at different places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from dcp.control import MAX_FRAGMENT_RANGES, Fragment, Range

# A mebibyte in the smallest datagrams, every second one lost, leaves about a thousand. No network causes more.
MAX_MISSING_RANGES = 4_096
# Packets whose pieces are kept apart by sender.
MAX_SEPARATE = 64


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
    source: int
    is_from_one: bool = True
    missing: list[Range] = field(default_factory=list)


class Whole(NamedTuple):
    """A packet put together."""

    prev: int
    payload: bytes
    is_from_one: bool
    """All its pieces came from one sender: if the packet is bad, so is that sender's copy."""


class Assembler:
    """Pieces of all senders of a stream together.

    One sender with bad bytes would spoil what the others bring. So after a packet has turned out bad, or its size is
    disputed, its pieces are kept apart by sender (`separate`).
    """

    def __init__(self, max_packets: int) -> None:
        self._max_packets = max_packets
        # By (AN, epoch, sender); the sender is 0 for packets whose pieces are put together from all.
        self._partials: dict[tuple[int, int, int], _Partial] = {}
        self._separate: dict[tuple[int, int], int] = {}  # (AN, epoch) -> prev
        self.dropped = 0

    def add(self, epoch: int, prev: int, an: int, fragment: Fragment, source: int = 0) -> Whole | None:
        """The packet when this was the last piece. Every sender's claim is true, so the widest one is kept."""
        key = (an, epoch, source if (an, epoch) in self._separate else 0)
        partial = self._partials.get(key)
        if partial is not None and len(partial.data) != fragment.total and partial.source != source:
            self.separate(an, epoch, partial.prev)
            key, partial = (an, epoch, source), None
        if partial is None or len(partial.data) != fragment.total:
            partial = _Partial(prev, bytearray(fragment.total), source, missing=[(0, fragment.total)])
            self._partials[key] = partial
            if len(self._partials) > self._max_packets:
                del self._partials[max(self._partials)]
                self.dropped += 1
        partial.prev = min(partial.prev, prev)
        if partial.source != source:
            partial.is_from_one = False
        if not self._fill(partial, fragment):
            return None
        self._partials.pop(key, None)
        return Whole(partial.prev, bytes(partial.data), partial.is_from_one)

    def _fill(self, partial: _Partial, fragment: Fragment) -> bool:
        """Put a piece in its place; whether it was the last."""
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
            return False
        missing[index:stop] = left
        return not missing

    def separate(self, an: int, epoch: int, prev: int) -> None:
        """Begin again with this packet, and keep its pieces apart by sender from now on."""
        self._partials.pop((an, epoch, 0), None)
        self._separate[an, epoch] = prev
        if len(self._separate) > MAX_SEPARATE:
            del self._separate[max(self._separate)]
            self.dropped += 1

    def pieces_after(self, position: int, epoch: int, source: int = 0) -> tuple[int, list[Range]] | None:
        """The AN and the missing bytes of the first half-built packet whose claim applies at `position`.

        As one sender is to be asked: a packet that is kept apart counts with that sender's pieces. No ranges: all.
        """
        for an, e, sender in sorted(self._partials):
            partial = self._partials[an, e, sender]
            if e == epoch and sender in (0, source) and partial.prev <= position < an:
                return an, partial.missing[:MAX_FRAGMENT_RANGES]
        for (an, e), prev in self._separate.items():
            if e == epoch and prev <= position < an:
                return an, []
        return None

    def forget(self, position: int, epochs: tuple[int, ...]) -> None:
        """Drop what lies at or before `position`, or belongs to an epoch that is over."""
        for key in [key for key in self._partials if key[0] <= position or key[1] not in epochs]:
            del self._partials[key]
        for pair in [pair for pair in self._separate if pair[0] <= position or pair[1] not in epochs]:
            del self._separate[pair]

    def forget_unless(self, is_wanted: Callable[[int, int], bool]) -> None:
        """Drop what is not wanted any longer, by epoch and AN."""
        for key in [key for key in self._partials if not is_wanted(key[1], key[0])]:
            del self._partials[key]
        for pair in [pair for pair in self._separate if not is_wanted(pair[1], pair[0])]:
            del self._separate[pair]

    def clear(self) -> None:
        self._partials.clear()
        self._separate.clear()

    def __len__(self) -> int:
        """Packets of which something is here, or was here and turned out bad."""
        return len(self._partials) + len(self._separate)


def _until(missing: Range) -> int:
    return missing[1]
