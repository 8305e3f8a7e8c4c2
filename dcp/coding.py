"""Arithmetic for repairs: sums of byte strings over GF(256), with coefficients that both ends know.

A repair is the sum of its members, each times a coefficient. The coefficient of a member is an element of a Cauchy
matrix, given by the key of the repair (its row) and the AN of the member (its column): any square part of such a matrix
can be inverted, so k repairs make up for any k lost members, as long as their columns differ. Columns are ANs modulo
191, a prime: members of a window differ however a stream steps through its numbers, unless by a multiple of 191.

`bytes.translate` multiplies and `int` adds: no library is as fast for packets of a few hundred bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ROWS: Final = 64
"""Keys are 0 to ROWS - 1."""
COLUMNS: Final = 191

_POLYNOMIAL: Final = 0x11D


def _tables() -> tuple[list[int], list[int]]:
    exp, log = [0] * 511, [0] * 256
    value = 1
    for power in range(255):
        exp[power] = exp[power + 255] = value
        log[value] = power
        value <<= 1
        if value & 0x100:
            value ^= _POLYNOMIAL
    return exp, log


_EXP, _LOG = _tables()

# Logarithms translated by a shifted table of powers: one by one, the 65,536 products would cost every start 10 ms.
TIMES: Final[list[bytes]] = [
    bytes(256) if a == 0 else b"\0" + bytes(_LOG[1:]).translate(bytes(_EXP[_LOG[a] : _LOG[a] + 256]))
    for a in range(256)
]
"""TIMES[a][b] is a times b, and `data.translate(TIMES[a])` is a times each byte."""
INVERSE: Final[list[int]] = [0, *(_EXP[255 - _LOG[a]] for a in range(1, 256))]


def coefficient(key: int, an: int) -> int:
    """Of the member whose last AN is `an` in the repair with this key. Never 0."""
    return INVERSE[key ^ (ROWS + an % COLUMNS)]


def combined(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """The sum of factor times bytes; shorter ones count as padded with zeros."""
    total, size = 0, 0
    for factor, data in parts:
        total ^= int.from_bytes(data if factor == 1 else data.translate(TIMES[factor]), "little")
        if len(data) > size:
            size = len(data)
    return total.to_bytes(size, "little")
