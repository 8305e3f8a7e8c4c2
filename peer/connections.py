"""A bounded number of TCP connections, of which the ones that say nothing give way to new ones.

A plain limit lets a stranger with a few idle connections shut everybody else out. Here a newcomer takes the place of
the connection that has waited longest without a whole request; only connections that are being answered are never cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Seat:
    """One connection's place. `is_busy`: it has asked something, and keeps its place until it is answered."""

    __slots__ = ("_scope", "is_busy")

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self.is_busy = False

    def vacate(self) -> None:
        self._scope.cancel()


class Connections:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seats: dict[Seat, None] = {}
        self.refused = 0
        """Newcomers for whom there was no place: everybody was being answered."""
        self.cut = 0
        """Silent connections that gave way."""

    def __len__(self) -> int:
        return len(self._seats)

    @contextmanager
    def seat(self) -> Iterator[Seat | None]:
        """A place for the block, or None. The block ends early, silently, when its place is given away."""
        if len(self._seats) >= self._limit and not self._make_room():
            self.refused += 1
            yield None
            return
        with trio.CancelScope() as scope:
            seat = Seat(scope)
            self._seats[seat] = None
            try:
                yield seat
            finally:
                self._seats.pop(seat, None)

    def _make_room(self) -> bool:
        silent = next((seat for seat in self._seats if not seat.is_busy), None)
        if silent is None:
            return False
        del self._seats[silent]
        silent.vacate()
        self.cut += 1
        return True
