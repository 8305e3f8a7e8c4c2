"""The gateway as a web application: what it answers, whom it refuses, what it says to a client that misbehaves."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
import trio

from dcp import Gap, Packet, Started
from peer.gateway import app as gateway_app
from peer.gateway import describe
from peer.gateway.app import Access, Gateway
from peer.gateway.frames import as_object
from peer.gateway.history import Event, History
from peer.items import QuerySwitched

PATIENCE = 20.0
TOKEN = "0123456789abcdef0123"


class Client:
    """A web server's side of ASGI, with one request in it."""

    def __init__(self, gateway, kind, path, *, query="", headers=(), method="GET", host="192.0.2.1"):
        self.scope = {
            "type": kind, "path": path, "query_string": query.encode(), "method": method, "client": (host, 5),
            "headers": [(b"host", b"gateway:8080"), *((key.encode(), value.encode()) for key, value in headers)],
        }  # fmt: skip
        self.gateway = gateway
        self.sent: list[dict] = []
        self.said, self._hears = trio.open_memory_channel[dict](100)
        self.stuck = False
        self._news = trio.Event()
        self.done = trio.Event()

    async def send(self, message):
        if self.stuck:
            await trio.sleep_forever()
        self.sent.append(message)
        self._news.set()
        self._news = trio.Event()

    async def run(self, task_status=trio.TASK_STATUS_IGNORED):
        task_status.started()
        await self.gateway(self.scope, self._hears.receive, self.send)
        self.done.set()

    async def leave(self):
        await self.said.send({"type": "http.disconnect"})
        with trio.fail_after(PATIENCE):
            await self.done.wait()

    async def until(self, condition):
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._news.wait()

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {key.decode(): value.decode() for key, value in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def messages(self):
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    @property
    def events(self):
        blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in self.body.decode().split("\n\n")
                  if "data: " in block]  # fmt: skip
        return [(block["event"], block["id"], json.loads(block["data"])) for block in blocks]


@pytest.fixture
def gateway():
    made = Gateway("asdi", History(1 << 20, max_readers=4), script=b"export {}")
    made.put([Started(0), *(Packet(an, b"<p><n>%d</n></p>" % an) for an in range(1, 6))])
    return made


async def ask(gateway, path, **options):
    client = Client(gateway, "http", path, **options)
    with trio.fail_after(PATIENCE):
        await client.run()
    return client


async def test_events_come_with_ids_and_the_client_can_resume(gateway, nursery):
    client = Client(gateway, "http", "/v1/asdi/events", query="query=/p/n%3E3&after=2")
    await nursery.start(client.run)
    await client.until(lambda: len(client.events) == 2)
    assert client.status == 200
    assert client.headers["content-type"] == "text/event-stream"
    assert client.events == [
        ("packet", str(an), {"type": "packet", "an": an, "xml": f"<p><n>{an}</n></p>"}) for an in (4, 5)
    ]
    gateway.put([Packet(6, b"<p><n>6</n></p>"), Gap(6, 9)])
    await client.until(lambda: len(client.events) == 4)
    assert client.events[-1] == ("gap", "9", {"type": "gap", "after": 6, "until": 9})
    other = Client(gateway, "http", "/v1/asdi/events", query="after=1", headers=[("last-event-id", "5")])
    await nursery.start(other.run)
    await other.until(lambda: len(other.events) == 2)
    assert [identity for _, identity, _ in other.events] == ["6", "9"], "the header is newer than the address"
    for each in (client, other):
        await each.leave()
    assert len(gateway.history) == 0
    assert gateway.served == 2


async def test_a_socket_changes_its_query_and_is_told_what_is_wrong(gateway, nursery):
    client = Client(gateway, "websocket", "/v1/asdi/socket", query="query=/q")
    await client.said.send({"type": "websocket.connect"})
    await nursery.start(client.run)
    await client.until(lambda: client.messages == [{"type": "started", "position": 5}])
    bad = ["{", "[]", '{"query": 5}', '{"query": "//a["}', '{"query": "/p", "namespaces": {"a": 1}}', "x" * 20_000]
    bad += ["[" * 15_000, '{"query": "for $a in /p return $a"}', json.dumps({"query": "/" + "a" * 5_000})]
    for text in bad:
        await client.said.send({"type": "websocket.receive", "text": text})
    await client.said.send({"type": "websocket.receive", "bytes": b"\x00"})
    await client.until(lambda: len(client.messages) == len(bad) + 2)
    assert {message["type"] for message in client.messages[1:]} == {"error"}
    assert all(message["message"] for message in client.messages[1:])
    await client.said.send({"type": "websocket.receive", "text": json.dumps({"query": "/p/n > 6"})})
    await client.until(lambda: client.messages[-1]["type"] == "switched")
    assert client.messages[-1] == {"type": "switched", "position": 5, "query": "/p/n > 6"}
    gateway.put(Packet(an, b"<p><n>%d</n></p>" % an) for an in (6, 7))
    await client.until(lambda: client.messages[-1] == {"type": "packet", "an": 7, "xml": "<p><n>7</n></p>"})
    await client.said.send({"type": "websocket.disconnect"})


@pytest.mark.parametrize(
    ("path", "query", "status", "sentence"),
    [
        ("/v1/other/events", "", 404, "the stream is at /v1/asdi/events"),
        ("/v1/asdi/socket", "", 426, "speaks WebSocket"),
        ("/v1/asdi/events", "query=" + quote("//a["), 400, ""),
        ("/v1/asdi/events", "query=" + quote("for $a in /p return $a"), 400, "XPath 1.0"),
        ("/v1/asdi/events", "query=" + "a" * 5_000, 400, "at most 4096 bytes"),
        ("/v1/asdi/events", "query=s:a", 400, ""),
        ("/v1/asdi/events", "after=-1", 400, "after must be the AN"),
        ("/v1/asdi/events", "after=" + "9" * 40, 400, "after must be the AN"),
        ("/v1/asdi/events", "after=\u0664", 400, "can't be read"),
        ("/v1/asdi/events", "&".join(["a=1"] * 100), 400, "can't be read"),
    ],
)
async def test_what_is_wrong_is_one_sentence(gateway, path, query, status, sentence):
    client = await ask(gateway, path, query=query)
    assert client.status == status
    assert sentence in json.loads(client.body)["error"]


async def test_small_answers(gateway):
    assert json.loads((await ask(gateway, "/v1/asdi")).body) == {
        "stream": "asdi", "position": 5, "oldest": 1, "clients": 0,
    }  # fmt: skip
    assert json.loads((await ask(gateway, "/healthz")).body) == {"ok": True}
    assert (await ask(gateway, "/skymesh.js")).body == b"export {}"
    assert (await ask(gateway, "/", method="HEAD")).body == b""
    assert (await ask(gateway, "/", method="POST")).status == 405
    page = await ask(gateway, "/")
    assert b"<title>asdi</title>" in page.body
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_without_the_token_nothing_is_given(gateway, nursery):
    gateway.access = Access(token=TOKEN)
    for query, headers in (("", ()), ("token=x", ()), ("", [("authorization", "Bearer x")]), ("token=%FF", ())):
        client = await ask(gateway, "/v1/asdi/events", query=query, headers=headers)
        assert client.status == 401
        assert TOKEN not in client.body.decode()
    for query, headers in ((f"token={TOKEN}", ()), ("", [("authorization", f"bearer {TOKEN}")])):
        assert (await ask(gateway, "/v1/asdi", query=query, headers=headers)).status == 200
    socket = Client(gateway, "websocket", "/v1/asdi/socket")
    await socket.said.send({"type": "websocket.connect"})
    await nursery.start(socket.run)
    await socket.until(lambda: bool(socket.sent) and socket.sent[-1]["type"] == "websocket.close")
    assert socket.sent[-1]["code"] == 1008
    assert [message["type"] for message in socket.messages] == ["error"]


@pytest.mark.parametrize(
    ("origin", "origins", "may"),
    [
        ("http://gateway:8080", (), True),
        ("http://evil.example", (), False),
        ("http://evil.example", ("https://good.example",), False),
        ("https://good.example", ("https://good.example",), True),
        ("https://any.example", ("*",), True),
        ("null", (), False),
    ],
)
async def test_pages_of_other_sites_may_not_connect_unless_named(gateway, nursery, origin, origins, may):
    gateway.access = Access(origins=frozenset(origins))
    socket = Client(gateway, "websocket", "/v1/asdi/socket", headers=[("origin", origin)])
    await socket.said.send({"type": "websocket.connect"})
    await nursery.start(socket.run)
    await socket.until(lambda: bool(socket.messages))
    assert socket.messages[0]["type"] == ("started" if may else "error")
    await socket.said.send({"type": "websocket.disconnect"})
    answer = await ask(gateway, "/v1/asdi", headers=[("origin", origin)])
    assert answer.headers.get("access-control-allow-origin") == (origin if may and origins else None)


async def test_clients_are_bounded_in_all_and_for_each_host(gateway, nursery, monkeypatch):
    monkeypatch.setattr(gateway_app, "MAX_CLIENTS_PER_HOST", 2)
    clients = []
    for host in ("a", "a", "b", "b"):
        clients.append(Client(gateway, "http", "/v1/asdi/events", host=host))
        await nursery.start(clients[-1].run)
        await clients[-1].until(lambda: bool(clients[-1].events))
    assert (await ask(gateway, "/v1/asdi/events", host="a")).status == 429
    assert (await ask(gateway, "/v1/asdi/events", host="c")).status == 503
    for client in clients:
        await client.leave()
    again = Client(gateway, "http", "/v1/asdi/events", host="a")
    await nursery.start(again.run)
    await again.until(lambda: bool(again.events))
    nursery.cancel_scope.cancel()


async def test_a_storm_of_queries_costs_a_host_its_own_share_only(gateway, nursery, autojump_clock):
    """Each may take tens of milliseconds to read: without a limit one socket could keep the gateway from everybody."""
    client = Client(gateway, "websocket", "/v1/asdi/socket")
    await client.said.send({"type": "websocket.connect"})
    await nursery.start(client.run)
    await client.until(lambda: bool(client.messages))
    for number in range(60):
        await client.said.send({"type": "websocket.receive", "text": json.dumps({"query": f"/p/n > {number}"})})
    await client.until(lambda: len(client.messages) == 61)
    assert sum(message["type"] == "switched" for message in client.messages) == gateway_app.MAX_QUERIES_PER_HOST
    assert client.messages[-1] == {"type": "error", "message": "too many queries; wait a second"}
    assert (await ask(gateway, "/v1/asdi/events", query="query=/p")).status == 429
    other = Client(gateway, "http", "/v1/asdi/events", query="query=/p", host="192.0.2.9")
    await nursery.start(other.run)
    await other.until(lambda: bool(other.events))
    nursery.cancel_scope.cancel()


async def test_a_client_that_takes_nothing_is_disconnected_and_the_others_never_notice(
    gateway, nursery, autojump_clock
):
    slow, quick = (Client(gateway, "http", "/v1/asdi/events", host=host) for host in ("slow", "quick"))
    for client in (slow, quick):
        await nursery.start(client.run)
        await client.until(lambda client=client: bool(client.events))
    slow.stuck = True
    begun = trio.current_time()
    gateway.put(Packet(an, b"<p/>") for an in range(6, 106))
    await quick.until(lambda: len(quick.events) == 101)
    assert trio.current_time() == begun
    await trio.sleep(gateway_app.SEND_PATIENCE + 1)
    assert gateway.disconnected_slow == 1
    assert len(gateway.history) == 1
    assert b": still here" in quick.body, "an idle connection is kept alive"
    nursery.cancel_scope.cancel()


def test_every_event_is_as_the_description_says():
    samples = [
        Packet(1, b"<a/>"), Packet(1, b"\xff\xfe\xff"), Gap(1, 2), Started(3), QuerySwitched(4, None),
    ]  # fmt: skip
    schemas = describe.schemas()
    for sample in samples:
        found = as_object(Event(sample, 1))
        schema = schemas[found["type"]]
        assert set(schema["required"]) <= set(found) <= set(schema["properties"])
    assert as_object(Event(Packet(1, b"<a/>"), 1, is_filtered=False))["filtered"] is False


def references(part):
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


@pytest.mark.parametrize("made", [describe.openapi("asdi"), describe.asyncapi("asdi")])
def test_the_descriptions_refer_to_what_they_hold(made):
    found = list(references(made))
    assert found
    for reference in found:
        part = made
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    assert json.loads(json.dumps(made)) == made
