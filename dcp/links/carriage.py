"""How a stream's claims cross its links: everything that is chosen about that, in one value, chosen once.

    framing     how claims are put into datagrams (`framing`)
    timing      when to ask, to ask again and to show a sign of life (`timing`)
    protection  what a parent sends beside the live claims, so that a lost one is made up for (`retransmission`)

How datagrams are sealed is chosen for each link, by what its two ends agree on (`sealing`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dcp.config import Config
from dcp.kinds import StreamKind
from dcp.links.framing import Framing, framing_of
from dcp.links.retransmission import Retransmission
from dcp.links.timing import Timing, timing_of


@dataclass(frozen=True, slots=True)
class Carriage:
    framing: Framing
    timing: Timing
    protection: type[Retransmission]


def carriage_of(kind: StreamKind, config: Config) -> Carriage:
    return Carriage(framing_of(kind), timing_of(config), Retransmission)
