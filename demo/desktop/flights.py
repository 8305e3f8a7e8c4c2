"""What the window knows of the flights, from the packets it was handed. Pure: times are given in.

A flight is reported about once a minute. Between two reports it is drawn where it would be if it went on as it did
between the last two, so that it moves; at any speed of the feed, since only arrival times are looked at.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from xmlswitch import MalformedDocument, parse_document

MAX_FLIGHTS = 5_000
"""A hostile or a very large feed: the flight that was heard of longest ago goes."""
TRAIL = 12
"""Reports that are remembered of a flight."""
ENDED = {"arrived", "cancelled"}
_ANGLE = re.compile(r"(\d{2,3})(\d{2})(\d{2})?([NSEW])")


@dataclass(slots=True)
class Flight:
    callsign: str
    latitude: float = math.nan
    longitude: float = math.nan
    altitude: int | None = None
    """Hundreds of feet."""
    knots: int | None = None
    aircraft: str = ""
    origin: str = ""
    destination: str = ""
    heard_at: float = 0.0
    placed_at: float = 0.0
    drift: tuple[float, float] = (0.0, 0.0)
    """Degrees of latitude and longitude per second, from the last two reports."""
    interval: float = 0.0
    """Seconds between them."""
    trail: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=TRAIL))

    @property
    def is_placed(self) -> bool:
        return not math.isnan(self.latitude)

    @property
    def heading(self) -> float | None:
        """Degrees from north, clockwise; None until a second report shows it."""
        north, east = self.drift[0], self.drift[1] * math.cos(math.radians(self.latitude))
        return math.degrees(math.atan2(east, north)) % 360 if north or east else None

    def at(self, now: float) -> tuple[float, float]:
        """Its estimated position now; it is not extrapolated for longer than two report intervals."""
        ahead = min(max(0.0, now - self.placed_at), 2 * self.interval)
        return self.latitude + self.drift[0] * ahead, self.longitude + self.drift[1] * ahead

    def place(self, latitude: float, longitude: float, now: float) -> None:
        if self.is_placed and now > self.placed_at:
            self.interval = now - self.placed_at
            self.drift = (
                (latitude - self.latitude) / self.interval,
                (longitude - self.longitude) / self.interval,
            )
        self.latitude, self.longitude, self.placed_at = latitude, longitude, now
        self.trail.append((latitude, longitude))


class Flights:
    """By callsign, the one heard of longest ago first."""

    def __init__(self) -> None:
        self.all: dict[str, Flight] = {}
        self.unreadable = 0
        """Packets that are no XML: shown, not hidden."""

    def take(self, payload: bytes, now: float) -> Flight | None:
        """What a packet says of a flight; None when it says nothing of one."""
        try:
            root = parse_document(payload)
        except MalformedDocument:
            self.unreadable += 1
            return None
        callsign = _text(root, "id")
        if root.tag != "flight" or not callsign:
            return None
        leg = root.find("flightleg")
        flight = self.all.pop(callsign, None) or Flight(callsign)
        flight.heard_at = now
        if leg is not None and leg.get("status") in ENDED:
            return flight  # and it stays out
        self.all[callsign] = flight
        if len(self.all) > MAX_FLIGHTS:
            del self.all[next(iter(self.all))]
        flight.aircraft = _text(root, "aircraft") or flight.aircraft
        if leg is not None:
            _read_leg(flight, leg, now)
        return flight

    def forget(self, before: float) -> None:
        """Drop what was last heard of before this time: it has landed, or is no longer asked for."""
        for callsign in [flight.callsign for flight in self.all.values() if flight.heard_at < before]:
            del self.all[callsign]

    def clear(self) -> None:
        self.all.clear()

    def placed(self) -> list[Flight]:
        return [flight for flight in self.all.values() if flight.is_placed]


def _read_leg(flight: Flight, leg: Any, now: float) -> None:
    flight.origin = _text(leg, "departure") or flight.origin
    flight.destination = _text(leg, "destination") or flight.destination
    altitude, speed = _text(leg, "altitude"), _text(leg, "speed")
    if altitude.isdecimal() and len(altitude) <= 4:
        flight.altitude = int(altitude)
    if speed.isdecimal() and len(speed) <= 4:
        flight.knots = int(speed)
    latitude, longitude = angle(_text(leg, "coordinate/lat")), angle(_text(leg, "coordinate/lon"))
    if latitude is not None and longitude is not None and abs(latitude) <= 90:
        flight.place(latitude, longitude, now)


def angle(text: str) -> float | None:
    """Degrees from the feed's DDMMN or DDDMMSSW; None for anything else."""
    match = _ANGLE.fullmatch(text)
    if match is None:
        return None
    degrees, minutes, seconds, side = match.groups()
    value = int(degrees) + int(minutes) / 60 + int(seconds or 0) / 3_600
    return -value if side in "SW" else value


def _text(element: Any, path: str) -> str:
    found = element.find(path)
    return (found.text or "").strip()[:64] if found is not None else ""
