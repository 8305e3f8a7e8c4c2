"""Thresholds on one number, for many slots: which slots a number lets stay is one bisection away.

Every relational test rules a slot out from some number on (*rising*) or up to some number (*falling*). The numbers
where that changes stand sorted in `keys`, beside the slots that nothing rules out from there to the next:
`rows[bisect_right(keys, rank(number))]` is the answer. Numbers that were never seen before cost no more than old ones.
Text that is not a number has a rank below all numbers, and a row of its own.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import inf, nextafter
from operator import and_, or_

_PATCHED = 4  # so many new tests are put in one by one; with more, all rows are rebuilt
_RISING, _POSITIVE = 1, 2
LARGEST = sys.float_info.max  # thresholds lie between this and its negative


def rank(number: float) -> float:
    """Numbers in their order, infinities as the largest finite ones, and below them all text that is not a number."""
    if -LARGEST < number < LARGEST:
        return number
    return max(-LARGEST, min(number, LARGEST)) if number == number else -inf


class Ladder:
    """Call `settle` after `add` and before anything is asked."""

    __slots__ = ("_codes", "_full", "_new", "_places", "_steps", "keys", "on_nan", "rows")

    def __init__(self) -> None:
        self.keys: list[float] = [-LARGEST]
        self.rows: list[int] = [0, 0]
        self._full = 0
        self.on_nan = 0  # the slots that text which is not a number rules out
        self._places = array("d")
        self._codes = array("l")  # slot * 4, and what kind of test it is
        self._new = 0  # tests that are in no row yet, at the end of both arrays
        self._steps: dict[int, tuple[list[float], list[int]]] = {}  # by the kind of test, for several nodes

    def add(self, slot: int, op: str, threshold: float, positive: bool) -> None:
        # A positive test is violated where its opposite holds; a negative one where it holds itself.
        violation = _OPPOSITE[op] if positive else op
        rising = violation in ("n>=", "n>")
        place = threshold if violation in ("n>=", "n<") else nextafter(threshold, inf)
        self._places.append(place)
        self._codes.append(slot * 4 + _RISING * rising + _POSITIVE * positive)
        self._new += 1
        if positive:
            self.on_nan |= 1 << slot

    def settle(self, full: int) -> None:
        """Take in what was added; `full` are all slots that there is room for."""
        new, self._new = self._new, 0
        if new:
            self._steps.clear()
        if full != self._full or new > _PATCHED:
            self._full = full
            self._build()
            return
        if new:
            self.rows[0] = full & ~self.on_nan
        for place, code in zip(self._places[-new:], self._codes[-new:], strict=True) if new else ():
            keys, rows, others = self.keys, self.rows, full ^ (1 << (code >> 2))
            at = bisect_left(keys, place)
            if at == len(keys) or keys[at] != place:
                keys.insert(at, place)
                rows.insert(at, rows[at])
            if code & _RISING:
                rows[at + 1 :] = [row & others for row in rows[at + 1 :]]
            else:
                rows[1 : at + 1] = [row & others for row in rows[1 : at + 1]]

    def _build(self) -> None:
        full = self._full
        ordered = sorted(zip(self._places, self._codes, strict=True))
        up = [full ^ (1 << (code >> 2)) if code & _RISING else full for _, code in ordered]
        down = [full if code & _RISING else full ^ (1 << (code >> 2)) for _, code in reversed(ordered)]
        rising = accumulate(up, and_, initial=full)
        falling = [*accumulate(down, and_, initial=full)]
        falling.reverse()
        rows = [*map(and_, rising, falling)]
        places = [place for place, _ in ordered]
        last = [at for at, place in enumerate(places, 1) if at == len(places) or places[at] != place]
        self.keys[1:] = [places[at - 1] for at in last]
        self.rows[:] = [full & ~self.on_nan, rows[0], *(rows[at] for at in last)]

    def many(self, numbers: list[float], negative: bool) -> int:
        """The slots that several nodes rule out together; by negative tests too, or only by positive ones.

        Of a positive test the node that violates it least counts, of a negative one the node that does most.
        """
        numbers = [number for number in numbers if number == number]
        if not numbers:
            return self.on_nan
        least, most = min(numbers), max(numbers)
        violated = self._part(_RISING | _POSITIVE, least) | self._part(_POSITIVE, most)
        if negative:
            violated |= self._part(_RISING, most) | self._part(0, least)
        return violated

    def _part(self, kind: int, number: float) -> int:
        steps = self._steps.get(kind)
        if steps is None:
            ordered = sorted((p, c) for p, c in zip(self._places, self._codes, strict=True) if c & 3 == kind)
            bits = [1 << (code >> 2) for _, code in ordered]
            rows = [*accumulate(bits if kind & _RISING else reversed(bits), or_, initial=0)]
            if not kind & _RISING:
                rows.reverse()
            steps = self._steps[kind] = [place for place, _ in ordered], rows
        return steps[1][bisect_right(steps[0], number)]


_OPPOSITE = {"n<": "n>=", "n<=": "n>", "n>": "n<=", "n>=": "n<"}
