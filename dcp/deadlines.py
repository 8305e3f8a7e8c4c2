"""When to give up a missing packet because it would come too late (rule T8).

The deadline counts for each missing packet from the first sign of its loss: a claim beyond it, a parent's word that it
was sent, or a hole. It does not start over when the position moves, so that one loss after another can't hold up the
stream for longer than the deadline.

A deadline is our own decision, but not one that a single parent may force: nothing is given up beyond the head of a
parent that counts, is heard, and has no hole there (rule L3). Else a parent that claims far ahead would make us skip
packets that have not been published yet. The price: when one parent is steadily later than another, its lateness is
added to the deadline.
"""

from __future__ import annotations

from collections import deque

from dcp.config import Config
from dcp.intake import Intake
from dcp.links.losses import LossWatch
from dcp.parent import Parent

# Signs that are kept apart. More: the newest counts from the sign before it, a little too early.
MAX_SIGNS = 1_024
# How often a deadline is looked at again that is over, and that a parent's head holds up.
HELD_UP_INTERVAL = 0.01


class DeadlineWatch:
    def __init__(self, seconds: float, config: Config, intake: Intake, losses: LossWatch) -> None:
        self.seconds = seconds
        self.expired = 0
        """Stretches that were given up because their time was over."""
        self._intake = intake
        self._losses = losses
        # A parent that was not heard for longer than it may be silent does not hold up a deadline.
        self._heard_within = 1.5 * config.keep_alive_interval
        self._progress_within = config.behind_patience
        # (an, when): what is missing at or below `an` was known to be missing at that time. Both rise.
        self._signs: deque[tuple[int, float]] = deque()
        self._again_at = 0.0

    def note(self, now: float) -> None:
        """Something was heard that may show a loss."""
        intake = self._intake
        top = intake.buffer.highest_start()
        if (sent_until := intake.sent_until()) > top:
            top = sent_until
        self._sign(top, now)

    def hole_heard(self, start: int, end: int, now: float) -> None:
        if start <= (self._intake.position or 0):
            self._sign(end, now)

    def _sign(self, an: int, now: float) -> None:
        signs = self._signs
        position = self._intake.position or 0
        while signs and signs[0][0] <= position:
            signs.popleft()
        if an <= position or (signs and an <= signs[-1][0]):
            return
        if len(signs) >= MAX_SIGNS:
            signs[-1] = (an, signs[-1][1])
        else:
            signs.append((an, now))

    def clear(self) -> None:
        self._signs.clear()

    def _first(self) -> tuple[int, float] | None:
        """Up to where something is known to be missing at the position, and since when."""
        position = self._intake.position
        if position is None:
            return None
        for an, since in self._signs:
            if an > position:
                return an, since
        since_here = self._losses.missing_since
        return None if since_here is None else (position + 1, since_here)

    def due_at(self) -> float | None:
        first = self._first()
        if first is None or self._intake.handover.turned_away:
            return None
        return max(first[1] + self.seconds, self._again_at)

    def gap_end(self, now: float) -> int | None:
        """Where the gap ends that is due at the position; None while there is none."""
        first = self._first()
        intake = self._intake
        position = intake.position
        if first is None or position is None or intake.handover.turned_away or now < first[1] + self.seconds - 1e-9:
            return None
        until = intake.buffer.first_known(position, intake.change.epoch)
        if until is None:
            until = first[0]
        until = min(until, self._limit(position, now))
        if until <= position:
            self._again_at = now + HELD_UP_INTERVAL
            return None
        self.expired += 1
        return until

    def _limit(self, position: int, now: float) -> int:
        intake, epoch = self._intake, self._intake.change.epoch
        limit = intake.reach.limit(None, epoch, now)
        for parent in intake.parents.values():
            if (
                parent.up
                and now - parent.link.heard_at < self._heard_within
                and parent.hole_at(position, epoch) is None
                and (intake.reach.counts(parent, epoch, now) or self._leads(parent, position, epoch, now))
            ):
                limit = min(limit, parent.head)
        return limit

    def _leads(self, parent: Parent, position: int, epoch: int, now: float) -> bool:
        """It brings the stream, although another one claims so much more that it looks mute."""
        return (
            not parent.is_convicted
            and parent.confirmed_epoch == epoch
            and parent.head >= position
            and now - parent.progress_at < self._progress_within
        )
