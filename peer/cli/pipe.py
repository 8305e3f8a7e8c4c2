"""`pipe send` and `pipe receive`: standard input to standard output elsewhere, over several senders at once.

A byte stream over DCP, without a mesh or a directory: the receiver names the senders. Senders that are given the same
bytes (two captures of one video, two copies of one file) back each other up.
"""

from __future__ import annotations

import os

import trio

import dcp
from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.output import Printer
from peer.cli.running import note, run
from peer.listening import default_listen

PATIENCE = 10.0
"""Seconds without any sender after which a receiver gives up."""
LOOK_INTERVAL = 0.5


class _StandardInput:
    async def receive_some(self, max_bytes: int) -> bytes:
        # In a thread: a file or a terminal can't be waited for.
        try:
            return await trio.to_thread.run_sync(os.read, 0, max_bytes, abandon_on_cancel=True)
        except OSError as error:
            raise CliError(f"cannot read standard input: {error.strerror}", ExitCode.FEED) from None


class _StandardOutput:
    def __init__(self) -> None:
        self._printer = Printer("raw", "")

    async def send_all(self, data: bytes) -> None:
        await self._printer.put(data)


def send(settings: Settings) -> int:
    async def command() -> int:
        async with dcp.open_endpoint(settings["listen"] or ("127.0.0.1", 0)) as endpoint:
            publisher = endpoint.serve(settings["name"], stream_mode=True, follow_fastest=True)
            where = endpoint_text(endpoint.address)
            note(f"sending {settings['name']} on {where}")
            note(f"receive it with: skymesh pipe receive --name {settings['name']} --sender '{where}'")
            await publisher.wait_children(settings["receivers"])
            total = await dcp.send_bytes(publisher, _StandardInput())
            endpoint.goodbye()
            note(f"sent {total} bytes")
        return ExitCode.OK

    return run(settings, command)


def receive(settings: Settings) -> int:
    if not settings["sender"]:
        raise CliError("--sender is missing: name at least one sender's HOST:PORT", ExitCode.USAGE)

    async def command() -> int:
        senders = [await _resolved(address) for address in settings["sender"]]
        async with dcp.open_endpoint(settings["listen"] or default_listen(senders)) as endpoint:
            subscription = endpoint.subscribe(
                settings["name"], senders, stream_mode=True, start=dcp.Start.OLDEST, ends=True
            )
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_expect_senders, subscription, senders, settings["name"])
                    total = await dcp.receive_bytes(subscription, _StandardOutput())
                    nursery.cancel_scope.cancel()
            except* (dcp.BytesLost, dcp.LinkClosed) as errors:
                raise CliError(str(errors.exceptions[0]), ExitCode.NOT_ALL) from None
            note(f"received {total} bytes")
        return ExitCode.OK

    return run(settings, command)


async def _resolved(address: tuple[str, int]) -> tuple[str, int]:
    """DCP wants an IP address; people have host names too."""
    try:
        found = await trio.socket.getaddrinfo(*address, type=trio.socket.SOCK_DGRAM)
    except OSError as error:
        raise CliError(f"--sender {endpoint_text(address)}: {error.strerror}", ExitCode.USAGE) from None
    # IPv4 first: a sender listens on 127.0.0.1 by default, and `localhost` may be ::1 first.
    chosen = min(found, key=lambda each: each[0] != trio.socket.AF_INET)
    return str(chosen[4][0]), address[1]


async def _expect_senders(subscription: dcp.Subscription, senders: list[tuple[str, int]], name: str) -> None:
    """CliError when none of them is there for too long."""
    alone_since = trio.current_time()
    while trio.current_time() - alone_since < PATIENCE:
        await trio.sleep(LOOK_INTERVAL)
        seen = subscription.statistics()
        if any(link.up for link in seen.links):
            alone_since = trio.current_time()
    named = ", ".join(map(endpoint_text, senders))
    if seen.position is None:
        remedy = f"start one with `skymesh pipe send --name {name}`"
        raise CliError(f"no sender of {name} answered at {named}; {remedy}", ExitCode.STREAM_UNAVAILABLE)
    raise CliError(
        f"all senders are gone ({named}) and the stream has not ended; got {seen.bytes} bytes", ExitCode.NOT_ALL
    )
