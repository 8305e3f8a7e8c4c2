"""What we hold of the stream under one query, beside what each parent says about it: who left out what? Pure.

A *book* belongs to one epoch. It has the ANs that were handed over, the gaps that were declared, and an *account* for
each parent: its ledger, how far that was compared with what we hold, and what came of the comparison:

  accused   packets that we hold, and that this parent said are not there
  owed      packets that it listed, and that we lack: it is asked for them by their AN

Nothing at or below `low` is looked at any longer: all parents agreed about it, or it was given up. Bounded by `MAX_ANS`
and the ledgers' own limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from dcp.ledger import MAX_ANS, Ledger
from dcp.stretches import MAX_STRETCHES, Stretches

# More at once, from one parent, are not kept: it has been accused, or asked, often enough.
MAX_ACCUSED = 1_024
MAX_OWED = 1_024


@dataclass(slots=True)
class Accusation:
    since: float
    ripe_at: float | None = None
    """When the parent first said that everything up to here is settled."""
    shown: int = 0
    """How often the owner was asked to show it the packet."""
    shown_at: float = 0.0


@dataclass(slots=True)
class Owed:
    since: float
    fetches: int = 0


class Account:
    __slots__ = ("accused", "checked", "knows_query", "ledger", "owed", "unanswered_since")

    def __init__(self, floor: int) -> None:
        self.ledger = Ledger(floor)
        self.checked = floor
        """Up to here its words were compared with what we hold."""
        self.accused: dict[int, Accusation] = {}
        self.owed: dict[int, Owed] = {}
        self.knows_query = True
        """False: the link was opened after this query was over, and its index has not come yet."""
        self.unanswered_since: float | None = None
        """Since when it has not answered a request for an index."""

    def accuse(self, an: int, now: float) -> None:
        if len(self.accused) < MAX_ACCUSED:
            self.accused.setdefault(an, Accusation(now))

    def owe(self, an: int, now: float) -> None:
        if len(self.owed) < MAX_OWED:
            self.owed.setdefault(an, Owed(now))

    @property
    def spoken_until(self) -> int:
        """Up to here it has spoken about everything, and brought what it listed."""
        until = self.ledger.spoken_until(self.ledger.floor)
        return min(until, min(self.owed) - 1) if self.owed else until


class Book:
    def __init__(self, epoch: int, low: int) -> None:
        self.epoch = epoch
        self.low = low
        self.until: int | None = None
        """Where the query was switched; None while it is in force."""
        self.query = b""
        self.closes_at = 0.0
        """Of a book whose query is over."""
        self.settled_at: float | None = None
        """Since when nothing is open about it."""
        self.have: list[int] = []
        self.gaps = Stretches()
        self.accounts: dict[int, Account] = {}
        self.forgotten = 0
        """ANs that were forgotten before every parent had spoken about them."""

    def account(self, link: int) -> Account:
        """A parent's. One that comes later is asked about what others said before it was there, too."""
        found = self.accounts.get(link)
        if found is None:
            found = self.accounts[link] = Account(self.low)
        return found

    def end(self, position: int, query: bytes, closes_at: float) -> None:
        """`query` held up to `position`. What is still open about it is looked at until then, at most."""
        self.until, self.query, self.closes_at = position, query, closes_at

    # --- what we hold -------------------------------------------------------------------------------------------------

    def took(self, ans: Sequence[int]) -> None:
        """These were handed over, in order."""
        have = self.have
        have.extend(ans)
        if len(have) > MAX_ANS:
            low = have[len(have) - MAX_ANS * 7 // 8]
            self.forgotten += bisect_right(have, low)
            self.forget(low)

    def add_late(self, an: int, now: float) -> None:
        """One more is here, behind what was handed over before it: who said that it is not there?"""
        self.have.insert(bisect_left(self.have, an), an)
        for account in self.accounts.values():
            account.owed.pop(an, None)
            if account.ledger.is_empty_at(an):
                account.accuse(an, now)

    def skipped(self, after: int, until: int) -> None:
        """A gap was declared. It is not filled later."""
        self.gaps.add(after, until)
        if len(self.gaps) > MAX_STRETCHES:
            self.gaps.forget(self.gaps.ends[0])

    def lacks(self, an: int, position: int) -> bool:
        """Whether we went past this packet as if it were not there."""
        until = position if self.until is None else self.until
        if not self.low < an <= until:
            return False
        index = bisect_left(self.have, an)
        return (index == len(self.have) or self.have[index] != an) and not self.gaps.has(an)

    def has_all(self, ans: Sequence[int]) -> bool:
        """Whether we hold these, which follow one another in a claim. The usual case costs one comparison of lists."""
        have = self.have
        index = bisect_left(have, ans[0])
        return have[index : index + len(ans)] == ans

    # --- what parents say about it ------------------------------------------------------------------------------------

    def compare(self, account: Account, position: int, now: float) -> None:
        """Look at what a parent has said since the last time, as far as it goes without a break."""
        ledger, start = account.ledger, max(account.checked, self.low)
        until = min(ledger.spoken_until(start), position if self.until is None else self.until)
        if until <= start:
            return
        account.checked = until
        listed = ledger.listed(start, until)
        have = self.have[bisect_right(self.have, start) : bisect_right(self.have, until)]
        if listed == have:
            return
        for an in sorted(set(have).difference(listed)):
            if ledger.is_empty_at(an):
                account.accuse(an, now)
        lacking = [an for an in listed if self.lacks(an, position)]
        for an in lacking:
            account.owe(an, now)

    def listed_in_index(self, account: Account, start: int, until: int, ans: Sequence[int], position: int) -> list[int]:
        """A parent lists what it has of a stretch; what we lack of that. About those it speaks by bringing them."""
        lacking = [an for an in ans if self.lacks(an, position)]
        account.ledger.say(start, until, ans)
        account.ledger.unsay(lacking)
        return lacking

    def forget(self, below: int) -> None:
        if below <= self.low:
            return
        self.low = below
        del self.have[: bisect_right(self.have, below)]
        self.gaps.forget(below)
        for account in self.accounts.values():
            account.ledger.forget(below)
            account.checked = max(account.checked, below)
            for an in [an for an in account.owed if an <= below]:
                del account.owed[an]
