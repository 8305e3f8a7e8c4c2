"""`python -m pipeline`: the command line. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from pipeline.places import local_path
from pipeline.session import PipelineError
from pipeline.show import one_sentence, progress

FAILED, INTERRUPTED = 3, 130
DESCRIPTION = """\
The data pipeline: raw ASDI text -> packets -> archive -> analysis -> replay.

  python -m pipeline doctor                                     check the installation
  python -m pipeline generate --flights 5000 --days 1 --out raw synthetic feed text
  python -m pipeline ingest raw --out archive                   text to packets in the archive
  python -m pipeline verify archive
  python -m pipeline analyze bandwidth archive --plot bandwidth.png
  python -m pipeline analyze selectivity archive --queries queries.txt
  python -m pipeline replay archive --speed 10 --roots-key asdi feed a live mesh from history

Everything runs on this machine (--master local[*]) without setup, or on a cluster with --master spark://HOST:PORT.
"""
EPILOG = (
    "Exit codes: 0 success, 1 a problem was found (verify, doctor), 2 invalid command line, 3 failed, 130 interrupted."
)

EXAMPLES = {
    "ingest": [
        "ingest raw --out archive                              a directory of files, in order of name",
        "ingest asdi-2026-11-16.txt.gz --out archive --date 2026-11-16",
        "ingest tfmdata.xml --format tfms --out archive        one packet per message",
    ],
    "verify": [
        "verify archive --json",
        "verify archive --owner FINGERPRINT            as `skymesh keys show` prints it",
    ],
    "export": [
        "export archive --out recording                       then: skymesh verify recording --owner FINGERPRINT"
    ],
    "compact": ["compact archive"],
    "tables": ["tables archive"],
    "views": ["views archive > views.sql                             then: duckdb -init views.sql"],
    "delta": [
        "delta archive --keep-hours 168                        versions of a week can be read",
        "delta archive --copy-to s3://bucket/asdi --store AWS_REGION=eu-west-1",
    ],
    "retain": ["retain archive --before 2026-01-01"],
    "analyze": [
        "analyze bandwidth archive --from 2026-11-16 --to 2026-11-17 --plot bandwidth.png",
        "analyze selectivity archive --queries queries.txt     one query per line",
        'analyze selectivity archive --query "/flight/flightleg/altitude > 300"',
        "analyze fleet archive --json",
        "analyze mesh client1.jsonl client2.jsonl --by level   what `skymesh join --trace FILE` wrote",
    ],
    "train-dictionary": ["train-dictionary archive --out dictionaries"],
    "record": [
        "record --log recording --out archive --roots-key asdi --bootstrap 127.0.0.1:9000",
        "record --log recording --out archive --once           only what the log has now",
    ],
    "live": ["live conflicts --log recording --roots-key asdi --alerts conflicts --publish asdi-conflicts"],
    "replay": [
        "replay archive --from 2026-11-16T12:00 --to 2026-11-16T13:00 --speed 10 --roots-key asdi",
        "replay archive --speed 0 --format xml | head",
    ],
    "generate": ["generate --flights 5000 --days 1 --out raw"],
    "doctor": ["doctor --master spark://HOST:7077"],
}


def number(least: float) -> Callable[[str], float]:
    """Return a parser for numbers of at least `least`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, got {text}")
        return value

    return parse


def count(text: str) -> int:
    value = number(1)(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


def moment(text: str) -> datetime:
    """Parse 2026-11-16 or 2026-11-16T12:30, with or without a time zone (default UTC)."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; use 2026-11-16 or 2026-11-16T12:30") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def day(text: str) -> date:
    return moment(text).date()


def place(text: str) -> Path:
    try:
        return local_path(text)
    except PipelineError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def share(text: str) -> float:
    """1% or 0.01."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share such as 1% or 0.01, got {text!r}")
    return value


def build_parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m pipeline", description=DESCRIPTION, epilog=EPILOG, formatter_class=formatter
    )
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("Spark")
    group.add_argument("--master", help="where to run: local[2], spark://HOST:PORT (default: local[*])")
    group.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="any Spark setting")
    common.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        examples = "".join(f"  python -m pipeline {line}\n" for line in EXAMPLES[name])
        added = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[common],
            epilog=f"examples:\n{examples}", formatter_class=formatter,
        )  # fmt: skip
        added.set_defaults(run=run)
        return added

    from pipeline import commands as c
    from pipeline.live.run import run_live, run_record

    sub = command("ingest", "convert raw feed files, compressed or not, to packets in an archive", c.run_ingest)
    sub.add_argument("raw", nargs="+", metavar="RAW", help="files, or directories of files, in order")
    sub.add_argument("--out", required=True, type=place, metavar="ARCHIVE")
    sub.add_argument("--format", choices=["asdi", "tfms", "sfdps", "xml"], default="asdi",
                     help="asdi (text), tfms or sfdps (the FAA's XML), or any XML (default: asdi)")  # fmt: skip
    sub.add_argument("--stream", help="name of the stream in the archive (default: the format's name)")
    sub.add_argument("--date", type=day, help="date near the first line (default: from the file's name, else its date)")
    sub.add_argument(
        "--bad-files",
        choices=["fail", "quarantine"],
        default="fail",
        help="a file that breaks off ends the job, or is noted in the quarantine (default: fail)",
    )
    sub.add_argument("--max-bad", type=share, metavar="SHARE",
                     help="exit code 1 if more of the lines than this, such as 1%%, are in the quarantine")  # fmt: skip
    sub.add_argument("--first-an", type=int, help="AN of the first line (default: from the feed's number and time)")

    sub = command("verify", "check a whole archive: checksums, order, repeats, contiguity", c.run_verify)
    sub.add_argument("archive", type=place)
    sub.add_argument("--owner", metavar="FINGERPRINT",
                     help="also check the signature of every packet against this owner of the stream")  # fmt: skip
    sub.add_argument("--dictionary", type=place, metavar="FILE",
                     help="zstd dictionary that signed packets were compressed with")  # fmt: skip
    sub = command("export", "write packets of an archive as a recording, with their signatures", c.run_export)
    sub.add_argument("archive", type=place)
    sub.add_argument("--out", required=True, type=place, metavar="DIR", help="a new packet log")
    sub.add_argument("--from", dest="start", type=moment, metavar="TIME")
    sub.add_argument("--to", dest="stop", type=moment, metavar="TIME", help="exclusive")
    sub.add_argument("--stream", help="stream in the archive (default: the only one)")
    sub = command("compact", "merge the files of each hour into one", c.run_compact)
    sub.add_argument("archive", type=place)
    sub = command("tables", "make the typed tables again from the packets", c.run_tables)
    sub.add_argument("archive", type=place)
    sub = command("views", "print SQL that shows the tables to DuckDB", c.run_views)
    sub.add_argument("archive", type=place)
    sub = command("delta", "write Delta logs, which other engines read, and keep them up to date", c.run_delta)
    sub.add_argument("archive", type=place)
    sub.add_argument("--keep-hours", type=number(1), metavar="N",
                     help="keep files that left the archive for N hours, for readers of earlier versions")  # fmt: skip
    sub.add_argument("--copy-to", metavar="URL",
                     help="instead send the tables to an object store (s3://...), as Delta tables")  # fmt: skip
    sub.add_argument("--store", action="append", default=[], metavar="KEY=VALUE",
                     help="of the object store: an option of deltalake, such as AWS_REGION=eu-west-1")  # fmt: skip
    sub = command("retain", "remove days before a date", c.run_retain)
    sub.add_argument("archive", type=place)
    sub.add_argument("--before", required=True, type=day, metavar="DATE")

    analyze = command("analyze", "analyze an archive or traces", c.run_analyze)
    analyze.add_argument("what", choices=["bandwidth", "selectivity", "fleet", "mesh"])
    analyze.add_argument("paths", nargs="+", metavar="PATH", help="an archive; for mesh: trace files (JSON lines)")
    analyze.add_argument("--stream", help="stream in the archive (default: all)")
    analyze.add_argument("--from", dest="start", type=moment, metavar="TIME")
    analyze.add_argument("--to", dest="stop", type=moment, metavar="TIME", help="exclusive")
    analyze.add_argument("--queries", type=place, help="selectivity: a file with one XPath query per line")
    analyze.add_argument("--query", action="append", default=[], help="selectivity: an XPath query (repeatable)")
    analyze.add_argument(
        "--namespace", action="append", default=[], metavar="P=URI", help="namespace prefix for the queries"
    )
    analyze.add_argument("--dictionary", type=place, help="bandwidth: the stream's zstd dictionary")
    analyze.add_argument("--by", choices=["peer", "level", "parents"], default="peer", help="mesh: one row for each")
    analyze.add_argument("--plot", type=place, metavar="PNG")

    sub = command("train-dictionary", "train a zstd dictionary for the stream's packets", c.run_train)
    sub.add_argument("archive", type=place)
    sub.add_argument("--out", required=True, type=place, metavar="DIR")
    sub.add_argument("--stream", default="asdi")
    sub.add_argument("--seed", type=int, default=2001)

    sub = command("record", "record a live stream into an archive, exactly once, until interrupted", run_record)
    sub.add_argument("--log", required=True, type=place, help="the packet log between the mesh and the archive")
    sub.add_argument("--out", required=True, type=place, metavar="ARCHIVE")
    sub.add_argument("--checkpoint", type=place, help="Spark's checkpoint directory (default: LOG/checkpoint)")
    sub.add_argument("--roots-key", help="join this mesh with `peer record`; without it, only read the log")
    sub.add_argument("--query", help="XPath query for what to record (default: everything)")
    sub.add_argument("--bootstrap", help="HOST:PORT of running peers")
    sub.add_argument("--stream", default="asdi")
    sub.add_argument("--once", action="store_true", help="take what the log has now, and exit")
    sub.add_argument(
        "--interval", type=number(0), default=10, metavar="S", help="seconds between batches (default: 10)"
    )
    sub.add_argument("--max-records", type=count, default=100_000, help="per batch (default: 100,000)")
    sub.add_argument("--progress", type=place, metavar="FILE", help="append each batch's progress as JSON lines")

    sub = command("live", "watch a live stream and publish what is found, exactly once, until interrupted", run_live)
    sub.add_argument("what", choices=["sectors", "lost", "conflicts"],
                     help="load per facility and minute; flights that fell silent; flights about to meet")  # fmt: skip
    sub.add_argument("--log", required=True, type=place, help="the packet log between the mesh and the job")
    sub.add_argument(
        "--alerts", required=True, type=place, metavar="DIR", help="the packet log of the alerts, with state"
    )
    sub.add_argument("--out", type=place, metavar="ARCHIVE", help="also keep the alerts in an archive")
    sub.add_argument("--publish", metavar="KEY", help="publish the alerts as a root of this stream")
    sub.add_argument("--owner", type=place, metavar="FILE", help="of that root: key file of the stream's owner")
    sub.add_argument("--roots-key", help="join this mesh with `peer record`; without it, only read the log")
    sub.add_argument("--query", help="XPath query for what to watch (default: everything)")
    sub.add_argument("--bootstrap", help="HOST:PORT of running peers")
    sub.add_argument("--once", action="store_true", help="take what the log has now, and exit")
    sub.add_argument("--interval", type=number(0), default=2, metavar="S", help="seconds between batches (default: 2)")
    sub.add_argument("--max-records", type=count, default=100_000, help="per batch (default: 100,000)")

    sub = command("replay", "replay packets of an archive in order, to a root or to stdout", c.run_replay)
    sub.add_argument("archive", type=place)
    sub.add_argument("--from", dest="start", type=moment, metavar="TIME")
    sub.add_argument("--to", dest="stop", type=moment, metavar="TIME", help="exclusive")
    sub.add_argument("--stream")
    sub.add_argument(
        "--speed", type=number(0), default=1.0, help="multiple of real time; 0: as fast as possible (default: 1)"
    )
    sub.add_argument("--roots-key", help="publish as a root of this mesh; without it, packets go to stdout")
    sub.add_argument("--bootstrap", metavar="HOST:PORT", help="of the root: a running peer")
    sub.add_argument("--listen", metavar="HOST:PORT", help="of the root: its UDP address")
    sub.add_argument("--owner", metavar="FILE", help="of the root: key file of the stream's owner")
    sub.add_argument("--format", choices=["jsonl", "xml"], default="jsonl", help="format on stdout (default: jsonl)")
    sub.add_argument("--no-spark", action="store_true", help="read the files in this process; the order is the same")

    sub = command("generate", "write synthetic ASDI text from the built-in feed, one file per hour", c.run_generate)
    sub.add_argument("--flights", required=True, type=int, metavar="N", help="approximate flights per day")
    sub.add_argument("--days", required=True, type=float, metavar="D")
    sub.add_argument("--out", required=True, type=place, metavar="DIR")
    sub.add_argument("--start", type=moment, default=datetime(2026, 1, 5, tzinfo=UTC), help="default: 2026-01-05")
    sub.add_argument("--seed", type=int, default=2001)
    sub.add_argument("--gzip", action="store_true")

    command("doctor", "check what is installed and run a real job", c.run_doctor)
    return parser


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    # py4j logs every call that Ctrl-C interrupts as an error, with its traceback; nothing else logs here.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        return int(args.run(args))
    except PipelineError as error:
        progress(str(error))
        return FAILED
    except KeyboardInterrupt:
        progress("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output is gone
        return 0
    except Exception as error:
        # Spark raises what its workers and its JVM raise; a page of both helps no one, so print one line.
        progress(one_sentence(error))
        return FAILED
