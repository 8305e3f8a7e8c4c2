"""The border to a running mesh: the two programs of `peer` that the pipeline starts, and nothing else.

A recorder joins the mesh and writes a packet log; a root publishes from an archive. Both are processes of their own,
so the pipeline holds no sockets, and either side can die without the other.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from pipeline.session import PipelineError


def recorder_command(roots_key: str, log: Path, *, query: str | None = None, bootstrap: str | None = None) -> list[str]:
    """`peer record`: join the mesh as a client and keep its packets in a log."""
    command = [sys.executable, "-m", "peer", "record", "--roots-key", roots_key, "--out", str(log)]
    if query:
        command += ["--query", query]
    for address in (bootstrap or "").replace(",", " ").split():
        command += ["--bootstrap", address]
    return command


def root_command(
    roots_key: str, archive: Path, *, speed: float, from_time: float | None, to_time: float | None, more: list[str]
) -> list[str]:
    """`peer root` with `archive:PATH` as its feed. Times go as `?from=...&to=...` behind the path."""
    bounds = [f"{name}={value:.6f}" for name, value in (("from", from_time), ("to", to_time)) if value is not None]
    source = f"archive:{archive}" + (f"?{'&'.join(bounds)}" if bounds else "")
    command = [sys.executable, "-m", "peer", "root", "--roots-key", roots_key, "--feed", source]
    return [*command, "--speed", f"{speed:g}", *more]


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
        )
    except OSError as error:
        raise PipelineError(f"cannot start `peer record`: {error.strerror}") from error
    atexit.register(process.terminate)
    return process


def check_recorder(process: subprocess.Popen[bytes], log: Path) -> None:
    """`PipelineError` with the recorder's own last line if it has ended."""
    if process.poll() is None:
        return
    said = (log / "recorder.err").read_text(errors="replace").strip().splitlines()
    raise PipelineError(f"`peer record` ended with {process.returncode}: {said[-1] if said else 'it said nothing'}")
