"""The built-in feed: real flights of 2013 flown again every day, as ASDI messages of every public type.

Exactly repeatable, and random access by time: what the feed says at a moment is a function of seed, copies and that
moment alone, so roots that start hours apart agree byte for byte, and nothing is generated from the beginning of time.
Messages are numbered densely from 1970: the AN of a message is how many messages the feed had before it.

Pure and light: the live root imports it. What a flight sends and when depends on its row of the table and never on
the seed, so that messages of past days can be counted without making them. The seed moves what does not change the
count: seconds, computer ids, wobbles of speed, the choice of amended values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from asdi.flights.route import Profile, Route, is_oceanic, profile, route
from asdi.flights.table import Row, load
from asdi.line import parse
from asdi.xml import to_xml

__all__ = ["MAX_COPIES", "Feed", "Line", "Packet"]

_DAY = 86_400
# 1970-01-01 was a Thursday, and the table begins on a Monday.
_MONDAY_SHIFT = 3
# The longest delay, way and return end 2.5 days after the midnight that a flight's day began with, so on a given day
# only flights of that day and of this many days before it can have messages.
_DAYS_ALIVE = 2
_HEARTBEAT_INTERVAL = 30
_HEARTBEAT_FACILITY = "ETMS"
# New flights are looked at a bucket of schedule at a time, so that no moment has to make a whole day's flights.
_BUCKET_MINUTES = 10
# No copy files its plan earlier than this before its scheduled time in the table, or has its last message later than
# this after delay, way there and way back.
_EARLIEST_MINUTES = 150
_LATEST_MINUTES = 200
MAX_COPIES = 500
"""Maximum of `copies`: about 1,000 messages per second, ten times the real feed."""

_FZ, _AF_PLAN, _AF_DELAY, _RZ, _DZ, _TZ, _UZ, _AF_ENROUTE, _TO, _AZ = range(10)


class Line(NamedTuple):
    """One message as text: its number, Unix time in whole seconds, and the line without its end."""

    an: int
    time: int
    text: str


class Packet(NamedTuple):
    """One message as the mesh carries it."""

    an: int
    time: int
    payload: bytes


def _mix(value: int) -> int:
    """A well-mixed 64-bit number from any other (splitmix64): the same on every machine, unlike `hash`."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


class _Counts(NamedTuple):
    """How many messages of each repeated kind a row of the table sends; depends on the row, not on the seed."""

    tracks: int
    boundaries: int
    oceanic: int
    single: int

    @property
    def total(self) -> int:
        return self.tracks + self.boundaries + self.oceanic + self.single


def _count(row: Row, index: int) -> _Counts:
    if not row.air_minutes:
        return _Counts(0, 0, 0, 2 + (index % 8 == 0))
    amended = (index % 8 == 0) + (row.delay >= 20)
    enroute = index % 4 == 1 and row.air_minutes > 60
    boundaries = len(range(25, row.air_minutes - 12, 45))
    oceanic = len(range(60, row.air_minutes - 30, 30)) if is_oceanic(row.origin, row.destination) else 0
    return _Counts(max(1, row.air_minutes - 1), boundaries, oceanic, 3 + amended + enroute)


@lru_cache(1)
def _counts() -> tuple[tuple[_Counts, ...], ...]:
    """By day and index of the table."""
    return tuple(tuple(_count(row, index) for index, row in enumerate(rows)) for rows in load().by_day)


class _Flight:
    """One flight on one day: when it sends what, and the text of each."""

    __slots__ = (
        "_fixed", "_hash", "_profile", "_route", "_row", "callsign", "counts", "departure", "filed", "key",
        "last_track", "scheduled",
    )  # fmt: skip

    def __init__(self, row: Row, index: int, *, day: int, copy: int, seed: int) -> None:
        self.key = (day * 4096 + index) * 512 + copy
        self._hash = _mix(_mix(self.key) ^ seed)
        self._row = row
        self.counts = _counts()[row.day][index]
        shift = 0
        origin, destination = row.origin, row.destination
        if copy:  # copies leave up to 80 minutes earlier or later; every second one is the way back
            shift = _mix(self.key ^ 0x5EED) % 161 - 80
            if copy % 2:
                shift += row.air_minutes + 50
                origin, destination = destination, origin
        self._route: Route = route(origin, destination)
        self._profile: Profile = profile(self._route.miles, max(2, row.air_minutes))
        self.callsign = f"{row.carrier}{(row.number + 1013 * copy - 1) % 9899 + 1}"
        self.scheduled = day * _DAY + (row.minute + shift) * 60
        self.departure = self.scheduled + row.delay * 60 + self._hash % 60
        self.filed = self.scheduled - 1800 - self._hash // 64 % 900
        self.last_track = self.departure + 60 * self.counts.tracks
        self._fixed = self._schedule(index)

    def _schedule(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """(time, kind, number) of all messages but the tracks, in order of time."""
        row, counts = self._row, self.counts
        events = [(self.filed, _FZ, 0)]
        if index % 8 == 0:
            events.append((self.filed + 600, _AF_PLAN, 0))
        if not row.air_minutes:
            events.append((self.scheduled + 1800 + self._hash // 7 % 1800, _RZ, 0))
            return tuple(events)
        if row.delay >= 20:
            events.append((self.scheduled + 300 + self._hash // 11 % 120, _AF_DELAY, 0))
        events.append((self.departure + 30, _DZ, 0))
        events.extend((self.departure + 60 * (25 + 45 * k) + 17, _UZ, k) for k in range(counts.boundaries))
        if index % 4 == 1 and row.air_minutes > 60:
            events.append((self.departure + 30 * row.air_minutes + 11, _AF_ENROUTE, 0))
        events.extend((self.departure + 60 * (60 + 30 * k) + 23, _TO, k) for k in range(counts.oceanic))
        events.append((self.departure + 60 * row.air_minutes + 40, _AZ, 0))
        return tuple(sorted(events))

    @property
    def last(self) -> int:
        return self._fixed[-1][0]

    def events_from(self, time: int) -> Iterator[tuple[int, int, int]]:
        return (event for event in self._fixed if event[0] >= time)

    def count_before(self, time: int) -> int:
        """Messages with a time below this one."""
        if time <= self.filed:
            return 0
        if time > self.last and time > self.last_track:
            return self.counts.total
        tracks = min(self.counts.tracks, max(0, -(-(time - self.departure - 60) // 60)))
        return tracks + sum(event[0] < time for event in self._fixed)

    def track(self, time: int) -> tuple[str, str]:
        """Facility and fields of the track at this time: the hot path, 9 of 10 messages."""
        minute = (time - self.departure) / 60
        way = self._profile
        part = way.part(minute)
        high = way.share(minute)
        wobble = (self._hash >> (int(minute) % 32)) % 9 - 4
        knots = int(way.knots * (0.35 + 0.65 * high)) + wobble
        altitude = f"{max(1, int(self._route.cruise * high)):03d}C" if high < 1.0 else f"{self._route.cruise:03d}"
        return (
            self._route.facility(part),
            f"TZ {self._id} {max(60, knots):03d} {altitude} {self._route.position(part)}",
        )

    @property
    def _id(self) -> str:
        return f"{self.callsign}/{self._hash // 4099 % 1000:03d}"

    @property
    def _aircraft(self) -> str:
        heavy = "H/" if self._row.aircraft in {"A332", "B762", "B763", "B764", "B772"} else ""
        return f"{heavy}{self._row.aircraft}/L"

    def text(self, kind: int, number: int, time: int) -> tuple[str, str]:
        """Facility, and type and fields, of one of the other messages."""
        way, row = self._route, self._row
        ends = f"{way.origin} {way.destination}"
        filed_speed = f"{int(self._profile.knots):04d}"
        elapsed = f"{row.air_minutes // 60:02d}{row.air_minutes % 60:02d}"
        home, goal = way.facility(0.0), way.facility(1.0)
        match kind:
            case _ if kind == _FZ:
                return home, (
                    f"FZ {self._id} {self._aircraft} {filed_speed} {way.origin} P{_hhmm(self.scheduled)} "
                    f"{way.cruise:03d} {way.text}/{elapsed}"
                )
            case _ if kind == _AF_PLAN:
                lower = way.cruise - 20 * (1 + self._hash % 2)
                return home, f"AF {self._id} {ends} 08 {lower:03d} 10 {way.text}/{elapsed}"
            case _ if kind == _AF_DELAY:
                return home, f"AF {self._id} {ends} 07 P{_hhmm(self.departure)}"
            case _ if kind == _RZ:
                return home, f"RZ {self._id} {ends}"
            case _ if kind == _DZ:
                arrival = _hhmm(self.departure + 60 * row.air_minutes)
                return home, (
                    f"DZ {self._id} {self._aircraft} {way.origin} D{_hhmm(self.departure)} {way.destination} {arrival}"
                )
            case _ if kind == _AZ:
                return goal, f"AZ {self._id} {ends} A{_hhmm(time)}"
        part = self._profile.part((time - self.departure) / 60)
        here = way.facility(part)
        if kind == _UZ:
            ahead = self._profile.part((time - self.departure) / 60 + 5)
            return here, (
                f"UZ {self._id} {self._aircraft} {filed_speed} {way.position(ahead)} E{_hhmm(time + 300)} "
                f"{way.cruise:03d} {way.text}/{elapsed}"
            )
        if kind == _AF_ENROUTE:
            return here, f"AF {self._id} {ends} 05 {filed_speed} 08 {way.cruise + 20:03d}T"
        later = self._profile.part((time - self.departure) / 60 + 30)
        return here, (
            f"TO {self.callsign} {int(self._profile.knots):03d} {_day_time(time)} {way.cruise:03d} "
            f"{way.position(part)} {ends} {_day_time(time + 1800)} {way.cruise:03d} {way.position(later)}"
        )


def _hhmm(time: int) -> str:
    return f"{time % _DAY // 3600:02d}{time % 3600 // 60:02d}"


def _day_time(time: int) -> str:
    return f"{_day_of_month(time // _DAY):02d}/{_hhmm(time)}"


@lru_cache(64)
def _day_of_month(day: int) -> int:
    from datetime import date

    return date.fromordinal(719_163 + day).day


class Feed:
    """The feed for a seed and a number of copies of its flights: 1 gives about 2 messages/s, 45 the real rate."""

    def __init__(self, *, seed: int = 2001, copies: int = 1) -> None:
        if not 1 <= copies <= MAX_COPIES:
            raise ValueError(f"copies must be in 1..{MAX_COPIES}, got {copies}")
        self.seed = seed
        self.copies = copies
        self._table = load()
        days = [sum(counts.total for counts in day) for day in _counts()]
        self._before_day = [sum(days[:n]) for n in range(len(days) + 1)]

    def first_an(self, time: int) -> int:
        """The AN of the first message at or after this Unix time: how many the feed had before."""
        day = time // _DAY
        # Days that are over are counted from the table, and so are flights of the last few days that surely are.
        over = max(0, day - _DAYS_ALIVE)
        first = _MONDAY_SHIFT % self._table.days
        count = (self._days_total(first + over) - self._days_total(first)) * self.copies
        for alive in range(over, day + 1):
            minute = (time - alive * _DAY) // 60
            counts = _counts()[(alive + _MONDAY_SHIFT) % self._table.days]
            for index, row in enumerate(self._rows(alive)):
                if row.minute - _EARLIEST_MINUTES > minute:
                    break
                if _latest(row) < minute:
                    count += counts[index].total * self.copies
                else:
                    count += sum(flight.count_before(time) for flight in self._flights(row, index, alive))
        return count + max(0, -(-time // _HEARTBEAT_INTERVAL))

    def _rows(self, day: int) -> tuple[Row, ...]:
        return self._table.by_day[(day + _MONDAY_SHIFT) % self._table.days]

    def _flights(self, row: Row, index: int, day: int) -> Iterator[_Flight]:
        return (_Flight(row, index, day=day, copy=copy, seed=self.seed) for copy in range(self.copies))

    def _days_total(self, days: int) -> int:
        cycles, rest = divmod(days, self._table.days)
        return cycles * self._before_day[-1] + self._before_day[rest]

    def lines(self, start: int, stop: int | None = None) -> Iterator[Line]:
        """All messages with start <= time < stop (endless without `stop`), in order of AN."""
        an = self.first_an(start)
        minute = start // 60 * 60
        arrivals = self._arrivals(start)
        flying: list[_Flight] = []
        waiting: defaultdict[int, list[tuple[int, int, int, int, _Flight]]] = defaultdict(list)
        pending = next(arrivals)
        while stop is None or minute < stop:
            while pending[0] <= minute:
                for flight in pending[1]:
                    for time, kind, number in flight.events_from(start):
                        waiting[time // 60].append((time, flight.key, kind, number, flight))
                    if flight.counts.tracks and flight.last_track >= start:
                        flying.append(flight)
                pending = next(arrivals)
            due = waiting.pop(minute // 60, [])
            done = 0
            for flight in flying:
                time = minute + flight.departure % 60
                if flight.departure + 60 <= time <= flight.last_track:
                    due.append((time, flight.key, _TZ, 0, flight))
                done += flight.last_track < minute
            if done > 64 or done == len(flying):
                flying = [flight for flight in flying if flight.last_track >= minute]
            # Time, then flight, then kind and number: no two messages tie, so every root has the same order.
            due.sort(key=_order)
            for line in self._minute(minute, due):
                if line[0] < start:
                    continue
                if stop is not None and line[0] >= stop:
                    return
                yield Line(an, line[0], f"{an & 0xFFFF:04X}{line[1]}")
                an += 1
            minute += 60

    def _minute(self, minute: int, due: list[tuple[int, int, int, int, _Flight]]) -> Iterator[tuple[int, str]]:
        """(time, line without its sequence number) of one minute, heartbeats first in their second."""
        prefix = f"{_day_of_month(minute // _DAY):02d}{_hhmm(minute)}"
        beats = [minute + second for second in range(0, 60, _HEARTBEAT_INTERVAL)]
        for time, _, kind, number, flight in due:
            while beats and beats[0] <= time:
                beat = beats.pop(0)
                yield beat, f"{prefix}{beat % 60:02d}{_HEARTBEAT_FACILITY}HB"
            facility, text = flight.track(time) if kind == _TZ else flight.text(kind, number, time)
            yield time, f"{prefix}{time % 60:02d}{facility}{text}"
        for beat in beats:
            yield beat, f"{prefix}{beat % 60:02d}{_HEARTBEAT_FACILITY}HB"

    def _arrivals(self, start: int) -> Iterator[tuple[int, list[_Flight]]]:
        """Yield (time from which they may send, flights) endlessly, one bucket of the schedule at a time.

        Buckets are made when they are asked for. Flights that are over at the start are left out.
        """
        day = max(0, start // _DAY - _DAYS_ALIVE)
        while True:
            minute = (start - day * _DAY) // 60
            bucket: list[_Flight] = []
            limit = 0
            for index, row in enumerate(self._rows(day)):
                while row.minute >= limit + _BUCKET_MINUTES:
                    yield day * _DAY + (limit - _EARLIEST_MINUTES) * 60, bucket
                    bucket, limit = [], limit + _BUCKET_MINUTES
                if _latest(row) >= minute:
                    bucket.extend(self._flights(row, index, day))
            yield day * _DAY + (limit - _EARLIEST_MINUTES) * 60, bucket
            day += 1

    def packets(self, start: int, stop: int | None = None) -> Iterator[Packet]:
        """The same messages as XML packets, through the one parser and the one writer."""
        for an, time, text in self.lines(start, stop):
            yield Packet(an, time, to_xml(parse(text)))


def _latest(row: Row) -> int:
    """A minute of its day after which no copy of this flight has a message."""
    return row.minute + row.delay + 2 * row.air_minutes + _LATEST_MINUTES


def _order(event: tuple[int, int, int, int, _Flight]) -> tuple[int, int, int, int]:
    return event[:4]
