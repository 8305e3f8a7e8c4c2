"""A feed of a few packets, for the checker: number n is due n tenths of a second after the start."""

from __future__ import annotations

import zlib
from itertools import count

from asdi.flights import Packet
from demo.check.truth import Truth
from demo.run.feed import FIRST_SECOND, FeedPlan

FIRST = 101


def payload(an: int) -> bytes:
    return b"<flight><id>UAL%d</id><altitude>%d</altitude></flight>" % (an, an % 10)


def crc(an: int) -> int:
    return zlib.crc32(payload(an))


def truth(*, published_until: int = 0) -> Truth:
    """Packets from FIRST on, the first 400 of them known; those up to a number published."""
    packets = (Packet(an, FIRST_SECOND + an - FIRST, payload(an)) for an in count(FIRST))
    made = Truth(FeedPlan(0.0, copies=1, speed=10.0), packets)
    made.make_until(40.0)
    made.publish(FIRST, published_until)
    return made
