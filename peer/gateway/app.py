"""The gateway's web application (ASGI): who may listen, to what, and the loops that hand events over.

    GET /v1/STREAM/events       Server-Sent Events; `Last-Event-ID` (or ?after=AN) resumes
    GET /v1/STREAM/socket       the same over WebSocket; the client may send {"query": XPATH} at any time
    GET /v1/STREAM              what is served here, as JSON
    GET /openapi.json, /asyncapi.json, /healthz, /skymesh.js

Query parameters: query, namespace=P=URI (repeatable), after, token. docs/gateway.md is the specification.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import trio

from dcp.admission import HostBuckets
from peer.gateway import describe
from peer.gateway.frames import as_sse, as_text
from peer.gateway.history import MAX_QUERY_BYTES, History, Reader
from xmlswitch import MalformedQuery, Query, QueryError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BATCH: Final = 64
BEAT_SECONDS: Final = 15.0
"""How often an idle client hears that the gateway lives: intermediaries cut connections that are silent for longer."""
SEND_PATIENCE: Final = 60.0
"""How long a client may take none of what is sent before it is disconnected. It can resume."""
MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_CLIENTS_PER_HOST: Final = 256
MAX_QUERIES_PER_SECOND: Final = 40.0
"""Of all clients. The most expensive query that is accepted takes some tens of milliseconds to read."""
MAX_QUERIES_PER_HOST: Final = 20.0
POLICY_VIOLATION, TRY_LATER, UNSUPPORTED = 1008, 1013, 1003
HEADERS: Final = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class Refused(Exception):
    """A request that is answered with a sentence: HTTP status, and for a WebSocket its close code."""

    def __init__(self, status: int, sentence: str, code: int = POLICY_VIOLATION) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may listen."""

    token: str | None = None
    """What a client must bring; None lets everybody in."""
    origins: frozenset[str] = frozenset()
    """Pages of other sites that may connect, as scheme://host:port; `*` for all. Pages from here always may."""


@dataclass(slots=True)
class Gateway:
    """The application. `put` what the stream brings; call it as ASGI."""

    stream: str
    history: History
    access: Access = field(default_factory=Access)
    script: bytes = b""
    served: int = 0
    """Clients since the start."""
    refused: int = 0
    disconnected_slow: int = 0
    _news: trio.Event = field(default_factory=trio.Event)
    _hosts: dict[str, int] = field(default_factory=dict)
    _queries: HostBuckets = field(default_factory=lambda: HostBuckets(MAX_QUERIES_PER_SECOND, MAX_QUERIES_PER_HOST))

    def put(self, items: Iterable[Any]) -> None:
        for item in items:
            self.history.put(item)
        self._news.set()
        self._news = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            try:
                await self._http(scope, receive, send)
            except Refused as refused:
                self.refused += 1
                await self._answer(scope, send, refused.status, {"error": str(refused)})

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["method"] == "OPTIONS" and _header(scope, b"origin"):
            await self._answer(scope, send, 204, None)
            return
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "only GET is answered here")
        match path:
            case "/healthz":
                await self._answer(scope, send, 200, {"ok": self.history.position is not None})
            case "/openapi.json":
                await self._answer(scope, send, 200, describe.openapi(self.stream))
            case "/asyncapi.json":
                await self._answer(scope, send, 200, describe.asyncapi(self.stream))
            case "/skymesh.js" if self.script:
                await self._answer(scope, send, 200, self.script, b"text/javascript; charset=utf-8")
            case "/":
                await self._answer(scope, send, 200, describe.page(self.stream), b"text/html; charset=utf-8")
            case _ if path == f"/v1/{self.stream}":
                self._admit(scope)
                await self._answer(scope, send, 200, self.about())
            case _ if path == f"/v1/{self.stream}/events":
                await self._events(scope, receive, send)
            case _ if path == f"/v1/{self.stream}/socket":
                raise Refused(426, "this address speaks WebSocket")
            case _:
                raise Refused(404, f"nothing is here; the stream is at /v1/{self.stream}/events and .../socket")

    def about(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "position": self.history.position,
            "oldest": self.history.floor + 1 if self.history.position is not None else None,
            "clients": len(self.history),
        }

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._admit(scope)
        last = _header(scope, b"last-event-id")
        reader = self._open(scope, asked, after=last or asked.get("after"))
        headers = [(b"content-type", b"text/event-stream"), *HEADERS, (b"x-accel-buffering", b"no")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers + self._cross_origin(scope)})

            async def put(text: str) -> None:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                await put("retry: 1000\n\n")
                await self._hand_over(reader, put, as_sse, idle=": still here\n\n")
                nursery.cancel_scope.cancel()
        finally:
            self._close(scope, reader)

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        status: int,
        body: bytes | dict[str, Any] | None,
        kind: bytes = b"application/json",
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() + b"\n" if body is not None else b""
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(data)), *HEADERS]
        if kind.startswith(b"text/html"):
            headers.append((b"content-security-policy", describe.PAGE_POLICY))
        headers += self._cross_origin(scope)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else data})

    # --- WebSocket ----------------------------------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            if scope["path"] != f"/v1/{self.stream}/socket":
                raise Refused(404, f"nothing is here; the stream is at /v1/{self.stream}/socket")
            origin = _header(scope, b"origin")
            if origin and not self._is_welcome(scope, origin):
                raise Refused(403, "pages of other sites may not connect; start the gateway with --allow-origin")
            asked = self._admit(scope)
            reader = self._open(scope, asked, after=asked.get("after"))
        except Refused as refused:
            self.refused += 1
            # A browser does not show a page why a handshake failed: accept, say why, and close.
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": json.dumps({"type": "error", "message": str(refused)})})
            await send({"type": "websocket.close", "code": refused.code, "reason": str(refused)[:100]})
            return
        try:
            await send({"type": "websocket.accept"})

            async def put(text: str) -> None:
                await send({"type": "websocket.send", "text": text})

            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, reader, _host_of(scope), receive, put, nursery.cancel_scope)
                await self._hand_over(reader, put, as_text, idle=None)
                nursery.cancel_scope.cancel()
        finally:
            self._close(scope, reader)

    async def _listen(
        self,
        reader: Reader,
        host: str,
        receive: Receive,
        put: Callable[[str], Awaitable[None]],
        scope: trio.CancelScope,
    ) -> None:
        """What the client says: another query, or goodbye."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                scope.cancel()
                return
            try:
                text = message.get("text")
                if text is None or len(text) > MAX_MESSAGE_BYTES:
                    raise ValueError(f"send at most {MAX_MESSAGE_BYTES} characters of JSON text")
                wanted = json.loads(text)
                if not isinstance(wanted, dict) or not isinstance(wanted.get("query"), str):
                    raise ValueError('send {"query": "XPATH"}')
                namespaces = wanted.get("namespaces", {})
                if not isinstance(namespaces, dict) or not all(isinstance(uri, str) for uri in namespaces.values()):
                    raise ValueError('namespaces must be an object, such as {"s": "urn:us:faa"}')
                if not self._queries.allows(trio.current_time(), host):
                    raise ValueError("too many queries; wait a second")
                reader.change_query(_query(wanted["query"], namespaces))
                self._wake()
            except (ValueError, RecursionError) as error:
                await put(json.dumps({"type": "error", "message": str(error)[:500]}))

    # --- both ---------------------------------------------------------------------------------------------------------

    async def _hand_over(
        self, reader: Reader, put: Callable[[str], Awaitable[None]], text_of: Callable[..., str], *, idle: str | None
    ) -> None:
        """Until the client is gone, or takes nothing for too long."""
        try:
            while True:
                news = self._news
                events = reader.take(BATCH)
                for event in events:
                    with trio.fail_after(SEND_PATIENCE):
                        await put(text_of(event))
                if events or reader.is_behind:
                    await trio.lowlevel.checkpoint()
                    continue
                with trio.move_on_after(BEAT_SECONDS) as waiting:
                    await news.wait()
                if waiting.cancelled_caught and idle is not None:
                    with trio.fail_after(SEND_PATIENCE):
                        await put(idle)
        except trio.TooSlowError:
            self.disconnected_slow += 1

    def _wake(self) -> None:
        self.put(())

    def _open(self, scope: Scope, asked: dict[str, Any], *, after: str | None) -> Reader:
        host = _host_of(scope)
        if self._hosts.get(host, 0) >= MAX_CLIENTS_PER_HOST:
            raise Refused(429, f"at most {MAX_CLIENTS_PER_HOST} clients of one host are served", TRY_LATER)
        if asked.get("query") and not self._queries.allows(trio.current_time(), host):
            raise Refused(429, "too many queries; wait a second", TRY_LATER)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) <= 19):
            raise Refused(400, f"after must be the AN of the last packet that was received, got {after[:40]!r}")
        try:
            query = _query(asked.get("query", ""), asked["namespaces"])
        except ValueError as error:
            raise Refused(400, str(error)) from None
        try:
            reader = self.history.open(query, after=int(after) if after is not None else None)
        except ValueError as error:
            raise Refused(503, str(error), TRY_LATER) from None
        self._hosts[host] = self._hosts.get(host, 0) + 1
        self.served += 1
        return reader

    def _close(self, scope: Scope, reader: Reader) -> None:
        host = _host_of(scope)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self.history.close(reader)

    # --- who may ------------------------------------------------------------------------------------------------------

    def _admit(self, scope: Scope) -> dict[str, Any]:
        """The parameters of the request; Refused if it lacks the token."""
        try:
            pairs = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=64)
        except (UnicodeDecodeError, ValueError):
            raise Refused(400, "the query string can't be read") from None
        asked: dict[str, Any] = {name: value for name, value in pairs if name != "namespace"}
        bindings = [value.partition("=") for name, value in pairs if name == "namespace"]
        asked["namespaces"] = {prefix: uri for prefix, _, uri in bindings}
        if self.access.token is not None:
            scheme, _, given = (_header(scope, b"authorization") or "").partition(" ")
            brought = given if scheme.lower() == "bearer" else asked.get("token", "")
            if not hmac.compare_digest(brought.encode(), self.access.token.encode()):
                raise Refused(401, "give the token as `Authorization: Bearer TOKEN` or ?token=TOKEN")
        return asked

    def _is_welcome(self, scope: Scope, origin: str) -> bool:
        return (
            "*" in self.access.origins
            or origin in self.access.origins
            or urlsplit(origin).netloc == _header(scope, b"host")
        )

    def _cross_origin(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Without these a browser shows a page of another site nothing of the answer."""
        origin = _header(scope, b"origin")
        if not origin or not ("*" in self.access.origins or origin in self.access.origins):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-headers", b"authorization, last-event-id"),
            (b"vary", b"origin"),
        ]


def _query(text: str, namespaces: dict[str, str]) -> Query | None:
    """What a stranger asks for; None for everything. ValueError with a sentence."""
    if not text.strip():
        return None
    if len(text.encode()) > MAX_QUERY_BYTES:
        raise ValueError(f"a query has at most {MAX_QUERY_BYTES} bytes here")
    try:
        query = Query.parse_untrusted(text, namespaces)
    except (QueryError, MalformedQuery) as error:
        raise ValueError(f"{error} (the gateway takes XPath 1.0)") from None
    return None if query.matches_everything else query


def _header(scope: Scope, name: bytes) -> str | None:
    found = next((value for key, value in scope["headers"] if key == name), None)
    return found.decode("latin-1") if found is not None else None


def _host_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
