"""Queries worth trying, after the papers: what a client of an air traffic stream asks for."""

from __future__ import annotations

from typing import Final, NamedTuple


class Preset(NamedTuple):
    name: str
    query: str


PRESETS: Final = (
    Preset("everything", "true()"),
    Preset("above FL300", "/flight/flightleg/altitude > 300"),
    Preset("one airline: United", "starts-with(/flight/id, 'UAL')"),
    Preset("north of 40° N", "substring(/flight/flightleg/coordinate/lat, 1, 4) > 4000"),
    Preset(
        "bound for Los Angeles",
        "/flight/flightleg/destination = 'KLAX' or contains(/flight/flightleg/route, '..KLAX')",
    ),
    Preset("low and slow: below FL100", "/flight/flightleg[@status = 'active']/altitude < 100"),
    Preset("takeoffs and landings", "/flight/flightleg[@status = 'departed' or @status = 'arrived']"),
    Preset("nothing", "false()"),
)


def query_of_client(number: int) -> str:
    """What the client with this number, from 1, asks for at first."""
    return PRESETS[(number - 1) % 6].query
