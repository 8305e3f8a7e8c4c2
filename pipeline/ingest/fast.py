"""The usual line read in one go: 95 of 100 are positions in plain form.

Everything else, and every line that is unusual in any way, goes through the parser; a test compares the two on both
sides of every border. Here a line costs one regular expression and a few cached texts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pipeline.tables.units import degrees, feet

_CACHED = 65_536
_PLAIN = re.compile(
    rb"([0-9A-Fa-f]{4})(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])([0-5]\d)([0-5]\d)([A-Z0-9]{4})TZ "
    rb"([A-Z0-9]{2,7})(?:/([A-Z0-9]{1,4}))? (\d{2,4}) (\d{1,3})([CT]?) "
    rb"((?:[0-8]\d|90)[0-5]\d[NS])/((?:0\d\d|1[0-7]\d|180)[0-5]\d[EW]) *\r?"
)


_MODES = {b"": b"plain", b"C": b"modec", b"T": b"interim"}


class Plain(NamedTuple):
    """What `asdi.parse`, `asdi.to_xml` and `pipeline.tables.rows` say of such a line."""

    sequence: int
    day: int
    second: int
    facility: str
    flight: str
    xml: bytes
    computer: str | None
    place: tuple[float | None, float | None, int | None, int, None]


def read_plain(line: bytes) -> Plain | None:
    """None for a line that only the parser can read."""
    found = _PLAIN.fullmatch(line)
    if found is None:
        return None
    sequence, day, hour, minute, second, facility, flight, computer, speed, altitude, mode, lat, lon = found.groups()
    identity = b"<id>%b</id>" % flight if computer is None else b'<id computer="%b">%b</id>' % (computer, flight)
    xml = (
        b'<?xml version="1.0"?><flight>%b<flightleg status="active"><speed type="ground">%b</speed>'
        b'<altitude type="reported" mode="%b">%b</altitude><coordinate><lat>%b</lat><lon>%b</lon></coordinate>'
        b"</flightleg></flight>" % (identity, speed, _MODES[mode], altitude, lat, lon)
    )
    return Plain(
        int(sequence, 16),
        int(day),
        int(hour) * 3600 + int(minute) * 60 + int(second),
        _text(facility),
        _text(flight),
        xml,
        None if computer is None else _text(computer),
        (*_place(lat, lon), _feet(altitude), int(speed), None),
    )


@lru_cache(_CACHED)
def _text(value: bytes) -> str:
    return value.decode("ascii")


@lru_cache(_CACHED)
def _place(latitude: bytes, longitude: bytes) -> tuple[float | None, float | None]:
    return degrees(latitude.decode("ascii")), degrees(longitude.decode("ascii"))


@lru_cache(_CACHED)
def _feet(altitude: bytes) -> int | None:
    return feet(altitude.decode("ascii"))
