"""When to give up a missing stretch. A pure decision over what the parents have said.

A gap is declared when every parent has a hole at our position, or can no longer be expected to help: still joining,
behind and not advancing, or claiming more and sending nothing useful, each for its own bounded time. A parent that is
behind but advances is waited for, however slow it is. The gap ends at the *smallest* end of a hole: beyond it another
parent may have something. A parent whose copy was refused (`acceptance`) has a hole there. What a convicted parent says
that it will not supply counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from dcp.config import Config
from dcp.intake import Intake
from dcp.parent import Parent

# How often a gap that can't be filled is looked at again while its patience runs.
CHECK_INTERVAL = 0.1


def gap_end(
    parents: Iterable[Parent], position: int, epoch: int, config: Config, *, stuck_since: float, now: float
) -> int | None:
    """Where the gap after `position` ends, or None while there is still hope."""
    ends = []
    stuck = now - stuck_since
    for parent in parents:
        if parent.is_convicted:
            continue  # neither a reason to give up nor one to wait (rule L10)
        end = parent.hole_at(position, epoch)
        if end is not None:
            ends.append(end)
        elif not parent.up:
            if stuck <= config.join_patience:
                return None
        elif parent.highest is not None and parent.highest <= position:
            # Not from its last progress alone: in a stream that was idle, that is long ago for everybody.
            if now - max(parent.progress_at, stuck_since) <= config.behind_patience:
                return None
        elif stuck <= config.answer_patience:
            return None
    return min(ends, default=None)


class GapWatch:
    """Since when the position has been stuck, and whether to give up what lies after it."""

    def __init__(self, config: Config, intake: Intake) -> None:
        self._config = config
        self._intake = intake
        self._hole_since = 0.0
        """When the first hole at `_hole_position` was heard of."""
        self._hole_position: int | None = None
        self._check_at: float | None = None

    def hole_heard(self, parent: Parent, now: float) -> None:
        if self._hole_position != self._intake.position and self._is_hole_of(parent):
            self._hole_since = now
            self._hole_position = self._intake.position

    def forget(self) -> None:
        self._hole_position = None

    def end(self, missing_since: float | None, now: float) -> int | None:
        """Where the gap at the position ends; None while there is none to declare.

        `missing_since`: since when something is known to be missing there.
        """
        intake, config = self._intake, self._config
        position = intake.position
        if position is None or not intake.parents or intake.handover.turned_away:
            return None
        epoch = intake.change.epoch
        since = self._stuck_since(missing_since)
        until = gap_end(intake.parents.values(), position, epoch, config, stuck_since=since, now=now)
        if until is None and missing_since is not None and now - since > config.abandon_after:
            until = self._abandoned_until(position)
        if until is None:
            return None
        until = min(until, intake.reach.gap_limit(position, epoch, now))
        # What waits in the buffer is here: a parent's wide hole does not make it a gap.
        known = intake.buffer.first_known(position, epoch) if len(intake.buffer) else None
        if known is not None and known < until:
            until = known
        return until if until > position else None

    def _abandoned_until(self, position: int) -> int | None:
        """Nobody announced a hole and nothing came: the next thing we know of, or the nearest head beyond."""
        intake = self._intake
        known = intake.buffer.first_known(position, intake.change.epoch)
        if known is not None:
            return known
        heads = [p.highest for p in intake.parents.values() if p.up and p.highest is not None and p.highest > position]
        return min(heads, default=None)

    def _stuck_since(self, missing_since: float | None) -> float:
        """Since when we know that there is something beyond the position which does not come."""
        known = [] if missing_since is None else [missing_since]
        if self._hole_position is not None and self._hole_position == self._intake.position:
            known.append(self._hole_since)
        position_at = self._intake.position_at
        return max(position_at, min(known, default=position_at))

    def _is_hole_of(self, parent: Parent) -> bool:
        intake = self._intake
        return parent.hole_at(intake.position or 0, intake.change.epoch) is not None

    def handle_timeout(self, now: float) -> None:
        if self._check_at is not None and now >= self._check_at:
            self._check_at = None

    def next_timeout(self, missing_since: float | None, now: float) -> float | None:
        parents = self._intake.parents.values()
        if missing_since is None and not any(p.hole is not None and self._is_hole_of(p) for p in parents):
            self._check_at = None
        elif self._check_at is None:
            self._check_at = now + CHECK_INTERVAL
        return self._check_at
