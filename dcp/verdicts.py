"""What follows from a contradiction between parents (rules L7, L9, L10).

A parent said that a packet is not there, and we hold it. A router may have been misled by its own parents, and corrects
itself when it learns better (rule L8); so a contradiction counts only below what the parent calls settled, a grace
later, or when it does not settle at all.

Then, in an unsigned stream, both sides are *disputed*: the parent that left the packet out, and those that brought it,
since one that forges packets could frame the honest one. In a signed stream the parent is shown the packet, if the
owner can prove it, and is *convicted* if it still leaves it out. So is a parent that forges copies, or claims for
seconds what lies beyond the signed head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dcp import events
from dcp.authority import Authority
from dcp.config import Config
from dcp.evidence import Account, Book
from dcp.parent import Parent
from dcp.reach import Reach

OMITTED = "omitted"
"""It said that packets are not there which another parent brought."""
UNCONFIRMED = "unconfirmed"
"""It brought packets which another parent says are not there."""
FORGED = "forged"
"""Its copy of a packet is not the signed one."""
LEAPT = "leapt"
"""It claims what lies beyond the signed head."""
# How long a parent may speak of what lies beyond the signed head before that is held against it.
LEAP_SECONDS = 3.0
# Packets that a parent is shown at one look, and how often each: the message may get lost.
MAX_SHOWN = 8
TIMES_SHOWN = 3


class Verdicts:
    def __init__(
        self,
        stream: str,
        config: Config,
        parents: Mapping[int, Parent],
        reach: Reach,
        *,
        authority: Authority | None,
        emit: Callable[[events.Event], None],
    ) -> None:
        self._stream = stream
        self._config = config
        self._parents = parents
        self._reach = reach
        self._authority = authority
        self._emit = emit

    def judge(self, book: Book, query: bytes, now: float) -> None:
        """Look at every accusation that is open."""
        unconfirmed: dict[int, set[int]] = {}
        for link, account in book.accounts.items():
            parent = self._parents.get(link)
            if parent is None or not account.accused:
                continue
            proof = {an: self._proves(an, query) for an in account.accused} if self._authority is not None else {}
            self._show(parent, account, proof, now)
            due = self._due(parent, account, proof, now)
            if not due:
                continue
            parent.omitted += len(due)
            proved = [an for an in due if proof.get(an)]
            if proved:
                self._convict(parent, proved[0], OMITTED)
                continue
            self.dispute(parent, due, OMITTED)
            for other, theirs in book.accounts.items():
                brought = [an for an in due if other != link and theirs.ledger.lists(an)]
                if brought:
                    unconfirmed.setdefault(other, set()).update(brought)
        for link, ans in unconfirmed.items():
            self.dispute(self._parents[link], sorted(ans), UNCONFIRMED)
        for parent in self._parents.values():
            parent.settled_before = parent.settled or 0

    def _proves(self, an: int, query: bytes) -> bool:
        return self._authority is not None and self._authority.proves(an, query)

    def _show(self, parent: Parent, account: Account, proof: Mapping[int, bool], now: float) -> None:
        """Let it see what it left out: it may know no better."""
        shown = 0
        for an, accusation in account.accused.items() if not parent.is_convicted else ():
            if proof.get(an) and accusation.shown < TIMES_SHOWN and shown < MAX_SHOWN and not account.ledger.lists(an):
                shown += 1
                accusation.shown += 1
                if accusation.shown == 1:
                    accusation.shown_at = now
                self._emit(events.Contradicted(self._stream, parent.link.id, an))

    def _due(self, parent: Parent, account: Account, proof: Mapping[int, bool], now: float) -> list[int]:
        """The packets that it left out for good. Those that it has listed since are no longer held against it."""
        due = []
        for an, accusation in list(account.accused.items()):
            if account.ledger.lists(an):
                del account.accused[an]
                continue
            if accusation.ripe_at is None and parent.settled is not None and parent.settled >= an:
                accusation.ripe_at = accusation.since if parent.settled_before >= an else now
            if proof.get(an) and not accusation.shown and not parent.is_convicted:
                continue  # its turn comes
            if self.is_due(max(accusation.since, accusation.shown_at), accusation.ripe_at, now):
                del account.accused[an]
                due.append(an)
        return due

    def is_due(self, since: float, ripe_at: float | None, now: float) -> bool:
        """Rule L7: not before the parent calls it settled, and a grace after; or when it never does."""
        config = self._config
        if ripe_at is not None and now - max(since, ripe_at) >= config.dispute_after:
            return True
        return now - since >= config.unsettled_after

    def dispute(self, parent: Parent, ans: list[int], reason: str) -> None:
        """One event for all of them."""
        parent.disputed += 1
        link = parent.link
        self._emit(events.Disputed(self._stream, link.id, link.address, min(ans) - 1, max(ans), reason))

    # --- signed streams -----------------------------------------------------------------------------------------------

    def refused(self, parent: Parent, an: int) -> None:
        """A copy was not accepted. In a signed stream no honest parent passes such a copy on."""
        if self._authority is not None and self._authority.condemns(an):
            self._convict(parent, an, FORGED)

    def look_for_leaps(self, now: float) -> None:
        """Whether a parent keeps claiming what lies beyond the signed head."""
        limit = self._reach.signed_limit()
        if limit is None:
            return
        for parent in self._parents.values():
            if parent.head <= limit:
                parent.leapt_at = None
            elif parent.leapt_at is None:
                parent.leapt_at = now
            elif now - parent.leapt_at > LEAP_SECONDS:
                self._convict(parent, parent.head, LEAPT)

    def _convict(self, parent: Parent, an: int, reason: str) -> None:
        """Once. Its packets are still taken, and what it says is not there is ignored (rule L10)."""
        if not parent.is_convicted:
            parent.is_convicted = True
            self._reach.expire()
            self._emit(events.Convicted(self._stream, parent.link.id, parent.link.address, an, reason))
