"""What each command of `python -m pipeline` does: open a session, run one job, show its result."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import command
from pipeline.session import PipelineError
from pipeline.show import emit, progress, rows_of, save_plot, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dht.ids import PeerId
    from pipeline.archive.manifest import Archive
    from pipeline.replay import Replayed


_COPY_KEEP_HOURS = 168
"""How long files stay in an object store that are no longer in the archive: as Delta itself does."""


def run_ingest(args: Namespace) -> int:
    from pipeline.ingest.inputs import expand
    from pipeline.ingest.text import ingest
    from pipeline.ingest.xml import ingest_xml
    from pipeline.tasks import shown

    expand(args.raw)  # report missing files before Spark is started
    command.make_folder(args.out)
    spark = command.session(args, "ingest")
    common = {
        "stream": args.stream or args.format,
        "day": args.date,
        "first_an": args.first_an,
        "on_progress": progress,
    }
    with shown(spark, "ingest"):
        if args.format == "asdi":
            done = ingest(spark, args.raw, args.out, keep_bad_files=args.bad_files == "quarantine", **common)
        else:
            done = ingest_xml(spark, args.raw, args.out, kind=args.format if args.format != "xml" else None, **common)
    if done.unchanged:
        progress("the archive already has this input; nothing changed")
    command.show_result(done, args)
    if args.max_bad is not None and done.bad_share > args.max_bad:
        progress(f"{done.bad_share:.2%} of the lines are in the quarantine, more than --max-bad {args.max_bad:.2%}")
        return command.PROBLEM
    return 0


def run_verify(args: Namespace) -> int:
    from pipeline.archive.jobs import verify
    from pipeline.archive.manifest import Archive
    from pipeline.archive.proofs import verify_proofs
    from pipeline.tasks import shown

    archive = Archive(args.archive)
    archive.require()
    owner = _owner(args.owner) if args.owner is not None else None
    dictionary = _dictionary(args.dictionary)
    spark = command.session(args, "verify")
    with shown(spark, "verify"):
        found = verify(spark, archive)
        document = asdict(found)
        problems = found.problems
        if owner is not None:
            proofs = verify_proofs(spark, archive, owner, dictionary=dictionary)
            document["signatures"] = asdict(proofs)
            problems = problems + proofs.problems
            if not proofs.packets:
                problems = [*problems, "the archive has no packets to verify"]
    command.show(document, args)
    return command.PROBLEM if problems else 0


def _owner(fingerprint: str) -> PeerId:
    from dht.identity import parse_id_text

    try:
        return parse_id_text(fingerprint)
    except ValueError as error:
        raise PipelineError(f"--owner: {error}") from None


def _dictionary(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(f"cannot read {path}: {error.strerror}") from None


def run_export(args: Namespace) -> int:
    from pipeline.archive.export import export
    from pipeline.archive.manifest import Archive

    done = export(
        Archive(args.archive), args.out, stream=args.stream, from_us=_us(args.start), to_us=_us(args.stop)
    )  # fmt: skip
    command.show_result(done, args)
    return 0


def run_compact(args: Namespace) -> int:
    from pipeline.archive.jobs import compact
    from pipeline.archive.manifest import Archive
    from pipeline.tasks import shown

    Archive(args.archive).require()
    spark = command.session(args, "compact")
    with shown(spark, "compact"):
        command.show({"files_removed": compact(spark, Archive(args.archive))}, args)
    return 0


def run_retain(args: Namespace) -> int:
    from pipeline.archive.jobs import retain
    from pipeline.archive.manifest import Archive

    command.show({"files_removed": retain(Archive(args.archive), args.before)}, args)
    return 0


def run_tables(args: Namespace) -> int:
    from pipeline.archive.jobs import rebuild_tables
    from pipeline.archive.manifest import Archive
    from pipeline.tasks import shown

    Archive(args.archive).require()
    spark = command.session(args, "tables")
    with shown(spark, "tables"):
        command.show({"rows": rebuild_tables(spark, Archive(args.archive))}, args)
    return 0


def run_views(args: Namespace) -> int:
    from pipeline.archive.manifest import Archive
    from pipeline.tables.views import duckdb_views

    print(duckdb_views(Archive(args.archive)))
    return 0


def run_delta(args: Namespace) -> int:
    from pipeline.archive.manifest import Archive

    archive = Archive(args.archive)
    if args.copy_to is not None:
        options = command.key_values(args.store, "--store")
        keep_hours = _COPY_KEEP_HOURS if args.keep_hours is None else math.ceil(args.keep_hours)
        command.show_rows(archive.copy_delta(args.copy_to, options, keep_hours), args)
        return 0
    if args.store:
        raise PipelineError("--store is for --copy-to")
    keep = None if args.keep_hours is None else args.keep_hours * 3600.0
    command.show_rows(archive.write_delta(keep), args)
    return 0


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def run_analyze(args: Namespace) -> int:
    from pipeline.archive.jobs import read
    from pipeline.archive.manifest import Archive
    from pipeline.tasks import shown

    if args.what != "mesh":
        if len(args.paths) != 1:
            raise PipelineError(f"analyze {args.what} takes one archive")
        Archive(args.paths[0]).require()
    command.check_folder_of(args.plot)
    if args.dictionary is not None and not args.dictionary.is_file():
        raise PipelineError(f"no dictionary {args.dictionary}; create one with `train-dictionary`")
    if args.what == "mesh":
        missing = [path for path in args.paths if not Path(path).exists()]
        if missing:
            raise PipelineError(f"no trace {missing[0]}; create one with `skymesh join --trace FILE`")
    queries = _queries(args) if args.what == "selectivity" else []
    spark = command.session(args, f"analyze {args.what}", light=args.what == "selectivity")
    with shown(spark, f"analyze {args.what}"):
        if args.what == "mesh":
            return _mesh(spark, args)
        archive = Archive(args.paths[0])
        if args.what == "selectivity":
            return _selectivity(spark, archive, queries, args)
        packets = read(spark, archive, stream=args.stream, from_us=_us(args.start), to_us=_us(args.stop))
        if args.what == "bandwidth":
            return _bandwidth(packets, args)
        return _fleet(packets, args)


def _queries(args: Namespace) -> list[str]:
    from pipeline.analyze.matcher import compile_queries, read_queries

    queries = list(args.query)
    if args.queries:
        try:
            queries += read_queries(args.queries.read_text())
        except OSError as error:
            raise PipelineError(f"cannot read {args.queries}: {error.strerror}") from error
    if not queries:
        raise PipelineError("analyze selectivity needs --queries FILE or --query XPATH")
    compile_queries(queries, _namespaces(args))
    return queries


def _namespaces(args: Namespace) -> dict[str, str]:
    wrong = [item for item in args.namespace if "=" not in item]
    if wrong:
        raise PipelineError(f"--namespace must be P=URI, got {wrong[0]!r}")
    return dict(item.partition("=")[::2] for item in args.namespace)


def _bandwidth(packets: DataFrame, args: Namespace) -> int:
    from pipeline.analyze.bandwidth import bandwidth

    dictionary = args.dictionary.read_bytes() if args.dictionary else None
    rows = rows_of(bandwidth(packets, dictionary).orderBy("window"))
    command.show_rows(rows, args)
    if args.plot:
        save_plot(args.plot, lambda figure: _draw_bandwidth(figure, rows))
    return _check_lines(packets)


def _check_lines(packets: DataFrame) -> int:
    """The exit code of an analysis that needs the lines of all packets: a problem, and a sentence, if it lacks any."""
    from pyspark.sql import functions as f

    (row,) = (
        packets.where(f.col("xml").isNotNull()).agg(f.count("*").alias("all"), f.count("raw").alias("raw")).collect()
    )
    if not row["all"]:
        progress("the archive has no packets of this stream and time")
        return command.PROBLEM
    if row["raw"] == row["all"]:
        return 0
    progress(
        f"{row['all'] - row['raw']:,} of {row['all']:,} packets have no line of ASDI text, and whatever is only in the "
        "line is not counted: start the roots of a recorded stream with --lines, or ingest the text"
    )
    return command.PROBLEM


def _draw_bandwidth(figure: Any, rows: list[dict[str, Any]]) -> None:
    hours = [datetime.fromisoformat(row["window"]) for row in rows]
    axes = figure.subplots(2, 1, sharex=True)
    for axis, names in zip(axes, (("raw", "xml"), ("raw_compressed", "xml_compressed", "xml_dictionary")), strict=True):
        for name in names:
            axis.plot(hours, [row[name] / 1000 for row in rows], label=name.replace("_", " "))
        axis.set_ylabel("KB/s")
        axis.legend()
    axes[1].set_xlabel("time (UTC), five-minute averages")


def _selectivity(spark: SparkSession, archive: Archive, queries: list[str], args: Namespace) -> int:
    from pipeline.analyze.selectivity import UNION, partial, selectivity
    from pipeline.archive.scan import pieces

    work = pieces(archive, stream=args.stream, from_us=_us(args.start), to_us=_us(args.stop))
    found = rows_of(selectivity(partial(spark, work, queries, _namespaces(args))).orderBy("query"))
    for row in found:
        row["xpath"] = "(all of them)" if row["query"] == UNION else queries[row["query"]]
    command.show_rows(found, args)
    if args.plot:
        rates = sorted((row["rate"] for row in found if row["query"] != UNION), reverse=True)
        save_plot(args.plot, lambda figure: _draw_rates(figure, rates))
    return 0


def _draw_rates(figure: Any, rates: list[float]) -> None:
    axis = figure.subplots()
    axis.plot(range(1, len(rates) + 1), rates, marker=".")
    axis.set_xlabel("queries, broadest first")
    axis.set_ylabel("share of packets that match")
    axis.set_yscale("symlog", linthresh=1e-4)


def _fleet(packets: DataFrame, args: Namespace) -> int:
    from pyspark.sql import functions as f

    from pipeline.analyze import fleet

    known = fleet.facts(packets).persist()
    legs = fleet.distances(known)
    totals = legs.agg(
        f.countDistinct("flight").alias("flights"), f.count("*").alias("legs"), f.sum("miles").alias("miles"),
        f.avg("miles").alias("mean_miles"),
    )  # fmt: skip
    parts = {
        "totals": rows_of(totals),
        "mix": rows_of(fleet.mix(packets).orderBy(f.desc("messages"))),
        "routes": rows_of(fleet.routes(known).orderBy(f.desc("departures"), "departure", "destination"), limit=20),
        "facilities": rows_of(fleet.facilities(packets).orderBy(f.desc("messages")), limit=30),
        "delays": rows_of(fleet.delays(known).orderBy(f.desc("departures")), limit=20),
        "gaps": rows_of(fleet.gaps(packets).orderBy("after"), limit=100),
    }
    known.unpersist()
    text = "\n\n".join(f"{name}\n{table(rows, limit=20)}" for name, rows in parts.items())
    emit(parts, text, as_json=args.json)
    if args.plot:
        save_plot(args.plot, lambda figure: _draw_bars(figure, parts["facilities"], "facility", "messages"))
    return _check_lines(packets)


def _draw_bars(figure: Any, rows: list[dict[str, Any]], name: str, value: str) -> None:
    axis = figure.subplots()
    axis.bar([str(row[name]) for row in rows], [row[value] for row in rows])
    axis.set_ylabel(value)
    axis.tick_params(axis="x", rotation=90)


def _mesh(spark: SparkSession, args: Namespace) -> int:
    from pipeline.analyze.meshtrace import first_copies, mesh, read_traces, relate

    traces = read_traces(spark, args.paths).persist()
    parts = {
        args.by: rows_of(mesh(traces, args.by).orderBy(args.by)),
        "first_copies": rows_of(first_copies(traces).orderBy("peer", "parent")),
        "protocols": rows_of(relate(traces)),
    }
    traces.unpersist()
    if not parts[args.by]:
        progress("the traces have no events")
        return command.PROBLEM
    text = "\n\n".join(f"{name}\n{table(rows)}" for name, rows in parts.items())
    emit(parts, text, as_json=args.json)
    if args.plot:
        save_plot(args.plot, lambda figure: _draw_mesh(figure, parts[args.by], args.by))
    return 0


def _draw_mesh(figure: Any, rows: list[dict[str, Any]], by: str) -> None:
    """Latency and ReLate2, side by side: the second also says what was lost."""
    axes = figure.subplots(2, 1, sharex=True)
    places = range(len(rows))
    for name, width in (("latency_p99", 0.8), ("latency_p90", 0.6), ("latency_p50", 0.4)):
        axes[0].bar(places, [row[name] or 0 for row in rows], width, label=name.replace("_", " "))
    axes[0].set_ylabel("latency (ms)")
    axes[0].legend()
    axes[1].bar(places, [row["relate2"] or 0 for row in rows], 0.8)
    axes[1].set_ylabel("ReLate2")
    axes[1].set_xticks(list(places), [str(row[by]) for row in rows], rotation=90)
    axes[1].set_xlabel(by)


def run_train(args: Namespace) -> int:
    from pipeline.archive.dictionary import train_dictionary
    from pipeline.archive.manifest import Archive
    from pipeline.tasks import shown

    Archive(args.archive).require()
    command.make_folder(args.out)
    spark = command.session(args, "train-dictionary")
    with shown(spark, "train-dictionary"):
        command.show_result(
            train_dictionary(spark, Archive(args.archive), args.out, stream=args.stream, seed=args.seed), args
        )
    return 0


def run_replay(args: Namespace) -> int:
    from pipeline.archive.manifest import Archive
    from pipeline.live.commands import root_command
    from pipeline.replay import iterate, iterate_with_spark

    Archive(args.archive).require()
    bounds = tuple(moment.timestamp() if moment else None for moment in (args.start, args.stop))
    if args.roots_key:
        given = [("--bootstrap", args.bootstrap), ("--listen", args.listen), ("--owner", args.owner)]
        root = root_command(
            args.roots_key, args.archive.absolute(), speed=args.speed, from_time=bounds[0], to_time=bounds[1],
            stream=args.stream, more=[word for name, value in given if value for word in (name, value)],
        )  # fmt: skip
        return _run_until_ctrl_c(root)
    if args.no_spark:
        packets = iterate(args.archive, *bounds, stream=args.stream)
    else:
        packets = iterate_with_spark(command.session(args, "replay"), args.archive, *bounds, stream=args.stream)
    return _print_packets(packets, args)


def _run_until_ctrl_c(command: list[str]) -> int:
    """Wait for the root to leave the mesh: the terminal sends Ctrl-C to it too, and we pass SIGTERM on.

    A root that outlives us would publish until its archive ends.
    """
    from pipeline.live.commands import end_with_parent

    before = signal.getsignal(signal.SIGTERM)
    with subprocess.Popen(command, preexec_fn=end_with_parent() if sys.platform == "linux" else None) as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        try:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:
                    continue
        finally:
            signal.signal(signal.SIGTERM, before)


def _print_packets(packets: Iterable[Replayed], args: Namespace) -> int:
    """Print packets at `speed` times their own pace."""
    begun = first = None
    said = time.monotonic()
    for count, packet in enumerate(packets, 1):
        if args.speed > 0:
            if begun is None or first is None:
                begun, first = time.monotonic(), packet.time
            wait = begun + (packet.time - first) / args.speed - time.monotonic()
            if wait > 0:
                sys.stdout.flush()
                time.sleep(wait)
        if args.format == "xml":
            sys.stdout.write(packet.payload.decode("utf-8", "replace") + "\n")
        else:
            document = {"an": packet.an, "time": packet.time, "xml": packet.payload.decode("utf-8", "replace")}
            sys.stdout.write(json.dumps(document) + "\n")
        if time.monotonic() - said > 2:
            said = time.monotonic()
            progress(f"replay: {count:,} packets")
    sys.stdout.flush()
    return 0


def run_generate(args: Namespace) -> int:
    from pipeline.ingest.generate import generate
    from pipeline.tasks import shown

    hours = round(args.days * 24)
    if hours < 1 or args.flights < 1:
        raise PipelineError("generate needs at least one flight and one hour")
    command.make_folder(args.out)
    spark = command.session(args, "generate")
    with shown(spark, "generate"):
        description = generate(
            spark, args.out, flights=args.flights, hours=hours, start=args.start, seed=args.seed, compress=args.gzip,
            on_progress=progress,
        )  # fmt: skip
    command.show(description, args)
    return 0


def run_doctor(args: Namespace) -> int:
    from pipeline.doctor import examine

    checks = examine(lambda: command.session(args, "doctor"))
    text = "\n".join(
        f"[{'ok' if check.ok else 'MISSING'}] {check.name}: {check.found}"
        + (f"\n     -> {check.advice}" if check.advice and not check.ok else "")
        for check in checks
    )
    emit([check._asdict() for check in checks], text, as_json=args.json)
    return 0 if all(check.ok for check in checks) else command.PROBLEM
