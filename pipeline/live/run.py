"""`record` and `live`: start the query, show its batches, start it again after a lost worker, end it well."""

from __future__ import annotations

import contextlib
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pipeline import command
from pipeline.session import PipelineError
from pipeline.show import one_sentence, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.live.record import BatchGate

_LOOK_SECONDS = 1


def run_record(args: Namespace) -> int:
    from pipeline.live.record import record

    _check(args)
    command.check_folder_of(args.progress)
    command.make_folder(args.out)
    spark = command.session(args, "record")
    checkpoint = args.checkpoint or args.log / "checkpoint"

    def start(gate: BatchGate) -> StreamingQuery:
        return record(
            spark, _options(args), args.out, checkpoint.absolute(), stream=args.stream, once=args.once,
            interval_seconds=args.interval, progress=args.progress, gate=gate,
        )  # fmt: skip

    return _supervise(spark, "record", start)


def run_live(args: Namespace) -> int:
    from pipeline.archive.manifest import Archive
    from pipeline.live.alerts import LiveJob, live

    _check(args)
    command.make_folder(args.alerts)
    spark = command.session(args, f"live {args.what}")
    archive = Archive(args.out) if args.out is not None else None
    job = LiveJob(args.what, args.alerts / "state", args.alerts, archive=archive, stream=args.publish or args.what)

    def start(gate: BatchGate) -> StreamingQuery:
        return live(
            spark, _options(args), job, (args.alerts / "checkpoint").absolute(), name=args.what, once=args.once,
            interval_seconds=args.interval, gate=gate,
        )  # fmt: skip

    with _publishing(args):
        return _supervise(spark, f"live {args.what}", start)


@contextlib.contextmanager
def _publishing(args: Namespace) -> Iterator[None]:
    """A root of the alerts' stream, while the job runs."""
    from pipeline.live.commands import start_alert_root

    if args.publish is None:
        yield
        return
    process = start_alert_root(args.publish, args.alerts, bootstrap=args.bootstrap, owner=args.owner)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _check(args: Namespace) -> None:
    if not args.roots_key and not args.log.is_dir():
        raise PipelineError(f"no packet log in {args.log}; use --roots-key to record one")


def _options(args: Namespace) -> dict[str, str]:
    options = {"log": str(args.log.absolute()), "maxRecords": str(args.max_records)}
    for name in ("roots_key", "query", "bootstrap"):
        if getattr(args, name):
            options[name] = getattr(args, name)
    return options


def _supervise(spark: SparkSession, label: str, start: Callable[[BatchGate], StreamingQuery]) -> int:
    """Run a query until it ends or a signal comes, and start it again when a worker was lost. The exit code."""
    signals: list[int] = []
    handled = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: signals.append(number)) for number in handled]
    try:
        _run(spark, label, start, signals)
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
    if signal.SIGINT in signals[:1]:
        raise KeyboardInterrupt
    return 0  # also after SIGTERM, which is how a service is stopped


def _run(spark: SparkSession, label: str, start: Callable[[BatchGate], StreamingQuery], signals: list[int]) -> None:
    from pipeline.live.record import BatchGate
    from pipeline.live.restarts import Restarts

    restarts, batch = Restarts(), _Batch()
    while not signals:
        gate = BatchGate()
        try:
            query = start(gate)  # the workers that know the source may have died, too
            _follow(spark, label, query, gate, batch, signals)
            return
        except Exception as error:
            if signals:
                return  # a signal to a whole group or service also reaches Java, which may have ended first
            delay = restarts.delay_after(str(error), batch.done)
            if delay is None or not _is_alive(spark):
                raise
            progress(f"{label}: {one_sentence(error)}; starting again in {delay:g} s")
            until = time.monotonic() + delay
            while not signals and time.monotonic() < until:
                time.sleep(0.1)


class _Batch:
    """The last one that was seen to be done."""

    done: int | None = None


def _follow(
    spark: SparkSession, label: str, query: StreamingQuery, gate: BatchGate, batch: _Batch, signals: list[int]
) -> None:
    """Until the query ends. Raises what ended it."""
    while not query.awaitTermination(_LOOK_SECONDS):
        last = query.lastProgress
        if last is not None and last["batchId"] != batch.done:
            batch.done = last["batchId"]
            rate = f"{last['processedRowsPerSecond']:,.0f}/s"
            progress(f"{label}: batch {batch.done}, {last['numInputRows']:,} packets, {rate}")
        if signals:
            _end_between_batches(spark, query, gate, signals)
            return


def _is_alive(spark: SparkSession) -> bool:
    """Whether Java still answers: without it, only a new process helps."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _end_between_batches(spark: SparkSession, query: StreamingQuery, gate: BatchGate, signals: list[int]) -> None:
    """Finish writing the current batch to the archive; a second Ctrl-C does not wait for it."""
    asked = time.monotonic()
    is_told = False
    while not gate.shut(0.1) and signals.count(signal.SIGINT) < 2:
        if not is_told and time.monotonic() - asked > 2:
            progress(
                "record: stopping after this batch; press Ctrl-C again to stop now, and the next start writes the batch"
            )
            is_told = True
    query.stop()
    spark.stop()
