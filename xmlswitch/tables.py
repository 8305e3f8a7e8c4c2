"""Rows of violated slots: what one value of a column rules out, as one integer.

A table holds tests of many slots on one column. For a value it answers with the slots whose test fails (in a table of
negated tests: holds). Truth lives in thresholds and operands with their slots. Rows are a lazy, bounded cache: one row
for each elementary interval between thresholds, one for each set of string tests that a value passes. A new row starts
from its nearest neighbour, so a table warms up in a number of bit flips that grows with its size times a logarithm. A
row that a change passed by is brought up to date when it is next asked for.

New slots come in batches (`seal`). A batch is a small table of its own, the *delta*: it has few thresholds and so few
rows, and each large row takes its part over with one OR when it is next asked for. A removed slot costs nothing here:
no group lets it through any more, and it is not used again before all rows were dropped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any, Protocol

from xmlswitch.atoms import NUMERIC, Test
from xmlswitch.numerals import to_number

_FEW_SLOTS = 16
_MAX_CLOSED = 128  # deltas that the oldest row may be behind
_LOWEST = (float("-inf"), 1)
_NAN = (float("nan"), 2)
# Where a number stands among the thresholds: on one (k, 0), or above k and below the next (k, 1).
_Place = tuple[float, int]


class Holder(Protocol):
    """What keeps rows, and can do without."""

    @property
    def row_bytes(self) -> int: ...

    def shed(self) -> None: ...


class RowBudget:
    """The bytes that all rows of an index may take together. When there are too many, who has most loses its own."""

    __slots__ = ("evictions", "holders", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.holders: dict[Holder, None] = {}
        self.used = 0
        self.evictions = 0

    def make_room(self) -> None:
        if self.used > self.limit:
            self.evictions += 1
            max(self.holders, key=lambda holder: holder.row_bytes).shed()


class Table:
    __slots__ = (
        "_budget",
        "_closed",
        "_delta",
        "_needles",
        "_numbers",
        "_on_drop",
        "_places",
        "_prefix_lengths",
        "_rows",
        "_string_defaults",
        "_strings",
        "_thresholds",
        "end",
        "positive",
        "row_bytes",
        "slots",
    )

    def __init__(self, positive: bool, budget: RowBudget, on_drop: Callable[[], None]) -> None:
        """`on_drop` is called when the rows are dropped: what was taken from them holds no longer."""
        self.positive = positive
        self.end = 0  # how many closed deltas there are: a row that has taken over so many is up to date
        self._delta: Table | None = None
        self._closed: list[Table] = []
        self._on_drop = on_drop
        self.slots: dict[int, Test] = {}  # one test a slot; a conjunction's second test is in a second table
        self._budget = budget
        self._thresholds: list[float] = []
        self._numbers: dict[float, dict[int, str]] = {}  # threshold -> slot -> operator
        self._strings: dict[tuple[str, str | float], set[int]] = {}  # keyed by Test, or the like tuple
        self._string_defaults = 0  # slots that a value violates when it passes none of the string tests
        self._needles: dict[str, Test] = {}
        self._prefix_lengths: dict[int, int] = {}
        self._rows: dict[Any, list[int]] = {}  # place or signature -> [bits, closed deltas]
        self._places: list[_Place] = []
        self.row_bytes = 0

    # --- slots come and go ---

    def add(self, slot: int, test: Test) -> None:
        self.slots[slot] = test
        if test.op in NUMERIC:
            value = float(test.operand)
            at = self._numbers.get(value)
            if at is None:
                at = self._numbers[value] = {}
                self._split(value)
            at[slot] = test.op
        else:
            held = self._strings.get(test)
            if held is None:
                held = self._strings[test] = set()
                if test.op == "contains":
                    self._needles[str(test.operand)] = test
                elif test.op == "starts-with":
                    length = len(str(test.operand))
                    self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
            held.add(slot)
            if self._violated_by_default(test.op):
                self._string_defaults |= 1 << slot
        if self._rows:
            if self._delta is None:
                self._delta = Table(self.positive, self._budget, _nothing)
            self._delta.add(slot, test)

    def seal(self) -> Table | None:
        """The batch is complete: rows, and whoever remembers their bits, may take it over."""
        delta, self._delta = self._delta, None
        if delta is not None:
            self._closed.append(delta)
            self.end += 1
            if self.end > _MAX_CLOSED:
                self.drop_rows()
                return None
        return delta

    def remove(self, slot: int) -> None:
        test = self.slots.pop(slot)
        if test.op in NUMERIC:
            value = float(test.operand)
            at = self._numbers[value]
            del at[slot]
            if not at:
                del self._numbers[value]
                # Rows beside it stay: they say what holds on and above the value, threshold or not.
                del self._thresholds[bisect_left(self._thresholds, value)]
        else:
            held = self._strings[test]
            held.discard(slot)
            if not held:
                self._forget_test(test)
            self._string_defaults &= ~(1 << slot)

    def _split(self, threshold: float) -> None:
        """A new threshold parts an interval: the row that stood for all of it is gone, its values look again."""
        place = self._place(threshold)
        insort(self._thresholds, threshold)
        if self._rows.pop(place, None) is not None:
            self._places.remove(place)

    def _forget_test(self, test: Test) -> None:
        del self._strings[test]
        if test.op == "contains":
            del self._needles[str(test.operand)]
        elif test.op == "starts-with":
            length = len(str(test.operand))
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]

    def _violated_by_default(self, op: str) -> bool:
        return (op == "!=") != self.positive

    def drop_rows(self) -> None:
        for part in (*self._closed, *([self._delta] if self._delta else [])):
            part.drop_rows()
        self._closed.clear()
        self._delta = None
        self.end = 0
        self._rows.clear()
        self._places.clear()
        self._on_drop()
        self._budget.used -= self.row_bytes
        self.row_bytes = 0

    # --- values ---

    @property
    def is_numeric(self) -> bool:
        return bool(self._thresholds)

    def bits(self, value: str) -> list[int]:
        """The slots that this value rules out, by numeric tests and by tests on strings."""
        found = []
        for key in self._keys(value):
            row = self._rows.get(key)
            if row is None:
                row = self._new_row(key, self.end)
            elif row[1] != self.end:
                self.update(key, row)
            found.append(row[0])
        return found

    def bits_at(self, key: Any) -> int:
        """Of a closed delta: its row for a key of the large table."""
        if isinstance(key, frozenset):
            key = frozenset(test for test in key if test in self._strings)
        elif key is not _NAN:
            number, above = key
            index = bisect_right(self._thresholds, number)
            below = self._thresholds[index - 1] if index else None
            key = _LOWEST if below is None else (below, above if below == number else 1)
        row = self._rows.get(key)
        if row is None:
            row = self._new_row(key, self.end)
        return row[0]

    def _keys(self, value: str) -> tuple[Any, ...]:
        numeric = (self._place(to_number(value)),) if self._thresholds else ()
        return (*numeric, self._signature(value)) if self._strings else numeric

    def _place(self, number: float) -> _Place:
        if number != number:
            return _NAN
        index = bisect_right(self._thresholds, number)
        if index == 0:
            return _LOWEST
        below = self._thresholds[index - 1]
        return (below, 0) if below == number else (below, 1)

    def _signature(self, value: str) -> frozenset[tuple[str, str | float]]:
        """The string tests that single this value out: those it passes, and `!=` of the value itself."""
        strings = self._strings
        # Plain tuples are equal to tests and made faster; the row's key takes whichever came first.
        found: list[tuple[str, str | float]] = [pair for op in ("=", "!=") if (pair := (op, value)) in strings]
        if self._prefix_lengths:
            prefixes = [("starts-with", value[:length]) for length in self._prefix_lengths if length <= len(value)]
            found += [pair for pair in prefixes if pair in strings]
        if self._needles:
            found += [test for needle, test in self._needles.items() if needle in value]
        if value and ("nonempty", "") in strings:
            found.append(("nonempty", ""))
        return frozenset(found)

    # --- rows ---

    def _new_row(self, key: Any, end: int) -> list[int]:
        if isinstance(key, frozenset):
            bits, far = self._string_row(key), True
        else:
            bits, far = self._number_row(key, end)
        row = [bits, end]
        if far:
            self._rows[key] = row
            if key is not _NAN and not isinstance(key, frozenset):
                insort(self._places, key)
            size = bits.bit_length() // 8 + 120
            self.row_bytes += size
            self._budget.used += size
        return row

    def _string_row(self, signature: frozenset[tuple[str, str | float]]) -> int:
        settled = {
            slot: not self._violated_by_default(pair[0]) for pair in signature for slot in self._strings.get(pair, ())
        }
        return _with(self._string_defaults, settled)

    def _number_row(self, place: _Place, end: int) -> tuple[int, bool]:
        """The row, and whether it is worth keeping: one that few slots part from a kept one is made again as soon."""
        thresholds = self._thresholds
        neighbours: list[_Place] = []
        if place is _NAN:
            changed = thresholds
            bits = 0
        else:
            at = bisect_left(self._places, place)
            neighbours = self._places[max(at - 1, 0) : at + 1]
            if neighbours:
                nearest = min(neighbours, key=lambda other: abs(self._index(other) - self._index(place)))
                row = self._rows[nearest]
                if row[1] != end:
                    self.update(nearest, row)
                bits = row[0]
                low, high = sorted((nearest, place))
                changed = thresholds[bisect_left(thresholds, low[0]) : bisect_right(thresholds, high[0])]
            else:
                bits = 0
                changed = thresholds
        settled = self._settled(changed, place)
        far = place is _NAN or not neighbours or len(settled) > max(_FEW_SLOTS, bits.bit_length() >> 9)
        return _with(bits, settled), far

    def _index(self, place: _Place) -> int:
        return bisect_left(self._thresholds, place[0])

    def _settled(self, thresholds: list[float], place: _Place) -> dict[int, bool]:
        """The slots of some thresholds: whether the place violates them."""
        positive = self.positive
        number, above = place
        settled: dict[int, bool] = {}
        for threshold in thresholds:
            if above == 2:
                holding = _ON_NAN
            elif threshold < number or (above and threshold == number):
                holding = _ABOVE_IT
            else:
                holding = _BELOW_IT if threshold > number else _ON_IT
            for slot, op in self._numbers[threshold].items():
                settled[slot] = (op in holding) != positive
        return settled

    def update(self, key: Any, row: list[int]) -> None:
        """Bring a row up to date."""
        bits = row[0]
        for delta in self._closed[row[1] :]:
            bits |= delta.bits_at(key)
        row[0] = bits
        row[1] = self.end


def _nothing() -> None:
    """A delta's bits are remembered with those of its table."""


# The operators that hold of a number that is above, below or on the threshold, or is none.
_ABOVE_IT = frozenset({"n>", "n>=", "n!="})
_BELOW_IT = frozenset({"n<", "n<=", "n!="})
_ON_IT = frozenset({"n=", "n<=", "n>="})
_ON_NAN = frozenset({"n!="})


def _with(bits: int, settled: dict[int, bool]) -> int:
    """`bits` with some slots set (violated) or cleared."""
    if not settled:
        return bits
    size = max(bits.bit_length(), max(settled) + 1) // 8 + 1
    buffer = bytearray(bits.to_bytes(size, "little"))
    for slot, violated in settled.items():
        if violated:
            buffer[slot >> 3] |= 1 << (slot & 7)
        else:
            buffer[slot >> 3] &= ~(1 << (slot & 7))
    return int.from_bytes(buffer, "little")
