"""The links that a packet goes to, while they are being found."""

from __future__ import annotations

from collections.abc import Iterable

_SHORT = 128


class Answer:
    """Few links: a mask of those still `left`, and an end (`done`) when there is none. Many: all are collected."""

    __slots__ = ("_found", "_mask", "_wanted", "done", "is_short", "left")

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.is_short = wanted.bit_length() <= _SHORT
        self.left = wanted if self.is_short else -1
        self.done = not wanted
        self._mask = 0
        self._found: list[int] = []

    def one(self, link: int) -> None:
        if self.is_short:
            self.left &= ~(1 << link)
            self.done = not self.left
        else:
            self._found.append(link)

    def all_of(self, links: Iterable[int]) -> None:
        if self.is_short:
            left = self.left
            for link in links:
                left &= ~(1 << link)
            self.left = left
            self.done = not left
        else:
            self._found += links

    def mask(self, links: int) -> None:
        if self.is_short:
            self.left &= ~links
            self.done = not self.left
        else:
            self._mask |= links

    def take(self, links: int | list[int]) -> None:
        """Links in the form that is best for this answer: a mask for few, else a list."""
        if isinstance(links, int):
            self.mask(links)
        else:
            self._found += links

    def misses(self, links: Iterable[int]) -> bool:
        """Whether one of the links is not known to match yet."""
        return not self.is_short or any(self.left >> link & 1 for link in links)

    @property
    def found(self) -> int:
        if self.is_short:
            return self._wanted & ~self.left
        return (self._mask | mask_of(self._found)) & self._wanted


def mask_of(links: Iterable[int]) -> int:
    """Bits for numbers, at a cost that grows with both and not with their product."""
    links = list(links)
    if len(links) < 3:
        return sum({1 << link for link in links})
    buffer = bytearray(max(links) // 8 + 1)
    for link in links:
        buffer[link >> 3] |= 1 << (link & 7)
    return int.from_bytes(buffer, "little")
