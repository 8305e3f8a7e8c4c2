"""The columns of the archive. docs/pipeline.md explains each; readers ask for these and no others."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from pipeline.tables import schema as tables

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

ARCHIVE_VERSION = 2

_COLUMNS = (
    "an LONG NOT NULL, time TIMESTAMP NOT NULL, type STRING NOT NULL, facility STRING, flight STRING, sequence INT, "
    "raw STRING, xml BINARY, after LONG, crc LONG NOT NULL"
)
PACKETS = f"{_COLUMNS}, stream STRING, date STRING, hour INT"
QUARANTINE = (
    "an LONG NOT NULL, time TIMESTAMP NOT NULL, raw STRING, file STRING, line LONG, reason STRING, detail STRING, "
    "stream STRING, date STRING, hour INT"
)
PROOFS = (
    "an LONG NOT NULL, time TIMESTAMP NOT NULL, received TIMESTAMP, signed_as STRING, roots STRING, rest BINARY, "
    "proof BINARY, stream STRING, date STRING, hour INT"
)
GAP_TYPE = "gap"
"""`type` of a row that stands for packets nobody could supply: (`after`, `an`]; it has no `xml`."""


def columns(dataset: str) -> str:
    """A dataset's columns as Spark reads them, those in the path included."""
    own = {"packets": PACKETS, "quarantine": QUARANTINE, "proofs": PROOFS}
    return own.get(dataset) or tables.spark_columns(dataset)


def struct(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise TypeError(f"{ddl!r} is not a list of columns")
    return parsed


def arrow(dataset: str) -> pyarrow.Schema:
    """The Arrow types of a dataset's files; stream, date and hour are in their paths."""
    import pyarrow as pa

    if dataset in tables.TABLES:
        return tables.arrow(dataset)
    first = [pa.field("an", pa.int64(), False), pa.field("time", pa.timestamp("us", tz="UTC"), False)]
    if dataset == "quarantine":
        rest = [("raw", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("reason", pa.string())]
        rest.append(("detail", pa.string()))
    elif dataset == "proofs":
        rest = [("received", pa.timestamp("us", tz="UTC")), ("signed_as", pa.string()), ("roots", pa.string())]
        rest += [("rest", pa.binary()), ("proof", pa.binary())]
    else:
        rest = [("type", pa.string()), ("facility", pa.string()), ("flight", pa.string()), ("sequence", pa.int32())]
        rest += [("raw", pa.string()), ("xml", pa.binary()), ("after", pa.int64()), ("crc", pa.int64())]
    return pa.schema([*first, *(pa.field(name, kind) for name, kind in rest)])


def checksum(an: int, payload: bytes | None) -> int:
    """crc32 of the AN and the packet: a packet under another number is as wrong as a changed one."""
    return zlib.crc32(payload or b"", zlib.crc32(an.to_bytes(8, "big", signed=True)))
