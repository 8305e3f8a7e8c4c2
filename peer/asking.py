"""What a dynamic router asks its parents for: the queries of its children and its client, as members of one set.

Up to a number and a size the set is exact; beyond that `xmlswitch.Interest` widens what loses least. More is asked for
at once, less only after a while: children come back. Queries come in slices, because placing one takes up to a
millisecond, and a child that brings a thousand of them must not hold up the others' packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from dcp import EVERYTHING
from dcp.receiver import Receiver
from dcp.sender import Sender
from peer.languages import LanguagePolicy
from peer.queries import XPathPolicy
from xmlswitch import Interest, MemberLimits, Query, QuerySet

MAX_PLACED = 48
"""Queries of one slice; what is left waits for the next turn, this many seconds later."""
NEXT_TURN = 0.01
# There are 16 epochs in the lifetime of a datagram. The more of them were used lately, the longer the next change waits
# for others to go with it; without that, the 17th child of a crowd waits for half a minute.
EPOCHS = 16
PATIENCE = 0.1
"""Of that lifetime, is waited after ten changes; less after fewer, by the square of their number."""
# Below dcp's limit for a query: `Interest` estimates what its members take on the wire.
LIMITS = MemberLimits(max_bytes=56_000)


class Asking:
    def __init__(
        self,
        policy: XPathPolicy,
        receiver: Receiver,
        sender: Sender,
        *,
        carry: bytes,
        carries: Callable[[bytes], bool],
        narrow_after: float,
        epoch_lifetime: float,
    ) -> None:
        """`carry` is the most that may be asked for, and `carries` whether a query asks for no more than that."""
        self._policy = policy
        self._receiver = receiver
        self._sender = sender
        self._carry = carry
        self._carries = carries
        self._narrow_after = narrow_after
        self._epoch_lifetime = epoch_lifetime
        self._changed_at: deque[float] = deque(maxlen=EPOCHS)
        self._interest = Interest(LIMITS)
        self._members_asked = QuerySet([])
        self._held: set[Query] = set()
        self.due = 0.0
        """When to look again, whatever happens."""
        self.is_done = True
        """False: there is more to place, and `due` is worth waking up for."""
        policy.selectivity = self._interest.selectivity

    def counts(self) -> dict[str, int]:
        """Queries that are asked for, those that cost nothing because one of them covers them, those in wider ones."""
        interest = self._interest
        return {"asked": len(interest.members), "covered": interest.covered, "widened": interest.widened}

    def fit(self, own: Iterable[bytes], now: float) -> bool:
        """Ask for what the children and our own client (`own`) want; whether that is something else than before."""
        receiver, sender = self._receiver, self._sender
        wanted = {*sender.wanted_queries(), *own}
        target = receiver.change.target
        is_covered = all(sender.log.covers(target, query) for query in wanted)
        if is_covered and now < self.due:
            return False
        asked, self.is_done = self._members(wanted, narrow=is_covered)
        self.due = now + (self._narrow_after if self.is_done else NEXT_TURN)
        if asked is None:
            return False
        if not self._carries(asked):  # it may be widened to keep it short; what we may carry is wide enough
            asked = self._carry
        if asked != target:
            if now < (due := self._next_change(now)):
                self.due, self.is_done = due, False
                return False
            self._changed_at.append(now)
            receiver.change_query(asked, now=now)
            return True
        if not is_covered:  # it was covered already, and `_members` found that out
            sender.log.forget_covers()
            sender.upstream_changed(receiver.query, now)
        return False

    def _next_change(self, now: float) -> float:
        """When the next change may begin."""
        changed, lifetime = self._changed_at, self._epoch_lifetime
        while changed and changed[0] < now - lifetime:
            changed.popleft()
        return changed[-1] + PATIENCE * lifetime * (len(changed) / 10) ** 2 if changed else now

    def _members(self, wanted: set[bytes], *, narrow: bool) -> tuple[bytes | None, bool]:
        """What covers all that is wanted (None: not all of it is placed yet), and whether nothing is left to do."""
        if EVERYTHING in wanted:
            return EVERYTHING, True
        queries: set[Query] = set().union(*(self._policy.set_of(token).queries for token in wanted))
        new = sorted(queries - self._held, key=_by_text)
        for query in new[:MAX_PLACED]:
            self._interest.add(query)
            self._held.add(query)
        if len(new) > MAX_PLACED:
            return None, False
        left = MAX_PLACED - len(new)
        if narrow:
            for query in sorted(self._held - queries, key=_by_text)[:left]:
                self._interest.remove(query)
                self._held.discard(query)
            if not self._interest.is_settled:
                self._interest.settle()
        self._members_asked = QuerySet(self._interest.members, like=self._members_asked)
        asked = self._policy.token_of_set(self._members_asked)
        self._policy.remember_wider(asked, wanted)
        return asked, not narrow or (len(self._held) == len(queries) and self._interest.is_settled)


class MergedAsking(Asking):
    """For languages that have no sets of queries: one query that covers all."""

    def _members(self, wanted: set[bytes], *, narrow: bool) -> tuple[bytes | None, bool]:
        assert isinstance(self._policy, LanguagePolicy)
        return EVERYTHING if EVERYTHING in wanted else self._policy.merged(wanted), True


def asking_for(policy: XPathPolicy, receiver: Receiver, sender: Sender, **options: Any) -> Asking:
    """By the language of the stream. `options` are those of `Asking`."""
    kind = MergedAsking if isinstance(policy, LanguagePolicy) else Asking
    return kind(policy, receiver, sender, **options)


def _by_text(query: Query) -> str:
    return query.canonical
