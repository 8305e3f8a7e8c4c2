"""When is a missing stretch to be given up? A pure decision over what the parents have said.

A gap is declared when every parent has a hole at our position, or can't be hoped for any longer: still joining, behind
and not advancing, or claiming more and sending nothing useful, each for its own bounded time. A parent that is behind
but advances is waited for, however slow it is. The gap ends at the *smallest* end of a hole: beyond it somebody may
have something.
"""

from __future__ import annotations

from collections.abc import Iterable

from dcp.config import Config
from dcp.links.uplink import Uplink


def gap_end(
    links: Iterable[Uplink], position: int, epoch: int, config: Config, *, stuck_since: float, now: float
) -> int | None:
    """Where the gap after `position` ends, or None while there is still hope."""
    ends = []
    stuck = now - stuck_since
    for link in links:
        end = link.hole_at(position, epoch)
        if end is not None:
            ends.append(end)
        elif not link.up:
            if stuck <= config.join_patience:
                return None
        elif link.highest is not None and link.highest <= position:
            # Not from its last progress alone: in a stream that was idle, that is long ago for everybody.
            if now - max(link.progress_at, stuck_since) <= config.behind_patience:
                return None
        elif stuck <= config.answer_patience:
            return None
    return min(ends, default=None)
