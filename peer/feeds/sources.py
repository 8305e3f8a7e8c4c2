"""Where a root's bytes come from: a file, standard input, a TCP server, or a program that connects to us.

Each source puts chunks into a bounded channel and so waits for a root that can't keep up. `None` in the channel says
that something may have been lost: what comes after it does not continue what came before.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from dht.addresses import endpoint_text
from peer.errors import FeedError

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 << 10
CHANNEL_CHUNKS = 8
"""Chunks that wait for the root; then the source waits, and TCP makes the sender wait."""
RECONNECT_DELAYS = (0.2, 30.0)
"""Seconds before the first and, doubled each time, before every later attempt; jittered by half."""

Out = trio.MemorySendChannel[bytes | None]


class ByteSource(Protocol):
    async def run(self, out: Out) -> None:
        """Until the source ends; FeedError for what can't be read. Closes `out`."""


@dataclass(frozen=True, slots=True)
class FileSource:
    path: str
    loop: bool = False

    async def run(self, out: Out) -> None:
        async with out:
            try:
                async with await trio.open_file(self.path, "rb") as file:
                    while True:
                        chunk = await file.read(CHUNK_BYTES)
                        if chunk:
                            await out.send(chunk)
                        elif self.loop and await file.tell():
                            await file.seek(0)
                        else:
                            return
            except OSError as error:
                raise FeedError(f"cannot read the feed {self.path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class DescriptorSource:
    """Standard input, or any descriptor: read in a thread, for a file or a terminal can't be waited for otherwise."""

    descriptor: int = 0

    async def run(self, out: Out) -> None:
        async with out:
            while True:
                try:
                    chunk = await trio.to_thread.run_sync(os.read, self.descriptor, CHUNK_BYTES, abandon_on_cancel=True)
                except OSError as error:
                    raise FeedError(f"cannot read standard input: {error.strerror}") from None
                if not chunk:
                    return
                await out.send(chunk)


@dataclass(frozen=True, slots=True)
class TcpSource:
    """Connects, and connects again when the connection is lost: each time after a break."""

    host: str
    port: int
    rng: random.Random = field(default_factory=random.Random)

    @property
    def _where(self) -> str:
        return endpoint_text((self.host, self.port))

    async def run(self, out: Out) -> None:
        delay, connected = RECONNECT_DELAYS[0], False
        async with out:
            while True:
                try:
                    stream = await trio.open_tcp_stream(self.host, self.port)
                except OSError as error:
                    log.warning("feed %s: %s; trying again", self._where, error.strerror or error)
                else:
                    delay, connected = RECONNECT_DELAYS[0], True
                    log.info("feed %s: connected", self._where)
                    async with stream:
                        await _pump(stream, out)
                    log.warning("feed %s: the connection was closed", self._where)
                if connected:
                    await out.send(None)
                    connected = False
                await trio.sleep(delay * self.rng.uniform(0.5, 1.5))
                delay = min(2 * delay, RECONNECT_DELAYS[1])


@dataclass(frozen=True, slots=True)
class TcpListenSource:
    """Takes one connection at a time; others are closed at once, for two feeds at once have no order."""

    host: str
    port: int
    on_listening: Callable[[str, int], None] = lambda host, port: None

    async def run(self, out: Out) -> None:
        try:
            listeners = await trio.open_tcp_listeners(self.port, host=self.host or None)
        except OSError as error:
            raise FeedError(
                f"cannot listen for a feed on {endpoint_text((self.host, self.port))}: {error.strerror}"
            ) from None
        busy = False

        async def take(stream: trio.SocketStream) -> None:
            nonlocal busy
            async with stream:
                if busy:
                    log.warning("a second feed connected while one is there, and was closed")
                    return
                busy = True
                try:
                    await _pump(stream, out)
                    await out.send(None)
                finally:
                    busy = False

        async with out:
            address = listeners[0].socket.getsockname()
            self.on_listening(address[0], address[1])
            await trio.serve_listeners(take, listeners)


async def _pump(stream: trio.SocketStream, out: Out) -> None:
    """Bytes until the other side ends or breaks."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    while True:
        try:
            chunk = await stream.receive_some(CHUNK_BYTES)
        except trio.BrokenResourceError:
            return
        if not chunk:
            return
        await out.send(chunk)
