"""A stand-in for the XML ATC stream and its subscribers: every message type, a few hundred flights, seeded.

The shapes follow Figure 12 of the paper and the ASDI field list: 250 to 1,000 bytes a packet. The queries are what
dispatchers, airlines and map displays ask for; they know the schema, the switch does not.
"""

from __future__ import annotations

import random

AIRLINES = [
    "AAL",
    "UAL",
    "DAL",
    "SWA",
    "TWA",
    "NWA",
    "COA",
    "USA",
    "BAW",
    "DLH",
    "AFR",
    "KLM",
    "ACA",
    "JAL",
    "ANA",
    "QFA",
    "EIN",
    "SAS",
    "IBE",
    "AZA",
    "FDX",
    "UPS",
    "CJC",
    "KAP",
]
AIRPORTS = [
    "KBOS",
    "KJFK",
    "KLGA",
    "KEWR",
    "KORD",
    "KATL",
    "KDFW",
    "KDEN",
    "KLAX",
    "KSFO",
    "KSEA",
    "KMIA",
    "KIAH",
    "KPHL",
    "KDCA",
    "KIAD",
    "KCLT",
    "KMSP",
    "KDTW",
    "KPHX",
    "KLAS",
    "KSLC",
    "CYYZ",
    "CYUL",
    "CYVR",
    "EGLL",
    "LFPG",
    "EDDF",
    "EHAM",
    "RJAA",
]
CENTERS = [
    "KZBW",
    "KZNY",
    "KZDC",
    "KZJX",
    "KZMA",
    "KZTL",
    "KZID",
    "KZOB",
    "KZAU",
    "KZMP",
    "KZKC",
    "KZME",
    "KZFW",
    "KZHU",
    "KZAB",
    "KZDV",
    "KZLC",
    "KZLA",
    "KZOA",
    "KZSE",
    "CCZV",
    "CCZY",
]
FIXES = [a + b + c + d + e for a in "BCDFG" for b in "AEIO" for c in "LMNR" for d in "AEI" for e in "KSTX"]
TYPES = [
    "B733",
    "B738",
    "B752",
    "B763",
    "B772",
    "A319",
    "A320",
    "A332",
    "MD82",
    "MD88",
    "DC10",
    "E145",
    "CRJ2",
    "C172",
    "BE20",
    "B190",
    "AT72",
]


class Traffic:
    """Endless packets: positions mostly, as in the real feed, and every other type now and then."""

    def __init__(self, seed: int, flights: int = 600) -> None:
        self.rng = random.Random(seed)
        self.flights = [self._flight() for _ in range(flights)]

    def _flight(self) -> dict[str, str]:
        rng = self.rng
        return {
            "id": f"{rng.choice(AIRLINES)}{rng.randint(1, 2999)}",
            "type": rng.choice(TYPES),
            "from": rng.choice(AIRPORTS),
            "to": rng.choice(AIRPORTS),
        }

    def packet(self) -> bytes:
        kinds = ["TZ"] * 70 + ["FZ"] * 8 + ["AF"] * 6 + ["UZ"] * 4 + ["DZ"] * 4 + ["AZ"] * 4 + ["RZ"] * 2 + ["TO"] * 2
        kind = self.rng.choice(kinds)
        body = getattr(self, f"_{kind.lower()}")(self.rng.choice(self.flights))
        return f'<?xml version="1.0"?>\n<flight>\n{body}</flight>\n'.encode()

    def packets(self, number: int) -> list[bytes]:
        return [self.packet() for _ in range(number)]

    def _head(self, flight: dict[str, str], kind: str) -> str:
        rng = self.rng
        stamp = (
            f"2001-10-{rng.randint(10, 14)}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}Z"
        )
        computer = f"\n  <computerid>{rng.randint(100, 999)}</computerid>" if rng.random() < 0.7 else ""
        return (
            f'  <id>{flight["id"]}</id>{computer}\n  <message type="{kind}" facility="{rng.choice(CENTERS)}" '
            f'time="{stamp}"/>\n'
        )

    def _position(self) -> str:
        rng = self.rng
        lat, lon = (
            f"{rng.randint(24, 50)}{rng.randint(0, 59):02}N",
            f"{rng.randint(65, 125):03}{rng.randint(0, 59):02}W",
        )
        return f"    <coordinate>\n      <lat>{lat}</lat>\n      <lon>{lon}</lon>\n    </coordinate>\n"

    def _level(self, kind: str) -> str:
        mode = self.rng.choice(["plain", "plain", "plain", "interim", "block"])
        level = self.rng.randint(0, 450)
        return f'    <altitude type="{kind}" mode="{mode}">{level:03}</altitude>\n'

    def _speed(self, kind: str) -> str:
        return f'    <speed type="{kind}">{self.rng.randint(80, 560)}</speed>\n'

    def _route(self, flight: dict[str, str]) -> str:
        rng = self.rng
        fixes = "".join(f"<fix>{rng.choice(FIXES)}</fix>" for _ in range(rng.randint(2, 8)))
        ends = f"<origin>{flight['from']}</origin>{fixes}<destination>{flight['to']}</destination>"
        return f"    <route>\n      {ends}\n    </route>\n"

    def _points(self, flight: dict[str, str]) -> str:
        return f"    <origin>{flight['from']}</origin>\n    <destination>{flight['to']}</destination>\n"

    def _aircraft(self, flight: dict[str, str]) -> str:
        return f'    <aircraft equipment="{self.rng.choice("AGUWRT")}">{flight["type"]}</aircraft>\n'

    def _leg(self, status: str, *parts: str) -> str:
        return f'  <flightleg status="{status}">\n{"".join(parts)}  </flightleg>\n'

    def _tz(self, flight: dict[str, str]) -> str:
        return self._head(flight, "TZ") + self._leg(
            "active", self._speed("ground"), self._level("reported"), self._position()
        )

    def _fz(self, flight: dict[str, str]) -> str:
        parts = self._aircraft(flight), self._speed("filed"), self._level("requested"), self._route(flight)
        return self._head(flight, "FZ") + self._leg("proposed", *parts)

    def _af(self, flight: dict[str, str]) -> str:
        changes = self.rng.sample([self._speed("filed"), self._level("assigned"), self._aircraft(flight)], 2)
        return self._head(flight, "AF") + self._leg("amended", self._points(flight), *changes)

    def _uz(self, flight: dict[str, str]) -> str:
        parts = self._speed("ground"), self._level("assigned"), self._position(), self._route(flight)
        return self._head(flight, "UZ") + self._leg("crossing", *parts)

    def _dz(self, flight: dict[str, str]) -> str:
        return self._head(flight, "DZ") + self._leg("departed", self._points(flight), self._aircraft(flight))

    def _az(self, flight: dict[str, str]) -> str:
        return self._head(flight, "AZ") + self._leg("arrived", self._points(flight))

    def _rz(self, flight: dict[str, str]) -> str:
        return self._head(flight, "RZ") + self._leg("cancelled", self._points(flight))

    def _to(self, flight: dict[str, str]) -> str:
        planned = "".join(f"    <planned>\n{self._position()}    </planned>\n" for _ in range(2))
        parts = self._speed("ground"), self._level("reported"), self._position(), planned
        return self._head(flight, "TO") + self._leg("oceanic", *parts)


def queries(seed: int, number: int) -> list[str]:
    """`number` different queries, in the proportions of a mixed clientele."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        found[_query(rng)] = None
    return list(found)


def _query(rng: random.Random) -> str:
    leg = "/flight/flightleg"
    flight = f"{rng.choice(AIRLINES)}{rng.randint(1, 2999)}"
    low = rng.randint(0, 400)
    band = f"{leg}/altitude > {low} and {leg}/altitude < {low + rng.randint(5, 80)}"
    south, west = rng.randint(2400, 4900), rng.randint(6500, 12400)
    north = f"substring-before({leg}/coordinate/lat, 'N') > {south}"
    box = (
        f"{north} and substring-before({leg}/coordinate/lat, 'N') < {south + rng.randint(20, 600)} and "
        f"substring-before({leg}/coordinate/lon, 'W') > {west} and "
        f"substring-before({leg}/coordinate/lon, 'W') < {west + rng.randint(20, 600)}"
    )
    airline = f"starts-with(/flight/id, '{rng.choice(AIRLINES)}')"
    return rng.choice(
        [
            f"/flight/id = '{flight}'",
            f"/flight/id = '{flight}' and {leg}/@status = 'active'",
            f"starts-with(/flight/id, '{flight[: rng.randint(4, 6)]}')",
            f"{airline} and {band}",
            f"{airline} and {box}",
            box,
            f"{box} and {leg}/altitude >= {low}",
            f"{leg}[destination = '{rng.choice(AIRPORTS)}' or route/destination = '{rng.choice(AIRPORTS)}']"
            f" and {airline}",
            f"{leg}/destination = '{rng.choice(AIRPORTS)}' and {leg}/origin = '{rng.choice(AIRPORTS)}'",
            f"//fix = '{rng.choice(FIXES)}' and {leg}/speed > {rng.randint(80, 560)}",
            f"/flight/message[@facility = '{rng.choice(CENTERS)}']/@type = 'TZ' and "
            f"{leg}/speed < {rng.randint(80, 560)}",
            f"/flight[message/@type = 'FZ']/flightleg/aircraft = '{rng.choice(TYPES)}' and {leg}/altitude > {low}",
            f"{leg}/altitude[@mode = 'interim'] > {low} and {leg}/speed >= {rng.randint(80, 560)}",
            f"not({leg}/coordinate) and {leg}/origin = '{rng.choice(AIRPORTS)}' and {airline}",
        ]
    )
