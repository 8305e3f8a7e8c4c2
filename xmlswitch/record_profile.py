"""A second profile: attribute-value predicates over records, for streams that are not XML.

A packet is one JSON object or one msgpack map. A query is a conjunction of conditions on fields, `a.b` for nested
ones: `altitude > 300 and id ~ "TWA" and not status` (`~` is a prefix). A field that holds a list is met when one of its
items is. `merge` makes disjunctions of them.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from xmlswitch.errors import MalformedDocument, MalformedQuery, QueryError, QuerySyntaxError, Rule
from xmlswitch.query.numerals import to_number, to_string

MAX_RECORD_BYTES = 1 << 20
MAX_RECORD_DEPTH = 32
MAX_CONDITIONS = 32
MAX_QUERY_CHARS = 4096
MAX_ALTERNATIVES = 64  # lines of a query
MAX_COMPARED = 256  # alternatives that are looked at for what others cover, all with all
MAX_RECORD_VALUES = 10_000
MAX_NAME_CHARS = 1024  # of a dotted name: every value below has it
_UTF8 = 4  # bytes of a character, at most
EXISTS, ABSENT, EQUAL, DIFFERS, PREFIX = "exists", "absent", "=", "!=", "~"
_TOKEN = re.compile(
    r"""\s*(?:(?P<and>and\b)|(?P<not>not\b)|(?P<op><=|>=|!=|=|<|>|~)|(?P<string>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w.-]*)|(?P<star>\*)|(?P<end>\Z))"""
)


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """`field op operand`; `exists` and `absent` have no operand."""

    field: str
    op: str
    operand: str | float = ""

    def holds(self, values: list[str]) -> bool:
        if self.op == EXISTS:
            return bool(values)
        if self.op == ABSENT:
            return not values
        return any(self.passes(value) for value in values)

    def passes(self, value: str) -> bool:
        operand = self.operand
        if self.op == PREFIX:
            return value.startswith(str(operand))
        if isinstance(operand, str):
            return (value == operand) == (self.op == EQUAL)
        number = to_number(value)
        return {
            EQUAL: number == operand,
            DIFFERS: number != operand,
            "<": number < operand,
            "<=": number <= operand,
            ">": number > operand,
            ">=": number >= operand,
        }[self.op]

    def implies(self, other: Condition) -> bool:
        if self == other:
            return True
        if self.field != other.field or ABSENT in (self.op, other.op):
            return False
        if other.op == EXISTS:
            return True
        if self.op == EQUAL and isinstance(self.operand, str):
            return other.passes(self.operand)
        if self.op == EQUAL and isinstance(other.operand, str):
            # Many texts are the number 5: `5`, `5.0`, ` 5`. None of them is a text that is another number, or none.
            return other.op == DIFFERS and to_number(other.operand) != self.operand
        if self.op == EQUAL:
            return other.passes(to_string(float(self.operand)))
        if self.op == PREFIX and other.op == PREFIX:
            return str(self.operand).startswith(str(other.operand))
        if not isinstance(self.operand, float) or not isinstance(other.operand, float):
            return False
        if self.op in (">", ">=") and other.op in (">", ">="):
            strict = other.op == ">" and self.op == ">="
            return self.operand > other.operand or (self.operand == other.operand and not strict)
        if self.op in ("<", "<=") and other.op in ("<", "<="):
            strict = other.op == "<" and self.op == "<="
            return self.operand < other.operand or (self.operand == other.operand and not strict)
        return False

    def __str__(self) -> str:
        if self.op in (EXISTS, ABSENT):
            return self.field if self.op == EXISTS else f"not {self.field}"
        operand = json.dumps(self.operand) if isinstance(self.operand, str) else to_string(self.operand)
        return f"{self.field} {self.op} {operand}"


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A disjunction of conjunctions, sorted, so that equal queries are equal objects. `((),)` matches everything."""

    alternatives: tuple[tuple[Condition, ...], ...]

    @classmethod
    def parse(cls, text: str) -> RecordQuery:
        """`*`, or conditions joined by `and`; alternatives come from merging, one a line."""
        if len(text) > MAX_QUERY_CHARS:
            raise QuerySyntaxError(f"the query has {len(text)} characters; the limit is {MAX_QUERY_CHARS}")
        lines = text.split("\n")
        if len(lines) > MAX_ALTERNATIVES:
            raise QuerySyntaxError(f"{len(lines)} alternatives; the limit is {MAX_ALTERNATIVES}")
        return cls.of(_parse_conjunction(line, text) for line in lines)

    @classmethod
    def of(cls, alternatives: Iterable[Iterable[Condition]]) -> RecordQuery:
        parts = sorted({tuple(sorted(set(part), key=str)) for part in alternatives}, key=str)
        if len(parts) > MAX_COMPARED:
            return cls(tuple(parts))
        kept = dict.fromkeys(parts)
        for part in parts:  # one after the other: of two that cover each other one must stay
            if any(other is not part and _covers(other, part) for other in kept):
                del kept[part]
        return cls(tuple(kept))

    @property
    def canonical(self) -> str:
        return "\n".join(" and ".join(map(str, part)) or "*" for part in self.alternatives)

    def matches(self, fields: Mapping[str, list[str]]) -> bool:
        return any(all(c.holds(fields.get(c.field, [])) for c in part) for part in self.alternatives)


def _covers(general: tuple[Condition, ...], special: tuple[Condition, ...]) -> bool:
    return all(any(given.implies(wanted) for given in special) for wanted in general)


def _parse_conjunction(line: str, text: str) -> list[Condition]:
    found: list[Condition] = []
    offset = text.index(line)
    at = 0

    def token(expected: str) -> re.Match[str]:
        nonlocal at
        match = _TOKEN.match(line, at)
        if match is None or match.lastgroup not in expected.split():
            start = len(line) - len(line[at:].lstrip())
            raise QuerySyntaxError(f"expected {expected.replace(' ', ' or ')}", text, offset + start)
        at = match.end()
        return match

    first = token("name not star")
    if first["star"]:
        token("end")
        return found
    while True:
        if first["not"]:
            found.append(Condition(token("name")["name"], ABSENT))
            following = token("and end")
        else:
            name = first["name"]
            following = token("op and end")
            if following["op"]:
                value = token("string number")
                op = following["op"]
                operand = _operand(value, op not in (EQUAL, DIFFERS, PREFIX), text, offset)
                if op == PREFIX:
                    operand = operand if isinstance(operand, str) else value["number"]
                found.append(Condition(name, op, operand))
                following = token("and end")
            else:
                found.append(Condition(name, EXISTS))
        if len(found) > MAX_CONDITIONS:
            raise QuerySyntaxError(f"more than {MAX_CONDITIONS} conditions", text, offset)
        if following["and"] is None:
            return found
        first = token("name not")


def _operand(value: re.Match[str], is_number: bool, text: str, offset: int) -> str | float:
    """A literal; a relational operator compares numbers, whatever it is given."""
    place = offset + value.start()
    try:
        operand: str | float = json.loads(value["string"]) if value["string"] else float(value["number"])
    except ValueError:
        raise QuerySyntaxError("expected a JSON string", text, place) from None
    if isinstance(operand, str) and is_number:
        operand = to_number(operand)
    if isinstance(operand, float) and not math.isfinite(operand):
        raise QuerySyntaxError("expected a number that fits in 64 bits", text, place)
    return operand


def read_record(packet: bytes) -> dict[str, list[str]]:
    """The fields of a record, dotted, as strings; `MalformedDocument` for anything else."""
    if len(packet) > MAX_RECORD_BYTES:
        raise MalformedDocument(Rule.SIZE, f"{len(packet)} bytes; the limit is {MAX_RECORD_BYTES}")
    try:
        if packet.lstrip()[:1] == b"{":
            record = json.loads(packet)
        else:
            record = msgpack.unpackb(packet, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedDocument(Rule.RECORD, f"neither a JSON object nor a msgpack map: {error}") from None
    if not isinstance(record, dict):
        raise MalformedDocument(Rule.RECORD, "a record must be an object, not a list or a value")
    fields: dict[str, list[str]] = {}
    try:
        values = _flatten(record, "", fields, 0, 0)
    except (ValueError, OverflowError) as error:
        raise MalformedDocument(Rule.RECORD, f"a value that can't be read: {error}") from None
    if values > MAX_RECORD_VALUES:
        raise MalformedDocument(Rule.SIZE, f"more than {MAX_RECORD_VALUES} values in one record")
    return fields


def _flatten(value: Any, name: str, fields: dict[str, list[str]], depth: int, values: int) -> int:
    """Put values under their dotted names; how many there are, or more than are allowed."""
    if depth > MAX_RECORD_DEPTH:
        raise MalformedDocument(Rule.DEPTH, f"a record nested more than {MAX_RECORD_DEPTH} deep")
    if len(name) > MAX_NAME_CHARS:
        raise MalformedDocument(Rule.SIZE, f"a name of more than {MAX_NAME_CHARS} characters")
    if values > MAX_RECORD_VALUES:
        return values
    if isinstance(value, dict):
        for key, item in value.items():
            values = _flatten(item, f"{name}.{key}" if name else str(key), fields, depth + 1, values)
    elif isinstance(value, list):
        for item in value:
            values = _flatten(item, name, fields, depth + 1, values)
    elif value is not None:
        values += 1
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int):
            text = str(value) if abs(value) < 1 << 62 else to_string(float(min(max(value, -(10**300)), 10**300)))
        else:
            text = to_string(value) if isinstance(value, float) else str(value)
        fields.setdefault(name, []).append(text)
    return values


class RecordIndex:
    """Conjunctions by their most telling condition: by field and value for an equality, by field for the rest."""

    def __init__(self) -> None:
        self._by_value: dict[tuple[str, str], dict[_Standing, None]] = {}
        self._by_field: dict[str, dict[_Standing, None]] = {}
        self._others: dict[_Standing, None] = {}
        self._standing: dict[tuple[Condition, ...], _Standing] = {}
        self.cut_offs: Counter[int] = Counter()  # always empty: nothing costs too much

    def forget(self, link: int) -> None:
        """Nothing is kept for a link beyond its queries."""

    def add(self, query: RecordQuery, link: int) -> None:
        for part in query.alternatives:
            standing = self._standing.get(part)
            if standing is None:
                standing = self._standing[part] = _Standing(part)
                self._home(standing)[standing] = None
            standing.owners[link] = standing.owners.get(link, 0) + 1
            standing.links |= 1 << link

    def remove(self, query: RecordQuery, link: int) -> None:
        for part in query.alternatives:
            standing = self._standing[part]
            standing.owners[link] -= 1
            if not standing.owners[link]:
                del standing.owners[link]
                standing.links &= ~(1 << link)
            if not standing.owners:
                del self._standing[part]
                del self._home(standing)[standing]
                self._tidy(standing)

    def match(self, packet: bytes, wanted: int) -> int:
        fields = read_record(packet)
        matched = 0
        homes = [self._others]
        for field, values in fields.items():
            homes.append(self._by_field.get(field, {}))
            homes += [self._by_value.get((field, value), {}) for value in dict.fromkeys(values)]
        for home in homes:
            for standing in home:
                if standing.links & wanted & ~matched and all(
                    condition.holds(fields.get(condition.field, [])) for condition in standing.conditions
                ):
                    matched |= standing.links
        return matched & wanted

    def snapshot(self) -> dict[str, int]:
        return {"by_shape": 0, "conjunctions": len(self._standing)}

    def _home(self, standing: _Standing) -> dict[_Standing, None]:
        anchor = standing.anchor
        if anchor is None:
            return self._others
        if anchor.op == EQUAL and isinstance(anchor.operand, str):
            return self._by_value.setdefault((anchor.field, anchor.operand), {})
        return self._by_field.setdefault(anchor.field, {})

    def _tidy(self, standing: _Standing) -> None:
        anchor = standing.anchor
        if anchor is not None and not self._home(standing):
            self._by_value.pop((anchor.field, str(anchor.operand)), None)
            if not self._by_field.get(anchor.field, {}):
                self._by_field.pop(anchor.field, None)


class _Standing:
    __slots__ = ("anchor", "conditions", "links", "owners")

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self.conditions = conditions
        self.owners: dict[int, int] = {}
        self.links = 0
        telling = [c for c in conditions if c.op != ABSENT]
        equal = [c for c in telling if c.op == EQUAL and isinstance(c.operand, str)]
        self.anchor: Condition | None = next(iter(equal or telling), None)


class RecordProfile:
    """Attribute-value predicates over JSON or msgpack records."""

    name = "record"
    max_alternatives = MAX_ALTERNATIVES

    def parse(self, text: str) -> RecordQuery:
        return RecordQuery.parse(text)

    def matches(self, packet: bytes, query: RecordQuery) -> bool:
        return self.matches_everything(query) or query.matches(read_record(packet))

    def matches_everything(self, query: RecordQuery) -> bool:
        return () in query.alternatives

    def merge(self, queries: Iterable[RecordQuery]) -> RecordQuery:
        merged = RecordQuery.of(part for query in queries for part in query.alternatives)
        if len(merged.alternatives) <= self.max_alternatives:
            return merged
        # Too many: each alternative by one field that it needs, or everything.
        widened = RecordQuery.of(
            [Condition(telling[0].field, EXISTS)] if (telling := [c for c in part if c.op != ABSENT]) else []
            for part in merged.alternatives
        )
        return widened if len(widened.alternatives) <= self.max_alternatives else RecordQuery.of([[]])

    def covers(self, general: RecordQuery, special: RecordQuery) -> bool:
        return all(any(_covers(g, s) for g in general.alternatives) for s in special.alternatives)

    def index(
        self, *, strict: bool = False, clock: Callable[[], float] | None = None, exact: bool = False
    ) -> RecordIndex:
        """Record queries are all in the index: nothing is evaluated that could be timed or cut off."""
        return RecordIndex()

    def encode(self, query: RecordQuery) -> bytes:
        return query.canonical.encode()

    def decode_untrusted(self, data: bytes) -> RecordQuery:
        if len(data) > _UTF8 * MAX_QUERY_CHARS:
            raise MalformedQuery(f"{len(data)} bytes; the limit is {_UTF8 * MAX_QUERY_CHARS}")
        try:
            return RecordQuery.parse(data.decode("utf-8"))
        except QueryError:
            raise
        except Exception as error:  # whatever is wrong with a stranger's bytes
            raise MalformedQuery(f"a record query is UTF-8 text: {error}") from None


RECORD = RecordProfile()
