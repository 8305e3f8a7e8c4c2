"""What several queries have in common, as one condition that each of them implies.

An *outline* is what a conjunction needs of a packet, column by column: a least and a greatest number, a text or how it
begins, other tests, or just that the path is there. The hull of two outlines is the narrowest outline that both imply:
the smaller of the least numbers, the greater of the greatest, the common prefix, the shared path. Outlines are
necessary conditions only, so a hull may ask for more than its members do, never for less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from xmlswitch.query.atoms import Column, Conjunction, Linear, Test
from xmlswitch.query.canonical import joined
from xmlswitch.query.syntax import ANY_DEEPER, CONTEXT, TRUE, Binary, Call, Expr, Literal, Number, Path, Step

_LOWER, _UPPER = frozenset({"n>", "n>="}), frozenset({"n<", "n<="})
_MAX_PATHS = 16  # that are compared for what they share

# A threshold, and whether the number itself is left out.
Edge = tuple[float, bool]
Key = tuple[Linear, Column | None]


class Span(NamedTuple):
    """What one column must be. Nothing at all: its path exists."""

    low: Edge | None = None
    high: Edge | None = None
    text: str | None = None
    is_whole: bool = False  # the text is all of the value, not only its beginning
    others: frozenset[Test] = frozenset()


Outline = dict[Key, Span]


def outline_of(conjunction: Conjunction) -> Outline:
    """What a conjunction needs; negative conditions and those that hold where the path is missing need nothing."""
    found: Outline = {}
    for atom, positive in conjunction.literals:
        if positive and atom.needs_path:
            key = atom.path, atom.column
            found[key] = _narrowed(found.get(key, Span()), atom.test)
    return found


def _narrowed(span: Span, test: Test | None) -> Span:
    if test is None:
        return span
    op, operand = test
    if op in _LOWER or op == "n=":
        edge = float(operand), op == "n>"
        span = span._replace(low=edge if span.low is None else max(span.low, edge))
    if op in _UPPER or op == "n=":
        edge = float(operand), op == "n<"
        span = span._replace(high=edge if span.high is None else _least(span.high, edge))
    if op in ("=", "starts-with"):
        return span if span.text is not None else span._replace(text=str(operand), is_whole=op == "=")
    # A number that is equal is more than one that is neither less nor greater: those may be two nodes.
    return span if op in _LOWER | _UPPER else span._replace(others=span.others | {test})


def _least(one: Edge, other: Edge) -> Edge:
    """The upper edge that lets less through."""
    if one[0] != other[0]:
        return min(one, other)
    return one[0], one[1] or other[1]


def _greatest(one: Edge, other: Edge) -> Edge:
    """The upper edge that lets more through."""
    if one[0] != other[0]:
        return max(one, other)
    return one[0], one[1] and other[1]


def hull(one: Outline, other: Outline) -> Outline:
    """The narrowest outline that both imply; empty when they share nothing: everything."""
    found = {key: _spanned(span, other[key]) for key, span in one.items() if key in other}
    if found:
        return found
    shared = _shared_path(one, other)
    return {} if shared is None else {(shared, None): Span()}


def _spanned(one: Span, other: Span) -> Span:
    low = None if one.low is None or other.low is None else min(one.low, other.low)
    high = None if one.high is None or other.high is None else _greatest(one.high, other.high)
    text, is_whole = None, False
    if one.text is not None and other.text is not None:
        is_whole = one.text == other.text and one.is_whole and other.is_whole
        text = _common_prefix(one.text, other.text)
    return Span(low, high, text if text or is_whole else None, is_whole, one.others & other.others)


def may_cover(general: Outline, special: Outline) -> bool:
    """Whether it is worth to ask if one query covers another: where both speak of a column, it must be the wider."""
    return all(_may_contain(span, special[key]) for key, span in general.items() if key in special)


def _may_contain(wide: Span, narrow: Span) -> bool:
    if wide.low is not None and (narrow.low is None or narrow.low < wide.low):
        return False
    if wide.high is not None and (narrow.high is None or _greatest(wide.high, narrow.high) != wide.high):
        return False
    return wide.text is None or (narrow.text is not None and narrow.text.startswith(wide.text))


def _common_prefix(one: str, other: str) -> str:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _shared_path(one: Outline, other: Outline) -> Linear | None:
    best: tuple[tuple[bool, str], ...] = ()
    for (path, _), (wanted, _) in _pairs(one, other):
        depth = 0
        for step, same in zip(path.steps, wanted.steps, strict=False):
            if step != same:
                break
            depth += 1
        best = max(best, path.steps[:depth], key=len)
    return Linear(best) if best and best != ((False, "*"),) else None


def _pairs(one: Outline, other: Outline) -> Iterable[tuple[Key, Key]]:
    return [(a, b) for a in list(one)[:_MAX_PATHS] for b in list(other)[:_MAX_PATHS]]


# --- as an expression again ---


def expression(outline: Outline) -> Expr:
    """XPath 1.0 that holds where the outline does."""
    conditions = [part for (path, column), span in outline.items() for part in _conditions(path, column, span)]
    return joined("and", conditions) or TRUE


def _conditions(path: Linear, column: Column | None, span: Span) -> list[Expr]:
    found: list[Test] = [*span.others]
    if not any(test.op == "n=" for test in found):
        if span.low is not None:
            found.append(Test("n>" if span.low[1] else "n>=", span.low[0]))
        if span.high is not None:
            found.append(Test("n<" if span.high[1] else "n<=", span.high[0]))
    if span.text is not None:
        found.append(Test("=" if span.is_whole else "starts-with", span.text))
    if column is None or not found:
        return [as_path(path)]
    return [_tested(path, column, test) for test in found]


def _tested(path: Linear, column: Column, test: Test) -> Expr:
    base = as_path(path)
    if column.first:
        return _compared(_through(column, base), test)
    if not column.chain and test.op not in ("starts-with", "contains", "nonempty"):
        return _compared(base, test)
    *steps, last = base.steps
    condition = _compared(_through(column, CONTEXT), test)
    return Path(base.start, (*steps, last._replace(predicates=(condition,))))


def _through(column: Column, value: Expr) -> Expr:
    for name, *args in column.chain:
        value = Call(str(name), (value, *(Literal(arg) if isinstance(arg, str) else Number(arg) for arg in args)))
    return value if column.chain or not column.first else Call("string", (value,))


def _compared(value: Expr, test: Test) -> Expr:
    if test.op in ("starts-with", "contains"):
        return Call(test.op, (value, Literal(str(test.operand))))
    if test.op == "nonempty":
        return Binary("!=", value if not isinstance(value, Path) else Call("string", (value,)), Literal(""))
    if test.is_numeric:
        return Binary(test.op[1:], value, Number(float(test.operand)))
    return Binary(test.op, value, Literal(str(test.operand)))


def as_path(path: Linear) -> Path:
    """A linear path as an expression."""
    steps: list[Step] = []
    for deep, name in path.steps:
        if deep:
            steps.append(ANY_DEEPER)
        steps.append(Step("child", name))
    if path.deep:
        steps.append(ANY_DEEPER)
    if path.tail:
        steps.append(Step("child", path.tail) if path.tail == "text()" else Step("attribute", path.tail[1:]))
    return Path("/", tuple(steps))


# --- order, so that what stands side by side is alike ---


def shape_of(outline: Outline) -> tuple[object, ...]:
    """What outlines have in common that can be merged column by column."""
    return tuple(
        sorted(
            (str(path), str(column), span.low is not None, span.high is not None, span.text is not None)
            for (path, column), span in outline.items()
        )
    )


def rank_of(outline: Outline) -> tuple[int, str]:
    """A place on a curve through all columns: near on it is near in each of them, most of the time (Morton's order)."""
    numbers = [_middle(span) for _, span in sorted(outline.items(), key=lambda pair: str(pair[0]))]
    bits = [_ordered(number) for number in numbers if number is not None]
    code = 0
    for place in range(_BITS - 1, -1, -1):
        for number in bits[:_MAX_DIMENSIONS]:
            code = code << 1 | (number >> place & 1)
    return code, min((span.text for span in outline.values() if span.text is not None), default="")


_BITS, _MAX_DIMENSIONS = 32, 4


def _middle(span: Span) -> float | None:
    edges = [edge[0] for edge in (span.low, span.high) if edge is not None]
    return sum(edges) / len(edges) if edges and all(map(math.isfinite, edges)) else None


def _ordered(number: float) -> int:
    """A whole number of 32 bits in the order of the numbers."""
    scaled = math.copysign(math.log2(1 + abs(number)) * (1 << 24), number)
    return max(0, min((1 << _BITS) - 1, int(scaled) + (1 << _BITS - 1)))


def merged(outlines: Iterable[Outline]) -> Outline:
    """The hull of all of them."""
    found: Outline | None = None
    for outline in outlines:
        found = outline if found is None else hull(found, outline)
        if not found:
            break
    return found or {}
