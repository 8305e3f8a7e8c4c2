"""Synthetic ASDI text of any size from the built-in feed: one hour per file and task."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asdi.flights import MAX_COPIES, Feed
from asdi.flights.table import load
from pipeline.session import PipelineError
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "generated.json"
_HOUR = 3600


def flights_a_day() -> int:
    """Of one copy, on average."""
    table = load()
    return sum(len(day) for day in table.by_day) // table.days


def copies_for(flights: int) -> int:
    copies = max(1, round(flights / flights_a_day()))
    if copies > MAX_COPIES:
        raise PipelineError(f"{flights:,} flights per day exceed the feed's maximum ({MAX_COPIES * flights_a_day():,})")
    return copies


def generate(
    spark: SparkSession,
    out: Path,
    *,
    flights: int,
    hours: int,
    start: datetime,
    seed: int = 2001,
    compress: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write the files and their description; returns the description. Existing files are left and not made again."""
    copies = copies_for(flights)
    out.mkdir(parents=True, exist_ok=True)
    begin = int(start.timestamp()) // _HOUR * _HOUR
    moments = [begin + hour * _HOUR for hour in range(hours)]
    on_progress(f"{hours} hours of {copies * flights_a_day():,} flights per day")
    target = str(out.absolute())

    def task(moment: int) -> dict[str, Any]:
        return write_hour(Path(target), Feed(seed=seed, copies=copies), moment, compress=compress)

    reports = each(spark, moments, task)
    description = {
        "feed": "built-in",
        "seed": seed,
        "copies": copies,
        "start": datetime.fromtimestamp(begin, UTC).isoformat(),
        "hours": hours,
        "first_an": Feed(seed=seed, copies=copies).first_an(begin),
        "lines": sum(report["lines"] for report in reports),
        "bytes": sum(report["bytes"] for report in reports),
    }
    (out / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description


def write_hour(out: Path, feed: Feed, moment: int, *, compress: bool) -> dict[str, Any]:
    """One file, whole or not at all."""
    name = f"asdi-{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H}.txt" + (".gz" if compress else "")
    temporary = out / f".{name}.tmp"
    lines = size = 0
    with gzip.open(temporary, "wb", 6) if compress else temporary.open("wb") as file:
        for line in feed.lines(moment, moment + _HOUR):
            # As the real feed has it: a blank and CRLF.
            size += file.write(f"{line.text} \r\n".encode("ascii"))
            lines += 1
    temporary.replace(out / name)
    return {"lines": lines, "bytes": size}
