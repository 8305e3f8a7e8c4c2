"""The totals that matter, measured: deliveries, latency, stalls, and how long the mesh was not whole. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

TIMELINE_SECONDS = 600
LATE_SECONDS = 2
WOUND_PATIENCE = 5.0
"""A fault has no effect if no peer lacks parents for this long after it."""


@dataclass(slots=True)
class Second:
    """One second of the timeline."""

    at: int
    latencies: list[float] = field(default_factory=list)

    def summary(self) -> list[Any]:
        ordered = sorted(self.latencies)
        return [
            self.at,
            len(ordered),
            *(round(percentile(ordered, share) * 1e3, 1) for share in (0.5, 0.95, 0.99, 1.0)),
        ]


def percentile(ordered: list[float], share: float) -> float:
    """Nearest rank; 0 of nothing."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Ledger:
    """Fed by the mesh with moments of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.delivered = 0
        self.longest_stall = 0.0
        """The longest that a packet took from its due time into the hands of a client that could take it."""
        self.stalled: str | None = None
        self.machine_pause = 0.0
        """The longest that the machine let any process wait that wanted to run: no mesh is faster than that."""
        self.repairs: list[float] = []
        """Seconds from a fault until every running peer had its n parents again."""
        self.recoveries: list[float] = []
        """The same, from the last thing that was done to the mesh: what it takes once it is left alone."""
        self._latencies: Counter[float] = Counter()
        self._short: set[str] = set()
        self._wound: float | None = None
        self._wound_seen = False
        self._acted: float | None = None
        self._open: dict[int, Second] = {}
        self._closed = -1
        self._seconds: deque[list[Any]] = deque(maxlen=TIMELINE_SECONDS)

    # --- packets ------------------------------------------------------------------------------------------------------

    def took(self, client: str, latency: float, now: float) -> None:
        """A packet in the hands of a client, so long after it was due."""
        self.delivered += 1
        if latency > self.longest_stall:
            self.longest_stall, self.stalled = latency, client
        # Tenths of a millisecond up to 100 ms, then milliseconds: the table stays small however long the run.
        self._latencies[round(latency, 4) if latency < 0.1 else round(min(latency, 60.0), 3)] += 1
        # Clients report in turns: a second is closed when it is well over, and what comes later still goes to the next.
        at = max(int(now), self._closed + 1)
        self._open.setdefault(at, Second(at)).latencies.append(latency)
        for second in sorted(self._open):
            if second < at - LATE_SECONDS:
                self._closed = second
                self._seconds.append(self._open.pop(second).summary())

    def took_excused(self) -> None:
        """A packet that was due while its client was itself stopped, slowed or cut off: delivered, but not timed."""
        self.delivered += 1

    def latencies_ms(self) -> dict[str, float]:
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        total = self._latencies.total()
        found: dict[str, float] = {}
        seen = 0
        for latency in sorted(self._latencies):
            seen += self._latencies[latency]
            for name, share in shares.items():
                if name not in found and seen > min(int(share * total), total - 1):
                    found[name] = round(latency * 1e3, 1)
        return {name: found.get(name, 0.0) for name in shares}

    def timeline(self, since: int = 0) -> list[list[Any]]:
        """[second, deliveries, p50, p95, p99, max in ms] of every finished second after this one."""
        return [second for second in self._seconds if second[0] > since]

    # --- resilience ---------------------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        return not self._short

    @property
    def short(self) -> frozenset[str]:
        return frozenset(self._short)

    def wounded_for(self, now: float) -> float | None:
        """Since when the mesh is not whole, counted from the fault; None when it is."""
        return now - self._wound if self._wound is not None and self._wound_seen else None

    def fault(self, now: float) -> None:
        """Somebody is about to be hurt. Repairs of what follows are counted from here."""
        self.acted(now)
        if self._wound is None:
            self._wound, self._wound_seen = now, False

    def acted(self, now: float) -> None:
        """Something was done to the mesh: hurt, or brought back. Recoveries are counted from the last such moment."""
        self._acted = now

    def parents(self, name: str, *, is_short: bool, now: float) -> float | None:
        """A peer has, or has not, the parents it wants; the time of the repair when this made the mesh whole."""
        if is_short:
            self._short.add(name)
            self._wound = now if self._wound is None else self._wound
            self._wound_seen = True
            return None
        self._short.discard(name)
        return self.look(now)

    def look(self, now: float) -> float | None:
        """To be called now and then."""
        if self._wound is None or self._short:
            return None
        if not self._wound_seen:
            if now - self._wound > WOUND_PATIENCE:
                self._wound = None
            return None
        # With no recent action, the mesh itself caused it, and it counts from when it was noticed.
        is_done = self._acted is not None and self._wound - self._acted < WOUND_PATIENCE
        since = self._acted if self._acted is not None and is_done else self._wound
        self.recoveries.append(max(0.0, now - since))  # a peer can say that it was whole just before we acted
        took, self._wound = now - self._wound, None
        self.repairs.append(took)
        return took

    def is_settled(self, now: float) -> bool:
        """Whole, and no fault so recent that it might still show."""
        self.look(now)
        return not self._short and self._wound is None
