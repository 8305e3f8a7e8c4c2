"""Many XPath queries against one packet, by the switch that the routers use: what matches in the archive is what a
subscriber would have been sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.session import PipelineError
from xmlswitch import MalformedDocument, Query, QueryError, Switch

Matcher = Callable[[bytes], set[int]]
"""A packet -> the indexes of the queries that match it. A packet that is no XML matches nothing."""


def compile_queries(queries: Sequence[str], namespaces: dict[str, str] | None = None) -> Matcher:
    """A matcher for these queries. `PipelineError` names the first that is no XPath."""
    switch: Switch[Query] = Switch()
    for number, text in enumerate(queries):
        try:
            query = Query.parse(text, namespaces or {})
        except QueryError as error:
            raise PipelineError(f"query {number + 1} is no XPath ({error}): {text}") from None
        switch.add_link(number, slot=number)
        switch.subscribe(number, query)

    def match(packet: bytes) -> set[int]:
        try:
            mask = switch.match_mask(packet)
        except MalformedDocument:
            return set()
        found = set()
        while mask:
            lowest = mask & -mask
            found.add(lowest.bit_length() - 1)
            mask ^= lowest
        return found

    return match


def read_queries(text: str) -> list[str]:
    """One query a line; blank lines and lines that begin with # are for people."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
