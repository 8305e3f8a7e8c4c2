"""Strings to numbers and back, by XPath 1.0 and nothing else.

libxml2 takes `2.9e2` for a number, rounds about one decimal in a hundred otherwise than IEEE 754 asks, and prints
numbers with 15 digits. Python's `float` takes `+290`, `inf` and `1_000`. Two hops that disagree about a packet would
lose it, so this one converter is used by the index and by every evaluation.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_NUMERAL = re.compile(r"[ \t\r\n]*-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t\r\n]*")
NUMERAL_STARTS = " \t\r\n-.0123456789"  # the first characters of what may be one
NAN = math.nan


def to_number(text: str) -> float:
    """number(string) of XPath 1.0, section 4.4: the nearest double, or NaN for anything that is not a numeral."""
    return float(text) if _NUMERAL.fullmatch(text) else NAN


def to_string(number: float) -> str:
    """string(number) of XPath 1.0, section 4.2: no exponent, as many digits as tell this double from all others."""
    if number != number:
        return "NaN"
    if number in (math.inf, -math.inf):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    text = format(Decimal(repr(number)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def round_half_up(number: float) -> float:
    """round() of XPath 1.0: the nearest whole number, halves towards positive infinity."""
    if number != number or math.isinf(number) or abs(number) >= 2**52:
        return number
    floor = math.floor(number)
    return float(floor + 1) if number - floor >= 0.5 else float(floor)
