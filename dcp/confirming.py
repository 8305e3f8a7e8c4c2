"""Handing packets over only when all parents agree about them: order before speed (`confirm="all"`).

The first copy of a packet still wins, and at a router goes on to its children at once; only the application here waits,
until the stream up to that packet is settled (rule L7): every parent has spoken about all of it, and is settled itself.
What a parent had left out has come from another one by then, and is put in its place: nothing comes as `Omitted`.

What waits counts against the application's queue. With a single parent there is nobody to agree with: its own word
counts, once it has been the only one for `audit.ALONE_SECONDS`.
"""

from __future__ import annotations

from dcp import events
from dcp.handover import Handover, Item, bytes_of


class ConfirmedHandover(Handover):
    """Invariant: the first `_open` items may be taken; those after them are not settled yet."""

    _open = 0
    _settled = -1

    def start(self, position: int, *, again: bool = False) -> None:
        super().start(position, again=again)
        self._open = len(self._items)  # numbers may begin again: what waited under the old ones is never settled
        self._settled = position

    def settle(self, until: int) -> None:
        super().settle(until)
        self._settled = max(self._settled, until)
        self._open_settled()

    def _open_settled(self) -> None:
        items, at = self._items, self._open
        while at < len(items) and _end_of(items[at]) <= self._settled:
            at += 1
        self._open = at

    def put_late(self, an: int, payload: bytes, *, in_order: bool) -> None:
        """In its place, while nothing beyond it may be taken. An application that fell behind has it in the log."""
        if not self._deliver or (self._behind_from is not None and an > self._behind_from):
            return
        items, at = self._items, self._open
        self.bytes += len(payload)
        if an <= self._settled:  # all parents had agreed that it is not there
            items.insert(at, (an, payload) if in_order else events.Omitted(an, payload))
            self._open += 1
            return
        at = len(items)
        while at > self._open and _end_of(items[at - 1]) > an:
            at -= 1
        items.insert(at, (an, payload))

    @property
    def has_events(self) -> bool:
        return self._open > 0 or (not self._items and self._behind_from is not None)

    @property
    def is_drained(self) -> bool:
        return not self._items and self._behind_from is None

    @property
    def backlog(self) -> float:
        """What the application may take and has not: what waits for parents is not its fault."""
        return 1.0 if self._behind_from is not None else self._open / self.limit

    def take_plain(self, most: int, position: int | None) -> list[Item]:
        if not self._items and self._behind_from is not None and position is not None:
            self._refill(self._behind_from, position)
            self._open_settled()
        taken = [self._items.popleft() for _ in range(min(most, self._open))]
        self._open -= len(taken)
        self.bytes -= bytes_of(taken)
        return taken


def _end_of(item: Item) -> int:
    """Up to where the stream has to be settled before the application may take it."""
    if isinstance(item, events.Gap):
        return item.until
    return item[0]  # a packet's number, or the position of a start or a change of the query
