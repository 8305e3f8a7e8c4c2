"""One child, as the stream sees it: what it asked for, how far it has come, and where the next claim for it begins.

How claims reach it is `links.downlink`. The transitions of a child have names, and nothing else writes these fields:

    admit         our own query covers the child's: its interest is in the log
    confirm       the child's first position: claims may flow
    acknowledge   the child has everything up to a position
    prepare       a new query is wanted from some later position on
    ready         ... and the log covers it: its interest is open
    commit_epoch  ... and the child speaks in the new epoch: that query holds
    reposition    the child confirmed a start or an epoch: everything after that position is claimed again
"""

from __future__ import annotations

from dataclasses import dataclass

from dcp import handshake
from dcp.admission import Bucket
from dcp.config import Config
from dcp.cursor import Cursor
from dcp.log import Interest, Log

EPOCHS = 16


@dataclass(slots=True)
class PendingQuery:
    """A query that the child wants to change to."""

    epoch: int
    query: bytes
    interest: Interest | None = None
    """None until the log covers the query."""


class Child:
    def __init__(self, log: Log, config: Config, request: handshake.Request) -> None:
        self.log = log
        self.query = request.query
        self.epoch = request.epoch
        self.waiting = True
        """Accepted by the owner but not yet by the log: our own query does not cover the child's so far."""
        self.interest: Interest | None = None
        self.pending: PendingQuery | None = None
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
        self.floor = self.acked = position
        self.cursor.move(self.log, position)

    def prepare(self, epoch: int, query: bytes) -> None:
        """The latest wish replaces one that has not been committed."""
        self._close_pending()
        self.pending = PendingQuery(epoch, query)

    def commit_epoch(self) -> None:
        pending = self.pending
        assert pending is not None
        assert pending.interest is not None
        if self.interest is not None:
            self.log.close_interest(self.interest)
        self.query, self.epoch, self.interest = pending.query, pending.epoch, pending.interest
        self.pending = None

    def dismiss(self) -> None:
        """It has left: the log need not look for its packets any longer."""
        if self.interest is not None:
            self.log.close_interest(self.interest)
            self.interest = None
        self._close_pending()
        self.pending = None

    def _close_pending(self) -> None:
        if self.pending is not None and self.pending.interest is not None:
            self.log.close_interest(self.pending.interest)
            self.pending.interest = None
