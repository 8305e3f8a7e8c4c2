"""A root's time stamp in a packet: a processing instruction behind the root element, which no query sees.

Roots stamp at different moments, so their copies of a packet differ only in the stamp; anything that compares
packets compares them without it.
"""

from __future__ import annotations

import re

STAMP_BYTES = 48
"""What a stamp adds at most: with it a packet must still fit."""

_STAMP = re.compile(rb"<\?skymesh-sent (\d{1,12}\.\d{6})\?>\Z")


def stamp(payload: bytes, now: float) -> bytes:
    """The packet with the Unix time at which it was sent."""
    return payload + b"<?skymesh-sent %.6f?>" % now


def stamp_of(payload: bytes) -> float | None:
    found = _STAMP.search(payload, max(0, len(payload) - STAMP_BYTES))
    return float(found.group(1)) if found else None


def strip_stamp(payload: bytes) -> bytes:
    found = _STAMP.search(payload, max(0, len(payload) - STAMP_BYTES))
    return payload[: found.start()] if found else payload
