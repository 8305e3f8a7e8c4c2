"""`join`: packets to standard output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.output import Printer
from peer.cli.running import beside, expect_directory, note, note_parents, peer_options, run
from peer.items import Content
from peer.node import Peer
from peer.observe.trace import Trace
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

SILENCE = 0.3
"""Seconds after which a stream without a position may be a combined one: then one root is asked."""


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
        sources: list[str] = []
        code: int = ExitCode.OK
        async with open_peer(options) as peer, trio.open_nursery() as nursery:
            nursery.start_soon(expect_directory, peer, settings)
            nursery.start_soon(note_parents, peer)
            nursery.start_soon(printer.write_trouble, peer)
            await beside(peer, settings, nursery, live=settings["format"] == "none")
            trace = _open_trace(peer, settings)
            if trace is not None:
                nursery.start_soon(trace.run)
            nursery.start_soon(_look_for_sources, peer, sources, nursery.cancel_scope)
            code = await _print(peer.receive_many, printer, settings, trace)
            if settings["timeout"] is not None and not printer.packets and not peer.parents:
                late = f"no parent for {peer.options.stream} was found in {settings['timeout']:g} s"
                raise CliError(late, ExitCode.STREAM_UNAVAILABLE)
            nursery.cancel_scope.cancel()
        return await _join_combined(options, sources, printer, settings) if sources else code

    return run(settings, command)


def _open_trace(peer: Peer, settings: Settings) -> Trace | None:
    if settings["trace"] is None:
        return None
    path = Path(settings["trace"]).expanduser()
    try:
        return Trace(path, peer)
    except OSError as error:
        raise CliError(f"--trace {path}: {error.strerror}", ExitCode.CONFIG) from None


async def _look_for_sources(peer: Peer, found: list[str], scope: trio.CancelScope) -> None:
    """Only a stream that is silent can be a combined one; then its sources are joined instead."""
    await peer.wait_parents(1)
    await trio.sleep(SILENCE)
    if peer.statistics().position is None:
        from peer.combine import find_sources

        found += await find_sources(peer.options.stream, peer.options, near=peer.address)
    if found:
        scope.cancel()


async def _join_combined(options: PeerOptions, sources: list[str], printer: Printer, settings: Settings) -> int:
    from peer.combine import open_combined, sub_stream

    note(f"{options.stream} combines {', '.join(sources)}")
    async with open_combined(options.stream, sources, options.on_any_port()) as stream:

        async def receive() -> list[Content]:
            source, item = await stream.receive()
            printer.of(sub_stream(options.stream, source))
            return [item]

        return await _print(receive, printer, settings, None)


async def _print(
    receive: Callable[[], Awaitable[list[Content]]], printer: Printer, settings: Settings, trace: Trace | None
) -> int:
    """Until the count, the time or the stream ends."""
    count = settings["count"]
    timeout = settings["timeout"] if settings["timeout"] is not None else float("inf")
    with trio.move_on_after(timeout):
        while items := await receive():
            if trace is not None:
                trace.deliver(items)
            await printer.write(items, count)
            if count is not None and printer.packets >= count:
                return ExitCode.OK
    if count is not None:
        raise CliError(f"{printer.packets} of {count} packets came in {timeout:g} s", ExitCode.NOT_ALL)
    return ExitCode.OK
