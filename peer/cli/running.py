"""What the commands that run a peer share: options, signals, logs, finding the DHT, status file and live line."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from dht.addresses import endpoint_text
from peer.cli import logs
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.stopping import until_stopped
from peer.mesh.events import ResilienceChanged
from peer.node import Peer
from peer.observe.statistics import address_text
from peer.observe.status import describe, live_line
from peer.options import PeerOptions
from peer.role import Role
from xmlswitch import QueryError

if TYPE_CHECKING:
    from peer.observe.metrics import Feed

log = logging.getLogger("peer.cli")

STATUS_INTERVAL = 1.0
LIVE_INTERVAL = 0.5
NO_ROOT_NOTICE = 5.0
PARENTS_NOTICE = 3.0
"""How long the number of parents must stay the same before it is worth a line."""
LOOK_INTERVAL = 0.1


def note(text: str) -> None:
    """A line for people."""
    logs.say(text)


# --- running ----------------------------------------------------------------------------------------------------------


def run(settings: Settings, command: Callable[[], Awaitable[int]]) -> int:
    """The command under trio until it ends or a signal comes. Ctrl-C leaves the mesh first; a second one does not."""

    async def main() -> int:
        code, number = await until_stopped(command, impatient=True)
        if number is None:
            return code
        # Stopping a service is not a failure. Ctrl-C has the exit code that shells expect.
        return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.OK

    return trio.run(main)


# --- options ----------------------------------------------------------------------------------------------------------


def peer_options(settings: Settings, role: Role, **changes: Any) -> PeerOptions:
    """What the settings say about a peer; a bad stream name or query is an error here, before anything is opened."""
    from dht import check_stream_name

    stream = settings["roots_key"]
    try:
        check_stream_name(stream)
    except ValueError as error:
        raise CliError(f"STREAM: {error}", ExitCode.USAGE) from None
    chosen = settings.fields(PeerOptions)
    if "namespaces" in chosen:
        chosen["namespaces"] = dict(chosen["namespaces"])
    try:
        options = PeerOptions(stream=stream, role=role, **(chosen | changes))
        options.core()
    except ValueError as error:
        if isinstance(error, QueryError):
            raise  # it has an exit code of its own
        raise CliError(str(error), ExitCode.USAGE) from None
    return options


# --- beside a running peer --------------------------------------------------------------------------------------------


async def expect_directory(peer: Peer, settings: Settings) -> None:
    """CliError if no DHT is found in time; a notice if the stream has no root. Returns once there is a parent."""
    assert peer.directory is not None
    log.info("%s: open on %s", peer.options.stream, address_text(peer.address), extra={"happened": "Open"})
    deadline = float("inf") if settings["wait"] else settings["find_timeout"]
    with trio.move_on_after(deadline):
        while peer.directory.stats().contacts == 0:
            with trio.move_on_after(LOOK_INTERVAL):
                await peer.wait_turn()
    if peer.directory.stats().contacts == 0:
        raise CliError(no_dht(settings), ExitCode.NO_DHT)
    log.info("%s: found the DHT", peer.options.stream, extra={"happened": "DhtFound"})
    with trio.move_on_after(NO_ROOT_NOTICE):
        await peer.wait_parents(1)
        return
    note(f"found the DHT, but nobody who serves {peer.options.stream} yet; waiting (Ctrl-C ends)")
    await peer.wait_parents(1)


async def note_parents(peer: Peer) -> None:
    """Say when there are fewer parents than were asked for, and when that changes: briefly it is nobody's business."""
    said = wanted = peer.options.parents
    sound, changed_at = 0, trio.current_time()
    events = peer.events()
    async with events:
        while True:
            settled = changed_at + PARENTS_NOTICE if sound and sound != said else float("inf")
            with trio.move_on_at(settled):
                event = await events.receive()
                if isinstance(event, ResilienceChanged) and event.sound != sound:
                    sound, changed_at = event.sound, trio.current_time()
                continue
            said = sound
            lacks = "" if sound >= wanted else ": no spare yet" if sound == 1 else ": fewer spares than wanted"
            note(f"{sound} of {wanted} parents{lacks}")


def no_dht(settings: Settings) -> str:
    """One sentence with the two commands that would help."""
    if settings["bootstrap"]:
        tried = "nobody answered at " + ", ".join(map(endpoint_text, settings["bootstrap"]))
    else:
        tried = "nobody answered on this host (a peer on the LAN is reached with --listen :0)"
    key = settings.get("roots_key") or "asdi"
    return (
        f"no DHT found: {tried}; start a root here with `skymesh root {key} --feed demo`, or name a peer "
        f"that runs with `skymesh join {key} --bootstrap HOST:PORT`"
    )


async def write_status(peer: Peer, path: Path) -> None:
    """The peer's state every second, whole: a reader never sees half a file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    is_told = False
    while True:
        text = json.dumps(describe(peer)) + "\n"
        try:
            await trio.to_thread.run_sync(_replace_file, aside, path, text)
            is_told = False
        except OSError as error:
            if not is_told:  # once, until it works again
                log.warning("cannot write the status file %s: %s", path, error.strerror)
            is_told = True
        await trio.sleep(STATUS_INTERVAL)


def _replace_file(aside: Path, path: Path, text: str) -> None:
    aside.write_text(text)
    aside.replace(path)


async def show_live(peer: Peer) -> None:
    """One line on the terminal that is written over."""
    last, at = describe(peer), time.monotonic()
    try:
        while True:
            await trio.sleep(LIVE_INTERVAL)
            now = time.monotonic()
            state = describe(peer)
            sys.stderr.write("\r\x1b[K" + live_line(state, last, now - at))
            sys.stderr.flush()
            last, at = state, now
    finally:
        sys.stderr.write("\n")


@contextmanager
def named_by(flag: str, address: tuple[str, int]) -> Iterator[None]:
    """Report a TCP address that can't be bound together with the flag that named it."""
    try:
        yield
    except OSError as error:
        reason = "in use by another program" if error.errno == errno.EADDRINUSE else error.strerror
        raise CliError(f"{flag} {endpoint_text(address)}: {reason}", ExitCode.PORT_IN_USE) from None


async def beside(
    peer: Peer, settings: Settings, nursery: trio.Nursery, *, live: bool, feed: Feed | None = None
) -> None:
    """Start what the settings ask for beside the peer."""
    if settings.get("status_file"):
        nursery.start_soon(write_status, peer, Path(settings["status_file"]))
    if settings.get("metrics"):
        from peer.cli.metrics import serve_metrics

        with named_by("--metrics", settings["metrics"]):
            bound = await nursery.start(serve_metrics, peer, settings["metrics"], feed)
        note(f"metrics on http://{endpoint_text(bound)}/metrics")
    if live and sys.stderr.isatty():
        nursery.start_soon(show_live, peer)
