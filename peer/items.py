"""What a program is handed: `Packet`, `Gap`, `Started`, `Omitted` of dcp, and `QuerySwitched` with a query in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcp import Gap, Omitted, Packet, Started

if TYPE_CHECKING:
    from peer.standing import StandingQuery


@dataclass(frozen=True, slots=True)
class QuerySwitched:
    """The old query held up to and including `position`, the new one holds after it."""

    position: int
    query: StandingQuery | None
    """None is everything."""


Content = Packet | Gap | Started | QuerySwitched | Omitted
