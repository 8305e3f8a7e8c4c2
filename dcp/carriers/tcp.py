"""Datagrams over TCP, and over any other trio stream: for networks that drop UDP."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Sequence

import trio

from dcp.carriers.frames import Unframer, frame
from dcp.carriers.transport import Conduit, Serve
from dcp.errors import MalformedDatagram

READ_BYTES = 64 << 10
# The rest of a frame that has begun must come within this time: one byte now and then would hold a connection forever.
FRAME_SECONDS = 10.0
# What the kernel may hold unsent for a connection: more only makes live packets older before we notice that it is full.
UNSENT_BYTES = 128 << 10
TCP_NOTSENT_LOWAT = 25  # from linux/tcp.h; not in the socket module of every Python
BACKLOG = 64


class StreamConduit:
    """A connection made of a byte stream; transports whose connections are byte streams can use it as it is."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._frames = Unframer()
        self._frame_deadline = math.inf

    async def send(self, datagrams: Sequence[bytes]) -> None:
        await self._stream.send_all(frame(datagrams))

    async def receive(self) -> Sequence[bytes]:
        while True:
            with trio.CancelScope(deadline=self._frame_deadline) as scope:
                data = await self._stream.receive_some(READ_BYTES)
            if scope.cancelled_caught:
                raise MalformedDatagram("slow frame")
            if not data:
                return ()
            began_before = self._frames.is_partial
            datagrams = self._frames.feed(bytes(data))
            if not self._frames.is_partial:
                self._frame_deadline = math.inf
            elif datagrams or not began_before:
                self._frame_deadline = trio.current_time() + FRAME_SECONDS
            if datagrams:
                return datagrams

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Tcp:
    """The transport `tcp`."""

    async def connect(self, host: str, port: int) -> Conduit:
        stream = await trio.open_tcp_stream(host, port)
        _limit_unsent(stream)
        return StreamConduit(stream)

    async def listen(self, host: str, port: int) -> TcpListening:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # `::` takes IPv4 as well, as for UDP
            await sock.bind((host, port))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        return TcpListening(trio.SocketListener(sock))


class TcpListening:
    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    async def run(self, serve: Serve) -> None:
        async def accepted(stream: trio.SocketStream) -> None:
            try:
                host, port = stream.socket.getpeername()[:2]
            except OSError:
                await trio.aclose_forcefully(stream)  # it has gone already
                return
            _limit_unsent(stream)
            await serve(StreamConduit(stream), (host.removeprefix("::ffff:") if "." in host else host, port))

        await trio.serve_listeners(accepted, [self._listener])

    def close(self) -> None:
        self._listener.socket.close()


def _limit_unsent(stream: trio.SocketStream) -> None:
    with contextlib.suppress(OSError):  # an optimization that not every system has
        stream.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
