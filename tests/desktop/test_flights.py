"""What the desktop example knows of flights, from packets alone."""

from __future__ import annotations

import math

import pytest

from demo.desktop.coast import outline
from demo.desktop.flights import MAX_FLIGHTS, TRAIL, Flights, angle


def report(callsign="DAL1", lat="4000N", lon="07400W", altitude="310", speed="420", status="active") -> bytes:
    return (
        f'<flight><id computer="1">{callsign}</id><aircraft equipment="L">B738</aircraft><flightleg status="{status}">'
        f"<departure>KJFK</departure><destination>KSFO</destination><speed>{speed}</speed>"
        f"<altitude>{altitude}</altitude><coordinate><lat>{lat}</lat><lon>{lon}</lon></coordinate></flightleg></flight>"
    ).encode()


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        ("4010N", 40 + 10 / 60),
        ("07419W", -74 - 19 / 60),
        ("401030S", -40.175),
        ("", None),
        ("12N", None),
        ("x010N", None),
    ],
)
def test_angles(text, degrees):
    found = angle(text)
    assert found == (pytest.approx(degrees) if degrees is not None else None)


def test_a_flight_moves_between_reports_and_not_for_ever():
    flights = Flights()
    flights.take(report(lon="07400W"), 0.0)
    (flight,) = flights.placed()
    assert flight.at(5.0) == (40.0, -74.0), "one report tells no direction"
    assert flight.heading is None
    flights.take(report(lon="07500W"), 10.0)
    assert flight.at(15.0) == (pytest.approx(40.0), pytest.approx(-75.5))
    assert flight.at(1e6) == (pytest.approx(40.0), pytest.approx(-77.0)), "two reports long, then it waits"
    assert flight.heading == pytest.approx(270.0)
    assert (flight.altitude, flight.knots, flight.aircraft) == (310, 420, "B738")
    assert (flight.origin, flight.destination) == ("KJFK", "KSFO")


def test_who_arrives_or_is_not_heard_of_goes():
    flights = Flights()
    flights.take(report("A1"), 0.0)
    flights.take(report("A2"), 50.0)
    flights.take(report("A3"), 60.0)
    flights.take(report("A3", status="arrived"), 61.0)
    flights.forget(before=10.0)
    assert list(flights.all) == ["A2"]
    flights.clear()
    assert not flights.all


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"junk",
        b"<flight/>",
        b"<heartbeat/>",
        b"<flight><id/></flight>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><flight/>',
    ],
)
def test_what_is_no_flight_changes_nothing(payload):
    flights = Flights()
    assert flights.take(payload, 0.0) is None
    assert not flights.all


def test_nonsense_in_a_flight_is_left_out():
    flights = Flights()
    flight = flights.take(report(altitude="1" * 400, speed="-3", lat="9900N"), 0.0)
    assert flight is not None
    assert (flight.altitude, flight.knots, flight.is_placed) == (None, None, False)
    assert math.isnan(flight.latitude)
    assert flights.placed() == []


def test_what_is_remembered_is_bounded():
    flights = Flights()
    for number in range(MAX_FLIGHTS + 1):
        flights.take(report(f"X{number}"), float(number))
    assert len(flights.all) == MAX_FLIGHTS
    assert "X0" not in flights.all
    for minute in range(100):
        flights.take(report("T", lon=f"07{minute % 60:02}0W"[:6]), float(minute))
    assert len(flights.all["T"].trail) <= TRAIL


def test_the_coast_is_the_one_of_the_page():
    coast = outline()
    assert len(coast) > 150
    assert coast[0] == coast[-1] == (48.4, -124.7)
    assert all(24 < latitude < 50 and -125 < longitude < -66 for latitude, longitude in coast)
