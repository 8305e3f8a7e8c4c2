"""Which flights each client knows of, from what it was handed: the picture that a radar screen would draw. Pure."""

from __future__ import annotations

from typing import Any

from demo.check.truth import Fact
from xmlswitch import Query

UPDATE_SECONDS = 60
"""The feed speaks of a flight once a minute of its own time."""
KEEP_SECONDS = 5 * UPDATE_SECONDS
KEEP_SPARSE_SECONDS = 50 * 60
"""Boundary messages arrive every 45 minutes: a client that gets no others extrapolates for this long."""
MAX_FLIGHTS = 4_000


class Flight:
    """What one client knows of one flight."""

    __slots__ = (
        "aircraft", "altitude", "callsign", "destination", "fact", "keep", "knots", "lat", "lon", "number", "origin",
        "seen",
    )  # fmt: skip

    def __init__(self, callsign: str) -> None:
        self.callsign = callsign
        self.lat: float | None = None
        self.lon: float | None = None
        self.altitude = 0
        self.knots = 0
        self.aircraft = self.origin = self.destination = ""
        self.number = 0
        self.seen = 0.0
        self.keep = KEEP_SECONDS
        self.fact: Fact | None = None

    def row(self) -> list[Any]:
        return [
            self.callsign,
            self.lat,
            self.lon,
            self.altitude,
            self.knots,
            self.origin,
            self.destination,
            self.aircraft,
            round(self.seen, 1),
        ]


class Air:
    """One picture for each client."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._pictures: dict[str, dict[str, Flight]] = {}
        self._gone: dict[str, list[tuple[int, str]]] = {}
        self.number = 0
        """Grows with every change: what is newer than a number is what a page has not seen."""

    def saw(self, client: str, fact: Fact) -> None:
        document = fact.document()
        if document.tag != "flight":
            return
        callsign = document.findtext("id") or ""
        leg = document.find("flightleg")
        if not callsign or leg is None:
            return
        picture = self._pictures.setdefault(client, {})
        flight = picture.get(callsign)
        if leg.get("status") == "arrived":
            if flight is not None:
                self._drop(client, callsign)
            return
        if flight is None:
            if len(picture) >= MAX_FLIGHTS:
                return
            flight = picture[callsign] = Flight(callsign)
        self._update(flight, document, leg)
        self.number += 1
        flight.number, flight.fact, flight.seen = self.number, fact, fact.due_at

    def _update(self, flight: Flight, document: Any, leg: Any) -> None:
        flight.aircraft = document.findtext("aircraft") or flight.aircraft
        flight.origin = leg.findtext("departure") or flight.origin
        flight.destination = leg.findtext("destination") or flight.destination
        route = leg.findtext("route")
        if route and ".." in route:
            flight.origin, flight.destination = route.split("..")[0], route.split("..")[-1]
        altitude, speed = leg.findtext("altitude"), leg.findtext("speed")
        if altitude:
            flight.altitude = int(altitude)
        if speed and leg.get("status") != "planned":
            flight.knots = int(speed)
        place = leg.find("coordinate")
        if place is None:
            place = leg.find("boundary/coordinate")
            if place is not None and flight.lat is None:
                flight.keep = KEEP_SPARSE_SECONDS
            elif place is not None:
                return  # the point ahead where it will enter the next centre: we know better where it is
        else:
            flight.keep = KEEP_SECONDS
        if place is not None:
            flight.lat, flight.lon = degrees(place.findtext("lat")), degrees(place.findtext("lon"))

    def switched(self, client: str, query: Query) -> None:
        """What the new query would not have brought goes from the picture."""
        for callsign, flight in list(self._pictures.get(client, {}).items()):
            if flight.fact is not None and not flight.fact.matches(query):
                self._drop(client, callsign)

    def forget(self, client: str) -> None:
        self._pictures.pop(client, None)
        self._gone.pop(client, None)

    def sweep(self, now: float) -> None:
        """Flights that nothing was heard of for long."""
        for client, picture in self._pictures.items():
            old = [c for c, flight in picture.items() if (now - flight.seen) * self._speed > flight.keep]
            for callsign in old:
                self._drop(client, callsign)

    def _drop(self, client: str, callsign: str) -> None:
        self._pictures[client].pop(callsign, None)
        self.number += 1
        gone = self._gone.setdefault(client, [])
        gone.append((self.number, callsign))
        del gone[:-MAX_FLIGHTS]

    def count(self, client: str) -> int:
        """Flights with a known place."""
        return sum(flight.lat is not None for flight in self._pictures.get(client, {}).values())

    def changes(self, client: str, after: int) -> tuple[list[list[Any]], list[str]]:
        """Rows that changed after a number, and callsigns that went."""
        rows = [f.row() for f in self._pictures.get(client, {}).values() if f.number > after and f.lat is not None]
        return rows, [callsign for number, callsign in self._gone.get(client, []) if number > after]


def degrees(text: str | None) -> float | None:
    """`4006N` or `07651W` in degrees."""
    if not text or len(text) < 5 or not text[:-1].isdecimal():
        return None
    value = int(text[:-3]) + int(text[-3:-1]) / 60
    return round(-value if text[-1] in "SW" else value, 3)
