"""The border to a running mesh: the two programs of `peer` that the pipeline starts, and nothing else.

A recorder joins the mesh and writes a packet log; a root publishes from an archive. Both are processes of their own,
so the pipeline holds no sockets, and either side can die without the other.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from pipeline.session import PipelineError


class RecorderEnded(PipelineError):
    """The process that joined the mesh for us is gone."""


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def recorder_command(roots_key: str, log: Path, *, query: str | None = None, bootstrap: str | None = None) -> list[str]:
    """`peer record`: join the mesh as a client and keep its packets in a log."""
    command = [sys.executable, "-m", "peer", "record", "--roots-key", roots_key, "--out", str(log)]
    if query:
        command += ["--query", query]
    for address in (bootstrap or "").replace(",", " ").split():
        command += ["--bootstrap", address]
    return command


def root_command(
    roots_key: str,
    archive: Path,
    *,
    speed: float,
    from_time: float | None = None,
    to_time: float | None = None,
    stream: str | None = None,
    more: list[str],
) -> list[str]:
    """`peer root` with `archive:PATH` as its feed. Times and stream go as `?from=...&to=...` behind the path."""
    asked = [(name, f"{value:.6f}") for name, value in (("from", from_time), ("to", to_time)) if value is not None]
    if stream is not None:
        asked.append(("stream", stream))
    source = f"archive:{archive}" + (f"?{urlencode(asked)}" if asked else "")
    command = [sys.executable, "-m", "peer", "root", "--roots-key", roots_key, "--feed", source]
    # No pace at all is a rate of its own to a root, not a speed of nothing.
    return [*command, *(["--speed", f"{speed:g}"] if speed else ["--rate", "0"]), *more]


def start_alert_root(
    roots_key: str, log: Path, *, bootstrap: str | None, owner: Path | None
) -> subprocess.Popen[bytes]:
    """A root that publishes a log as it grows. It is ended with this process."""
    command = [sys.executable, "-m", "peer", "root", "--roots-key", roots_key, "--feed", f"log:{log}", "--follow"]
    for address in (bootstrap or "").replace(",", " ").split():
        command += ["--bootstrap", address]
    if owner is not None:
        command += ["--owner", str(owner)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=end_with_parent() if sys.platform == "linux" else None,
    )  # fmt: skip


def is_written(log: Path) -> bool:
    """Whether a living process writes this packet log."""
    try:
        descriptor = os.open(log / "LOCK", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def start_recorder(
    roots_key: str, log: Path, *, query: str | None, bootstrap: str | None
) -> subprocess.Popen[bytes] | None:
    """Start a recorder for this log, unless one writes it already. It is ended with this process."""
    if is_written(log):
        return None
    log.mkdir(parents=True, exist_ok=True)
    try:
        process = subprocess.Popen(
            recorder_command(roots_key, log, query=query, bootstrap=bootstrap),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(log / "recorder.err").open("wb"),
            start_new_session=True,  # Spark hangs up on the whole group of its workers: the log would end unsynced
            preexec_fn=end_with_parent() if sys.platform == "linux" else None,
        )
    except OSError as error:
        raise PipelineError(f"cannot start `peer record`: {error.strerror}") from error
    atexit.register(process.terminate)
    return process


def end_with_parent() -> Callable[[], object]:
    """For a child before it runs its program: have the kernel end it when we are gone, however we went.

    Spark kills the worker that plans batches without notice, and an unread recorder would stay forever.
    """
    set_option = ctypes.CDLL(None).prctl  # looked up before the fork: a child of threads must not load anything
    return lambda: set_option(_PR_SET_PDEATHSIG, signal.SIGTERM)


def check_recorder(process: subprocess.Popen[bytes], log: Path) -> None:
    """`RecorderEnded` with the recorder's own last line if it has."""
    if process.poll() is None:
        return
    said = (log / "recorder.err").read_text(errors="replace").strip().splitlines()
    raise RecorderEnded(f"`peer record` ended with {process.returncode}: {said[-1] if said else 'no message'}")
