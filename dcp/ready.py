"""What lies ready for the application, in the order of the stream, and how much more may come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dcp.events import Content, Packet

# Packets lie here as bare (AN, payload): a named tuple for each costs more than all else that is done with it.
Item = tuple[int, bytes] | Content


class ReadyQueue:
    """Bounded by its owner: when it is full, claims are turned away, and senders were told before that room is small.

    A router that hands nothing to an application has none of this: everything is dropped, and there is always room.
    """

    def __init__(self, limit: int, *, deliver: bool) -> None:
        self.limit = limit
        self.turned_away = False
        """Claims were not taken for lack of room: what they brought must be asked for again."""
        self.told_little_room = False
        self._deliver = deliver
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return len(self._items) >= self.limit

    def room(self) -> int:
        """To be told to a sender now."""
        room = max(0, self.limit - len(self._items))
        self.told_little_room = room < self.limit // 4
        return room

    def add(self, event: Content) -> None:
        if self._deliver:
            self._items.append(event)

    def extend(self, items: Iterable[Item]) -> None:
        if self._deliver:
            self._items.extend(items)

    def next(self) -> Content | None:
        if not self._items:
            return None
        item = self._items.popleft()
        return tuple.__new__(Packet, item) if type(item) is tuple else item  # type: ignore[return-value]

    def take(self, most: int) -> list[Item]:
        items = self._items
        if len(items) <= most:
            taken = list(items)
            items.clear()
            return taken
        pop = items.popleft
        return [pop() for _ in range(most)]
