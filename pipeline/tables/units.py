"""The short texts of ASDI in degrees, feet, knots and UTC. Pure; what can't be read is None."""

from __future__ import annotations

import re
from functools import lru_cache

_CACHED = 16_384
_HALF_DAY = 43_200
_DAY = 86_400
_COORDINATE = re.compile(r"(\d{2,3})(\d\d)(\d\d)?([NSEW])")


@lru_cache(_CACHED)
def degrees(text: str) -> float | None:
    """`4928N` or `492830N` in degrees, south and west negative."""
    found = _COORDINATE.fullmatch(text)
    if found is None:
        return None
    whole, minutes, seconds, hemisphere = found.groups()
    value = int(whole) + int(minutes) / 60 + int(seconds or 0) / 3600
    return -value if hemisphere in "SW" else value


@lru_cache(_CACHED)
def feet(text: str) -> int | None:
    """`290`, `241C`, `350T`, `OTP/085`, `ABV/060`; the lower end of a block (`200B250`)."""
    digits = re.search(r"\d+", text)
    return int(digits[0]) * 100 if digits else None


@lru_cache(_CACHED)
def speed(text: str) -> tuple[int | None, float | None]:
    """Knots and Mach: one of them, or neither (`SC`)."""
    if text[:1] == "M" and text[1:].isdigit():
        return None, int(text[1:]) / 100
    return (int(text), None) if text.isdigit() else (None, None)


@lru_cache(_CACHED)
def aircraft(text: str) -> tuple[str | None, str | None]:
    """Type and equipment of `H/A332/W`."""
    parts = text.split("/")
    equipment = parts.pop() if len(parts) > 1 and len(parts[-1]) == 1 else None
    return parts[-1] or None, equipment


@lru_cache(_CACHED)
def ends(route: str) -> tuple[str | None, str | None]:
    """Departure and destination of a filed route: `KJFK..MERIT..KBOS/0100`. None where a route has no such end."""
    path = route.partition("/")[0] if re.search(r"/\d{4}$", route) else route
    points = [point for point in path.split(".") if point]
    if len(points) < 2:
        return None, None
    return _airport(points[0]), _airport(points[-1])


def _airport(text: str) -> str | None:
    return text if re.fullmatch(r"[A-Z0-9]{3,4}", text) else None


def moment(hhmm: str, near: int) -> int | None:
    """The Unix time in microseconds of `1830` (or `P1830`) that is nearest to a Unix time in seconds."""
    digits = hhmm[-4:]
    if len(digits) != 4 or not digits.isdigit():
        return None
    second = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (near + (second - near + _HALF_DAY) % _DAY - _HALF_DAY) * 1_000_000
