"""How many flights each client knows of, from what it was handed. Pure. (The page draws them: `flights.js`.)"""

from __future__ import annotations

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

    __slots__ = ("fact", "has_place", "keep", "seen")

    def __init__(self) -> None:
        self.has_place = False
        self.seen = 0.0
        self.keep = KEEP_SECONDS
        self.fact: Fact | None = None


class Air:
    """One picture for each client."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._pictures: dict[str, dict[str, Flight]] = {}

    def saw(self, client: str, fact: Fact) -> None:
        document = fact.document()
        if document.tag != "flight":
            return
        callsign = document.findtext("id") or ""
        leg = document.find("flightleg")
        if not callsign or leg is None:
            return
        picture = self._pictures.setdefault(client, {})
        if leg.get("status") == "arrived":
            picture.pop(callsign, None)
            return
        flight = picture.get(callsign)
        if flight is None:
            if len(picture) >= MAX_FLIGHTS:
                return
            flight = picture[callsign] = Flight()
        flight.fact, flight.seen = fact, fact.due_at
        if leg.find("coordinate") is not None:
            flight.has_place, flight.keep = True, KEEP_SECONDS
        elif leg.find("boundary/coordinate") is not None and not flight.has_place:
            flight.has_place, flight.keep = True, KEEP_SPARSE_SECONDS

    def switched(self, client: str, query: Query) -> None:
        """What the new query would not have brought goes from the picture."""
        picture = self._pictures.get(client, {})
        for callsign, flight in list(picture.items()):
            if flight.fact is not None and not flight.fact.matches(query):
                del picture[callsign]

    def forget(self, client: str) -> None:
        self._pictures.pop(client, None)

    def sweep(self, now: float) -> None:
        """Flights that nothing was heard of for long."""
        for picture in self._pictures.values():
            old = [c for c, flight in picture.items() if (now - flight.seen) * self._speed > flight.keep]
            for callsign in old:
                del picture[callsign]

    def count(self, client: str) -> int:
        """Flights with a known place."""
        return sum(flight.has_place for flight in self._pictures.get(client, {}).values())
