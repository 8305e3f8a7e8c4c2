"""Where a root stands in its numbers. On its own, because a peer that reads no feed needs nothing else of feeds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a root stands: what it writes down, and starts from after a restart. ANs up to `an` are never given again.

    `time` and `settled` are the ASDI unwrapper's, None for feeds that have none.
    """

    an: int
    time: int | None = None
    settled: bool | None = None
    exact: bool = False
    """Whether `an` is the last one given, not one that was reserved ahead."""
