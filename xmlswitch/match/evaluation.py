"""The queries that the index left open on a packet: each evaluated once, within the packet's budget, or passed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xmlswitch.errors import EvaluationCutOff
from xmlswitch.index.budget import Meter, Purse, budget
from xmlswitch.match.bound import bound
from xmlswitch.match.facts import Facts, facts_of, size_of

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.conjunctions import Entry
    from xmlswitch.index.indexed import IndexedQuery

_MAX_KNOWN = 1024  # bounds that are remembered for a markup


class KnownBounds:
    """What is remembered for packets of one markup: its numbers, and the bounds of queries by size of the packet."""

    __slots__ = ("bounds", "facts")

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.bounds: dict[tuple[IndexedQuery, int], float] = {}


class Evaluation:
    """Evaluates for an index, and counts: `cut_offs` by link, `failures` where a query raised and passed for it."""

    def __init__(self, *, strict: bool, clock: Callable[[], float] | None, exact: bool) -> None:
        self._exact = exact
        self.evaluated = 0
        self.cut_off = 0
        self.failures = 0
        self.cut_offs: Counter[int] = Counter()
        self._strict = strict
        self._meter = None if clock is None else Meter(clock)

    def forget(self, link: int) -> None:
        """The link is gone: its slot may soon be another's."""
        self.cut_offs.pop(link, None)
        if self._meter is not None:
            self._meter.forget(link)

    def settle(
        self, pending: list[Entry], packet: bytes, root: Any, answer: Answer, known: KnownBounds | None = None
    ) -> None:
        """Tell the answer which links pass, by these entries, each query once; the cheapest come first."""
        links: dict[IndexedQuery, dict[int, None]] = {}
        for entry in pending:
            if entry.query is not None and answer.misses(entry.links):
                links.setdefault(entry.query, {}).update(dict.fromkeys(entry.links))
        if not links:
            return
        if self._exact:
            self._evaluate_all(links, root, answer)
            return
        size = size_of(packet, root)
        purse = Purse(size)
        bounds = self._bounds(links, size, root, known or KnownBounds())
        for query in sorted(links, key=bounds.__getitem__):
            owners = links[query]
            if not answer.misses(owners):
                continue
            wanting = [link for link in owners if answer.left >> link & 1]
            # A later version than 1.0 is its own user's, who has the limits of `xpath2`.
            allowed = query.expr is None or purse.pay(bounds[query], wanting)
            if self._passes(query, root, wanting, allowed):
                answer.all_of(owners)

    def _evaluate_all(self, links: dict[IndexedQuery, dict[int, None]], root: Any, answer: Answer) -> None:
        for query, owners in links.items():
            if answer.misses(owners) and self._passes(query, root, list(owners), allowed=True):
                answer.all_of(owners)

    def _bounds(
        self, queries: dict[IndexedQuery, dict[int, None]], size: int, root: Any, known: KnownBounds
    ) -> dict[IndexedQuery, float]:
        found: dict[IndexedQuery, float] = {}
        most = budget(size)
        for query in queries:
            cost = known.bounds.get((query, size))
            if cost is None:
                if query.expr is None:
                    cost = math.inf
                else:
                    if known.facts is None or known.facts.size != size:
                        known.facts = facts_of(root, size) if known.facts is None else known.facts._replace(size=size)
                    cost = bound(query.expr, known.facts, most)
                if len(known.bounds) >= _MAX_KNOWN:
                    known.bounds.clear()
                known.bounds[query, size] = cost
            found[query] = cost
        return found

    def _passes(self, query: IndexedQuery, root: Any, links: list[int], allowed: bool) -> bool:
        meter = self._meter
        if meter is not None and allowed:
            allowed = not all(meter.is_over(link) for link in links)
        if not allowed:
            self.cut(links)
            return True
        began = 0.0 if meter is None else meter.now()
        try:
            self.evaluated += 1
            return query.holds(root)
        except EvaluationCutOff:
            self.cut(links)
            return True
        except Exception:
            if self._strict:
                raise
            self.failures += 1
            return True
        finally:
            if meter is not None and links:
                meter.note(began, links)

    def cut(self, links: list[int]) -> None:
        """An evaluation did not take place, or was not finished: the packet passes for these links."""
        self.cut_off += 1
        self.cut_offs.update(links)
