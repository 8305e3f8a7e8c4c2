"""One child, as the stream sees it: what it asked for, how far it has come, and where the next claim for it begins.

How claims reach it is `links.downlink`. The transitions of a child have names, and nothing else writes these fields:

    admit         our own query covers the child's: its interest is in the log
    confirm       the child's first position: claims may flow
    acknowledge   the child has everything up to a position
    prepare       a new query is wanted from some later position on
    ready         ... and the log covers it: its interest is open
    commit_epoch  ... and the child speaks in the new epoch: that query holds
    recall        a query that was over before this link opened: the child may ask about what it passed under it
    reposition    the child confirmed a start or an epoch: everything after that position is claimed again
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from dcp import handshake
from dcp.admission import Bucket
from dcp.config import Config
from dcp.cursor import Cursor
from dcp.log import Interest, Log
from dcp.query_parts import Collected

EPOCHS = 16
# How long after a change of its query a child may ask about what it passed under the one before, and how many such
# queries are kept. A child that changes its query faster than that goes without.
PREVIOUS_QUERY_SECONDS = 5.0
MAX_PREVIOUS_QUERIES = 4


@dataclass(slots=True)
class PendingQuery:
    """A query that the child wants to change to."""

    epoch: int
    query: bytes
    interest: Interest | None = None
    """None until the log covers the query."""


@dataclass(slots=True)
class PreviousQuery:
    """The query before the present one: for a while the child may still ask about what it passed under it."""

    epoch: int
    interest: Interest
    start: int
    """After this position it held, or after a later one: the child asks in a new epoch before it switches."""
    since: float | None = None
    """When our timers first saw it."""


class Child:
    def __init__(self, log: Log, config: Config, request: handshake.OpenRequest) -> None:
        self.log = log
        self.query = request.query
        self.epoch = request.epoch
        self.waiting = True
        """Accepted by the owner but not yet by the log: our own query does not cover the child's so far."""
        self.is_restricted = False
        """Packets that are withheld are outside its queries: it has no right to them, or did not ask for them."""
        self.interest: Interest | None = None
        self.pending: PendingQuery | None = None
        self.collected: Collected | None = None
        """Parts of the query that it wants to change to."""
        self.unheard: list[PendingQuery] = []
        """Prepared, and in use by now: a child asks for one change at a time. Only its word has not come through."""
        self.epoch_start = 0
        """After this position the present query holds, or after a later one; or we answered an index from there on."""
        self.previous: list[PreviousQuery] = []
        self.start: int | None = request.position if request.start == handshake.Start.POSITION else None
        self.from_oldest = request.start == handshake.Start.OLDEST
        self.came_early = not log.started
        """It was here before the first packet, so that is where it starts."""
        self.acked = 0
        self.floor: int | None = None
        """The child's last confirmed position; NACKs below it are stale (rule S4). None: not confirmed yet."""
        self.cursor = Cursor(log, 0)
        self.behind_since: float | None = None
        """Since when the child has been in the older half of the log without gaining."""
        self._behind_least = 0
        """Its smallest lag since then."""
        # A receiver can't use more than 16 epochs in their lifetime: no honest child makes twice as many.
        self.query_changes = Bucket(2 * EPOCHS / config.epoch_lifetime, EPOCHS)

    # --- where it is --------------------------------------------------------------------------------------------------

    def proposed_start(self) -> int | None:
        """Where the child may begin; None while the stream has not begun here."""
        log = self.log
        if self.start is not None:
            return self.start
        if not log.started:
            return None
        if self.from_oldest:
            return log.oldest_covered(self.query)
        return log.low if self.came_early else log.head

    @property
    def lag(self) -> int:
        """Packets in the log beyond the cursor, wanted or not."""
        return max(0, self.log.next_ordinal - self.log.ordinal_after(self.cursor.position))

    @property
    def owes_confirmation(self) -> bool:
        """Whether it has yet to say where it starts. One that came before the stream has nothing to say yet."""
        if self.collected is not None or self.pending is not None:
            return False  # it came with a long query, which is on its way
        return self.floor is None and (self.waiting or (self.log.started and not self.came_early))

    def falls_behind(self, longest: float, now: float) -> bool:
        """Whether it has stayed in the older half of a full log for more than `longest`, not gaining on the head."""
        log = self.log
        if not log.evicted or self.floor is None:
            return False
        lag = log.next_ordinal - log.ordinal_after(self.acked)
        if lag <= len(log) // 2:
            self.behind_since = None
            return False
        if self.behind_since is None or lag < self._behind_least:
            self.behind_since = now
            self._behind_least = lag
        return now - self.behind_since > longest

    # --- transitions --------------------------------------------------------------------------------------------------

    def admit(self, interest: Interest) -> None:
        self.waiting = False
        self.interest = interest

    def acknowledge(self, position: int) -> None:
        """Behind it, the cursor skips ahead: that is the squelch."""
        if self.floor is None or position > self.floor:
            self.floor = position
        if position > self.acked:
            self.acked = position
        if self.cursor.position < position:
            self.cursor.move(self.log, position)

    def reposition(self, position: int) -> None:
        self.epoch_start = position
        self.floor = self.acked = position
        self.cursor.move(self.log, position)

    def prepare(self, epoch: int, query: bytes) -> None:
        """The latest wish. One before it that was not prepared is forgotten."""
        if self.pending is not None and self.pending.interest is not None:
            if len(self.unheard) >= MAX_PREVIOUS_QUERIES:
                self._close_pending(self.unheard.pop(0))
            self.unheard.append(self.pending)
        self.pending = PendingQuery(epoch, query)

    def query_in(self, epoch: int) -> bytes | None:
        """The query of this epoch: the present one, or one that was prepared."""
        if epoch == self.epoch:
            return self.query
        wishes = [*self.unheard, self.pending] if self.pending is not None else self.unheard
        return next((wish.query for wish in wishes if wish.epoch == epoch), None)

    def commit_epoch(self, epoch: int) -> bool:
        """Whether this epoch was prepared: then its query holds from now on."""
        wishes = [*self.unheard, self.pending] if self.pending is not None else self.unheard
        if not any(wish.epoch == epoch and wish.interest is not None for wish in wishes):
            return False
        for wish in wishes:
            if wish.epoch > epoch or wish.interest is None:
                continue
            if self.interest is not None:
                self._remember(PreviousQuery(self.epoch, self.interest, self.epoch_start))
            self.query, self.epoch, self.interest = wish.query, wish.epoch, wish.interest
        self.unheard = [wish for wish in self.unheard if wish.epoch > epoch]
        if self.pending is not None and self.pending.epoch <= epoch:
            self.pending = None
        return True

    def recall(self, epoch: int, interest: Interest) -> None:
        """It came after a change of its query, and asks about what it passed under the one before."""
        self._remember(PreviousQuery(epoch, interest, self.epoch_start))
        self.previous.sort(key=lambda previous: previous.epoch)

    def _remember(self, previous: PreviousQuery) -> None:
        self.previous.append(previous)
        if len(self.previous) > MAX_PREVIOUS_QUERIES:
            # One under which the child went no further has nothing to be asked about. Else the oldest.
            idle = (n for n, (one, then) in enumerate(pairwise(self.previous)) if one.start >= then.start)
            self._close(next(idle, 0))

    def dismiss(self) -> None:
        """It has left: the log need not look for its packets any longer."""
        if self.interest is not None:
            self.log.close_interest(self.interest)
            self.interest = None
        while self.previous:
            self._close(0)
        for wish in (*self.unheard, self.pending):
            self._close_pending(wish)
        self.unheard.clear()
        self.pending = None

    def expire_previous(self, longest: float, now: float) -> None:
        """What was passed under a query before the present one is settled by now, or given up."""
        for previous in self.previous:
            if previous.since is None:
                previous.since = now
        while self.previous and self.previous[0].since is not None and now - self.previous[0].since > longest:
            self._close(0)

    def interest_in(self, epoch: int) -> Interest | None:
        """The query of this epoch: the present one, or for a while one before."""
        if epoch == self.epoch:
            return self.interest
        return next((previous.interest for previous in self.previous if previous.epoch == epoch), None)

    def spoke_of(self, epoch: int, start: int) -> None:
        """An index said what lies after `start`: a packet that comes late has to be reported from there on."""
        if epoch == self.epoch:
            self.epoch_start = min(self.epoch_start, start)
            return
        for previous in self.previous:
            if previous.epoch == epoch:
                previous.start = min(previous.start, start)

    def epochs_at(self, an: int) -> list[int]:
        """Under which of its queries the child may have passed `an`, the oldest first."""
        epochs = [previous.epoch for previous in self.previous if previous.start < an]
        return [*epochs, self.epoch] if self.epoch_start < an else epochs

    def _close(self, index: int) -> None:
        self.log.close_interest(self.previous.pop(index).interest)

    def _close_pending(self, wish: PendingQuery | None) -> None:
        if wish is not None and wish.interest is not None:
            self.log.close_interest(wish.interest)
            wish.interest = None
