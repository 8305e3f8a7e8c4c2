"""How long after the first copy of a packet those of other parents come.

One packet at a time is watched, so that it costs nothing per packet. A parent whose copies always come late is told to
leave packets out (`Intake._old`), so samples of it become rare; the last ones count until there are others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dcp.claims import Packets
    from dcp.parent import Parent

INTERVAL: Final = 0.05
"""Seconds between two packets that are watched."""


class Lateness:
    def __init__(self) -> None:
        self._an = -1
        self._at = float("-inf")

    def first(self, parent: Parent, packets: Packets, now: float) -> None:
        """The first copies came from this parent."""
        parent.first_copies += len(packets)
        if now - self._at >= INTERVAL:
            self._an, self._at = packets[-1][0], now
            parent.came_late(0.0)

    def again(self, parent: Parent, packets: Packets, now: float) -> None:
        """Copies of packets that we had."""
        parent.duplicates += len(packets)
        if packets[0][0] <= self._an <= packets[-1][0]:
            parent.came_late(now - self._at)
