"""What the index can hold: linear paths, columns of values on them, tests on a value.

A linear path goes down only: child and descendant steps with a name or `*`, ending at elements, an attribute or text.
A column is what such a path gives in a document, as strings: all its nodes' values, or (`first`) what string() makes of
it, through a chain of functions with literal arguments. An atom is a path that must be there, or a column with a test.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from xmlswitch.query.numerals import round_half_up, to_number

TEXT, ATTRIBUTE = "text()", "@"
# One function of a chain with its literal arguments.
Link = tuple[str | float, ...]


class Linear(NamedTuple):
    """`steps` are (descendant?, name); `tail` is "" for elements, `text()`, `@name` or `@*`.

    `deep` says that the tail hangs on the last step's element or any element below it (`a//@x`).
    """

    steps: tuple[tuple[bool, str], ...]
    tail: str = ""
    deep: bool = False

    @property
    def is_single(self) -> bool:
        """Whether no document can have two nodes here: the root element and its attributes."""
        if self.deep or len(self.steps) != 1 or self.steps[0][0]:
            return False
        return self.tail == "" or (self.tail[0] == ATTRIBUTE and not self.tail.endswith("*"))

    def __str__(self) -> str:
        text = "".join(("//" if deep else "/") + name for deep, name in self.steps)
        return text + (("//" if self.deep else "/") + self.tail if self.tail else "")


class Column(NamedTuple):
    """The values at a path's nodes, or at the first of them, through a chain of functions."""

    path: Linear
    first: bool = False
    chain: tuple[Link, ...] = ()

    def __str__(self) -> str:
        text = f"string({self.path})" if self.first else str(self.path)
        for name, *args in self.chain:
            text = f"{name}({', '.join([text, *map(repr, args)])})"
        return text


class Test(NamedTuple):
    """`op` on a string operand (`=`, `!=`, `starts-with`, `contains`, `nonempty`) or, with `n`, on a number (`n<`)."""

    op: str
    operand: str | float

    @property
    def predicate(self) -> Callable[[str], bool]:
        """The test as a function of a string value."""
        return predicate_of(self)

    def __str__(self) -> str:
        return f"{self.op.removeprefix('n') if self.is_numeric else self.op} {self.operand!r}"

    @property
    def is_numeric(self) -> bool:
        return self.op in NUMERIC


class Atom(NamedTuple):
    """A path that exists, or (`column` and `test`) a column one of whose values passes a test."""

    path: Linear
    column: Column | None = None
    test: Test | None = None

    @property
    def needs_path(self) -> bool:
        """Whether it can hold only in documents that have the path."""
        return self.column is None or not self.column.first or not holds_on_absent(self.column, self.test)

    def __str__(self) -> str:
        return f"{self.column} {self.test}" if self.column else str(self.path)


NUMERIC = {
    "n=": operator.eq,
    "n!=": operator.ne,
    "n<": operator.lt,
    "n<=": operator.le,
    "n>": operator.gt,
    "n>=": operator.ge,
}


def predicate_of(test: Test) -> Callable[[str], bool]:
    op, operand = test
    if op in NUMERIC:
        compare = NUMERIC[op]
        return lambda value: bool(compare(to_number(value), operand))
    text = str(operand)
    if op == "=":
        return lambda value: value == text
    if op == "!=":
        return lambda value: value != text
    if op == "starts-with":
        return lambda value: value.startswith(text)
    if op == "contains":
        return lambda value: text in value
    if op == "nonempty":
        return lambda value: value != ""
    raise ValueError(f"no such test: {op}")


def absent_value(column: Column) -> str:
    """What a `first` column gives when its path is not there."""
    return transformed("0" if column.chain[:1] == (("count",),) else "", column.chain)


def holds_on_absent(column: Column, test: Test | None) -> bool:
    return column.first and test is not None and test.predicate(absent_value(column))


def transformed(value: str, chain: tuple[Link, ...]) -> str:
    """The value through the functions of a chain, as XPath 1.0 defines them."""
    for name, *args in chain:
        value = _FUNCTIONS[str(name)](value, args)
    return value


_SPACES = re.compile(r"[ \t\r\n]+")


def _substring(value: str, args: list[str | float]) -> str:
    start, *length = (round_half_up(to_number(arg) if isinstance(arg, str) else arg) for arg in args)
    end = start + length[0] if length else float("inf")
    if start != start or end != end:
        return ""
    first = max(start, 1.0)
    if end <= first or first > len(value):
        return ""
    return value[int(first) - 1 : min(int(min(end, len(value) + 1.0)), len(value) + 1) - 1]


def _translate(value: str, args: list[str | float]) -> str:
    table: dict[int, str | None] = {}
    replacements = str(args[1])
    for place, character in enumerate(str(args[0])):
        table.setdefault(ord(character), replacements[place] if place < len(replacements) else None)
    return value.translate(table)


_FUNCTIONS: dict[str, Callable[[str, list[str | float]], str]] = {
    "count": lambda value, args: value,
    "number": lambda value, args: value,  # tests convert: a number's string converts back to the same number
    "string-length": lambda value, args: str(len(value)),
    "normalize-space": lambda value, args: _SPACES.sub(" ", value).strip(" "),
    "substring-before": lambda value, args: value[: max(value.find(str(args[0])), 0)],
    "substring-after": lambda value, args: value.partition(str(args[0]))[2] if args[0] else value,
    "substring": _substring,
    "translate": _translate,
}


class Conjunction(NamedTuple):
    """Atoms that must all hold, or not hold (`False`).

    Sufficient too when each path of `unique` has at most one node in the document and `verify` is off; else the query
    itself must be evaluated.
    """

    literals: frozenset[tuple[Atom, bool]]
    unique: frozenset[Linear] = frozenset()
    verify: bool = False


ALWAYS = Conjunction(frozenset())
UNKNOWN = Conjunction(frozenset(), frozenset(), True)
