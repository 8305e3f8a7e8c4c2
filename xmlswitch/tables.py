"""Rows of violated slots: what one value of a column rules out, as one integer.

A table holds tests of many slots on one column. For a value it answers with the slots whose test fails (in a table of
negated tests: holds). Truth lives in thresholds and operands with their slots. Rows are a lazy, bounded cache: one row
for each elementary interval between thresholds, one for each set of string tests that a value passes. A new row starts
from its nearest neighbour, so a table warms up in a number of bit flips that grows with its size times a logarithm. A
row that a change passed by is brought up to date from the table's journal when it is next asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

from xmlswitch.atoms import NUMERIC, Test
from xmlswitch.numerals import to_number

_MAX_JOURNAL = 2048
_LOWEST = (float("-inf"), 1)
_NAN = (float("nan"), 2)
# Where a number stands among the thresholds: on one (k, 0), or above k and below the next (k, 1).
_Place = tuple[float, int]


class RowBudget:
    """The bytes that all rows of an index may take together. A table that asks for too many loses its own."""

    __slots__ = ("evictions", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.evictions = 0


class Table:
    __slots__ = (
        "_budget",
        "_journal",
        "_journal_base",
        "_memo",
        "_needles",
        "_numbers",
        "_places",
        "_prefix_lengths",
        "_row_bytes",
        "_rows",
        "_string_defaults",
        "_strings",
        "_thresholds",
        "max_memo",
        "positive",
        "slots",
    )

    def __init__(self, positive: bool, budget: RowBudget, max_memo: int) -> None:
        self.positive = positive
        self.max_memo = max_memo
        self.slots: dict[int, Test] = {}  # one test a slot; a conjunction's second test is in a second table
        self._budget = budget
        self._thresholds: list[float] = []
        self._numbers: dict[float, dict[int, str]] = {}  # threshold -> slot -> operator
        self._strings: dict[Test, set[int]] = {}
        self._string_defaults = 0  # slots that a value violates when it passes none of the string tests
        self._needles: dict[str, Test] = {}
        self._prefix_lengths: dict[int, int] = {}
        self._journal: list[tuple[int, Test | None]] = []
        self._journal_base = 0
        self._rows: dict[Any, list[int]] = {}  # place or signature -> [bits, journal position]
        self._places: list[_Place] = []
        self._row_bytes = 0
        self._memo: dict[str, tuple[Any, ...]] = {}

    # --- slots come and go ---

    def add(self, slot: int, test: Test) -> None:
        self.slots[slot] = test
        if test.op in NUMERIC:
            value = float(test.operand)
            at = self._numbers.get(value)
            if at is None:
                at = self._numbers[value] = {}
                insort(self._thresholds, value)
                self._memo.clear()
            at[slot] = test.op
        else:
            held = self._strings.get(test)
            if held is None:
                held = self._strings[test] = set()
                self._memo.clear()
                if test.op == "contains":
                    self._needles[str(test.operand)] = test
                elif test.op == "starts-with":
                    length = len(str(test.operand))
                    self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
            held.add(slot)
            if self._violated_by_default(test):
                self._string_defaults |= 1 << slot
        self._note(slot, test)

    def remove(self, slot: int) -> None:
        test = self.slots.pop(slot)
        if test.op in NUMERIC:
            value = float(test.operand)
            at = self._numbers[value]
            del at[slot]
            if not at:
                del self._numbers[value]
                del self._thresholds[bisect_left(self._thresholds, value)]
                self._memo.clear()
        else:
            held = self._strings[test]
            held.discard(slot)
            if not held:
                self._forget_test(test)
            self._string_defaults &= ~(1 << slot)
        self._note(slot, None)

    def _forget_test(self, test: Test) -> None:
        del self._strings[test]
        self._memo.clear()
        if test.op == "contains":
            del self._needles[str(test.operand)]
        elif test.op == "starts-with":
            length = len(str(test.operand))
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]

    def _violated_by_default(self, test: Test) -> bool:
        return (test.op == "!=") != self.positive

    def _note(self, slot: int, test: Test | None) -> None:
        if len(self._journal) >= _MAX_JOURNAL:
            self._journal_base += len(self._journal)
            self._journal.clear()
            self.drop_rows()
        self._journal.append((slot, test))

    def drop_rows(self) -> None:
        self._rows.clear()
        self._places.clear()
        self._memo.clear()
        self._budget.used -= self._row_bytes
        self._row_bytes = 0

    # --- values ---

    def row(self, value: str) -> int:
        """The slots that this value violates."""
        keys = self._memo.get(value)
        if keys is None:
            keys = self._keys(value)
            if len(self._memo) >= self.max_memo:
                self._memo.clear()
            self._memo[value] = keys
        end = self._journal_base + len(self._journal)
        bits = 0
        for key in keys:
            row = self._rows.get(key)
            if row is None:
                row = self._new_row(key, end)
            elif row[1] != end:
                self._update(key, row, end)
            bits |= row[0]
        return bits

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

    def _signature(self, value: str) -> frozenset[Test]:
        """The string tests that single this value out: those it passes, and `!=` of the value itself."""
        strings = self._strings
        found = [test for op in ("=", "!=") if (test := Test(op, value)) in strings]
        prefixes = (value[:length] for length in self._prefix_lengths if length <= len(value))
        found += [test for prefix in prefixes if (test := Test("starts-with", prefix)) in strings]
        found += [test for needle, test in self._needles.items() if needle in value]
        if value and (test := Test("nonempty", "")) in strings:
            found.append(test)
        return frozenset(found)

    # --- rows ---

    def _new_row(self, key: Any, end: int) -> list[int]:
        budget = self._budget
        if budget.used > budget.limit:
            budget.evictions += 1
            self.drop_rows()
        bits = self._string_row(key) if isinstance(key, frozenset) else self._number_row(key, end)
        row = self._rows[key] = [bits, end]
        size = bits.bit_length() // 8 + 120
        self._row_bytes += size
        budget.used += size
        return row

    def _string_row(self, signature: frozenset[Test]) -> int:
        settled = {
            slot: not self._violated_by_default(test) for test in signature for slot in self._strings.get(test, ())
        }
        return _with(self._string_defaults, settled)

    def _number_row(self, place: _Place, end: int) -> int:
        thresholds = self._thresholds
        if place is _NAN:
            changed = thresholds
            bits = 0
        else:
            at = bisect_left(self._places, place)
            neighbours = self._places[max(at - 1, 0) : at + 1]
            insort(self._places, place)
            if neighbours:
                nearest = min(neighbours, key=lambda other: abs(self._index(other) - self._index(place)))
                row = self._rows[nearest]
                if row[1] != end:
                    self._update(nearest, row, end)
                bits = row[0]
                low, high = sorted((nearest, place))
                changed = thresholds[bisect_left(thresholds, low[0]) : bisect_right(thresholds, high[0])]
            else:
                bits = 0
                changed = thresholds
        return self._settled(bits, changed, place)

    def _index(self, place: _Place) -> int:
        return bisect_left(self._thresholds, place[0])

    def _settled(self, bits: int, thresholds: list[float], place: _Place) -> int:
        """`bits` with the slots of some thresholds set as the place demands."""
        positive = self.positive
        settled = {
            slot: _holds(op, threshold, place) != positive
            for threshold in thresholds
            for slot, op in self._numbers[threshold].items()
        }
        return _with(bits, settled)

    def _update(self, key: Any, row: list[int], end: int) -> None:
        """Bring a row up to date from the journal."""
        touched = {slot for slot, _ in self._journal[row[1] - self._journal_base :]}
        set_bits = clear_bits = 0
        for slot in touched:
            test = self.slots.get(slot)
            clear_bits |= 1 << slot
            if test is not None and self._violates(key, test):
                set_bits |= 1 << slot
        row[0] = row[0] & ~clear_bits | set_bits
        row[1] = end

    def _violates(self, key: Any, test: Test) -> bool:
        """Whether a value with this key violates the test; a key of the other kind has no say."""
        if isinstance(key, frozenset):
            return test.op not in NUMERIC and (test in key) != self._violated_by_default(test)
        return test.op in NUMERIC and _holds(test.op, float(test.operand), key) != self.positive


def _holds(op: str, threshold: float, place: _Place) -> bool:
    number, above = place
    if above == 0:
        return bool(NUMERIC[op](number, threshold))
    if above == 2:  # NaN
        return op == "n!="
    if op in ("n>", "n>="):
        return number >= threshold
    if op in ("n<", "n<="):
        return number < threshold
    return op == "n!="


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
