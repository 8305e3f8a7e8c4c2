"""A transport of one's own: packets between containers that share a folder and have no network between them.

Peers name each other by an IP address and a port, as everywhere; here the port is the name of a socket file in the
folder that SKYMESH_SOCKETS names. Registered by a package like this:

    [project.entry-points."skymesh.transports"]
    unix = "unix_transport:UnixSockets"

and used with `skymesh join asdi --transport unix --bootstrap 127.0.0.1:4000`. How many connections there may be,
time-outs, queues and dialling are skymesh's business; see `dcp/carriers/transport.py` for what a transport must do.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import trio

from dcp.carriers.tcp import StreamConduit
from dcp.carriers.transport import Conduit, Serve


def socket_file(port: int) -> Path:
    return Path(os.environ["SKYMESH_SOCKETS"]) / f"{port}.sock"


class UnixSockets:
    async def connect(self, host: str, port: int) -> Conduit:
        return StreamConduit(await trio.open_unix_socket(socket_file(port)))

    async def listen(self, host: str, port: int) -> UnixListening:
        path = socket_file(port)
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await sock.bind(str(path))
            sock.listen(16)
        except BaseException:
            sock.close()
            raise
        return UnixListening(trio.SocketListener(sock), path)


class UnixListening:
    def __init__(self, listener: trio.SocketListener, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._accepted = 0

    async def run(self, serve: Serve) -> None:
        async def accepted(stream: trio.SocketStream) -> None:
            # A Unix socket's peer has no address: any one that no other connection has will do.
            self._accepted += 1
            await serve(StreamConduit(stream), ("127.0.0.1", self._accepted % 65_536))

        await trio.serve_listeners(accepted, [self._listener])

    def close(self) -> None:
        self._listener.socket.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
