"""What a transport is: one class, registered by name, that opens and accepts connections which carry datagrams.

    [project.entry-points."skymesh.transports"]
    tls = "my_package:Tls"

Then `--transport udp,tls` dials peers by UDP and, when no answer comes, by this. Everything else is done here: how many
connections there may be, time-outs, queues, whom to dial and when, and what becomes of the links. See `docs/dcp.md` and
the example in `docs/examples/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol


class Conduit(Protocol):
    """One connection. Datagrams arrive whole, in order or not, once each; they may be lost when it ends."""

    async def send(self, datagrams: Sequence[bytes]) -> None:
        """Send them all, each 1 to 65,507 bytes. May wait; is cancelled when it waits too long.

        Raises `trio.BrokenResourceError` or `trio.ClosedResourceError` when the connection has ended.
        """
        ...

    async def receive(self) -> Sequence[bytes]:
        """Wait for datagrams; empty when the peer has closed the connection.

        Raises the same, and `MalformedDatagram` for bytes that are not datagrams. Must not hold more than about one
        datagram between calls, and must not wait forever for the rest of one that has begun.
        """
        ...

    async def aclose(self) -> None:
        """Close at once. Called in any state, perhaps twice, perhaps while `send` or `receive` waits."""
        ...


Serve = Callable[[Conduit, tuple[str, int]], Awaitable[None]]
"""Takes a connection that somebody opened, and the address it came from; returns when it has ended."""


class Transport(Protocol):
    async def connect(self, host: str, port: int) -> Conduit:
        """Open a connection to an IP address. OSError when that fails; cancelled when it takes too long."""
        ...

    async def listen(self, host: str, port: int) -> Listening:
        """Take the port, the same number as our UDP port; OSError when it is taken."""
        ...


class Listening(Protocol):
    """A port that was taken, before and while connections are accepted."""

    async def run(self, serve: Serve) -> None:
        """Call `serve`, in a task of its own, for each connection. Until cancelled."""
        ...

    def close(self) -> None: ...
