"""What a text means to a column of the index."""

from __future__ import annotations

from typing import Any

from xmlswitch.index.ladders import rank
from xmlswitch.query.numerals import to_number

# Its value, that as a number, the buckets of what waits for it, and its place among thresholds.
Look = tuple[str, float, tuple[Any, ...], float]


def look_of(value: str) -> Look:
    """What a value means where nothing waits for it."""
    number = to_number(value)
    return value, number, (), rank(number)
