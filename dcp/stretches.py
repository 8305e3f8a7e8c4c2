"""A set of positions as stretches (start, end], in order and apart. Pure; bounded by its owner."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from dcp.control import Range

# For owners that have no better reason: twice what NACKs and index requests can ask for at once, for many seconds.
MAX_STRETCHES = 1_024


class Stretches:
    """Kept as two columns, so that the usual case, growth at the end, is one comparison and one assignment."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self.starts, self.ends, strict=True)))

    def add(self, start: int, end: int) -> None:
        """Touching stretches become one."""
        starts, ends = self.starts, self.ends
        if end <= start:
            return
        if ends and starts[-1] <= start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
            return
        first = bisect_left(ends, start)
        last = bisect_right(starts, end)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    def has(self, an: int) -> bool:
        index = bisect_left(self.ends, an)
        return index < len(self.ends) and self.starts[index] < an

    def end_from(self, position: int) -> int:
        """How far the stretch that contains what follows `position` goes; `position` if there is none."""
        index = bisect_right(self.ends, position)
        if index < len(self.ends) and self.starts[index] <= position:
            return self.ends[index]
        return position

    def start_of(self, position: int) -> int:
        """Where the stretch that reaches up to `position`, or beyond it, begins; `position` if there is none."""
        index = bisect_left(self.ends, position)
        if index < len(self.ends) and self.starts[index] <= position:
            return self.starts[index]
        return position

    def missing(self, start: int, end: int) -> list[Range]:
        """What of (start, end] is in no stretch."""
        found: list[Range] = []
        index = bisect_right(self.ends, start)
        at = start
        while at < end:
            if index == len(self.starts) or self.starts[index] >= end:
                found.append((at, end))
                break
            if self.starts[index] > at:
                found.append((at, self.starts[index]))
            at = self.ends[index]
            index += 1
        return found

    def forget(self, below: int) -> None:
        """Drop everything at or below a position."""
        gone = bisect_right(self.ends, below)
        if gone:
            del self.starts[:gone], self.ends[:gone]
        if self.starts and self.starts[0] < below:
            self.starts[0] = below

    def forget_last(self) -> None:
        """Drop the farthest stretch."""
        del self.starts[-1], self.ends[-1]
