"""Tests that single values out (equality, prefixes, parts), for many slots: which slots a value satisfies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xmlswitch.query.atoms import Test

if TYPE_CHECKING:
    from xmlswitch.index.looks import Look

_GRAM = 3
_MANY_NEEDLES = 24


class ValueTests:
    """At most one test a slot. `unless`: a slot is violated unless it is hit, else where it is hit.

    `every`: of several nodes all must hit, else one is enough.
    """

    __slots__ = (
        "_needles",
        "_nonempty",
        "_numbers",
        "_odd",
        "_prefixes",
        "_strings",
        "all",
        "every",
        "unless",
    )

    def __init__(self, unless: bool, every: bool) -> None:
        self.unless = unless
        self.every = every
        self.all = 0
        self._strings: dict[str, int] = {}
        self._numbers: dict[float, int] = {}
        self._prefixes: dict[int, dict[str, int]] = {}
        self._needles: Needles | None = None
        self._nonempty = 0
        self._odd: list[tuple[Callable[[str], bool], int]] = []

    def add(self, slot: int, test: Test) -> None:
        bit = 1 << slot
        self.all |= bit
        op, operand = test
        if op in ("=", "!="):
            text = str(operand)
            self._strings[text] = self._strings.get(text, 0) | bit
        elif op in ("n=", "n!="):
            number = float(operand)
            self._numbers[number] = self._numbers.get(number, 0) | bit
        elif op == "starts-with":
            text = str(operand)
            held = self._prefixes.setdefault(len(text), {})
            held[text] = held.get(text, 0) | bit
        elif op == "contains":
            self._needles = self._needles or Needles()
            self._needles.add(str(operand), bit)
        elif op == "nonempty":
            self._nonempty |= bit
        else:
            self._odd.append((test.predicate, bit))

    @property
    def one_kind(self) -> tuple[int | None, dict[str, int]] | None:
        """How many characters of a value to look up, and where, when all tests are equality or prefixes of a length."""
        if self._numbers or self._needles is not None or self._nonempty or self._odd:
            return None
        if not self._prefixes:
            return None, self._strings
        if self._strings or len(self._prefixes) > 1:
            return None
        return next(iter(self._prefixes.items()))

    def kept(self, look: Look, full: int) -> int:
        """Of all slots, those that a value lets stay."""
        hit = self.hit(look[0], look[1])
        return hit | (full ^ self.all) if self.unless else full ^ hit

    def many(self, looks: list[Look]) -> int:
        together = -1 if self.every else 0
        for value, number, _, _ in looks:
            hit = self.hit(value, number)
            together = together & hit if self.every else together | hit
        return self.all & ~together if self.unless else self.all & together

    def hit(self, value: str, number: float) -> int:
        """The slots whose operand a value is equal to, or has at its place."""
        hit = self._strings.get(value, 0) | self._numbers.get(number, 0)
        for length, prefixes in self._prefixes.items():
            hit |= prefixes.get(value[:length], 0)
        if self._needles is not None:
            hit |= self._needles.within(value)
        if value:
            hit |= self._nonempty
        for predicate, bit in self._odd:
            if predicate(value):
                hit |= bit
        return hit


class Needles:
    """Strings to be found in a value. Many are looked up by their first letters, at each place of the value."""

    __slots__ = ("_all", "_starts")

    def __init__(self) -> None:
        self._all: dict[str, int] = {}
        self._starts: dict[str, dict[str, int]] = {}  # by their first letters

    def add(self, needle: str, bit: int) -> None:
        bits = self._all[needle] = self._all.get(needle, 0) | bit
        self._starts.setdefault(needle[:_GRAM], {})[needle] = bits

    def within(self, value: str) -> int:
        hit = 0
        if len(self._all) < _MANY_NEEDLES or len(value) * _GRAM > len(self._all) * 2:
            for needle, bits in self._all.items():
                if needle in value:
                    hit |= bits
            return hit
        starts = self._starts
        grams = {value[at : at + size] for size in range(1, _GRAM + 1) for at in range(len(value))}
        for gram in grams & starts.keys():
            for needle, bits in starts[gram].items():
                if needle in value:
                    hit |= bits
        return hit
