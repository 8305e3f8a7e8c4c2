"""Where a flight of the built-in feed is at a given moment: great circles, climb, cruise and descent."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from asdi.flights.table import Airport, load

_NAUTICAL_MILES_A_RADIAN = 3440.065
# Speed at either end of a flight, as a share of cruising speed; in between it rises and falls evenly.
_END_SPEED = 0.35
_FACILITY_STEPS = 64
# The centres, about where their radar rooms or the middle of their airspace are. The nearest one has the flight.
_CENTRES = {
    "KZBW": (42.7, -71.5), "KZNY": (40.8, -73.1), "KZDC": (39.1, -77.5), "KZOB": (41.3, -82.2), "KZTL": (33.4, -84.3),
    "KZJX": (30.7, -81.9), "KZMA": (25.8, -80.3), "KZID": (39.7, -86.3), "KZAU": (41.8, -88.3), "KZMP": (44.6, -93.1),
    "KZKC": (38.9, -94.8), "KZME": (35.1, -90.0), "KZFW": (32.8, -97.0), "KZHU": (29.9, -95.3), "KZAB": (35.2, -106.6),
    "KZDV": (40.2, -105.0), "KZLC": (40.8, -112.0), "KZSE": (47.3, -122.2), "KZOA": (37.5, -122.0),
    "KZLA": (34.6, -118.1), "PAZA": (61.2, -149.8), "KZAK": (28.0, -143.0), "KZWY": (30.0, -68.0),
    "TJZS": (18.4, -66.0),
}  # fmt: skip
_CONSONANTS = "BCDFGHJKLMNPRSTVWZ"
_VOWELS = "AEIOUY"
Vector = tuple[float, float, float]


def _unit(latitude: float, longitude: float) -> Vector:
    lat, lon = math.radians(latitude), math.radians(longitude)
    return (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))


_CENTRE_VECTORS = [(name, _unit(*place)) for name, place in _CENTRES.items()]


def _facility(at: Vector) -> str:
    return max(_CENTRE_VECTORS, key=lambda centre: sum(a * b for a, b in zip(at, centre[1], strict=True)))[0]


def _fix(at: Vector) -> str:
    """A pronounceable name for the two-degree square that a point lies in, so that routes share fixes."""
    latitude = math.degrees(math.asin(at[2]))
    longitude = math.degrees(math.atan2(at[1], at[0]))
    mixed = (int(latitude // 2) * 200 + int(longitude // 2) + 100_000) * 2_654_435_761 % (1 << 32)
    letters = []
    for at_letter in range(5):
        alphabet = _VOWELS if at_letter % 2 else _CONSONANTS
        mixed, letter = divmod(mixed, len(alphabet))
        letters.append(alphabet[letter])
    return "".join(letters)


class Route:
    """The great circle between two airports, with what every flight along it shares."""

    def __init__(self, origin: Airport, destination: Airport) -> None:
        self.origin = origin.icao
        self.destination = destination.icao
        self._from = _unit(origin.latitude, origin.longitude)
        self._to = _unit(destination.latitude, destination.longitude)
        self._angle = math.acos(max(-1.0, min(1.0, sum(a * b for a, b in zip(self._from, self._to, strict=True)))))
        self._sine = math.sin(self._angle)
        self.miles = self._angle * _NAUTICAL_MILES_A_RADIAN
        # Found when a flight first gets there: a root must start at once, and most routes are not flown right now.
        self._facilities: list[str | None] = [None] * (_FACILITY_STEPS + 1)
        fixes = [_fix(self._at(part / 7)) for part in range(1, 7)]
        self.fixes = list(dict.fromkeys(fixes))
        airway = f"J{int(self.miles) % 190 + 1}"
        middle = f"{self.fixes[0]}.{airway}.{self.fixes[-1]}" if len(self.fixes) > 1 else self.fixes[0]
        self.text = f"{self.origin}..{middle}..{self.destination}"
        # Even thousands westbound, odd eastbound; short hops stay low.
        level = int(min(390, 180 + self.miles / 4)) // 20 * 20
        self.cruise = level + (10 if destination.longitude > origin.longitude else 0)

    def _at(self, part: float) -> Vector:
        a = math.sin((1 - part) * self._angle) / self._sine
        b = math.sin(part * self._angle) / self._sine
        f, t = self._from, self._to
        return (a * f[0] + b * t[0], a * f[1] + b * t[1], a * f[2] + b * t[2])

    def facility(self, part: float) -> str:
        step = int(part * _FACILITY_STEPS)
        found = self._facilities[step]
        if found is None:
            found = self._facilities[step] = _facility(self._at(step / _FACILITY_STEPS))
        return found

    def position(self, part: float) -> str:
        """`ddmmN/dddmmW` after this part of the way."""
        x, y, z = self._at(part)
        latitude = round(math.degrees(math.asin(z)) * 60)
        longitude = round(math.degrees(math.atan2(y, x)) * 60)
        north = "N" if latitude >= 0 else "S"
        east = "E" if longitude >= 0 else "W"
        lat, lon = abs(latitude), abs(longitude)
        return f"{lat // 60:02d}{lat % 60:02d}{north}/{lon // 60:03d}{lon % 60:02d}{east}"


class Profile(NamedTuple):
    """How a flight of this length gets there: minutes of climb and descent, and cruising speed in knots."""

    minutes: float
    climb: float
    descent: float
    knots: float

    def part(self, minute: float) -> float:
        """Which part of the way lies behind after this many minutes."""
        lost = (1 - _END_SPEED) / 2
        whole = self.minutes - lost * (self.climb + self.descent)
        if minute < self.climb:
            flown = minute * (_END_SPEED + lost * minute / self.climb)
        elif minute <= self.minutes - self.descent:
            flown = minute - lost * self.climb
        else:
            left = max(0.0, self.minutes - minute)
            flown = whole - left * (_END_SPEED + lost * left / self.descent)
        return min(1.0, max(0.0, flown / whole))

    def share(self, minute: float) -> float:
        """How high, between 0 (on the ground) and 1 (cruising)."""
        return min(1.0, minute / self.climb, max(0.0, self.minutes - minute) / self.descent)


def is_oceanic(origin: int, destination: int) -> bool:
    """Whether the way leaves the continent: Alaska, Hawaii and the Caribbean do not begin with K."""
    airports = load().airports
    return not (airports[origin].icao.startswith("K") and airports[destination].icao.startswith("K"))


@lru_cache(4096)
def route(origin: int, destination: int) -> Route:
    airports = load().airports
    return Route(airports[origin], airports[destination])


@lru_cache(65536)
def profile(miles: float, minutes: int) -> Profile:
    climb, descent = min(20.0, minutes * 0.3), min(25.0, minutes * 0.35)
    whole = minutes - (1 - _END_SPEED) / 2 * (climb + descent)
    return Profile(minutes, climb, descent, min(620.0, miles / whole * 60))
