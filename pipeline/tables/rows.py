"""Rows of the typed tables from an ASDI message. Pure."""

from __future__ import annotations

from typing import Any

import asdi
from pipeline.tables.units import aircraft, degrees, ends, feet, moment, speed

Row = tuple[Any, ...]


def rows_of(message: asdi.Message, an: int, time: int) -> list[tuple[str, Row]]:
    """(table, row) of a message with this AN and Unix time; none for heartbeats and what has no public layout."""
    body = message.body
    if isinstance(body, asdi.Heartbeat | asdi.Opaque):
        return []
    key = (an, time * 1_000_000, body.flight, body.computer or None, message.facility or None, message.type)
    match body:
        case asdi.Track():
            return [("positions", (*key, *_position(body.latitude, body.longitude, body.altitude, body.speed)))]
        case asdi.Oceanic():
            now = body.reports[0]
            return [("positions", (*key, *_position(now.latitude, now.longitude, now.altitude, body.speed)))]
        case asdi.Departure():
            kind = aircraft(body.aircraft) if body.aircraft else (None, None)
            times = (moment(body.time, time), moment(body.estimate, time))
            return [("departures", (*key, *kind, body.departure, body.destination, *times))]
        case asdi.Arrival():
            return [("arrivals", (*key, body.departure, body.destination, moment(body.time, time)))]
        case asdi.Plan():
            return [("plans", (*key, *_plan(body, body.requested, body.remarks, time)))]
        case asdi.Boundary():
            return [("plans", (*key, *_plan(body, "", "", time)))]
        case asdi.Cancellation():
            return [("plans", (*key, None, None, body.departure, body.destination, *([None] * 9)))]
        case asdi.Amendment():
            return [("plans", (*key, *_amended(body, time)))]


def _position(latitude: str, longitude: str, altitude: str, knots: str) -> Row:
    return (degrees(latitude), degrees(longitude), feet(altitude), *speed(knots))


def _plan(body: asdi.Plan | asdi.Boundary, requested: str, remarks: str, time: int) -> Row:
    kind = aircraft(body.aircraft) if body.aircraft else (None, None)
    clock = (moment(body.time, time), body.time[:1] if body.time[:1].isalpha() else None)
    return (
        *kind, *ends(body.route), body.fix, *clock, *speed(body.speed), feet(body.altitude), feet(requested),
        body.route or None, remarks or None,
    )  # fmt: skip


def _amended(body: asdi.Amendment, time: int) -> Row:
    """Only what the amendment changes, and the two ends, which name the flight."""
    new = dict(body.changes)
    kind = aircraft(new["03"]) if "03" in new else (None, None)
    clock = new.get("07", "")
    return (
        *kind, body.departure, body.destination, new.get("06"), moment(clock, time),
        clock[:1] if clock[:1].isalpha() else None, *speed(new.get("05", "")), feet(new.get("08", "")),
        feet(new.get("09", "")), new.get("10"), new.get("11"),
    )  # fmt: skip
