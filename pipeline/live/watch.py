"""Machines that watch positions as they come: load per sector and minute, flights that stopped reporting, conflicts.

Pure: rows in order of AN go in, alerts come out; time is the messages' own. `snapshot` and `restore` let another
process go on as if nothing had happened. A row older than the watermark (the newest time minus `delay`) is late:
counted, and left out. Every table is bounded; what does not fit is counted in `dropped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol
from xml.sax.saxutils import quoteattr

MAX_FLIGHTS = 20_000
"""Of which a machine knows something at the same time: four times what flies over the United States."""
DELAY_SECONDS = 30
"""How much later than a later message an earlier one may come."""


class Seen(NamedTuple):
    """A position, or the end of a flight (`latitude` is None)."""

    an: int
    time: int
    flight: str
    facility: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    altitude_ft: int | None = None
    speed_kt: int | None = None


class Alert(NamedTuple):
    """`time` is when it was known, in the messages' time; `values` are what the packet says besides."""

    kind: str
    time: int
    flights: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()

    def xml(self) -> bytes:
        said = "".join(f" {name}={quoteattr(value)}" for name, value in self.values)
        flights = "".join(f"<id>{_text(flight)}</id>" for flight in self.flights)
        return f'<?xml version="1.0"?><alert kind="{self.kind}" time="{self.time}"{said}>{flights}</alert>'.encode()


def _text(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;")


class Machine(Protocol):
    late: int
    dropped: int

    def add(self, rows: Iterable[Seen]) -> list[Alert]: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


class _Clock:
    """The newest time, and whether a row is late."""

    def __init__(self, delay: int) -> None:
        self.newest = 0
        self.delay = delay

    @property
    def watermark(self) -> int:
        return self.newest - self.delay

    def admits(self, time: int) -> bool:
        self.newest = max(self.newest, time)
        return time >= self.watermark


class Sectors:
    """`load`: the flights and positions of each facility and minute, once the minute can't change any more."""

    def __init__(self, delay: int = DELAY_SECONDS) -> None:
        self._clock = _Clock(delay)
        self._minutes: dict[tuple[int, str], dict[str, int]] = {}
        self._known = 0
        self.late = self.dropped = 0

    def add(self, rows: Iterable[Seen]) -> list[Alert]:
        for row in rows:
            if row.latitude is None or row.facility is None:
                continue
            # A minute is open until the watermark has passed it, however old the row is.
            if not self._clock.admits(row.time) and row.time // 60 * 60 + 60 <= self._clock.watermark:
                self.late += 1
                continue
            flights = self._minutes.setdefault((row.time // 60, row.facility), {})
            if row.flight not in flights and self._known >= 4 * MAX_FLIGHTS:
                self.dropped += 1
                continue
            self._known += row.flight not in flights
            flights[row.flight] = flights.get(row.flight, 0) + 1
        return self._closed()

    def _closed(self) -> list[Alert]:
        done = sorted(key for key in self._minutes if key[0] * 60 + 60 <= self._clock.watermark)
        alerts = []
        for minute, facility in done:
            flights = self._minutes.pop((minute, facility))
            self._known -= len(flights)
            values = (
                ("facility", facility), ("minute", str(minute * 60)), ("flights", str(len(flights))),
                ("positions", str(sum(flights.values()))),
            )  # fmt: skip
            alerts.append(Alert("load", minute * 60 + 60, (), values))
        return alerts

    def snapshot(self) -> dict[str, Any]:
        held = [[*key, flights] for key, flights in self._minutes.items()]
        return {"newest": self._clock.newest, "minutes": held, "late": self.late, "dropped": self.dropped}

    def restore(self, state: dict[str, Any]) -> None:
        self._clock.newest = state["newest"]
        self._minutes = {(minute, facility): flights for minute, facility, flights in state["minutes"]}
        self._known = sum(map(len, self._minutes.values()))
        self.late, self.dropped = state["late"], state["dropped"]


class Lost:
    """`lost`: a flight in the air that has not reported for some minutes; `found` when it does again.

    A flight reports once a minute. One that was last seen low is taken to have landed, though nobody said so.
    """

    SILENCE_SECONDS = 200
    LOW_FEET = 3_000
    FORGET_SECONDS = 3_600

    def __init__(self, delay: int = DELAY_SECONDS) -> None:
        self._clock = _Clock(delay)
        self._last: dict[str, list[Any]] = {}
        self.late = self.dropped = 0

    def add(self, rows: Iterable[Seen]) -> list[Alert]:
        alerts = []
        for row in rows:
            if not self._clock.admits(row.time):
                self.late += 1
                continue
            # Silence counts up to the row before: so a machine that is fed row by row says the same.
            alerts += self._silent()
            known = self._last.get(row.flight)
            if row.latitude is None:
                self._last.pop(row.flight, None)
                continue
            if known is not None and known[4]:
                alerts.append(Alert("found", row.time, (row.flight,), (("silent", str(row.time - known[0])),)))
            if known is None and len(self._last) >= MAX_FLIGHTS:
                self.dropped += 1
                continue
            if known is not None:
                del self._last[row.flight]  # the longest silent one is always the first
            self._last[row.flight] = [row.time, row.latitude, row.longitude, row.altitude_ft, False]
        return alerts

    def _silent(self) -> list[Alert]:
        alerts = []
        gone = []
        for flight, last in self._last.items():
            time, latitude, longitude, feet, is_told = last
            if self._clock.watermark - time <= self.SILENCE_SECONDS:
                break
            if self._clock.watermark - time > self.FORGET_SECONDS or (feet is not None and feet <= self.LOW_FEET):
                gone.append(flight)
            elif not is_told:
                last[4] = True
                values = (
                    ("last", str(time)), ("latitude", f"{latitude:.4f}"), ("longitude", f"{longitude:.4f}"),
                    ("altitude_ft", "" if feet is None else str(feet)),
                )  # fmt: skip
                alerts.append(Alert("lost", self._clock.newest, (flight,), values))
        for flight in gone:
            del self._last[flight]
        return alerts

    def snapshot(self) -> dict[str, Any]:
        return {"newest": self._clock.newest, "last": self._last, "late": self.late, "dropped": self.dropped}

    def restore(self, state: dict[str, Any]) -> None:
        self._clock.newest, self._last = state["newest"], state["last"]
        self.late, self.dropped = state["late"], state["dropped"]


class Conflicts:
    """`conflict`: two flights that will be within 5 NM and 1,000 ft of each other in the next two minutes.

    A flight's course is that of its last two positions. A pair is reported once, and again after it has been apart for
    five minutes.
    """

    MILES = 5.0
    FEET = 1_000.0
    HORIZON_SECONDS = 120
    STEP_SECONDS = 5
    STALE_SECONDS = 90
    QUIET_SECONDS = 300

    def __init__(self, delay: int = DELAY_SECONDS) -> None:
        self._clock = _Clock(delay)
        # flight -> time, latitude, longitude, feet, north, east (NM/s), climb (ft/s); None until two positions
        self._now: dict[str, list[Any]] = {}
        self._told: dict[str, int] = {}
        self.late = self.dropped = 0

    def add(self, rows: Iterable[Seen]) -> list[Alert]:
        alerts = []
        for row in rows:
            if not self._clock.admits(row.time):
                self.late += 1
                continue
            if row.latitude is None or row.longitude is None:
                self._now.pop(row.flight, None)
                continue
            if row.altitude_ft is None:
                continue
            if row.flight not in self._now and len(self._now) >= MAX_FLIGHTS:
                self._forget()
                if len(self._now) >= MAX_FLIGHTS:
                    self.dropped += 1
                    continue
            self._move(row)
            alerts += self._meetings(row.flight)
        self._forget()
        return alerts

    def _move(self, row: Seen) -> None:
        before = self._now.get(row.flight)
        course: list[Any] = [None, None, None]
        assert row.latitude is not None
        assert row.longitude is not None
        if before is not None:
            seconds = row.time - before[0]
            if seconds <= 0:
                return  # a repeat, or out of order
            if seconds <= 3 * self.STALE_SECONDS:
                north, east = _miles(before[1], before[2], row.latitude, row.longitude)
                course = [north / seconds, east / seconds, (row.altitude_ft - before[3]) / seconds]
        self._now[row.flight] = [row.time, row.latitude, row.longitude, row.altitude_ft, *course]

    def _meetings(self, flight: str) -> list[Alert]:
        ours = self._now[flight]
        if ours[4] is None:
            return []
        alerts = []
        now = ours[0]
        for other, theirs in self._now.items():
            if other == flight or theirs[4] is None or now - theirs[0] > self.STALE_SECONDS:
                continue
            if abs(theirs[1] - ours[1]) > 1.5 or abs(theirs[3] - ours[3]) > 15_000:
                continue  # farther apart than any two minutes can make up for
            when = self._meeting(ours, theirs, now)
            if when is None:
                continue
            pair = tuple(sorted((flight, other)))
            key = " ".join(pair)
            if now - self._told.get(key, -self.QUIET_SECONDS - 1) > self.QUIET_SECONDS:
                alerts.append(Alert("conflict", now, pair, (("seconds", str(when)),)))
            self._told[key] = now
        return alerts

    def _meeting(self, ours: list[Any], theirs: list[Any], now: int) -> int | None:
        """Seconds until both limits are undercut at once; None if they are not within the horizon."""
        north, east = _miles(ours[1], ours[2], theirs[1], theirs[2])
        age = now - theirs[0]
        north += theirs[4] * age
        east += theirs[5] * age
        feet = theirs[3] + theirs[6] * age - ours[3]
        dn, de, df = theirs[4] - ours[4], theirs[5] - ours[5], theirs[6] - ours[6]
        for seconds in range(0, self.HORIZON_SECONDS + 1, self.STEP_SECONDS):
            n, e = north + dn * seconds, east + de * seconds
            if n * n + e * e < self.MILES**2 and abs(feet + df * seconds) < self.FEET:
                return seconds
        return None

    def _forget(self) -> None:
        edge = self._clock.newest - 4 * self.STALE_SECONDS
        self._now = {flight: last for flight, last in self._now.items() if last[0] >= edge}
        quiet = self._clock.newest - self.QUIET_SECONDS
        self._told = {pair: time for pair, time in self._told.items() if time >= quiet}

    def snapshot(self) -> dict[str, Any]:
        return {
            "newest": self._clock.newest, "now": self._now, "told": self._told, "late": self.late,
            "dropped": self.dropped,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._clock.newest, self._now, self._told = state["newest"], state["now"], state["told"]
        self.late, self.dropped = state["late"], state["dropped"]


def _miles(lat1: float, lon1: float, lat2: float, lon2: float) -> tuple[float, float]:
    """North and east from the first place to the second in nautical miles; flat, but near enough."""
    east = (lon2 - lon1 + 180) % 360 - 180
    return (lat2 - lat1) * 60, east * 60 * math.cos(math.radians((lat1 + lat2) / 2))


MACHINES: dict[str, type[Sectors] | type[Lost] | type[Conflicts]] = {
    "sectors": Sectors,
    "lost": Lost,
    "conflicts": Conflicts,
}
