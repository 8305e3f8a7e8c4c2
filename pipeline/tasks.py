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
# Workers need some seconds to start; when none has come by then, something is wrong.
_LONELY_SECONDS = 20.0


def each(
    spark: SparkSession | None, items: Sequence[Item], task: Callable[[Item], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run a task for each item on the workers, a partition an item; their reports, in the order of the items.

    A task that a dying worker leaves is run again, so it must not mind having begun before. Without Spark, this process
    does the work.
    """
    if not items:
        return []
    if spark is None:
        return [json.loads(json.dumps(task(item))) for item in items]

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = json.dumps(task(items[number]))
                yield pa.RecordBatch.from_pydict({"number": [number], "report": [report]})

    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(run, "number LONG, report STRING")
    rows = {row.number: row.report for row in frame.collect()}
    return [json.loads(rows[number]) for number in range(len(items))]


def _nobody_works(spark: SparkSession) -> str | None:
    """Why no task can begin, if no worker of the cluster has reached this program; None while there is one."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") or context._jsc.sc().getExecutorMemoryStatus().size() > 1:
        return None
    place = f"{context.getConf().get('spark.driver.host')}:{context.getConf().get('spark.driver.port')}"
    return (
        f"no worker of {context.master} has reached this program at {place}: either the cluster has no free worker, or "
        "its workers can't connect to that address (--conf spark.driver.host=ADDRESS names another)"
    )


@contextlib.contextmanager
def shown(spark: SparkSession, label: str) -> Iterator[None]:
    """While the block runs, say on stderr every two seconds how many tasks are done; and if nobody works at them."""
    done = threading.Event()
    begun = time.monotonic()
    is_warned = False
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        nonlocal is_warned
        while not done.wait(_QUIET_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            if total:
                took = time.monotonic() - begun
                print(f"{label}: {finished} of {total} tasks, {took:.0f} s", file=sys.stderr, flush=True)
                if not is_warned and not finished and took > _LONELY_SECONDS and (why := _nobody_works(spark)):
                    is_warned = True
                    print(f"{label}: {why}", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
