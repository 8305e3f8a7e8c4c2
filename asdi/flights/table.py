"""The table behind the built-in feed: two weeks of real departures from New York (see data/build_table.py)."""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple


class Airport(NamedTuple):
    icao: str
    latitude: float
    longitude: float


class Row(NamedTuple):
    """A flight. Minutes count from 00:00 UTC of its day and can pass 24 hours; no time in the air means cancelled."""

    day: int
    minute: int
    delay: int
    air_minutes: int
    number: int
    carrier: str
    aircraft: str
    origin: int
    destination: int


class Table(NamedTuple):
    days: int
    airports: tuple[Airport, ...]
    by_day: tuple[tuple[Row, ...], ...]
    """The flights of each day, by scheduled departure."""


@lru_cache(1)
def load() -> Table:
    content = zlib.decompress((files("asdi.flights") / "data" / "flights.dat").read_bytes())
    end = content.index(b"\n")
    header = json.loads(content[:end])
    rows = header["rows"]
    columns: list[array[int]] = []
    at = end + 1
    for _ in range(9):
        # Each column is all its low bytes, then all its high bytes.
        interleaved = bytearray(2 * rows)
        interleaved[0::2] = content[at : at + rows]
        interleaved[1::2] = content[at + rows : at + 2 * rows]
        values = array("h", bytes(interleaved))
        if sys.byteorder == "big":
            values.byteswap()
        columns.append(values)
        at += 2 * rows
    by_day: list[list[Row]] = [[] for _ in range(header["days"])]
    carriers, types = header["carriers"], header["types"]
    for day, minute, delay, air, number, carrier, aircraft, origin, destination in zip(*columns, strict=True):
        by_day[day].append(
            Row(day, minute, delay, air, number, carriers[carrier], types[aircraft], origin, destination)
        )
    airports = tuple(Airport(*airport) for airport in header["airports"])
    return Table(header["days"], airports, tuple(tuple(day) for day in by_day))
