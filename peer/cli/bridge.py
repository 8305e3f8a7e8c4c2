"""`bridge`: a stream over plain TCP, for programs that don't speak DCP."""

from __future__ import annotations

import trio

from dcp import Gap, Omitted, Packet
from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.running import beside, expect_directory, named_by, note, peer_options, run
from peer.errors import FeedError
from peer.feeds.plan import parse_tcp
from peer.opening import open_peer
from peer.role import Role
from peer.tcp import TcpOut


def bridge(settings: Settings) -> int:
    scheme, _, rest = settings["to"].partition("://")
    if scheme != "tcp-listen":
        raise CliError(f"--to takes tcp-listen://HOST:PORT, not {settings['to']!r}", ExitCode.USAGE)
    try:
        host, port = parse_tcp(rest, settings["to"])
    except FeedError as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    options = peer_options(settings, Role.LEAF)
    out = TcpOut(separator=b"\0" if settings["separator"] == "nul" else b"\n", max_queue=settings["queue"])

    async def command() -> int:
        async with trio.open_nursery() as nursery:
            with named_by("--to", (host, port)):
                bound = await nursery.start(out.serve, host, port)
            note(f"readers connect to {endpoint_text(bound)}")
            async with open_peer(options) as peer:
                nursery.start_soon(expect_directory, peer, settings)
                await beside(peer, settings, nursery, live=True)
                while items := await peer.receive_many():
                    out.send(item.payload for item in items if isinstance(item, Packet | Omitted))
                    for item in items:
                        if isinstance(item, Gap):
                            note(f"gap: packets after {item.after} up to {item.until} could not be had from anybody")
            nursery.cancel_scope.cancel()
        return ExitCode.OK

    return run(settings, command)
