"""Looking through history in slices, and remembering what was found.

A child that joins "from oldest" wants to know of every packet in the log whether it matches. Packets that were logged
before the child came carry no answer: the policy has to look at each, and all of them in one call would silence this
peer for seconds. So only a few are examined in one turn of the event loop, over all children together.
"""

from __future__ import annotations

from collections.abc import Callable

# Older packets examined in one turn, whatever they cost: live packets wait for no more than these.
SLICE_PACKETS = 64
# With a clock, a slice also ends after this time: a few expensive queries must not make a long turn.
SLICE_SECONDS = 0.001
# From the end of one slice to the next: the time in between belongs to everything else.
SLICE_PAUSE = 0.002


class HistorySlice:
    """What may still be examined in this turn. A cursor that finds it used up goes on after `refill`."""

    __slots__ = ("_began", "_clock", "_left", "slices")

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._left = SLICE_PACKETS
        self._began: float | None = None
        self.slices = 0
        """How many were used up."""

    def set_clock(self, clock: Callable[[], float] | None) -> None:
        """Machines are pure and have no clock; a shell that runs one in real time passes its own."""
        self._clock = clock

    @property
    def is_open(self) -> bool:
        """Whether one more packet may be examined now."""
        if self._left <= 0:
            return False
        if self._clock is None or self._began is None:
            return True
        return self._clock() - self._began < SLICE_SECONDS

    def spent(self) -> None:
        """A packet is about to be examined."""
        self._left -= 1
        if self._clock is not None and self._began is None:
            self._began = self._clock()

    def refill(self) -> None:
        """A new turn."""
        self._left = SLICE_PACKETS
        self._began = None
        self.slices += 1


class Answers:
    """Yes, no or not asked yet, for a range of ordinals: two bits each."""

    __slots__ = ("_bits", "_end", "_first")

    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._end = end
        self._bits = bytearray((max(0, end - first) + 3) // 4)

    def get(self, ordinal: int) -> bool | None:
        at = ordinal - self._first
        if at < 0 or ordinal >= self._end:
            return None
        two = self._bits[at >> 2] >> (at & 3) * 2
        return bool(two & 1) if two & 2 else None

    def set(self, ordinal: int, answer: bool) -> None:
        at = ordinal - self._first
        if at >= 0 and ordinal < self._end:
            self._bits[at >> 2] |= (3 if answer else 2) << (at & 3) * 2
