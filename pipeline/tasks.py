"""Work for Spark's workers that is one Python function an item, and a line on stderr while it goes on."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
# Nothing is said of what is over sooner, and then no more often than this.
_QUIET_SECONDS = 2.0


def each(spark: SparkSession, items: Sequence[Item], task: Callable[[Item], dict[str, Any]]) -> list[dict[str, Any]]:
    """Run a task for each item on the workers, a partition an item; their reports, in the order of the items.

    A task that a dying worker leaves is run again, so it must not mind having begun before.
    """
    if not items:
        return []

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = json.dumps(task(items[number]))
                yield pa.RecordBatch.from_pydict({"number": [number], "report": [report]})

    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(run, "number LONG, report STRING")
    rows = {row.number: row.report for row in frame.collect()}
    return [json.loads(rows[number]) for number in range(len(items))]


@contextlib.contextmanager
def shown(spark: SparkSession, label: str) -> Iterator[None]:
    """While the block runs, say on stderr every two seconds how many tasks are done."""
    done = threading.Event()
    begun = time.monotonic()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not done.wait(_QUIET_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            if total:
                took = time.monotonic() - begun
                print(f"{label}: {finished} of {total} tasks, {took:.0f} s", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
