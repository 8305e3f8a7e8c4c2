"""One column of the index: its tables of violated slots, and its anchors.

An *anchor* keeps a conjunction with a rare equality (or prefix) only under that value, in a short list that is checked
one by one when a packet has the value; it is in no table and in no mask. A value that too many conjunctions ask for
spills: its list moves into the tables, where a crowd costs no more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from xmlswitch.atoms import Column, Test, absent_value, transformed
from xmlswitch.numerals import to_number
from xmlswitch.tables import RowBudget, Table

if TYPE_CHECKING:
    from xmlswitch.entries import Entry
    from xmlswitch.paths import PathEntry

MAX_WAITING = 2  # checking more conjunctions one by one costs a packet more than the tables do


# What a value means to a column: slots ruled out (by positive tests, by negative ones, both together first), lists,
# and how many batches it has taken over.
Look = tuple[int, int, int, tuple["list[Entry]", ...], int]
_LOOK_BYTES = 250


class Anchor:
    """Conjunctions that wait under one test of a column."""

    __slots__ = ("column", "entries", "spilled", "test")

    def __init__(self, column: ColumnEntry, test: Test) -> None:
        self.column = column
        self.test = test
        self.entries: list[Entry] = []
        self.spilled = 0  # conjunctions that moved to the tables

    @property
    def is_open(self) -> bool:
        return not self.spilled and len(self.entries) < MAX_WAITING


class ColumnEntry:
    __slots__ = (
        "_budget",
        "_equal_numbers",
        "_equal_strings",
        "_look_bytes",
        "_max_memo",
        "_news",
        "_parts",
        "_prefix_lengths",
        "_prefixes",
        "absent",
        "column",
        "first",
        "has_anchors",
        "is_count",
        "is_plain",
        "looks",
        "negative",
        "on_absent",
        "path",
        "positive",
        "refs",
        "stamp",
        "tables",
    )

    def __init__(self, column: Column, path: PathEntry, budget: RowBudget, max_memo: int) -> None:
        self.column = column
        self.path = path
        self.first = column.first
        self.is_count = column.chain[:1] == (("count",),)
        self.is_plain = not column.chain
        self.refs = 0
        self.on_absent = 0  # conjunctions with a test that holds where the path is absent
        self.absent = absent_value(column) if column.first else ""
        self._budget = budget
        self._max_memo = max_memo
        self.looks: dict[str, Look] = {}
        self._look_bytes = 0
        self._news: list[tuple[Table, ...]] = []  # batches that looks take over
        self.stamp = 0  # how many of them there are
        budget.holders[self] = None
        self._parts: dict[str, tuple[tuple[Table, int], ...]] = {}
        self.has_anchors = False
        self.positive: list[Table] = []
        self.negative: list[Table] = []
        self.tables: tuple[Table, ...] = ()
        self._equal_strings: dict[str, Anchor] = {}
        self._equal_numbers: dict[float, Anchor] = {}
        self._prefixes: dict[str, Anchor] = {}
        self._prefix_lengths: dict[int, int] = {}

    # --- values ---

    def value(self, text: str) -> str:
        """A node's string value through the column's functions."""
        return transformed(text, self.column.chain) if self.column.chain else text

    # --- tables ---

    def add(self, slot: int, test: Test, positive: bool) -> Table:
        tables = self.positive if positive else self.negative
        for table in tables:
            if slot not in table.slots:
                break
        else:
            table = Table(positive, self._budget, self._forget)
            tables.append(table)
            self._regroup()
        table.add(slot, test)
        return table

    def remove(self, slot: int) -> None:
        for table in self.tables:
            if slot in table.slots:
                table.remove(slot)
                if not table.slots:
                    table.drop_rows()
                    (self.positive if table.positive else self.negative).remove(table)
                    self._regroup()

    def _regroup(self) -> None:
        self.tables = (*self.positive, *self.negative)
        self.path.sort_columns()
        self._forget()

    def seal(self) -> None:
        """A batch of conjunctions is complete: looks take it over when they are next used."""
        deltas = tuple(delta for table in self.tables if (delta := table.seal()) is not None)
        if deltas:
            self._news.append(deltas)
            self.stamp += 1
            self._parts.clear()

    @property
    def row_bytes(self) -> int:
        return self._look_bytes + sum(table.row_bytes for table in self.tables)

    def shed(self) -> None:
        """Give back what is only remembered: looks alone where they are most of it, for rows are dearer to make."""
        if self._look_bytes > self.row_bytes // 2:
            self._forget()
            return
        for table in self.tables:
            table.drop_rows()

    def _forget(self) -> None:
        self.looks.clear()
        self._parts.clear()
        self._news.clear()
        self.stamp = 0
        self._budget.used -= self._look_bytes
        self._look_bytes = 0

    def look(self, text: str) -> Look:
        """What a node's text, the only one, rules out and which anchors wait for it; kept in `looks`."""
        value = self.value(text)
        known = self.looks.get(text)
        if known is not None:
            _, violated, negative, lists, stamp = known
            tables: Iterable[Table] = (delta for deltas in self._news[stamp:] for delta in deltas)
        else:
            self._budget.make_room()
            if len(self.looks) >= self._max_memo:
                self._forget()
            violated = negative = 0
            tables = self.tables
            lists = self.anchored(value) if self.has_anchors else ()
        joined = 0
        for table in tables:
            for bits in table.bits(value):
                if table.positive:
                    joined += bool(violated)
                    violated = violated | bits if violated else bits
                else:
                    joined += bool(negative)
                    negative = negative | bits if negative else bits
        both = violated | negative if violated and negative else violated or negative
        if known is None:
            size = _LOOK_BYTES
            if joined or any(table.is_numeric for table in self.tables):  # else it is a row of a table
                size += (both.bit_length() // 8) * (1 + 2 * bool(violated and negative))
            self._look_bytes += size
            self._budget.used += size
        found = self.looks[text] = (both, violated, negative, lists, self.stamp)
        return found

    def verdict(self, texts: Sequence[str]) -> tuple[int, int]:
        """The slots that several nodes rule out: by positive tests that none passes, by negative that some does."""
        violated = negative = 0
        common: dict[Table, int] = {}
        for text in dict.fromkeys(texts):
            parts = self._parts.get(text)
            if parts is None:
                parts = self._part(text)
            for table, bits in parts:
                if table.positive:
                    common[table] = common[table] & bits if table in common else bits
                else:
                    negative |= bits
        for bits in common.values():
            violated |= bits
        return violated, negative

    def _part(self, text: str) -> tuple[tuple[Table, int], ...]:
        value = self.value(text)
        found = []
        for table in self.tables:
            bits = 0
            for own in table.bits(value):
                bits |= own
            found.append((table, bits))
        if len(self._parts) >= self._max_memo:
            self._parts.clear()
        parts = self._parts[text] = tuple(found)
        return parts

    # --- anchors ---

    def anchor(self, test: Test) -> Anchor | None:
        """Where a conjunction with this test may wait, None for a test that is no anchor."""
        if test.op == "=":
            return self._equal_strings.get(str(test.operand)) or Anchor(self, test)
        if test.op == "n=":
            return self._equal_numbers.get(float(test.operand)) or Anchor(self, test)
        if test.op == "starts-with":
            return self._prefixes.get(str(test.operand)) or Anchor(self, test)
        return None

    def keep(self, anchor: Anchor) -> None:
        """Make an anchor findable by its value."""
        op, operand = anchor.test
        if anchor.entries:
            return
        if op == "=":
            self._equal_strings[str(operand)] = anchor
        elif op == "n=":
            self._equal_numbers[float(operand)] = anchor
        elif str(operand) not in self._prefixes:
            self._prefixes[str(operand)] = anchor
            length = len(str(operand))
            self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
        if op == "=" and self.is_plain:
            self.looks.pop(str(operand), None)
        else:
            self._forget()
        if not self.has_anchors:
            self.has_anchors = True
            self.path.sort_columns()

    def drop(self, anchor: Anchor) -> None:
        """Forget an anchor that nobody waits at any more."""
        op, operand = anchor.test
        if op == "=":
            self._equal_strings.pop(str(operand), None)
        elif op == "n=":
            self._equal_numbers.pop(float(operand), None)
        elif self._prefixes.pop(str(operand), None) is not None:
            length = len(str(operand))
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]
        if not (self._equal_strings or self._equal_numbers or self._prefixes):
            self.has_anchors = False
            self.path.sort_columns()

    def anchored_by(self, texts: Sequence[str], lists: list[Iterable[Entry]]) -> None:
        """Add the lists that wait for one of several nodes' texts."""
        if self.has_anchors:
            for text in dict.fromkeys(texts):
                lists += (self.looks.get(text) or self.look(text))[3]

    def anchored(self, value: str) -> tuple[list[Entry], ...]:
        """The lists that wait for this value."""
        found: list[Anchor | None] = []
        if self._equal_strings:
            found.append(self._equal_strings.get(value))
        if self._equal_numbers:
            found.append(self._equal_numbers.get(to_number(value)))
        if self._prefixes:
            found += [self._prefixes.get(value[:length]) for length in self._prefix_lengths]
        return tuple(anchor.entries for anchor in found if anchor is not None)
