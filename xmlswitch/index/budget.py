"""What queries may cost on one packet, and what they did cost in real time.

A query is evaluated only if its `bound` on the packet is within the budget; otherwise the packet passes, which is safe.
Verdicts are pure functions of queries and packet. Real time is the last line, for what the bound got wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xmlswitch.errors import EvaluationCutOff
from xmlswitch.limits import INDEX_LIMITS

BUDGET_NS, BUDGET_NS_PER_BYTE = 2_000_000, 200  # one query on one packet: a router has other things to do
BUDGETS_PER_PACKET = 16  # all queries of all links together, in budgets of one query
LINK_SHARE = 4  # a link may use one fourth of that
WORK, WORK_PER_BYTE = 2_000_000, 40  # characters that the index may read for one packet, all queries together
FEW_LOOKS = 8  # at the values of a column, which are not charged
LOOK_WORK = 100  # characters that a look at one of many values of a column is worth
NODE_WORK = 200  # characters that a look at a node is worth
SPOT_WORK = 10  # a condition, when what nodes at a place mean is put together
MARK_WORK = 100  # a node noted in a frame, in characters
METER_SHARE = 0.05  # of real time that a link's evaluations may take
METER_SECONDS = 10.0  # over which that is measured


def budget(size: int) -> float:
    """Nanoseconds for one query on a packet of so many bytes."""
    return float(BUDGET_NS + BUDGET_NS_PER_BYTE * size)


class Purse:
    """What is left of a packet's budget, for all links and for each. Ask for the cheapest first."""

    __slots__ = ("_left", "_link_left", "_links", "_query")

    def __init__(self, size: int) -> None:
        self._query = budget(size)
        self._left = self._query * BUDGETS_PER_PACKET
        self._link_left = self._left / LINK_SHARE
        self._links: dict[int, float] = {}

    def pay(self, cost: float, links: Iterable[int]) -> bool:
        """Whether an evaluation may run for these links; if so it is paid for, by all of them together."""
        if cost > self._query or cost > self._left:
            return False
        paying = [link for link in links if self._links.get(link, self._link_left) >= cost]
        if not paying:
            return False
        self._left -= cost
        for link in paying:
            self._links[link] = self._links.get(link, self._link_left) - cost / len(paying)
        return True


class Work:
    """Characters that the index may still read for a packet: deterministic, whatever the machine.

    And texts whose meaning its columns may remember: at the limit all are forgotten.
    """

    __slots__ = ("_forget", "_max_look_bytes", "_remembered", "left", "spent")

    def __init__(
        self, max_look_bytes: int = INDEX_LIMITS.max_look_bytes, forget: Callable[[], None] | None = None
    ) -> None:
        self.left = 0
        self.spent: dict[Any, int] = {}  # by column
        self._max_look_bytes = max_look_bytes
        self._forget = forget
        self._remembered = 0

    def remember(self, size: int) -> None:
        """One more text is kept, which takes so many bytes."""
        self._remembered += size
        if self._remembered > self._max_look_bytes and self._forget is not None:
            self._remembered = 0
            self._forget()

    def begin(self, size: int) -> None:
        self.left = WORK + WORK_PER_BYTE * size
        if self.spent:
            self.spent = {}

    def charge_column(self, column: Any, amount: int) -> None:
        """The same, and whose it was."""
        self.spent[column] = self.spent.get(column, 0) + amount
        self.charge(amount)

    def most_expensive(self) -> set[Any]:
        """The columns that took most, so many that the others took no more than a fourth of all."""
        left = sum(self.spent.values())
        most = left / LINK_SHARE
        found = set()
        for column, amount in sorted(self.spent.items(), key=lambda pair: -pair[1]):
            if left <= most:
                break
            found.add(column)
            left -= amount
        return found

    def charge(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise EvaluationCutOff("the standing queries would read this packet too often")


class Meter:
    """Real time that each link's evaluations took: a bucket that drains at the share a link may use."""

    __slots__ = ("_clock", "_spent")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spent: dict[int, tuple[float, float]] = {}  # seconds in the bucket, and when

    def now(self) -> float:
        return self._clock()

    def is_over(self, link: int) -> bool:
        return self._level(link, self._clock()) > METER_SHARE * METER_SECONDS

    def note(self, began: float, links: list[int]) -> None:
        now = self._clock()
        for link in links:
            self._spent[link] = self._level(link, now) + (now - began) / len(links), now

    def forget(self, link: int) -> None:
        self._spent.pop(link, None)

    def _level(self, link: int, now: float) -> float:
        level, at = self._spent.get(link, (0.0, now))
        return max(level - (now - at) * METER_SHARE, 0.0)
