"""Flights with positions in decimal degrees, west of Greenwich negative, and what their subscribers write."""

from __future__ import annotations

import random

from bench._flights import AIRLINES, Traffic


class DecimalTraffic(Traffic):
    """The same messages; each position is two decimal numbers, and some packets have several."""

    def _position(self) -> str:
        lat, lon = f"{self.rng.uniform(24, 50):.4f}", f"{self.rng.uniform(-125, -65):.4f}"
        return f"    <coordinate>\n      <lat>{lat}</lat>\n      <lon>{lon}</lon>\n    </coordinate>\n"


def packets(seed: int, number: int) -> list[bytes]:
    return DecimalTraffic(seed).packets(number)


def _distinct(seed: int, number: int, kind: str) -> list[str]:
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        found[_KINDS[kind](rng)] = None
    return list(found)


def boxes(number: int) -> list[str]:
    """`lon > -77.5`: numbers as people write them."""
    return _distinct(2, number, "boxes")


def boxes_anywhere(number: int) -> list[str]:
    """A box as predicates on `//coordinate`: all four at one and the same node."""
    return _distinct(2, number, "anywhere")


def fleets(number: int) -> list[str]:
    """One query with 33 to 70 flights in it."""
    return _distinct(2, number, "fleets")


def later(number: int) -> list[str]:
    """XPath 2.0 and later."""
    return _distinct(2, number, "later")


def _corner(rng: random.Random) -> tuple[float, float, float, float]:
    south, west = round(rng.uniform(24, 49), 1), round(rng.uniform(-125, -66), 1)
    return south, round(south + rng.uniform(0.5, 6), 1), west, round(west + rng.uniform(0.5, 6), 1)


def _box(rng: random.Random) -> str:
    south, north, west, east = _corner(rng)
    at = "/flight/flightleg/coordinate"
    return f"{at}/lat > {south} and {at}/lat < {north} and {at}/lon > {west} and {at}/lon < {east}"


def _anywhere(rng: random.Random) -> str:
    south, north, west, east = _corner(rng)
    return f"//coordinate[lat > {south}][lat < {north}][lon > {west}][lon < {east}]"


def _flight(rng: random.Random) -> str:
    return f"{rng.choice(AIRLINES)}{rng.randint(1, 2999)}"


def _fleet(rng: random.Random) -> str:
    flights = [_flight(rng) for _ in range(rng.randint(33, 70))]
    if rng.random() < 0.3:
        alternatives = " or ".join(f". = '{flight}'" for flight in flights)
        return f"/flight/id[{alternatives}]"
    return " or ".join(f"/flight/id = '{flight}'" for flight in flights)


def _later(rng: random.Random) -> str:
    leg = "/flight/flightleg"
    north, west = rng.randint(24, 49), -rng.randint(66, 125)
    return rng.choice(
        [
            f"/flight/id = ('{_flight(rng)}', '{_flight(rng)}', '{_flight(rng)}')",
            f"matches(/flight/id, '^{rng.choice(AIRLINES)}{rng.randint(1, 9)}') and {leg}/altitude > {8 * north}",
            f"some $c in {leg}/coordinate satisfies $c/lat > {north} and $c/lon < {west}",
            f"exists({leg}/route) and lower-case(/flight/id) = '{_flight(rng).lower()}'",
            f"if ({leg}/origin) then starts-with(/flight/id, '{rng.choice(AIRLINES)}') else {leg}/speed > "
            f"{rng.randint(300, 560)}",
        ]
    )


_KINDS = {"boxes": _box, "anywhere": _anywhere, "fleets": _fleet, "later": _later}
