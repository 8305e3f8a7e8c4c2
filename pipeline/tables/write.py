"""Writing the typed tables: one file per table and hour, sorted by flight, from rows in any order.

Runs in Spark's tasks and in plain processes, like `pipeline.archive.parts`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import asdi
from pipeline.archive.manifest import DataFile
from pipeline.archive.parts import Partition, encodings, partition_of
from pipeline.ingest.plain import Tracks, is_plain, read_tracks
from pipeline.tables.packets import rows_of_packet
from pipeline.tables.rows import Row, rows_of
from pipeline.tables.schema import arrow, names

_LEVEL = 3
# Rows that wait to be sorted; then they are written, and the hour gets another file.
MAX_WAITING = 500_000


class TableWriter:
    """`add` rows or whole packets, then `finish`."""

    def __init__(self, staging: Path, name: str, stream: str) -> None:
        self._staging = staging
        self._name = f"{name}-{uuid.uuid4().hex[:8]}"
        self._stream = stream
        self._waiting: dict[tuple[str, int], list[Row]] = {}
        self._columns: dict[tuple[str, int], list[pa.Table]] = {}
        self._rows = 0
        self._number = 0
        self._done: list[DataFile] = []

    def add(self, rows: Iterable[tuple[str, Row]]) -> None:
        for table, row in rows:
            self._waiting.setdefault((table, row[1] // 3_600_000_000), []).append(row)
            self._rows += 1
        if self._rows >= MAX_WAITING:
            self._flush()

    def add_table(self, table: str, hour: int, rows: pa.Table) -> None:
        """Rows of one hour, as columns."""
        self._columns.setdefault((table, hour), []).append(rows)
        self._rows += rows.num_rows
        if self._rows >= MAX_WAITING:
            self._flush()

    def add_packet(self, row: Sequence[Any]) -> None:
        """A row of the archive's packets."""
        an, us, kind, facility, flight, _, raw, xml = row[:8]
        if xml is None:
            return
        if raw is not None:
            self.add(rows_of(asdi.parse(raw.encode("latin-1", "replace")), an, us // 1_000_000))
        else:
            self.add(rows_of_packet(xml, an, us // 1_000_000, kind, facility, flight))

    def _flush(self) -> None:
        hours: dict[int, list[pa.Table]] = {}
        for name, hour in dict.fromkeys((*self._waiting, *self._columns)):
            kind = arrow(name)
            parts = self._columns.get((name, hour), [])
            if rows := self._waiting.get((name, hour)):
                arrays = [
                    pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), kind, strict=True)
                ]
                parts = [*parts, pa.Table.from_arrays(arrays, schema=kind)]
            table = pa.concat_tables(parts)
            self._write(name, hour, table)
            hours.setdefault(hour, []).append(_of_positions(table) if name == "positions" else _of_flights(table))
        for hour, parts in hours.items():
            self._write("flights", hour, pa.concat_tables(parts))
        self._waiting.clear()
        self._columns.clear()
        self._rows = 0

    def _write(self, name: str, hour: int, table: pa.Table) -> None:
        partition = partition_of(name, self._stream, hour * 3600)
        path = self._staging / partition.directory / f"{self._name}-{self._number:04d}.parquet"
        self._number += 1
        self._done.append(write_file(path, partition, table))

    def finish(self) -> list[DataFile]:
        self._flush()
        return self._done


def positions_of(tracks: Tracks, ans: pa.Array, times: pa.Array) -> pa.Table:
    """The rows of plain positions, with their ANs and times."""
    number = len(tracks.flight)
    columns = [
        ans, times, tracks.flight, tracks.computer, tracks.facility, pa.repeat("TZ", number), pa.array(tracks.latitude),
        pa.array(tracks.longitude), tracks.altitude_ft, tracks.speed_kt, pa.nulls(number, pa.float64()),
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=arrow("positions"))


def derive(packets: pa.Table, writer: TableWriter) -> None:
    """The rows of packets of one hour, as the archive has them."""
    lines = packets.column("raw").combine_chunks().cast(pa.binary())
    is_usual = pa.array(is_plain(lines) & packets.column("xml").is_valid().to_numpy())
    usual = packets.filter(is_usual)
    if usual.num_rows:
        tracks = read_tracks(usual.column("raw").combine_chunks().cast(pa.binary()))
        ans, times = (usual.column(name).combine_chunks() for name in ("an", "time"))
        writer.add_table("positions", times[0].value // 3_600_000_000, positions_of(tracks, ans, times))
    others = packets.filter(pc.invert(is_usual))
    columns = [
        others.column(name).to_pylist() for name in ("an", "type", "facility", "flight", "sequence", "raw", "xml")
    ]
    times = others.column("time").cast(pa.int64()).to_pylist()
    for an, kind, facility, flight, sequence, raw, xml, us in zip(*columns, times, strict=True):
        writer.add_packet((an, us, kind, facility, flight, sequence, raw, xml))


def write_file(path: Path, partition: Partition, table: pa.Table) -> DataFile:
    """A table as one file, in order; rows of one flight in `flights` become one."""
    table = _by_flight(_merged(table) if partition.dataset == "flights" else table)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=_LEVEL, **encodings(table.schema))
    bounds = [
        bound
        for column in ("an", "time")
        for bound in pc.min_max(table.column(column).cast(pa.int64())).as_py().values()
    ]
    return DataFile(f"{partition.directory}/{path.name}", table.num_rows, path.stat().st_size, *bounds)


def _by_flight(table: pa.Table) -> pa.Table:
    """Sorted by flight, without one at the end, then by AN. As Arrow's own sort, which compares the texts each time."""
    flights = table.column("flight").combine_chunks().dictionary_encode()
    ranks = np.empty(len(flights.dictionary) + 1, np.int64)
    ranks[pc.sort_indices(flights.dictionary).to_numpy()] = np.arange(len(flights.dictionary))
    ranks[-1] = len(flights.dictionary)
    places = flights.indices.fill_null(len(flights.dictionary)).to_numpy()
    return table.take(pa.array(np.lexsort((table.column("an").to_numpy(), ranks[places]))))


def _of_positions(table: pa.Table) -> pa.Table:
    """What `flights` says of positions, added up beforehand: they know nothing of which the last one counts."""
    how = [("an", "min"), ("time", "min"), ("time", "max"), ("an", "count"), ("altitude_ft", "max")]
    found = table.group_by("flight", use_threads=False).aggregate(how)
    nothing = pa.nulls(found.num_rows)
    values = {
        "an": "an_min", "time": "time_min", "flight": "flight", "last_time": "time_max", "messages": "an_count",
        "positions": "an_count", "max_altitude_ft": "altitude_ft_max",
    }  # fmt: skip
    kind = arrow("flights")
    columns = [found.column(values[name]) if name in values else nothing for name in kind.names]
    return pa.Table.from_arrays([_as(column, f.type) for column, f in zip(columns, kind, strict=True)], schema=kind)


def _of_flights(table: pa.Table) -> pa.Table:
    """A row of `flights` for each row of a table that is not of positions."""
    nothing = pa.nulls(table.num_rows)
    there = set(table.column_names)

    def column(name: str) -> Any:
        return table.column(name) if name in there else nothing

    values = {
        "an": column("an"), "time": column("time"), "flight": column("flight"), "last_time": column("time"),
        "messages": pa.repeat(1, table.num_rows), "positions": pa.repeat(0, table.num_rows),
        "departure": column("departure"), "destination": column("destination"), "aircraft": column("aircraft"),
        "departed": column("departed"), "arrived": column("arrived"), "max_altitude_ft": nothing,
    }  # fmt: skip
    kind = arrow("flights")
    return pa.Table.from_arrays([_as(values[field.name], field.type) for field in kind], schema=kind)


def _as(values: Any, kind: pa.DataType) -> Any:
    return values if values.type == kind else values.cast(kind)


_HOW = {
    "an": "min", "time": "min", "last_time": "max", "messages": "sum", "positions": "sum", "max_altitude_ft": "max",
    "departure": "last", "destination": "last", "aircraft": "last", "departed": "last", "arrived": "last",
}  # fmt: skip


def _merged(table: pa.Table) -> pa.Table:
    """One row per flight; of what changes on the way, the last that is known."""
    merged = _by_flight(table).group_by("flight", use_threads=False).aggregate(list(_HOW.items()))
    columns = [merged.column("flight" if name == "flight" else f"{name}_{_HOW[name]}") for name in names("flights")]
    return pa.Table.from_arrays(columns, names=names("flights")).cast(arrow("flights"))
