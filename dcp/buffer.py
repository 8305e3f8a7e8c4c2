"""Claims that came too early: they wait for what lies before them. Bounded; when full, the farthest are dropped."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from dcp.claims import Packets
from dcp.control import Range


class ReorderBuffer:
    """Claims by (last AN, epoch). Of two claims that end at the same AN the one that reaches back farther is kept."""

    def __init__(self, max_packets: int, max_bytes: int) -> None:
        self._max_packets = max_packets
        self._max_bytes = max_bytes
        self._claims: dict[tuple[int, int], tuple[int, Packets]] = {}
        self._order: list[tuple[int, int]] = []
        # Where claims begin, the nearest first: whether one applies is asked after every packet. Some may be gone.
        self._starts: list[tuple[int, int, int]] = []
        self.packets = 0
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._order)

    def add(self, epoch: int, prev: int, an: int, packets: Packets) -> None:
        key = (an, epoch)
        known = self._claims.get(key)
        if known is not None:
            if known[0] <= prev:
                return
            self._count(known[1], -1)
        else:
            insort(self._order, key)
        self._claims[key] = (prev, packets)
        heappush(self._starts, (prev, an, epoch))
        self._count(packets, 1)
        while len(self._order) > self._max_packets or self.packets > self._max_packets or self.bytes > self._max_bytes:
            self._remove(len(self._order) - 1)
            self.dropped += 1
        if len(self._starts) > 2 * len(self._order) + 64:
            self._starts = [(prev, an, epoch) for (an, epoch), (prev, _) in self._claims.items()]
            heapify(self._starts)

    def has(self, epoch: int, prev: int, an: int) -> bool:
        """Whether this claim, or a wider one that ends alike, waits already."""
        known = self._claims.get((an, epoch))
        return known is not None and known[0] <= prev

    def take(self, position: int, epochs: tuple[int, ...]) -> tuple[int, int, Packets] | None:
        """A claim (epoch, an, packets) that applies at `position`; what is no longer useful is dropped."""
        starts = self._starts
        while starts and starts[0][0] <= position:
            prev, an, epoch = heappop(starts)
            known = self._claims.get((an, epoch))
            if known is None or known[0] != prev:
                continue  # dropped, or replaced by a wider one
            self._remove(bisect_left(self._order, (an, epoch)))
            if an > position and epoch in epochs:
                return epoch, an, known[1]
        return None

    def keep_epoch(self, epoch: int) -> None:
        """A switch: what was claimed under another query says nothing now."""
        for index in range(len(self._order) - 1, -1, -1):
            if self._order[index][1] != epoch:
                self._remove(index)

    def clear(self) -> None:
        self._claims.clear()
        self._order.clear()
        self._starts.clear()
        self.packets = 0
        self.bytes = 0

    def missing(self, position: int, epoch: int, most: int) -> tuple[list[Range], int]:
        """The stretches after `position` that no claim says anything of, to the highest claim, which comes second."""
        claims = sorted((prev, an) for (an, e), (prev, _) in self._claims.items() if e == epoch and an > position)
        ranges: list[Range] = []
        at = position
        for prev, an in claims:
            if prev > at and len(ranges) < most:
                ranges.append((at, prev))
            at = max(at, an)
        return ranges, at

    def first_known(self, position: int, epoch: int) -> int | None:
        """Where the nearest claim beyond `position` begins."""
        starts = [prev for (an, e), (prev, _) in self._claims.items() if e == epoch and prev > position]
        return min(starts, default=None)

    def highest_start(self) -> int:
        """Where the farthest claim begins; 0 when there is none."""
        return self._claims[self._order[-1]][0] if self._order else 0

    def _remove(self, index: int) -> None:
        key = self._order.pop(index)
        self._count(self._claims.pop(key)[1], -1)

    def _count(self, packets: Packets, sign: int) -> None:
        self.packets += sign * len(packets)
        self.bytes += sign * sum(len(payload) for _, payload in packets)
