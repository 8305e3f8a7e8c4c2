"""One column of the index: its tables of violated slots, and its anchors.

An *anchor* keeps a conjunction with a rare equality (or prefix) only under that value, in a short list that is checked
one by one when a packet has the value; it is in no table and in no mask. A value that too many conjunctions ask for
spills: its list moves into the tables, where a crowd costs no more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xmlswitch.atoms import Column, Test, absent_value, transformed
from xmlswitch.numerals import to_number
from xmlswitch.tables import DEAD, RowBudget, Table

if TYPE_CHECKING:
    from xmlswitch.entries import Entry
    from xmlswitch.paths import PathEntry

MAX_WAITING = 4  # checking so many conjunctions one by one costs about what the tables cost a packet


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
        "_max_memo",
        "_memo",
        "_prefix_lengths",
        "_prefixes",
        "_rows",
        "absent",
        "column",
        "first",
        "has_anchors",
        "is_count",
        "is_plain",
        "negative",
        "on_absent",
        "path",
        "positive",
        "refs",
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
        self._memo: dict[str, str] = {}
        self._rows: dict[str, tuple[tuple[Table, Any, list[int]], ...]] = {}
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
        chain = self.column.chain
        if not chain:
            return text
        value = self._memo.get(text)
        if value is None:
            if len(self._memo) >= self._max_memo:
                self._memo.clear()
            value = self._memo[text] = transformed(text, chain)
        return value

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
        self._rows.clear()

    def _forget(self, value: str | None) -> None:
        if value is None:
            self._rows.clear()
        else:
            self._rows.pop(value, None)

    def rows(self, value: str) -> tuple[tuple[Table, Any, list[int]], ...]:
        """The rows of all tables for one value, up to date, as (table, key, row)."""
        found = self._rows.get(value)
        if found is None:
            found = tuple(row for table in self.tables for row in table.rows(value))
            if len(self._rows) >= self._max_memo:
                self._rows.clear()
            self._rows[value] = found
        for table, key, row in found:
            if row[1] != table.end:
                if row[1] == DEAD:
                    del self._rows[value]
                    return self.rows(value)
                table.update(key, row)
        return found

    def verdict(self, values: Sequence[str]) -> tuple[int, int]:
        """The slots that the values rule out: by positive tests that none passes, by negative ones that some passes."""
        violated = negative = 0
        if len(values) == 1:
            for table, _, row in self.rows(values[0]):
                if table.positive:
                    violated |= row[0]
                else:
                    negative |= row[0]
            return violated, negative
        common: dict[Table, int] = {}
        for value in dict.fromkeys(values):
            bits: dict[Table, int] = {}
            for table, _, row in self.rows(value):
                bits[table] = bits.get(table, 0) | row[0]
            for table, own in bits.items():
                if table.positive:
                    common[table] = common[table] & own if table in common else own
                else:
                    negative |= own
        for own in common.values():
            violated |= own
        return violated, negative

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
        if op == "=":
            self._equal_strings[str(operand)] = anchor
        elif op == "n=":
            self._equal_numbers[float(operand)] = anchor
        elif str(operand) not in self._prefixes:
            self._prefixes[str(operand)] = anchor
            length = len(str(operand))
            self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
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

    def anchored(self, value: str, lists: list[Iterable[Entry]]) -> None:
        """Add the lists that wait for this value."""
        if self._equal_strings and (anchor := self._equal_strings.get(value)) is not None:
            lists.append(anchor.entries)
        if self._equal_numbers and (anchor := self._equal_numbers.get(to_number(value))) is not None:
            lists.append(anchor.entries)
        if self._prefixes:
            found = (self._prefixes.get(value[:length]) for length in self._prefix_lengths)
            lists += [anchor.entries for anchor in found if anchor is not None]
