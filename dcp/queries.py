"""What dcp knows about queries: an opaque token, and a few questions that its owner answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

EVERYTHING: Final = b""
"""The token that every stream understands: all packets."""

ALL_SLOTS: Final = -1
"""A mask with every bit set: wanted by every child."""


class QueryPolicy(Protocol):
    """The owner's knowledge of its query language. `peer` gives one that knows XPath.

    Slots are small integers, one for each (child, epoch) whose query is narrower than everything; `route` answers for
    all of them at once with a bit mask, in one pass over the packet.
    """

    def check(self, query: bytes) -> str | None:
        """None when the token is a query; else, in a few words, why not. The token comes from the network."""

    def matches(self, query: bytes, payload: bytes) -> bool: ...

    def covers(self, outer: bytes, inner: bytes) -> bool:
        """Sound: when it says yes, no packet matches `inner` and not `outer`."""

    def open_slot(self, slot: int, query: bytes) -> None: ...

    def close_slot(self, slot: int) -> None: ...

    def route(self, payload: bytes) -> int:
        """The mask of the open slots whose query matches."""

    # A long query crosses a link in parts (`query_parts`).

    nothing: bytes | None
    """A short query that matches nothing, for opening a link; None: there is none."""

    def parts(self, old: bytes | None, new: bytes) -> list[bytes] | None:
        """What makes an old query (None: nothing) a new one, in parts of a datagram each. None: it is short enough."""

    def read_part(self, part: bytes) -> Any:
        """A part from the network, read; None when it is none."""

    def joined(self, old: bytes | None, parts: list[Any]) -> bytes | None:
        """The new query, of parts that `read_part` gave; None when they don't belong to the old one."""


class PredicatePolicy:
    """Queries by two functions, each slot asked in turn: for tests, for small uses, and for "everything"."""

    def __init__(
        self,
        matches: Callable[[bytes, bytes], bool] = lambda query, payload: True,
        covers: Callable[[bytes, bytes], bool] = lambda outer, inner: outer == inner,
    ) -> None:
        self._matches = matches
        self._covers = covers
        self._slots: dict[int, bytes] = {}
        self.nothing: bytes | None = None

    def parts(self, old: bytes | None, new: bytes) -> list[bytes] | None:
        return None

    def read_part(self, part: bytes) -> Any:
        return None

    def joined(self, old: bytes | None, parts: list[Any]) -> bytes | None:
        return None

    def check(self, query: bytes) -> str | None:
        return None

    def matches(self, query: bytes, payload: bytes) -> bool:
        return query == EVERYTHING or self._matches(query, payload)

    def covers(self, outer: bytes, inner: bytes) -> bool:
        return outer in (EVERYTHING, inner) or (inner != EVERYTHING and self._covers(outer, inner))

    def open_slot(self, slot: int, query: bytes) -> None:
        self._slots[slot] = query

    def close_slot(self, slot: int) -> None:
        del self._slots[slot]

    def route(self, payload: bytes) -> int:
        mask = 0
        for slot, query in self._slots.items():
            if self._matches(query, payload):
                mask |= 1 << slot
        return mask
