"""The switch: links with their queries on one side, packets on the other, and which links want a packet."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from xmlswitch.errors import MalformedDocument
from xmlswitch.index.answers import bits_of
from xmlswitch.profile import XPATH, Profile, ProfileIndex
from xmlswitch.stats import SwitchStats

Q = TypeVar("Q")

STRICT = sys.flags.dev_mode
"""Make every switch strict, whatever is passed to its constructor: under `python -X dev`, and in tests that set it."""


class _Link(Generic[Q]):
    __slots__ = ("name", "queries", "slot", "universal")

    def __init__(self, name: Hashable, slot: int) -> None:
        self.name = name
        self.slot = slot
        self.queries: Counter[Q] = Counter()
        self.universal = 0  # of its queries, how many match everything


class Switch(Generic[Q]):
    """Not thread-safe, does no I/O.

    A link is any hashable name of the caller's. It has a *slot*, a small number, which is its bit in `match_mask`; the
    caller may choose it. A link's interest is a set of queries (a query subscribed twice must be unsubscribed twice).
    A link without queries wants nothing.
    """

    def __init__(
        self,
        profile: Profile[Q] = XPATH,  # type: ignore[assignment]
        *,
        strict: bool = False,
        clock: Callable[[], float] | None = None,
        exact: bool = False,
    ) -> None:
        """`exact`: nothing is cut off, whatever it costs: for one's own queries on one's own machine.

        `strict`: an exception that nobody expected is raised; otherwise it is counted and the packet passes.

        With a clock (seconds) a link whose evaluations take more than 5 % of real time gets all packets for them;
        without one all answers depend on queries and packets alone.
        """
        self.profile = profile
        self._strict = strict or STRICT
        self._failures = 0
        self._make_index = partial(profile.index, strict=self._strict, clock=clock, exact=exact)
        self._links: dict[Hashable, _Link[Q]] = {}
        self._slots: list[_Link[Q] | None] = []
        self._everything = 0  # links that want every packet
        self._narrow = 0  # links whose queries must be looked at
        self._packets = 0
        self._unparsed = 0
        self._queries = 0
        self._malformed: Counter[str] = Counter()

    @cached_property
    def _index(self) -> ProfileIndex[Q]:
        """Made when a query first needs it, and its code loaded: a switch that only passes packets on needs neither."""
        return self._make_index()

    # --- links ---

    def add_link(self, link: Hashable, *, slot: int | None = None) -> int:
        """Make a link known and tell its slot: the lowest free one, unless the caller chooses."""
        if link in self._links:
            raise ValueError(f"link {link!r} already exists")
        if slot is None:
            slot = next((number for number, held in enumerate(self._slots) if held is None), len(self._slots))
        if slot < 0:
            raise ValueError(f"slot must be 0 or greater, got {slot}")
        if slot < len(self._slots) and self._slots[slot] is not None:
            raise ValueError(f"slot {slot} is already in use")
        self._slots += [None] * (slot + 1 - len(self._slots))
        held = self._links[link] = self._slots[slot] = _Link(link, slot)
        return held.slot

    def remove_link(self, link: Hashable) -> None:
        """Forget a link and all its queries."""
        held = self._held(link)
        for query, times in list(held.queries.items()):
            for _ in range(times):
                self._unsubscribe(held, query)
        del self._links[link]
        if self._has_index:
            self._index.forget(held.slot)
        self._slots[held.slot] = None
        while self._slots and self._slots[-1] is None:
            self._slots.pop()

    @property
    def links(self) -> tuple[Hashable, ...]:
        return tuple(self._links)

    # --- queries ---

    def subscribe(self, link: Hashable, query: Q) -> None:
        held = self._held(link)
        held.queries[query] += 1
        self._queries += 1
        if self.profile.matches_everything(query):
            held.universal += 1
        elif held.queries[query] == 1:
            self._index.add(query, held.slot)
        self._settle(held)

    def unsubscribe(self, link: Hashable, query: Q) -> None:
        held = self._held(link)
        if not held.queries[query]:
            raise KeyError(f"link {link!r} has no query {query!r}")
        self._unsubscribe(held, query)

    def _unsubscribe(self, held: _Link[Q], query: Q) -> None:
        held.queries[query] -= 1
        self._queries -= 1
        last = not held.queries[query]
        if last:
            del held.queries[query]
        if self.profile.matches_everything(query):
            held.universal -= 1
        elif last:
            self._index.remove(query, held.slot)
        self._settle(held)

    def _settle(self, held: _Link[Q]) -> None:
        bit = 1 << held.slot
        everything = held.universal > 0
        narrow = bool(held.queries) and not everything
        self._everything = self._everything | bit if everything else self._everything & ~bit
        self._narrow = self._narrow | bit if narrow else self._narrow & ~bit

    # --- packets ---

    def match_mask(self, packet: bytes) -> int:
        """The slots of the links that want the packet, as bits.

        `MalformedDocument` when the packet must be looked at and can't be: what then happens to it is the caller's to
        decide. Nothing else is raised: a packet passes where the switch can't tell, unless the switch is strict. A
        packet that every link with a query wants anyway is not looked at, malformed or not.
        """
        self._packets += 1
        if not self._narrow:
            self._unparsed += 1
            return self._everything
        try:
            return self._everything | self._index.match(packet, self._narrow)
        except MalformedDocument as error:
            self._malformed[error.rule.value] += 1
            raise
        except Exception:
            if self._strict:
                raise
            self._failures += 1
            return self._everything | self._narrow

    def match(self, packet: bytes) -> frozenset[Hashable]:
        """The links that want the packet."""
        slots = self._slots
        return frozenset([held.name for bit in bits_of(self.match_mask(packet)) if (held := slots[bit]) is not None])

    def cut_off(self, link: Hashable) -> int:
        """How often a packet passed to the link because one of its queries would have cost too much to evaluate."""
        return self._index.cut_offs[self._held(link).slot]

    @property
    def cut_offs(self) -> Mapping[int, int]:
        """The same by slot, of those links that have such queries: mostly empty, so it may be looked at per packet."""
        return self._index.cut_offs if self._has_index else {}

    @property
    def _has_index(self) -> bool:
        return "_index" in vars(self)

    def stats(self) -> SwitchStats:
        counters: dict[str, Any] = self._index.snapshot()
        counters["failures"] = counters.get("failures", 0) + self._failures
        return SwitchStats(
            packets=self._packets,
            unparsed=self._unparsed,
            malformed=dict(self._malformed),
            links=len(self._links),
            queries=self._queries,
            **counters,
        )

    def _held(self, link: Hashable) -> _Link[Q]:
        held = self._links.get(link)
        if held is None:
            raise KeyError(f"no link {link!r}")
        return held
