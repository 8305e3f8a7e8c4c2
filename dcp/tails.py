"""How far emptiness carries the position (rule L1). A pure decision over what the parents have said.

"Nothing matches up to here" with no packet behind it delivers nothing, so it can wait: it moves the position only as
far as every parent that counts has said the same. Parents with a hole at the position can't say anything about it, and
are not waited for. When something has been missing for a while, one word suffices, as it does for data.

In a signed stream emptiness beyond the head that the owner has signed waits for the owner's next word: parents that
are there alone for a moment could carry the position ahead of a stream that has not come so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dcp.audit import Audit
from dcp.parent import Parent
from dcp.reach import Reach
from dcp.serial import MAX_POSITION

# How long something may be missing, and a hole may wait for parents that say nothing, before one word suffices.
HELD_UP = 0.05


class Tail:
    def __init__(self, audit: Audit, parents: Mapping[int, Parent], reach: Reach) -> None:
        self.held_until = 0
        """How far somebody's emptiness goes that waits for the word of the others."""
        self._audit = audit
        self._parents = parents
        self._reach = reach

    def of(self, parent: Parent, position: int) -> int:
        """Our position as this parent is to see it: up to where it has said itself that nothing matches (rule L1b).

        It must not think that we are behind, and send again what we only wait with.
        """
        book = self._audit.book
        account = book.accounts.get(parent.link.id) if book is not None else None
        return position if account is None else account.ledger.tail_from(position)

    def agreed(
        self, position: int, epoch: int, *, is_held_up: Callable[[], bool], stuck_since: float, now: float
    ) -> tuple[int, bool, int]:
        """How far the position may go, whether that is the word of one parent only, and the end of a hole here.

        A hole that no data follows ends no later than the head of a parent that counts and has none there, or two
        liars could carry us ahead of the stream, one with a hole and one with emptiness. `stuck_since`: when the
        position last rose.
        """
        book = self._audit.book
        if book is None:
            return position, False, position
        tails: list[int] = []
        counted: list[int] = []
        hole_end = position
        least_head = MAX_POSITION
        for link, parent in self._parents.items():
            if not parent.up or parent.is_convicted:
                continue
            account = book.accounts.get(link)
            tail = account.ledger.tail_from(position) if account is not None else position
            tails.append(tail)
            hole = parent.hole_at(position, epoch) or position
            if account is not None:
                hole = max(hole, account.ledger.holes.end_from(position))
            if hole > position:
                hole_end = max(hole_end, hole)
            elif self._reach.counts(parent, epoch, now):
                counted.append(tail)
                least_head = min(least_head, parent.head)
        until = min(counted, default=position)
        if (head := self._reach.signed_head()) is not None:
            # The slack of reach is for packets, which came. Emptiness can wait for the owner's next word.
            until = min(until, max(position, head))
        if until > position or not (is_held_up() or (hole_end > position and now - stuck_since > HELD_UP)):
            return until, False, hole_end
        return max(tails, default=position), True, max(position, min(hole_end, least_head))
