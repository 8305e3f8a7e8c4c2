"""The machines of `pipeline live`: scenarios with known events, and what is found of them."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench._events import START, course, in_order, known_events, measure, targets
from pipeline.live.watch import MACHINES, Alert, Conflicts, Lost, Sectors, Seen


def conflicts(*courses: list[Seen]) -> list[Alert]:
    return Conflicts().add(in_order(*courses))


@pytest.mark.parametrize("latitude", [40.0, -33.0, 64.0, 0.0])
@pytest.mark.parametrize("longitude", [-73.0, 179.9, -179.95, 10.0])
def test_two_that_meet_head_on_are_told_before(latitude, longitude):
    miles = 60.0 / 60 / math.cos(math.radians(latitude))  # 60 NM apart, closing at 960 knots
    other = (longitude + miles + 180) % 360 - 180
    alerts = conflicts(
        course("A1", latitude, longitude, 90, 480, 35_000, START, 8),
        course("B2", latitude, other, 270, 480, 35_000, START + 7, 8),
    )
    assert [alert.flights for alert in alerts] == [("A1", "B2")]
    within = START + (60 - 5) / 960 * 3600  # when they are within five miles
    assert 60 <= within - alerts[0].time <= 130


@pytest.mark.parametrize(
    ("heading", "feet", "climb", "apart"),
    [(270, 37_000, 0, 60), (90, 35_000, 0, 8), (270, 35_000, -1_500, 60), (0, 35_000, 0, 60)],
    ids=["above", "beside", "descends away", "passes far behind"],
)
def test_two_that_keep_apart_are_no_conflict(heading, feet, climb, apart):
    there = -73 + apart / 60 / math.cos(math.radians(40))
    alerts = conflicts(
        course("A1", 40, -73, 90, 480, 35_000, START, 12),
        course("B2", 40 if heading != 0 else 41, there, heading, 480, feet, START, 12, climb),
    )
    assert alerts == []


def test_a_climb_into_another_is_told():
    alerts = conflicts(
        course("A1", 40, -73, 90, 420, 30_000, START, 9, 1_000), course("B2", 40.02, -73, 90, 420, 35_000, START, 9)
    )
    assert [alert.flights for alert in alerts] == [("A1", "B2")]
    assert alerts[0].time < START + 60 * 4 + 30  # 1,000 ft are undercut after four minutes


def test_a_day_with_known_events():
    day = known_events(2026)
    warned = [day.meetings[alert.flights] - alert.time for alert in Conflicts().add(day.rows)]
    assert min(warned) > 30
    rows = measure(range(2026, 2028))
    assert all(target.met for target in targets(rows)), rows
    p99 = {row["question"].split(",")[0]: row["p99_delay_seconds"] for row in rows}
    assert p99["live lost"] <= Lost.SILENCE_SECONDS + 60
    assert p99["live sectors"] <= 60


def test_lost_and_found_and_landed():
    seen = course("A1", 40, -73, 90, 480, 35_000, START, 3)
    again = course("A1", 41, -72, 90, 480, 35_000, START + 600, 2)
    landed = course("B2", 40, -75, 90, 150, 2_000, START, 3)
    clock = course("C3", 30, -90, 90, 400, 35_000, START, 14)
    alerts = Lost().add(in_order(seen, again, landed, clock))
    assert [(alert.kind, alert.flights) for alert in alerts] == [("lost", ("A1",)), ("found", ("A1",))]
    assert START + 120 + Lost.SILENCE_SECONDS < alerts[0].time <= START + 120 + Lost.SILENCE_SECONDS + 120
    assert alerts[1].values == (("silent", "480"),)


def test_sectors_count_flights_once_a_minute_and_say_so_when_it_is_over():
    rows = [Seen(n, START + n, f"A{n % 7}", "ZNY" if n % 2 else "ZBW", 40.0, -73.0, 350, 480) for n in range(180)]
    machine = Sectors()
    alerts = machine.add(rows)
    assert [(alert.values[0][1], alert.time - START, alert.values[2:]) for alert in alerts] == [
        (sector, minute, (("flights", "7"), ("positions", "30"))) for minute in (60, 120) for sector in ("ZBW", "ZNY")
    ]
    assert machine.add([Seen(500, START + 3, "B1", "ZNY", 40.0, -73.0, 350, 480)]) == []
    assert machine.late == 1


def test_alerts_are_xml():
    from lxml import etree

    alert = Alert("lost", 5, ("A<1&",), (("place", 'x"<'),))
    root = etree.fromstring(alert.xml())
    assert (root.get("kind"), root.get("place"), root.findtext("id")) == ("lost", 'x"<', "A<1&")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 300), max_size=4), st.sampled_from(sorted(MACHINES)))
def test_any_batches_and_restarts_give_the_same_alerts(seed, cuts, name):
    chance = random.Random(seed)
    tracks = [
        course(f"F{n}", 40 + chance.uniform(0, 0.6), -73 + chance.uniform(0, 0.6), chance.randrange(360), 400,
               30_000 + chance.choice([0, 500, 2_000]), START + chance.randrange(120), chance.randrange(2, 12))
        for n in range(20)
    ]  # fmt: skip
    rows = in_order(*tracks, course("END", 0, 0, 0, 100, 30_000, START, 30))
    whole = MACHINES[name]().add(rows)
    machine, alerts = MACHINES[name](), []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        alerts += machine.add(rows[begin:end])
        state = json.loads(json.dumps(machine.snapshot()))  # another process goes on
        machine = MACHINES[name]()
        machine.restore(state)
    assert alerts == whole


def test_tables_are_bounded(monkeypatch):
    monkeypatch.setattr("pipeline.live.watch.MAX_FLIGHTS", 10)
    rows = [Seen(n, START + n // 100, f"F{n}", "ZNY", 40.0, -73.0, 35_000, 480) for n in range(200)]
    for name, most in (("lost", 10), ("conflicts", 10), ("sectors", 40)):
        machine = MACHINES[name]()
        machine.add(rows)
        assert machine.dropped == 200 - most
