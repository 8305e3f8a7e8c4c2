"""How much of a store each source holds, and which source holds the most: every step in constant time. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Shares(Generic[T]):
    """Invariants: an item belongs to one source; `_with` lists every source under its count; `_most` is the highest.

    Counts change by one at a time, so the highest is found without a search: a stranger who fills a store must not
    make every store of others expensive.
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[T, None]] = {}
        self._with: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._items)

    def count(self, source: str) -> int:
        return len(self._items.get(source, ()))

    def of(self, source: str) -> list[T]:
        return list(self._items.get(source, ()))

    def largest(self) -> str | None:
        """The source that holds the most; if several do, the one that has held that many for the longest."""
        return next(iter(self._with[self._most])) if self._most else None

    def add(self, source: str, item: T) -> None:
        items = self._items.setdefault(source, {})
        self._move(source, len(items), len(items) + 1)
        items[item] = None

    def remove(self, source: str, item: T) -> None:
        items = self._items[source]
        del items[item]
        if not items:
            del self._items[source]
        self._move(source, len(items) + 1, len(items))

    def _move(self, source: str, before: int, after: int) -> None:
        if before:
            del self._with[before][source]
            if not self._with[before]:
                del self._with[before]
        if after:
            self._with.setdefault(after, {})[source] = None
        if after > self._most or self._most not in self._with:
            self._most = after

    def check_invariants(self) -> None:
        """For tests."""
        assert self._most == max(map(len, self._items.values()), default=0)
        listed = {source: count for count, sources in self._with.items() for source in sources}
        assert listed == {source: len(items) for source, items in self._items.items()}
