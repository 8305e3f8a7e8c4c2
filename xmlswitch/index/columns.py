"""One column of the index: what its texts mean, and the conjunctions that wait for one of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xmlswitch.index.buckets import Bucket
from xmlswitch.index.conjunctions import PathKey
from xmlswitch.index.ladders import rank
from xmlswitch.index.looks import Look, look_of
from xmlswitch.query.atoms import Column, Test, absent_value, transformed
from xmlswitch.query.numerals import NAN, NUMERAL_STARTS, to_number

if TYPE_CHECKING:
    from xmlswitch.index.budget import Work

ANCHORS = frozenset({"=", "n=", "starts-with"})

_ARGUMENT_WORK = 50  # characters that one of a function's arguments is worth: translate() makes a table of them
_LINK_WORK = 150  # characters that a call of a function is worth
_SEARCHES = 4  # that are worth as much as one call of a function
_LOOK_BYTES, _BYTES_OF_CHAR = 330, 8  # that a text takes which is remembered, with its value and what that means
_MAX_CHARS = 64  # longer texts hardly come again, and would take much memory


_NOTHING = look_of("")


class ColumnEntry:
    __slots__ = (
        "_arguments",
        "_links",
        "_max_looks",
        "_numbers",
        "_prefixes",
        "_strings",
        "absent",
        "awaited",
        "chain",
        "column",
        "first",
        "has_anchors",
        "is_count",
        "is_muted",
        "looks",
        "path",
        "refs",
        "searches",
        "work",
    )

    def __init__(self, column: Column, path: PathKey, max_looks: int, work: Work) -> None:
        self.work = work
        self.is_muted = False  # too expensive for this packet: all links that ask for it get the packet
        # What the functions cost for a text: they go through it one by one, and through their own arguments.
        self._links = 1 + len(column.chain)
        self._arguments = sum(len(str(arg)) for link in column.chain for arg in link[1:])
        self.column = column
        self.path = path
        self.first = column.first
        self.chain = column.chain
        self.is_count = column.chain[:1] == (("count",),)
        self.refs = 0
        self.searches = 0  # tests that look for something within a value: each goes through all of it
        self.looks: dict[str, Look] = {}  # by the text, before the column's functions
        self._max_looks = max_looks
        value = absent_value(column) if column.first else ""
        self.absent: Look | list[Look] = look_of(value) if column.first else []
        self.has_anchors = False
        self.awaited: dict[str, Bucket] | None = None  # by text, where nothing else waits
        self._strings: dict[str, Bucket] = {}
        self._numbers: dict[float, Bucket] = {}
        self._prefixes: dict[int, dict[str, Bucket]] = {}  # by length

    def look(self, text: str) -> Look:
        """What a node's text means; kept in `looks`."""
        if self.is_muted:
            return _NOTHING
        if len(text) > _MAX_CHARS or self._arguments > _MAX_CHARS:
            links = self._links + self.searches // _SEARCHES
            self.work.charge_column(self, len(text) * links + self._arguments * _ARGUMENT_WORK)
        if self.chain:
            self.work.charge_column(self, _LINK_WORK * self._links)
        value = transformed(text, self.chain) if self.chain else text
        number = to_number(value) if value[:1] in NUMERAL_STARTS else NAN
        look = value, number, self._waiting_for(value, number) if self.has_anchors else (), rank(number)
        if len(text) <= _MAX_CHARS:
            if len(self.looks) >= self._max_looks:
                self.looks.clear()
            self.work.remember(_LOOK_BYTES + _BYTES_OF_CHAR * len(text))
            self.looks[text] = look
        return look

    def _waiting_for(self, value: str, number: float) -> tuple[Bucket, ...]:
        found: list[Bucket] = []
        if (bucket := self._strings.get(value)) is not None:
            found.append(bucket)
        if self._numbers and (bucket := self._numbers.get(number)) is not None:
            found.append(bucket)
        for length, prefixes in self._prefixes.items():
            if (bucket := prefixes.get(value[:length])) is not None:
                found.append(bucket)
        return tuple(found)

    def waiting(self, test: Test) -> Bucket | None:
        """The bucket of a test that is an anchor, if there is one."""
        op, operand = test
        if op == "=":
            return self._strings.get(str(operand))
        if op == "n=":
            return self._numbers.get(float(operand))
        return self._prefixes.get(len(str(operand)), {}).get(str(operand))

    def anchor(self, test: Test) -> Bucket:
        """A new bucket for a test."""
        op, operand = test
        bucket = Bucket()
        if op == "=":
            self._strings[str(operand)] = bucket
        elif op == "n=":
            self._numbers[float(operand)] = bucket
        else:
            self._prefixes.setdefault(len(str(operand)), {})[str(operand)] = bucket
        self._anchors_changed()
        return bucket

    def drop(self, test: Test) -> None:
        """Forget the bucket of a test: nothing waits there any more."""
        op, operand = test
        if op == "=":
            del self._strings[str(operand)]
        elif op == "n=":
            del self._numbers[float(operand)]
        else:
            held = self._prefixes[len(str(operand))]
            del held[str(operand)]
            if not held:
                del self._prefixes[len(str(operand))]
        self._anchors_changed()

    def _anchors_changed(self) -> None:
        self.has_anchors = bool(self._strings or self._numbers or self._prefixes)
        self.awaited = None if self._numbers or self._prefixes or self.chain else self._strings
        self.looks.clear()  # they say too little, or too much
