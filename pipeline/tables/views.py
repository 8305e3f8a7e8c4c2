"""The tables of an archive for other programs: SQL views for DuckDB, temporary views in Spark, frames for pandas.

All go by the manifest: what lies in the archive's folders besides is not part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.archive.manifest import Archive, Manifest
from pipeline.session import PipelineError
from pipeline.tables.schema import COLUMNS, TABLES, arrow

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

VIEWS = (*TABLES, "packets", "quarantine", "proofs")
_OTHER_TIMES = {"proofs": "time TIMESTAMP, received TIMESTAMP"}
_DUCKDB = {"LONG": "BIGINT", "INT": "INTEGER", "DOUBLE": "DOUBLE", "STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMP"}


def _files(archive: Archive, manifest: Manifest, view: str) -> list[str]:
    return archive.absolute(manifest.select(view))


def _times(view: str) -> list[str]:
    columns = COLUMNS.get(view, _OTHER_TIMES.get(view, "time TIMESTAMP")).split(", ")
    return [column.split()[0] for column in columns if column.endswith(" TIMESTAMP")]


def duckdb_views(archive: Archive) -> str:
    """SQL that makes a view of each table that the archive has now. Run it again to see what was added since."""
    manifest = archive.require()
    statements = []
    for view in VIEWS:
        files = _files(archive, manifest, view)
        if files:
            names = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
            # As UTC without a zone: with one, DuckDB would need an extension for every sum.
            replaced = ", ".join(f"make_timestamp(epoch_us({name})) AS {name}" for name in _times(view))
            source = f"SELECT * REPLACE ({replaced}) FROM read_parquet([{names}], hive_partitioning=true)"
        elif view in COLUMNS:
            columns = [each.split() for each in f"{COLUMNS[view]}, stream STRING, date STRING, hour INT".split(", ")]
            nothing = ", ".join(f"CAST(NULL AS {_DUCKDB[kind]}) AS {name}" for name, kind in columns)
            source = f"SELECT {nothing} WHERE false"
        else:
            continue
        statements.append(f"CREATE OR REPLACE VIEW {view} AS {source};")
    return "\n".join(statements)


def spark_views(spark: SparkSession, archive: Archive) -> list[str]:
    """Register each table as a temporary view; returns their names."""
    from pipeline.archive.jobs import read

    for view in VIEWS:
        read(spark, archive, dataset=view).createOrReplaceTempView(view)
    return list(VIEWS)


def to_pandas(
    archive: Archive,
    table: str,
    *,
    stream: str | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
    columns: list[str] | None = None,
) -> pd.DataFrame:
    """One table, of one stream or all, from a time (inclusive) to a time (exclusive), in microseconds since 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if table not in TABLES:
        raise PipelineError(f"table must be one of {', '.join(TABLES)}, got {table!r}")
    files = archive.require().select(table, stream=stream, from_us=from_us, to_us=to_us)
    parts = [
        pq.read_table(archive.path / file.path, columns=columns, partitioning=None).append_column(
            "stream", pa.array([file.part("stream")] * file.rows, pa.string())
        )
        for file in files
    ]
    kind = arrow(table).append(pa.field("stream", pa.string()))
    whole = pa.concat_tables(parts) if parts else kind.empty_table()
    if "time" in whole.column_names:
        times = whole.column("time").cast(pa.int64())
        for bound, compare in ((from_us, pc.greater_equal), (to_us, pc.less)):
            if bound is not None:
                keep = compare(times, bound)
                whole, times = whole.filter(keep), times.filter(keep)
    return whole.to_pandas()
