"""Check that a client receives exactly its part of the stream: in order, each once, and every hole explicit. Pure.

`lost` counts published packets that match the client's query and that it did not receive: those in a reported gap
(`gaps`), and those that were silently skipped (also counted in `wrong`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from demo.check.truth import Fact, Truth
from xmlswitch import Query

MAX_COMPLAINTS = 20
OWED_FOR = 2_000
"""ANs: a packet that was skipped may still come as omitted, until the client is this far past it."""


class ClientCheck:
    """Follows one client over all its lives: what it is handed after a restart goes on where it was."""

    def __init__(self, name: str, truth: Truth, query: Query) -> None:
        self.name = name
        self.query = query
        self._truth = truth
        self.position: int | None = None
        """Everything up to here is settled: handed over, not wanted, or lost."""
        self._began = 0  # packets published earlier are sometimes reported late, and were never asked for
        self._expected: list[int] = []  # a heap: wanted, published, not handed over yet
        self._earlier: list[tuple[int, Query]] = []  # (up to, query): for packets reported late as published
        self._told_gaps: list[tuple[int, int]] = []
        self.delivered = 0
        self.lost = 0
        self.gaps = 0
        self.late = 0
        """Packets that a parent had left out, and that came after later ones: delivered, and in order for nobody."""
        self._owed: dict[int, str] = {}  # skipped, with how; to be lost if they do not come as omitted
        self.complaints: list[str] = []
        self.wrong = 0

    # --- what roots say -----------------------------------------------------------------------------------------------

    def published(self, fact: Fact) -> None:
        if self.position is None or fact.an <= self._began:
            return
        if fact.an > self.position:
            if fact.matches(self.query):
                heappush(self._expected, fact.an)
        elif fact.matches(self._query_at(fact.an)):
            # Reported late: the client is past it and did not receive it (else it would be known as published).
            if any(after < fact.an <= until for after, until in self._told_gaps):
                self.lost += 1
            else:
                self._owed[fact.an] = "was skipped"

    # --- what the client was handed -----------------------------------------------------------------------------------

    def started(self, position: int) -> None:
        """The first start, or that of a later life."""
        if self.position is None:
            self._began = position
            self._begin(position)
        elif position > self.position:
            self.gap(self.position, position)

    def packet(self, an: int, crc: int) -> Fact | None:
        """The packet, when it is one that the client had to be handed."""
        fact = self._truth[an]
        if self.position is None:
            self._complain(f"{an} arrived before the start")
        elif an <= self.position:
            self._complain(f"{an} arrived again, or out of order at {self.position}")
        elif fact is None:
            self._complain(f"{an} is not in the feed, or too old to check")
        elif fact.crc != crc:
            self._complain(f"{an} differs from the feed")
        elif not fact.matches(self.query):
            self._complain(f"{an} was not asked for")
        else:
            self._settle(an - 1, "was skipped in silence")
            if self._expected and self._expected[0] == an:
                heappop(self._expected)
            self.position = an
            self.delivered += 1
            return fact
        return None

    def omitted(self, an: int, crc: int) -> None:
        """A packet that was skipped has come after all."""
        fact = self._truth[an]
        if an in self._expected:  # nothing beyond it was handed over yet
            self._expected.remove(an)
            heapify(self._expected)
        elif self._owed.pop(an, None) is None:
            self._complain(f"{an} arrived as omitted, but was not missing")
            return
        if fact is None or fact.crc != crc:
            self._complain(f"{an} differs from the feed")
            return
        self.late += 1
        self.delivered += 1

    def gap(self, after: int, until: int) -> None:
        self.gaps += 1
        if self.position is None:
            return
        self._told_gaps = [*self._told_gaps[-31:], (after, until)]
        self._settle(after, "was skipped in silence")
        while self._expected and self._expected[0] <= until:
            heappop(self._expected)
            self.lost += 1
        self.position = max(self.position, until)

    def switched(self, position: int, query: Query) -> None:
        """The old query up to and including `position`, the new one after it."""
        if self.position is None:
            self.query = query
            return
        self._settle(position, "was skipped in silence")
        self._earlier = [*self._earlier[-7:], (position, self.query)]
        self.query = query
        self._begin(max(position, self.position))

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> int:
        """Published and wanted, and not here yet."""
        return len(self._expected) + len(self._owed)

    @property
    def oldest_missing(self) -> int | None:
        first = self._expected[:1]
        return min([*first, *self._owed], default=None)

    def give_up(self, due_before: float) -> None:
        """At the end of a run: what was due before a moment and is not here by now is lost."""
        for an in list(self._owed):
            self._lose(an, self._owed.pop(an))
        while self._expected:
            fact = self._truth[self._expected[0]]
            if fact is not None and fact.due_at > due_before:
                return  # still in transit; not an error
            self._lose(heappop(self._expected), "never came")

    def _begin(self, position: int) -> None:
        self.position = position
        self._expected = [fact.an for fact in self._truth.published_after(position) if fact.matches(self.query)]

    def _settle(self, until: int, what: str) -> None:
        while self._expected and self._expected[0] <= until:
            self._owed[heappop(self._expected)] = what
        for an in [an for an in self._owed if an < until - OWED_FOR]:
            self._lose(an, self._owed.pop(an))

    def _query_at(self, an: int) -> Query:
        return next((query for until, query in self._earlier if an <= until), self.query)

    def _lose(self, an: int, what: str) -> None:
        self.lost += 1
        self._complain(f"{an} {what}")

    def _complain(self, text: str) -> None:
        self.wrong += 1
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.append(f"{self.name}: {text}")
