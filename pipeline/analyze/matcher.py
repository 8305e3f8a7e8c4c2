"""Many XPath queries against one packet, by the switch that the routers use: what matches in the archive is what a
subscriber would have been sent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from pipeline.session import PipelineError
from xmlswitch import MalformedDocument, Query, QueryError, Switch

Matcher = Callable[[bytes], int]
"""A packet -> the queries that match it, as bits: query n is bit n. A packet that is no XML matches nothing."""


def compile_queries(queries: Sequence[str], namespaces: Mapping[str, str] | None = None) -> Matcher:
    """A matcher for these queries. `PipelineError` names the first that is not valid XPath.

    A process keeps the last one: a worker has many tasks of one job, and a switch that has seen packets is faster.
    """
    return _compiled(tuple(queries), tuple(sorted((namespaces or {}).items())))


@functools.lru_cache(maxsize=1)
def _compiled(queries: tuple[str, ...], namespaces: tuple[tuple[str, str], ...]) -> Matcher:
    switch: Switch[Query] = Switch(exact=True)  # an analysis wants the answer, whatever it costs
    for number, text in enumerate(queries):
        try:
            query = Query.parse(text, dict(namespaces))
        except QueryError as error:
            raise PipelineError(f"query {number + 1} is not valid XPath ({error}): {text}") from None
        switch.add_link(number, slot=number)
        switch.subscribe(number, query)

    def match(packet: bytes) -> int:
        try:
            return switch.match_mask(packet)
        except MalformedDocument:
            return 0

    return match


def read_queries(text: str) -> list[str]:
    """One query per line; blank lines and lines that begin with # are ignored."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
