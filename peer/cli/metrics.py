"""Prometheus metrics over HTTP: one page, made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import trio

from dcp.guard import fault
from peer.connections import Connections, Seat
from peer.node import Peer
from peer.observe.metrics import Feed, render

MAX_REQUEST_BYTES = 8_192
MAX_SCRAPES = 16
"""Connections at once; for a further one the longest silent one is closed."""
REQUEST_TIMEOUT = 5.0


async def serve_metrics(
    peer: Peer,
    address: tuple[str, int],
    feed: Feed | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer GET /metrics until cancelled."""
    listeners = await trio.open_tcp_listeners(address[1], host=address[0])
    connections = Connections(MAX_SCRAPES)

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            with connections.seat() as seat, trio.move_on_after(REQUEST_TIMEOUT):
                if seat is None:
                    return
                try:
                    await _answer(lambda: render(peer, feed), stream, seat)
                except trio.BrokenResourceError:
                    pass  # the client is gone
                except Exception as error:
                    fault("metrics request", error)

    host, port = listeners[0].socket.getsockname()[:2]
    task_status.started((host, port))
    await trio.serve_listeners(answer, listeners)


async def _answer(page: Callable[[], str], stream: trio.SocketStream, seat: Seat) -> None:
    request = b""
    while b"\r\n\r\n" not in request and b"\n\n" not in request:
        more = await stream.receive_some(4_096)
        request += more
        if not more or len(request) > MAX_REQUEST_BYTES:
            return
    seat.is_busy = True
    found = request.startswith((b"GET /metrics ", b"GET / "))
    body = page().encode() if found else b"there is only /metrics\n"
    status = "200 OK" if found else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + body)
