"""`join`: packets to standard output."""

from __future__ import annotations

from pathlib import Path

import trio

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.output import Printer
from peer.cli.running import beside, expect_directory, peer_options, run
from peer.node import Peer, open_peer
from peer.observe.trace import Trace
from peer.role import Role


def join(settings: Settings) -> int:
    asked = (settings["query"], settings["count"], settings["trace"])
    wants_packets = settings["format"] != "none" or any(value is not None for value in asked)
    options = peer_options(
        settings,
        Role.LEAF if settings["leaf"] or settings["capacity"] == 0 else Role.ROUTER,
        deliver=wants_packets or settings["leaf"],
    )
    printer = Printer(settings["format"], settings["roots_key"])

    async def command() -> int:
        async with open_peer(options) as peer, trio.open_nursery() as nursery:
            nursery.start_soon(expect_directory, peer, settings)
            await beside(peer, settings, nursery, live=settings["format"] == "none")
            trace = _open_trace(peer, settings)
            if trace is not None:
                nursery.start_soon(trace.run)
            code = await _print(peer, printer, settings, trace)
            nursery.cancel_scope.cancel()
        return code

    return run(settings, command)


def _open_trace(peer: Peer, settings: Settings) -> Trace | None:
    if settings["trace"] is None:
        return None
    path = Path(settings["trace"]).expanduser()
    try:
        return Trace(path, peer)
    except OSError as error:
        raise CliError(f"--trace {path}: {error.strerror}", ExitCode.CONFIG) from None


async def _print(peer: Peer, printer: Printer, settings: Settings, trace: Trace | None) -> int:
    """Until the count, the time or the stream ends."""
    count = settings["count"]
    timeout = settings["timeout"] if settings["timeout"] is not None else float("inf")
    with trio.move_on_after(timeout):
        while items := await peer.receive_many():
            if trace is not None:
                trace.deliver(items)
            await printer.write(items, count)
            if count is not None and printer.packets >= count:
                return ExitCode.OK
    if count is not None:
        raise CliError(f"{printer.packets} of {count} packets came in {timeout:g} s", ExitCode.NOT_ALL)
    if settings["timeout"] is not None and not printer.packets and not peer.parents:
        raise CliError(f"no parent for {settings['roots_key']} was found in {timeout:g} s", ExitCode.STREAM_UNAVAILABLE)
    return ExitCode.OK
