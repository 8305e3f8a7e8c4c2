"""The page's server: who may speak to it, and what it does with garbage."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, Request, TextMessage
from wsproto.utilities import LocalProtocolError

from dcp import Gap, Packet, Started
from dcp.guard import faults, strictness
from demo.page.gateways import Gateways
from demo.page.run import static_files
from demo.page.server import MAX_CONNECTIONS, MAX_MESSAGE_BYTES, PageServer, _run_application

pytestmark = pytest.mark.net


@pytest.fixture
async def server(nursery):
    async def talk(socket, orders):
        socket.post({"t": "hello"})
        async for order in orders:
            socket.post({"t": "echo", "order": order})

    made = PageServer(static_files().get, talk)
    await nursery.start(made.serve, 0)
    return made


async def ask(server, text):
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        await stream.send_all(text)
        answer = b""
        with trio.move_on_after(20.0):
            async for chunk in stream:
                answer += chunk
                head, end, body = answer.partition(b"\r\n\r\n")
                if end:
                    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    if len(body) >= length:
                        break
        return answer


def get(server, path="/", host=None, method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{server.port}'}\r\n\r\n".encode()


class Page:
    """A WebSocket of a page, by hand."""

    def __init__(self, stream, socket):
        self.stream, self.socket = stream, socket
        self.first = None

    @classmethod
    @asynccontextmanager
    async def open(cls, server, *, token=None, origin=None, host=None, path="/ws", after=0):
        socket = WSConnection(ConnectionType.CLIENT)
        ours = f"127.0.0.1:{server.port}"
        headers = [(b"Origin", (origin or f"http://{ours}").encode())]
        target = f"{path}?token={server.token if token is None else token}&after={after}"
        request = Request(host=host or ours, target=target, extra_headers=headers)
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            await stream.send_all(socket.send(request))
            page = cls(stream, socket)
            page.first = await page.event()
            yield page

    async def event(self):
        """The next; None at the end."""
        with trio.fail_after(30.0):
            while True:
                for event in self.socket.events():
                    return event
                data = await self.stream.receive_some(65_536)
                if not data:
                    return None
                self.socket.receive_data(data)

    async def say(self, text):
        await self.stream.send_all(self.socket.send(TextMessage(data=text)))


async def test_the_page_and_its_parts_are_served_with_a_strict_policy(server):
    for path, kind in [("/", b"text/html"), ("/app.js", b"text/javascript"), ("/style.css", b"text/css")]:
        answer = await ask(server, get(server, path))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"Content-Type: " + kind in answer
        assert b"default-src 'none'" in answer


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/static/app.js", "/%2e%2e/x", "//etc/passwd", "/run.py"])
async def test_nothing_but_the_page_is_served(server, path):
    assert (await ask(server, get(server, path))).startswith(b"HTTP/1.1 404")


async def test_a_name_that_was_bent_to_loopback_gets_nothing(server):
    assert (await ask(server, get(server, host=f"evil.example:{server.port}"))).startswith(b"HTTP/1.1 421")
    assert (await ask(server, get(server, method="POST"))).startswith(b"HTTP/1.1 405")


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "guess"},
        {"token": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
    ],
)
async def test_only_the_page_that_we_served_may_give_orders(server, wrong):
    async with Page.open(server, **wrong) as page:
        assert isinstance(page.first, RejectConnection)
    assert server.refused == 1


async def test_orders_go_in_and_words_come_out(server):
    async with Page.open(server) as page:
        assert isinstance(page.first, AcceptConnection)
        assert json.loads((await page.event()).data) == {"t": "hello"}
        await page.say('{"do": "kill"}')
        assert json.loads((await page.event()).data) == {"t": "echo", "order": {"do": "kill"}}


@pytest.mark.parametrize("path", ["/", "/nothing", "/ws"])
async def test_head_is_answered_without_a_body(server, path):
    """It once ended the server: h11 takes no body for it."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        await stream.send_all(get(server, path, method="HEAD"))
        await stream.send_eof()
        answer = b"".join([chunk async for chunk in stream])
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: " in answer
    assert (await ask(server, get(server))).startswith(b"HTTP/1.1 200")


async def test_idle_connections_shut_nobody_out(server):
    idle = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(MAX_CONNECTIONS + 8)]
    assert (await ask(server, get(server))).startswith(b"HTTP/1.1 200")
    async with Page.open(server) as page:
        assert isinstance(page.first, AcceptConnection)
    for stream in idle:
        await stream.aclose()


async def test_an_error_in_a_conversation_ends_that_connection_alone(nursery):
    async def talk(socket, orders):
        raise KeyError("a bug that a page found")

    server = PageServer(static_files().get, talk)
    await nursery.start(server.serve, 0)
    faults.clear()
    with strictness(False):
        async with Page.open(server) as page:
            assert await page.event() is None
        assert faults == {"demo page": 1}
        assert (await ask(server, get(server))).startswith(b"HTTP/1.1 200")
    faults.clear()


@pytest.mark.parametrize("text", ["no json", "[" * 5_000, f'{{"n": {"9" * 10_000}}}', "x" * (MAX_MESSAGE_BYTES + 1)])
async def test_a_page_that_talks_rubbish_is_let_go_and_the_server_goes_on(server, text):
    async with Page.open(server) as page:
        await page.event()
        await page.say(text)
        last = await page.event()
        assert last is None or isinstance(last, CloseConnection)
    assert (await ask(server, get(server))).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00" * 50, b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n", b"A" * 40_000]
)
async def test_garbage_is_let_go_and_the_server_goes_on(server, garbage):
    with trio.fail_after(30.0):
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        try:
            await stream.send_all(garbage)
            await stream.send_eof()
            while await stream.receive_some(1000):
                pass
        except trio.BrokenResourceError:
            pass
        await stream.aclose()
    assert (await ask(server, get(server))).startswith(b"HTTP/1.1 200")


async def test_what_a_client_was_handed_is_read_from_its_gateway(nursery):
    gateways = Gateways({"client-1"})

    async def talk(socket, orders):
        raise AssertionError("a gateway's client is no page")

    made = PageServer(static_files().get, talk, gateways.find)
    await nursery.start(made.serve, 0)
    gateways.put("client-1", Started(4))
    gateways.put("client-1", Packet(5, b"<flight/>"))
    path = "/v1/client-1/socket"
    async with Page.open(made, path=path, after=4) as page:
        assert isinstance(page.first, AcceptConnection)
        assert json.loads((await page.event()).data) == {"type": "packet", "an": 5, "xml": "<flight/>"}
        gateways.put("client-1", Gap(5, 7))
        assert json.loads((await page.event()).data) == {"type": "gap", "after": 5, "until": 7}
    async with Page.open(made, path=path, token="wrong") as page:
        assert isinstance(page.first, RejectConnection)
    async with Page.open(made, path="/v1/client-2/socket") as page:
        assert page.first.status_code == 404


@pytest.mark.parametrize("error", [LocalProtocolError("closed"), trio.BrokenResourceError()])
async def test_a_page_that_has_gone_ends_its_map_and_nothing_else(error):
    """Found by a run of the tests: what the gateway sends from a nursery comes as a group, and was a fault."""

    async def sends_from_a_nursery(scope, receive, send):
        raise ExceptionGroup("", [ExceptionGroup("", [error])])

    await _run_application(sends_from_a_nursery, "/", "", {}, WSConnection(ConnectionType.SERVER), None)

    async def is_broken(scope, receive, send):
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        await _run_application(is_broken, "/", "", {}, WSConnection(ConnectionType.SERVER), None)
