"""Serial numbers: 64 bits inside, 32 on the wire (RFC 1982).

An AN on the wire is the low half of a 64-bit position. It is extended by the position nearest to a reference that the
reader holds, which is right as long as the two are less than 2**31 apart. Senders stay within `QUARTER` of what the
receiver has confirmed, so that even a reference that lags is far from the edge.
"""

from __future__ import annotations

MASK = 0xFFFF_FFFF
HALF = 1 << 31
QUARTER = 1 << 30
MAX_POSITION = (1 << 63) - 1


def extend(wire: int, reference: int) -> int:
    """The 64-bit position nearest to `reference` whose low 32 bits are `wire`; may be negative near zero."""
    d = (wire - reference) & MASK
    return reference + (d - (1 << 32) if d >= HALF else d)
