"""Tests of a block's slots on one column: which slots a value lets stay.

What a value means to all tests together is one integer, remembered by the value: a packet costs one AND per column.
The integers have a bit for every slot that the block has room for: a slot without a test here always stays.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from xmlswitch.index.ladders import LARGEST, Ladder
from xmlswitch.index.value_tests import ValueTests
from xmlswitch.query.atoms import Test

if TYPE_CHECKING:
    from xmlswitch.index.looks import Look

_MAX_KEPT = 1024  # values that are remembered
_MIN_KEPT, _KEPT_PER_SLOT = 16, 2  # a table of few tests remembers few: there may be very many such tables
_MAX_CHARS = 24  # longer ones hardly come again, and would take memory
_RELATIONAL = frozenset({"n<", "n<=", "n>", "n>="})


class Table:
    """Call `settle` after `add` and before anything is asked. `kept` is what `keep` remembers."""

    __slots__ = ("_full", "_ladder", "_positive", "_room", "_value_tests", "kept", "slots")

    def __init__(self) -> None:
        self.slots = 0  # with a test
        self.kept: dict[str, int] = {}
        self._full = 0
        self._room = _MIN_KEPT
        self._positive = 0  # slots with a test that some node must pass
        self._ladder: Ladder | None = None
        self._value_tests: tuple[ValueTests, ...] = ()

    def add(self, slot: int, test: Test, positive: bool) -> None:
        self.kept.clear()
        self.slots |= 1 << slot
        if positive:
            self._positive |= 1 << slot
        if test.op in _RELATIONAL and abs(float(test.operand)) < LARGEST:
            self._ladder = self._ladder or Ladder()
            self._ladder.add(slot, test.op, float(test.operand), positive)
            return
        negation = test.op in ("!=", "n!=")
        unless = positive != negation
        for tests in self._value_tests:
            if tests.unless == unless and tests.every == negation and not tests.all >> slot & 1:
                break
        else:
            tests = ValueTests(unless, negation)
            self._value_tests += (tests,)
        tests.add(slot, test)

    def settle(self, full: int) -> None:
        """`full`: all slots that the block has room for."""
        if self._full != full:
            self._full = full
            self.kept.clear()
        self._room = min(_MAX_KEPT, _MIN_KEPT + _KEPT_PER_SLOT * self.slots.bit_count())
        if self._ladder is not None:
            self._ladder.settle(full)

    @property
    def flat_ladder(self) -> tuple[list[float], list[int]] | None:
        """The thresholds and their rows, when there are no other tests."""
        return None if self._ladder is None or self._value_tests else (self._ladder.keys, self._ladder.rows)

    @property
    def flat_tests(self) -> tuple[int | None, dict[str, int], int] | None:
        """How many characters of a value to look up, where, and the slots that stay anyway, when it is that simple."""
        if self._ladder is not None or len(self._value_tests) != 1 or not self._value_tests[0].unless:
            return None
        kind = self._value_tests[0].one_kind
        return None if kind is None else (*kind, self._full ^ self._value_tests[0].all)

    def keep(self, look: Look | list[Look]) -> int:
        """The slots that one node's value, or several nodes', let stay."""
        if not isinstance(look, tuple):
            return self._full & ~self.many(look)
        value = look[0]
        kept = self.kept.get(value)
        if kept is None:
            kept, ladder = self._full, self._ladder
            if ladder is not None:
                kept = ladder.rows[bisect_right(ladder.keys, look[3])]
            for tests in self._value_tests:
                kept &= tests.kept(look, self._full)
            if len(value) <= _MAX_CHARS:
                if len(self.kept) >= self._room:
                    self.kept.clear()
                self.kept[value] = kept
        return kept

    def many(self, looks: list[Look], negative: bool = True) -> int:
        """The slots that several nodes rule out, or none; by negative tests too, or only by positive ones."""
        if not looks:
            return self._positive
        violated = 0
        if self._ladder is not None:
            violated |= self._ladder.many([look[1] for look in looks], negative)
        for tests in self._value_tests:
            if negative or tests.unless != tests.every:  # `=` and the like, and `!=`, each by its own sign
                violated |= tests.many(looks)
        return violated
