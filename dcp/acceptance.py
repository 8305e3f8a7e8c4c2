"""Whether a copy of a packet is good, asked before it counts: "the first copy wins" means the first *good* copy.

The owner gives `accepts(an, payload)`. A copy that it refuses is dropped before the position moves, so the packet stays
missing and another parent's copy can win; the refusal is held against the parent that sent the copy. For the gap rules
that parent has a hole there: when every parent's copy was refused, the packet is a gap.

A check may be expensive. A parent pays for refused copies from a credit: each good copy earns one back, and a little
comes in every second. When the credit is used up its copies are refused without a look, so that a parent that sends
garbage forever costs `REFUSALS_PER_SECOND` checks per second, and one that mostly sends good copies is never cut off.

A check may have a set `undecided` of those that it refused and can't judge yet: they count as if they had been lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, runtime_checkable

from dcp.admission import Bucket
from dcp.claims import Packets
from dcp.parent import Parent

Accepts = Callable[[int, bytes], bool]
"""`accepts(an, payload)`, given by the owner of a receiver; called once per copy, in the order of the stream."""

REFUSALS_PER_SECOND = 16
REFUSALS_AT_ONCE = 64


@runtime_checkable
class BatchCheck(Protocol):
    """An `accepts` that can look at all packets of a claim in one call, which costs less."""

    def __call__(self, an: int, payload: bytes) -> bool: ...

    def refused(self, packets: Packets) -> Collection[int]:
        """The ANs of those that are refused."""


class Acceptance:
    def __init__(self, accepts: Accepts) -> None:
        self._accepts = accepts
        self.undecided: set[int] = getattr(accepts, "undecided", set())
        """Of the refused copies of the last check, those that can't be judged yet. Nobody is to blame for them."""
        self.check = accepts.refused if isinstance(accepts, BatchCheck) else self._check_one_by_one
        """Which of these packets the owner refuses, by AN. Asked directly of parents that never sent a bad copy."""

    def refused(self, parent: Parent, packets: Packets, now: float) -> Collection[int]:
        """The ANs of those copies that are not taken."""
        credit = parent.credit
        if credit is None:
            refused = self.check(packets)
            if refused:  # only a parent that has sent a bad copy needs an account
                self.open_account(parent, refused, now)
            return refused
        if not credit.has(now):
            self.undecided.clear()
            return {an for an, _ in packets}
        refused = self.check(packets)
        credit.take(2 * (len(refused) - len(self.undecided)) - len(packets))
        return refused

    def open_account(self, parent: Parent, refused: Collection[int], now: float) -> None:
        if len(refused) == len(self.undecided):
            return
        credit = parent.credit = Bucket(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        credit.has(now)
        credit.take(len(refused) - len(self.undecided))

    def _check_one_by_one(self, packets: Packets) -> Collection[int]:
        accepts = self._accepts
        return {an for an, payload in packets if not accepts(an, payload)}
