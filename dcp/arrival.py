"""Handing packets over as they come (rule T9): each once, gaps still explicit.

The position, the buffer and the gaps are the same as ever; only the application does not wait for them. A packet that
has to wait in the buffer is handed over at once and remembered by its AN, and is left out when its turn comes.

For clients only: a router's log is in order, and so is what its children get.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque

from dcp.claims import Packets
from dcp.config import Config
from dcp.confirming import ConfirmedHandover
from dcp.handover import Handover
from dcp.log import Log
from dcp.profile import ARRIVAL, Profile

# ANs that were handed over early and then passed as if they were not there: a parent lied. They are not handed over
# again when another parent brings them late.
MAX_OVERTAKEN = 1_024


class ArrivalHandover(Handover):
    def __init__(self, limit: int, *, max_bytes: int, max_early: int) -> None:
        """`max_early`: packets handed over before their turn; further ones wait for it."""
        super().__init__(limit, deliver=True, log=None, max_bytes=max_bytes)
        self._max_early = max_early
        self._early: list[int] = []
        self._overtaken: deque[int] = deque(maxlen=MAX_OVERTAKEN)

    def put_early(self, packets: Packets) -> None:
        early, items = self._early, self._items
        for an, payload in packets:
            if len(early) >= self._max_early or len(items) >= self.limit or self.bytes >= self.max_bytes:
                return
            index = bisect_left(early, an)
            if index < len(early) and early[index] == an:
                continue
            insort(early, an)
            items.append((an, payload))
            self.bytes += len(payload)

    def start(self, position: int, *, again: bool = False) -> None:
        self._early.clear()
        self._overtaken.clear()
        super().start(position, again=again)

    def put(self, packets: Packets, size: int, query: bytes) -> None:
        early = self._early
        if early and early[0] <= packets[-1][0]:
            last = bisect_right(early, packets[-1][0])
            known = set(early[:last])
            fresh = [packet for packet in packets if packet[0] not in known]
            size = sum(len(payload) for _, payload in fresh)
            taken = {an for an, _ in packets}
            early[:last] = [an for an in early[:last] if an not in taken]
            packets = fresh
        super().put(packets, size, query)

    def advance(self, position: int, query: bytes) -> None:
        """What is left in here at or below the position was overtaken: `put` takes out all that had their turn."""
        early = self._early
        if early and early[0] <= position:
            last = bisect_right(early, position)
            self._overtaken.extend(early[:last])
            del early[:last]

    def put_gap(self, after: int, until: int) -> None:
        """The gap without what was handed over early."""
        early = self._early
        last = bisect_right(early, until)
        for an in early[:last]:
            if an - 1 > after:
                super().put_gap(after, an - 1)
            after = max(after, an)
        del early[:last]
        if until > after:
            super().put_gap(after, until)

    def put_late(self, an: int, payload: bytes, *, in_order: bool) -> None:
        if an not in self._overtaken:
            super().put_late(an, payload, in_order=in_order)


def handover_of(profile: Profile, config: Config, *, deliver: bool, log: Log | None) -> Handover:
    """What hands packets over as this profile wants it."""
    limit, max_bytes = config.max_ready_packets, config.max_ready_bytes
    if profile.order == ARRIVAL:
        if log is not None:
            raise ValueError("order=arrival is for clients: a router's children get packets in order")
        return ArrivalHandover(limit, max_bytes=max_bytes, max_early=config.max_buffer_packets)
    if profile.confirms:
        return ConfirmedHandover(limit, deliver=deliver, log=log, max_bytes=max_bytes)
    return Handover(limit, deliver=deliver, log=log, max_bytes=max_bytes, keeps_newest=not profile.asks_again)
