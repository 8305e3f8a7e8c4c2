"""What the commands share: a Spark session by the flags of a call, and results shown as its flags ask."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.session import PipelineError
from pipeline.show import emit, progress, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROBLEM = 1
"""The exit code of a command that worked and found a problem."""


def key_values(settings: Sequence[str], option: str) -> dict[str, str]:
    """Settings of the form KEY=VALUE."""
    found = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise PipelineError(f"{option} needs KEY=VALUE, not {setting!r}")
        found[key] = value
    return found


def session(args: argparse.Namespace, name: str, *, light: bool = True) -> SparkSession:
    from pipeline.session import open_session

    options = key_values(args.conf, "--conf")
    progress("starting Spark")
    opened = open_session(args.master, name=f"skymesh {name}", light=light, options=options)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler calls Java from within a call to Java, which ends in a page of tracebacks.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return opened


def show(document: dict[str, Any], args: argparse.Namespace) -> None:
    """A flat document: JSON, or a line for each value."""
    text = "\n".join(f"{key}: {value}" for key, value in document.items())
    emit(document, text, as_json=args.json)


def show_rows(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    emit(rows, table(rows), as_json=args.json)


def show_result(result: Any, args: argparse.Namespace) -> None:
    show(asdict(result), args)


def make_folder(path: Path) -> None:
    """Raise `PipelineError` if nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelineError(f"cannot write to {path}: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise PipelineError(f"cannot write to {path}: no permission")


def check_folder_of(path: Path | None) -> None:
    if path is not None and not path.absolute().parent.is_dir():
        raise PipelineError(f"cannot write {path}: no folder {path.absolute().parent}")
