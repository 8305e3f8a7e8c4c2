"""A day of traffic with known events, and what `pipeline live` finds of them. Part of `bench pipeline`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from bench.report import Target, progress
from pipeline.live.watch import DELAY_SECONDS, Alert, Conflicts, Lost, Sectors, Seen

START = 1_794_830_400


class Day(NamedTuple):
    """Rows in order; pairs that meet, and when they are too near; flights that fall silent, and when."""

    rows: list[Seen]
    meetings: dict[tuple[str, ...], float]
    silent: dict[str, int]


def course(
    flight: str,
    latitude: float,
    longitude: float,
    heading: float,
    knots: int,
    feet: int,
    begin: int,
    minutes: int,
    climb: int = 0,
) -> list[Seen]:
    """A report a minute, as the feed has them."""
    rows = []
    for minute in range(minutes):
        miles = knots * minute / 60
        north, east = miles * math.cos(math.radians(heading)), miles * math.sin(math.radians(heading))
        there = (longitude + east / 60 / math.cos(math.radians(latitude)) + 180) % 360 - 180
        rows.append(
            Seen(0, begin + 60 * minute, flight, "ZNY", latitude + north / 60, there, feet + climb * minute, knots)
        )
    return rows


def in_order(*courses: list[Seen]) -> list[Seen]:
    rows = sorted((row for each in courses for row in each), key=lambda row: row.time)
    return [row._replace(an=an) for an, row in enumerate(rows)]


def known_events(seed: int, *, others: int = 300, pairs: int = 40) -> Day:
    """Traffic in layers that can't meet, with pairs that do and flights that fall silent put in between."""
    chance = random.Random(seed)
    rows: list[list[Seen]] = []
    meetings: dict[tuple[str, ...], float] = {}
    silent: dict[str, int] = {}
    for number in range(others):
        begin = START + chance.randrange(0, 3600)
        flight, level = f"BG{number}", 10_000 + 2_000 * (number % 15)
        place = (30 + (number // 15), -120 + 2.5 * (number % 15))  # none comes near another
        track = course(flight, *place, chance.randrange(360), 60, level, begin, 20)
        if chance.random() < 0.1:
            track = track[:10]
            silent[flight] = track[-1].time
        else:
            track.append(Seen(0, track[-1].time + 30, flight))
        rows.append(track)
    for number in range(pairs):
        begin, latitude = START + chance.randrange(0, 3000), 52 + 0.5 * (number % 40)
        gap = chance.uniform(40, 70)
        other = -100 + gap / 60 / math.cos(math.radians(latitude))
        pair = (f"X{number}A", f"X{number}B")
        for flight, longitude, heading in ((pair[0], -100.0, 90), (pair[1], other, 270)):
            track = course(flight, latitude, longitude, heading, 450, 33_000, begin + chance.randrange(8), 7)
            rows.append([*track, Seen(0, track[-1].time + 5, flight)])
        meetings[pair] = begin + (gap - 5) / 900 * 3600
    feed = in_order(*rows, [Seen(0, START + 9_000, "LAST", "ZNY", 10.0, 10.0, 30_000, 400)])
    return Day(feed, meetings, silent)


def measure(seeds: range = range(2026, 2031)) -> list[dict[str, Any]]:
    """One row per machine: recall, false alarms, and p99 of the delay in the messages' own time, over some days.

    For conflicts the delay counts from two minutes before the two are too near: earlier they are not to be found.
    """
    progress("live: events that are known")
    days = [known_events(seed) for seed in seeds]
    found: dict[str, tuple[int, int, int, list[float], float]] = {}
    for name, judge in (("conflicts", _conflicts), ("lost", _lost), ("sectors", _sectors)):
        begun = time.process_time()
        results = [judge(day) for day in days]
        spent = (time.process_time() - begun) / sum(len(day.rows) for day in days) * 1e6
        found[name] = (
            sum(result[0] for result in results),
            sum(result[1] for result in results),
            sum(result[2] for result in results),
            sorted(delay for result in results for delay in result[3]),
            spent,
        )
    return [
        {
            "question": f"live {name}, known events",
            "events": events,
            "recall": hits / events,
            "false_alarms": false,
            "p99_delay_seconds": delays[len(delays) * 99 // 100],
            "cpu_us_per_row": spent,
        }
        for name, (events, hits, false, delays, spent) in found.items()
    ]


def targets(rows: list[dict[str, Any]]) -> list[Target]:
    return [
        Target(
            f"{row['question']}: all found, no false alarm",
            row["recall"] == 1.0 and not row["false_alarms"],
            f"recall {row['recall']:.3f}, {row['false_alarms']} false alarms",
        )
        for row in rows
        if row["question"].startswith("live ")
    ]


Judged = tuple[int, int, int, list[float]]
"""Events, how many were found, false alarms, and delays."""


def _alerts(add: Callable[[list[Seen]], list[Alert]], rows: list[Seen]) -> list[tuple[Alert, int]]:
    """Alerts, each with the time of the newest message when it came out: rows come in batches of a second."""
    found: list[tuple[Alert, int]] = []
    for when, batch in groupby(rows, key=lambda row: row.time):
        found += [(alert, when) for alert in add(list(batch))]
    return found


def _conflicts(day: Day) -> Judged:
    told = {alert.flights: when for alert, when in _alerts(Conflicts().add, day.rows)}
    hits = told.keys() & day.meetings.keys()
    delays = [told[pair] - (day.meetings[pair] - 120) for pair in hits]
    return len(day.meetings), len(hits), len(told.keys() - day.meetings.keys()), delays


def _lost(day: Day) -> Judged:
    told = {alert.flights[0]: when for alert, when in _alerts(Lost().add, day.rows) if alert.kind == "lost"}
    hits = told.keys() & day.silent.keys()
    return len(day.silent), len(hits), len(told.keys() - day.silent.keys()), [told[f] - day.silent[f] for f in hits]


def _sectors(day: Day) -> Judged:
    """An event is the load of a minute; it is found if flights and positions are right."""
    loads: dict[int, dict[str, int]] = {}
    for row in day.rows:
        if row.latitude is not None:
            flights = loads.setdefault(row.time // 60 * 60, {})
            flights[row.flight] = flights.get(row.flight, 0) + 1
    quiet = day.rows[-2].time  # then nothing comes for a long time, which a watermark has to wait for
    loads = {minute: flights for minute, flights in loads.items() if minute + 60 + DELAY_SECONDS <= quiet}
    told: dict[int, tuple[dict[str, str], int]] = {}
    for alert, when in _alerts(Sectors().add, day.rows):
        values = dict(alert.values)
        if int(values["minute"]) + 60 + DELAY_SECONDS <= quiet:
            told[int(values["minute"])] = values, when
    right = [
        minute
        for minute, (values, _) in told.items()
        if minute in loads
        and (int(values["flights"]), int(values["positions"])) == (len(loads[minute]), sum(loads[minute].values()))
    ]
    delays = [float(told[minute][1] - minute - 60) for minute in right]
    return len(loads), len(right), len(told) - len(right), delays
