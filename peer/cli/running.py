"""What the commands that run a peer share: options, signals, logs, finding the DHT, status file and live line."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.logs import set_up
from peer.node import Peer
from peer.observe.statistics import address_text
from peer.observe.status import describe, live_line
from peer.options import PeerOptions
from peer.role import Role
from xmlswitch import QueryError

log = logging.getLogger("peer.cli")

STATUS_INTERVAL = 1.0
LIVE_INTERVAL = 0.5
NO_ROOT_NOTICE = 5.0
LOOK_INTERVAL = 0.1


def note(text: str) -> None:
    """A line for people."""
    print(f"skymesh: {text}", file=sys.stderr, flush=True)


# --- running ----------------------------------------------------------------------------------------------------------


def run(settings: Settings, command: Callable[[], Awaitable[int]]) -> int:
    """The command under trio until it ends or a signal comes. Ctrl-C leaves the mesh first; a second one does not."""
    set_up(settings["log_level"], as_json=settings["log_json"])
    gc.freeze()  # what is loaded stays: the collector need not look at it, which would take tens of ms each time
    return trio.run(_with_signals, command)


def stop_signals() -> list[signal.Signals]:
    """The signals that end a command: also a closed terminal, unless SIGHUP is ignored (nohup)."""
    stops = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stops.append(signal.SIGHUP)
    return stops


async def _with_signals(command: Callable[[], Awaitable[int]]) -> int:
    caught: list[int] = []
    code = int(ExitCode.OK)
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def watch() -> None:
                async for number in signals:
                    # Only a second Ctrl-C is impatience. SIGTERM comes twice by itself, from a parent and from its end.
                    if caught and number == signal.SIGINT:
                        os._exit(ExitCode.INTERRUPTED)
                    caught.append(number)
                    scope.cancel()

            nursery.start_soon(watch)
            with scope:
                code = await command()
            nursery.cancel_scope.cancel()
    if caught:
        # Stopping a service is not a failure. Ctrl-C has the exit code that shells expect.
        return ExitCode.INTERRUPTED if caught[0] == signal.SIGINT else ExitCode.OK
    return code


# --- options ----------------------------------------------------------------------------------------------------------


def peer_options(settings: Settings, role: Role, **changes: Any) -> PeerOptions:
    """What the settings say about a peer; a bad stream name or query is an error here, before anything is opened."""
    from dht import check_stream_name

    stream = settings["roots_key"]
    try:
        check_stream_name(stream)
    except ValueError as error:
        raise CliError(f"--roots-key: {error}", ExitCode.USAGE) from None
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


def no_dht(settings: Settings) -> str:
    """One sentence with the two commands that would help."""
    if settings["bootstrap"]:
        tried = "nobody answered at " + ", ".join(map(endpoint_text, settings["bootstrap"]))
    else:
        tried = "nobody answered on this host (a peer on the LAN is reached with --listen :0)"
    key = settings["roots_key"]
    return (
        f"no DHT found: {tried}; start a root here with `skymesh root --roots-key {key} --feed demo`, or name a peer "
        f"that runs with `skymesh join --roots-key {key} --bootstrap HOST:PORT`"
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


async def beside(peer: Peer, settings: Settings, nursery: trio.Nursery, *, live: bool) -> None:
    """Start what the settings ask for beside the peer."""
    if settings.get("status_file"):
        nursery.start_soon(write_status, peer, Path(settings["status_file"]))
    if settings.get("metrics"):
        from peer.cli.metrics import serve_metrics

        with named_by("--metrics", settings["metrics"]):
            bound = await nursery.start(serve_metrics, peer, settings["metrics"])
        note(f"metrics on http://{endpoint_text(bound)}/metrics")
    if live and sys.stderr.isatty():
        nursery.start_soon(show_live, peer)
