"""A cache that is bounded in bytes: what strangers put in decides how large each entry is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """The entries used last, as many as fit. The caller says how many bytes an entry takes."""

    __slots__ = ("_entries", "_max_bytes", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep an entry, unless it alone is more than the cache may hold."""
        known = self._entries.pop(key, None)
        if known is not None:
            self.bytes -= known[1]
        if size > self._max_bytes:
            return
        self._entries[key] = value, size
        self.bytes += size
        while self.bytes > self._max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed
