"""HTTP and WebSocket on one loopback port, under trio: h11 and wsproto speak the protocols, this file moves bytes.

Who may speak to it: only a page that this very server has served. A page from elsewhere on the web can make a browser
connect to loopback; so the Host must be ours, a WebSocket's Origin must be ours, and it must bring the token that only
our own page was given.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, Request, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from dcp.guard import fault
from peer.connections import Connections, Seat

Receive = Callable[[], Awaitable[dict[str, Any]]]
Post = Callable[[dict[str, Any]], Awaitable[None]]

MAX_REQUEST_BYTES: Final = 16 << 10
MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_CONNECTIONS: Final = 64
MAX_QUEUE: Final = 256
"""Messages queued for a page; a page that falls further behind is disconnected, and reconnects."""
BEHIND: Final = 16
REQUEST_PATIENCE: Final = 15.0
SEND_PATIENCE: Final = 20.0
ONLY_OURS: Final = b"Forbidden: only the demo's own page may connect.\n"
HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class Socket:
    """One page's WebSocket. `post` never waits."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[str](MAX_QUEUE)
        self.writing = trio.Lock()

    def post(self, message: dict[str, Any]) -> None:
        try:
            self._send.send_nowait(json.dumps(message, separators=(",", ":")))
        except trio.WouldBlock:
            self._send.close()  # it does not keep up: disconnect it, and it reconnects
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return

    @property
    def is_behind(self) -> bool:
        """The page has not consumed the last messages yet: do not send it newer versions of the same."""
        return self._send.statistics().current_buffer_used > BEHIND

    @property
    def outgoing(self) -> trio.MemoryReceiveChannel[str]:
        return self._receive


Application = Callable[[dict[str, Any], Receive, Post], Awaitable[None]]


@dataclass(slots=True)
class PageServer:
    """`find` answers paths; `talk` is called with every page's socket and an iterator of what it says."""

    find: Callable[[str], Answer | None]
    talk: Callable[[Socket, AsyncIterator[dict[str, Any]]], Awaitable[None]]
    application: Callable[[str], Application | None] = lambda path: None
    """By path, what answers a WebSocket that is not the page's own (ASGI)."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    port: int = 0
    refused: int = 0
    _connections: Connections = field(default_factory=lambda: Connections(MAX_CONNECTIONS))

    async def serve(self, port: int, *, task_status: trio.TaskStatus[int]) -> None:
        """OSError when the port is taken."""
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        self.port = int(listeners[0].socket.getsockname()[1])
        task_status.started(self.port)
        await trio.serve_listeners(self._connected, listeners)

    @property
    def hosts(self) -> set[str]:
        return {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}

    async def _connected(self, stream: trio.SocketStream) -> None:
        try:
            with self._connections.seat() as seat:
                if seat is not None:
                    await self._converse(stream, seat)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass  # the other side is gone, or speaks something else
        except Exception as error:
            fault("demo page", error)  # this connection ends; the demo and the other pages go on
        finally:
            with trio.move_on_after(1.0, shield=True):
                await stream.aclose()

    async def _converse(self, stream: trio.SocketStream, seat: Seat) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
        while True:
            request: h11.Request | None = None
            seat.is_busy = False
            with trio.move_on_after(REQUEST_PATIENCE):
                request = await _next_request(connection, stream)
            if request is None:  # gone, or too slow
                return
            seat.is_busy = True
            if await self._answer(connection, stream, request):
                return
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, connection: h11.Connection, stream: trio.SocketStream, request: h11.Request) -> bool:
        """True when the connection is used up."""
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        target = request.target.decode("latin-1")
        path, _, query = target.partition("?")
        if headers.get(b"host") not in self.hosts:
            self.refused += 1
            await self._respond(
                connection, stream, request, Answer(b"This page is only available on this machine.\n", status=421)
            )
        elif path == "/ws" or self.application(path) is not None:
            return await self._upgrade(connection, stream, request, headers, query)
        elif request.method not in (b"GET", b"HEAD"):
            await self._respond(connection, stream, request, Answer(b"Only GET and HEAD.\n", status=405))
        else:
            found = self.find(path)
            await self._respond(connection, stream, request, found or Answer(b"Not found.\n", status=404))
        return False

    async def _respond(
        self, connection: h11.Connection, stream: trio.SocketStream, request: h11.Request, answer: Answer
    ) -> None:
        headers = [*HEADERS, ("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
        if answer.status == 405:
            headers.append(("Allow", "GET, HEAD"))
        head = h11.Response(status_code=answer.status, headers=headers)
        data = connection.send(head) or b""
        if request.method != b"HEAD":
            data += connection.send(h11.Data(data=answer.body)) or b""
        data += connection.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(SEND_PATIENCE):
            await stream.send_all(data)

    # --- WebSocket ----------------------------------------------------------------------------------------------------

    async def _upgrade(
        self,
        connection: h11.Connection,
        stream: trio.SocketStream,
        request: h11.Request,
        headers: dict[bytes, str],
        query: str,
    ) -> bool:
        ours = {f"http://{host}" for host in self.hosts}
        offered = dict(part.partition("=")[::2] for part in query.split("&")).get("token", "")
        if headers.get(b"origin") not in ours or not hmac.compare_digest(offered.encode(), self.token.encode()):
            self.refused += 1
            await self._respond(connection, stream, request, Answer(ONLY_OURS, status=403))
            return True
        socket = WSConnection(ConnectionType.SERVER)
        try:
            socket.initiate_upgrade_connection(list(request.headers), request.target)
            event = next(iter(socket.events()), None)
        except RemoteProtocolError:
            event = None
        if not isinstance(event, Request):
            await self._respond(connection, stream, request, Answer(b"WebSocket upgrade required.\n", status=400))
            return True
        await stream.send_all(socket.send(AcceptConnection()))
        path = request.target.decode("latin-1").partition("?")[0]
        application = self.application(path)
        if application is None:
            await self._run_socket(socket, stream)
        else:
            await _run_application(application, path, query, headers, socket, stream)
        return True

    async def _run_socket(self, socket: WSConnection, stream: trio.SocketStream) -> None:
        page = Socket()

        async def send(event: TextMessage | Pong | CloseConnection) -> None:
            async with page.writing:
                with trio.fail_after(SEND_PATIENCE):
                    await stream.send_all(socket.send(event))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pump, send, page, nursery.cancel_scope)
            await self.talk(page, _incoming(socket, stream, send))
            nursery.cancel_scope.cancel()


async def _run_application(
    application: Application,
    path: str,
    query: str,
    headers: dict[bytes, str],
    socket: WSConnection,
    stream: trio.SocketStream,
) -> None:
    """An ASGI application on a WebSocket that is accepted already."""
    writing = trio.Lock()

    async def send(event: TextMessage | Pong | CloseConnection) -> None:
        async with writing:
            with trio.fail_after(SEND_PATIENCE):
                await stream.send_all(socket.send(event))

    async def post(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await send(TextMessage(data=message["text"]))
        elif message["type"] == "websocket.close":
            await send(CloseConnection(code=message["code"], reason=message.get("reason", "")))

    texts = _Texts(socket, stream, send)
    is_told = False

    async def receive() -> dict[str, Any]:
        nonlocal is_told
        if not is_told:
            is_told = True
            return {"type": "websocket.connect"}
        text = await texts.next()
        return {"type": "websocket.disconnect"} if text is None else {"type": "websocket.receive", "text": text}

    scope = {
        "type": "websocket",
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(name, value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
    }
    try:
        await application(scope, receive, post)
    except* GONE:  # alone or in a group: an application sends from a nursery
        pass


async def _next_request(connection: h11.Connection, stream: trio.SocketStream) -> h11.Request | None:
    """None at the end. The body of a request is read and thrown away, up to a limit."""
    request: h11.Request | None = None
    body = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(8192))
        elif isinstance(event, h11.Request):
            request = event
            if any(name == b"upgrade" for name, _ in event.headers):
                return request
        elif isinstance(event, h11.Data):
            body += len(event.data)
            if body > MAX_REQUEST_BYTES:
                return None
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


Send = Callable[[TextMessage | Pong | CloseConnection], Awaitable[None]]
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, LocalProtocolError)


async def _pump(send: Send, page: Socket, whole: trio.CancelScope) -> None:
    """What the demo says to the page, in order."""
    try:
        async for text in page.outgoing:
            await send(TextMessage(data=text))
        await send(CloseConnection(code=1013, reason="too slow"))
    except GONE:
        pass
    whole.cancel()


async def _incoming(socket: WSConnection, stream: trio.SocketStream, send: Send) -> AsyncIterator[dict[str, Any]]:
    """Yield a page's commands until it disconnects or sends something that is not a command."""
    texts = _Texts(socket, stream, send)
    while (text := await texts.next()) is not None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return  # not JSON: an integer of 10,000 digits is a plain ValueError
        if isinstance(message, dict):
            yield message


class _Texts:
    """Whole messages from the other side."""

    def __init__(self, socket: WSConnection, stream: trio.SocketStream, send: Send) -> None:
        self._socket, self._stream, self._send = socket, stream, send
        self._whole: deque[str] = deque()
        self._begun = ""

    async def next(self) -> str | None:
        """None when the other side has disconnected, or sent what is not text or too long."""
        while not self._whole:
            try:
                data = await self._stream.receive_some(8192)
                self._socket.receive_data(data or None)
                for event in self._socket.events():
                    if not await self._take(event):
                        return None
            except (*GONE, RemoteProtocolError):
                return None
            if not data:
                return None
        return self._whole.popleft()

    async def _take(self, event: Event) -> bool:
        """Whether to go on."""
        if isinstance(event, TextMessage):
            self._begun += event.data
            if len(self._begun) > MAX_MESSAGE_BYTES:
                await self._send(CloseConnection(code=1009, reason="too long"))
                return False
            if event.message_finished:
                self._whole.append(self._begun)
                self._begun = ""
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            await self._send(event.response())
            return False
        elif isinstance(event, BytesMessage):
            await self._send(CloseConnection(code=1003, reason="text only"))
            return False
        return True
