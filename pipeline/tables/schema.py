"""The columns of the typed tables. docs/tables.md explains each; a test compares the two.

A version changes when a column changes its meaning or goes; a new column at the end does not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

TABLES = ("positions", "plans", "departures", "arrivals", "flights")
VERSIONS = dict.fromkeys(TABLES, 1)

_KEY = "an LONG, time TIMESTAMP, flight STRING, computer STRING, facility STRING, type STRING"
COLUMNS = {
    "positions": f"{_KEY}, latitude DOUBLE, longitude DOUBLE, altitude_ft INT, speed_kt INT, mach DOUBLE",
    "plans": (
        f"{_KEY}, aircraft STRING, equipment STRING, departure STRING, destination STRING, fix STRING, "
        "fix_time TIMESTAMP, fix_time_kind STRING, speed_kt INT, mach DOUBLE, altitude_ft INT, requested_ft INT, "
        "route STRING, remarks STRING"
    ),
    "departures": (
        f"{_KEY}, aircraft STRING, equipment STRING, departure STRING, destination STRING, departed TIMESTAMP, "
        "estimated_arrival TIMESTAMP"
    ),
    "arrivals": f"{_KEY}, departure STRING, destination STRING, arrived TIMESTAMP",
    "flights": (
        "an LONG, time TIMESTAMP, flight STRING, last_time TIMESTAMP, messages LONG, positions LONG, "
        "departure STRING, destination STRING, aircraft STRING, departed TIMESTAMP, arrived TIMESTAMP, "
        "max_altitude_ft INT"
    ),
}


def names(table: str) -> list[str]:
    return [column.split()[0] for column in COLUMNS[table].split(", ")]


def arrow(table: str) -> pyarrow.Schema:
    import pyarrow as pa

    kinds = {
        "LONG": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    fields = [pa.field(name, kinds[kind]) for name, kind in (each.split() for each in COLUMNS[table].split(", "))]
    return pa.schema(fields, {"skymesh.table": table, "skymesh.version": str(VERSIONS[table])})


def spark_columns(table: str) -> str:
    """As Spark reads it, with the columns that are in the path."""
    return f"{COLUMNS[table]}, stream STRING, date STRING, hour INT"
