"""How many packets a condition lets through, from a sample of the stream: what widening a query costs.

Without a sample, what such conditions usually let through.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import Any

from lxml import etree

from xmlswitch.document import parse_document
from xmlswitch.errors import MalformedDocument
from xmlswitch.query.atoms import Column, Linear, transformed
from xmlswitch.query.evaluate import string_value
from xmlswitch.query.hulls import Key, Outline, Span, as_path
from xmlswitch.query.numerals import to_number
from xmlswitch.query.writing import namespaces_of, write

MAX_COLUMNS = 64  # that are sampled
MAX_VALUES = 256  # of a column
MAX_CHARS = 64  # of a text that is kept
_EQUAL, _PREFIX, _RANGE, _OTHER = 0.01, 0.05, 0.3, 0.5  # what is let through where nothing was measured
_ENOUGH = 16  # values that say something


class _Sample:
    """The last values of a column, in order."""

    __slots__ = ("_last", "_xpath", "column", "numbers", "packets", "texts")

    def __init__(self, path: Linear, column: Column | None) -> None:
        self.column = column
        expr = as_path(path)
        prefixes = {uri: f"n{number}" for number, uri in enumerate(sorted(namespaces_of(expr)))}
        bound = {prefix: uri for uri, prefix in prefixes.items()}
        self._xpath: Any = etree.XPath(write(expr, prefixes), namespaces=bound or None, smart_strings=False)
        self._last: deque[tuple[str, float]] = deque()
        self.texts: list[str] = []
        self.numbers: list[float] = []
        self.packets = [0, 0]  # with the path, and all

    def observe(self, root: Any) -> None:
        nodes = self._xpath(root)
        self.packets[0] += bool(nodes)
        self.packets[1] += 1
        for node in nodes[:1] if self.column is not None and self.column.first else nodes[:4]:
            text = transformed(string_value(node), self.column.chain if self.column is not None else ())[:MAX_CHARS]
            number = to_number(text)
            self._last.append((text, number))
            insort(self.texts, text)
            if number == number:
                insort(self.numbers, number)
            if len(self._last) > MAX_VALUES:
                self._forget(*self._last.popleft())

    def _forget(self, text: str, number: float) -> None:
        del self.texts[bisect_left(self.texts, text)]
        if number == number:
            del self.numbers[bisect_left(self.numbers, number)]


class Selectivity:
    """`wants` a column before `observe` looks at it."""

    def __init__(self) -> None:
        self._samples: dict[Key, _Sample] = {}

    def wants(self, outlines: Iterable[Outline]) -> None:
        """Sample the columns of these, as many as there is room for."""
        for outline in outlines:
            for key in outline:
                if key not in self._samples and len(self._samples) < MAX_COLUMNS:
                    self._samples[key] = _Sample(*key)

    def observe(self, packet: bytes) -> None:
        """One packet of the stream; one that is not XML says nothing."""
        try:
            root = parse_document(packet)
        except MalformedDocument:
            return
        for sample in self._samples.values():
            sample.observe(root)

    def share(self, outline: Outline) -> float:
        """Of all packets, about how many an outline lets through, as if its columns knew nothing of each other."""
        share = 1.0
        for key, span in outline.items():
            share *= self._of_span(self._samples.get(key), span)
        return share

    def _of_span(self, sample: _Sample | None, span: Span) -> float:
        if sample is None or len(sample.texts) < _ENOUGH:
            return _guess(span)
        share = sample.packets[0] / sample.packets[1]
        if span.text is not None:
            end = span.text if span.is_whole else span.text + chr(0x10FFFF)
            share *= _part(bisect_left(sample.texts, span.text), bisect_right(sample.texts, end), len(sample.texts))
        if span.low is not None or span.high is not None:
            low = 0 if span.low is None else bisect_left(sample.numbers, span.low[0])
            high = len(sample.numbers) if span.high is None else bisect_right(sample.numbers, span.high[0])
            share *= _part(low, high, len(sample.texts))
        return float(share * _OTHER ** len(span.others))


def _part(low: int, high: int, of: int) -> float:
    """Never nothing: the next value may be the first."""
    return (max(high - low, 0) + 0.5) / (of + 1)


def _guess(span: Span) -> float:
    share = 1.0
    if span.text is not None:
        share *= _EQUAL if span.is_whole else _PREFIX ** min(len(span.text) / 3, 1)
    share *= _RANGE ** ((span.low is not None) + (span.high is not None))
    return share * _OTHER ** len(span.others)
