"""Keeps the newest signed goal in a file, so that it survives a stop of all peers.

A file is believed as much as a neighbour: the owner's signature is checked again when it is read.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import trio

from peer.safe_file import read_file, replace_file

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks whether there is a newer goal."""
MAX_BYTES = 1_024


class Holder(Protocol):
    """A placement that follows goals."""

    @property
    def goal_data(self) -> bytes: ...

    def take_goal(self, data: bytes) -> bool: ...


def goal_path(folder: Path, stream: str) -> Path:
    return folder / f"goal-{stream}.bin"


async def keep_goal(holder: Holder, path: Path) -> None:
    """Forever. A goal is offered again until the owner of the stream is known, unless a newer one came meanwhile."""
    stored = await trio.to_thread.run_sync(_read, path)
    waiting = stored
    while True:
        if waiting and not holder.goal_data:
            holder.take_goal(waiting)
        if holder.goal_data:
            waiting = b""
            if holder.goal_data != stored:
                stored = holder.goal_data
                await trio.to_thread.run_sync(_write, path, stored)
        await trio.sleep(INTERVAL)


def _read(path: Path) -> bytes:
    try:
        return read_file(path, MAX_BYTES) or b""
    except (OSError, ValueError) as error:
        log.warning("cannot read the goal in %s: %s", path, error)
        return b""


def _write(path: Path, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError as error:
        log.warning("cannot keep the goal in %s: %s", path, error.strerror)
