"""The links that a packet goes to, while they are being found."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, count

SHORT = 128  # links, by slot
_TOO_MANY = 1 << SHORT
_WIDE = 16_384
_FEW_BITS = 16  # that are found by taking one after the other
_DENSE = 14  # when one bit in so many is set, all of them are gone through at once
_DIGITS = bytes.maketrans(b"01", b"\0\1")


class Few:
    """An answer with few links: a mask of those still `left`, and an end (`done`) when there is none."""

    __slots__ = ("_wanted", "done", "left")
    is_short = True
    is_wide = False

    def __init__(self, wanted: int) -> None:
        self._wanted = self.left = wanted
        self.done = not wanted

    def all_of(self, links: Iterable[int]) -> None:
        left = self.left
        for link in links:
            left &= ~(1 << link)
        self.left = left
        self.done = not left

    def mask(self, links: int) -> None:
        self.left &= ~links
        self.done = not self.left

    def take(self, links: int | list[int]) -> None:
        """Links in the form that is best for this answer."""
        self.mask(links if isinstance(links, int) else mask_of(links))

    def misses(self, links: Iterable[int]) -> bool:
        """Whether one of the links is not known to match yet."""
        return any(self.left >> link & 1 for link in links)

    @property
    def found(self) -> int:
        return self._wanted & ~self.left


class Many:
    """An answer with more: all links that are found are collected, some more than once.

    A wide one has so many that a mask of some of them is better not made.
    """

    __slots__ = ("_found", "_mask", "_wanted", "is_wide")
    is_short = False
    done = False
    left = -1

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.is_wide = wanted.bit_length() > _WIDE
        self._mask = 0
        self._found: list[int] = []

    def all_of(self, links: Iterable[int]) -> None:
        self._found += links

    def mask(self, links: int) -> None:
        self._mask |= links

    def take(self, links: int | list[int]) -> None:
        if isinstance(links, int):
            self._mask |= links
        else:
            self._found += links

    def misses(self, links: Iterable[int]) -> bool:
        return True

    @property
    def found(self) -> int:
        return (self._mask | mask_of(self._found)) & self._wanted


Answer = Few | Many


def answer_for(wanted: int) -> Answer:
    """An answer about these links."""
    return Few(wanted) if wanted < _TOO_MANY else Many(wanted)


def mask_of(links: Iterable[int]) -> int:
    """Bits for numbers, at a cost that grows with both and not with their product."""
    links = list(links)
    if len(links) < 3:
        return sum({1 << link for link in links})
    buffer = bytearray(max(links) // 8 + 1)
    for link in links:
        buffer[link >> 3] |= 1 << (link & 7)
    return int.from_bytes(buffer, "little")


def bits_of(mask: int) -> list[int]:
    """The numbers whose bits are set: what `mask_of` was given."""
    found: list[int] = []
    number = mask.bit_count()
    if number > _FEW_BITS:
        if number * _DENSE > mask.bit_length():
            return [*compress(count(), bin(mask)[:1:-1].encode().translate(_DIGITS))]
        text = bin(mask)[:1:-1]
        at = text.find("1")
        while at >= 0:
            found.append(at)
            at = text.find("1", at + 1)
        return found
    while mask:  # from the top: the integer gets shorter as it goes
        at = mask.bit_length() - 1
        found.append(at)
        mask ^= 1 << at
    return found
