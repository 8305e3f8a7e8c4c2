"""Streams over TCP on loopback, and what strangers do to a TCP port."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

import pytest
import trio

import dcp
from dcp import wire
from dcp.carriers import connection, pool, seats, tcp
from dcp.endpoint import Endpoint
from dcp.handshake import OpenType
from dcp.udp import UdpSocket

pytestmark = pytest.mark.net


class Deaf(UdpSocket):
    """A network that drops UDP: what is sent is gone, and nothing comes."""

    def receive_now(self, most):
        super().receive_now(most)
        return []

    def send_now(self, batch):
        return len(batch)


@pytest.fixture
def udp_is_blocked(monkeypatch):
    monkeypatch.setattr("dcp.endpoint.UdpSocket", Deaf)


async def received(endpoint: Endpoint, senders, count: int, **more) -> list[bytes]:
    found = []
    async for item in endpoint.subscribe("asdi", senders, **more):
        if isinstance(item, dcp.Packet):
            found.append(item.payload)
        assert not isinstance(item, dcp.Gap)
        if len(found) == count:
            return found
    return found


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110  a counter tells nobody that it has changed
            await trio.sleep(0.005)


@pytest.mark.parametrize(("ours", "theirs"), [("tcp", "tcp"), ("auto", "tcp"), ("tcp", "auto"), ("auto", "auto")])
async def test_a_stream_arrives_over_tcp_where_udp_is_blocked(udp_is_blocked, ours, theirs):
    payloads = [b"%d " % i * 100 for i in range(2_000)]
    async with dcp.open_endpoint(transport=theirs) as root, dcp.open_endpoint(transport=ours) as client:
        publisher = root.serve("asdi")
        with trio.fail_after(30):
            await publisher.send_many(payloads)
            assert await received(client, [root.address], len(payloads), start=dcp.Start.OLDEST) == payloads
        assert client.driver.carriers.statistics().open == {("tcp", "out"): 1}
        assert root.driver.carriers.statistics().open == {("tcp", "in"): 1}


async def test_where_udp_works_nobody_opens_a_connection():
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="auto") as client:
        publisher = root.serve("asdi")
        await publisher.send_many([b"a", b"b"])
        with trio.fail_after(30):
            assert await received(client, [root.address], 2, start=dcp.Start.OLDEST) == [b"a", b"b"]
        assert client.driver.carriers.statistics().dialled == 0


async def test_with_udp_alone_a_blocked_network_stays_blocked(udp_is_blocked):
    """The check of the tests above can fail."""
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="udp") as client:
        await root.serve("asdi").send(b"a")
        with trio.move_on_after(1.5) as scope:
            await received(client, [root.address], 1, start=dcp.Start.OLDEST)
        assert scope.cancelled_caught


async def test_over_tcp_alone_udp_is_neither_sent_nor_heard():
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
        await root.serve("asdi").send(b"a")
        with trio.fail_after(30):
            assert await received(client, [root.address], 1, start=dcp.Start.OLDEST) == [b"a"]
        assert root.driver.carriers.statistics().open == {("tcp", "in"): 1}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(wire.encode_open(OpenType.INQUIRE, bytes(32)), client.address)
            await until(lambda: client.statistics().dropped.get("UDP is off"))


async def test_a_connection_that_is_reset_in_the_middle_of_a_frame_is_opened_again_without_a_gap(monkeypatch):
    dialled = []
    connect = tcp.Tcp.connect

    async def noted(self, host, port):
        conduit = await connect(self, host, port)
        dialled.append(conduit)
        return conduit

    monkeypatch.setattr(tcp.Tcp, "connect", noted)
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
        publisher = root.serve("asdi")
        await publisher.send(b"0")
        subscription = client.subscribe("asdi", [root.address], start=dcp.Start.OLDEST)
        found = []
        with trio.fail_after(30):
            for number in range(1, 6):
                while len(found) < number:
                    item = await anext(subscription)
                    assert not isinstance(item, dcp.Gap)
                    if isinstance(item, dcp.Packet):
                        found.append(item.payload)
                stream = dialled[-1]._stream
                await stream.socket.send(struct.pack("!H", 1_000) + b"\x10half")
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.socket.close()
                await publisher.send(b"%d" % number)
        assert found == [b"%d" % i for i in range(5)]
        assert root.driver.carriers.statistics().ended["broken"] >= 1


# --- strangers --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def stranger():
    """Opens connections to an endpoint as anybody can; closes them at the end."""
    opened = []

    async def open_one(endpoint: Endpoint) -> trio.SocketStream:
        opened.append(await trio.open_tcp_stream(*endpoint.address[:2]))
        return opened[-1]

    yield open_one
    for stream in opened:
        await trio.aclose_forcefully(stream)


async def is_closed(stream: trio.SocketStream) -> bool:
    with trio.fail_after(30):
        try:
            while await stream.receive_some(4_096):
                pass
        except trio.BrokenResourceError:
            pass
    return True


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\0", "frame"),
        (b"\0\4abcd\0\0", "frame"),
        (b"\xff\xff" + bytes(100), "frame"),
        (b"GET / HTTP/1.1\r\n\r\n" * 2_000, "frame"),
    ],
    ids=["empty frame", "empty frame after another", "oversized frame", "another protocol"],
)
async def test_frames_that_are_none_end_their_connection(stranger, data, why):
    async with dcp.open_endpoint(transport="auto") as root:
        root.serve("asdi")
        stream = await stranger(root)
        await stream.send_all(data)
        if data.startswith(b"GET"):
            await until(lambda: root.driver.carriers.statistics().ended or root.statistics().dropped)
        else:
            assert await is_closed(stream)
            await until(lambda: root.driver.carriers.statistics().ended == {why: 1})


async def test_garbage_in_good_frames_is_dropped_and_others_are_served(stranger):
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
        await root.serve("asdi").send(b"a")
        stream = await stranger(root)
        for size in (1, 2, 11, 12, 13, 22, 1_400):
            await stream.send_all(struct.pack("!H", size) + b"\x10" * size)
        await stream.send_all(struct.pack("!H", 3) + b"\x77\x77\x77")
        await until(lambda: sum(root.statistics().dropped.values()) >= 8)
        with trio.fail_after(30):
            assert await received(client, [root.address], 1, start=dcp.Start.OLDEST) == [b"a"]


async def test_a_connection_without_a_link_is_closed_in_time(stranger, monkeypatch):
    monkeypatch.setattr(seats, "UNPROVED_SECONDS", 0.05)
    monkeypatch.setattr(pool, "SWEEP_SECONDS", 0.01)
    async with dcp.open_endpoint(transport="auto") as root:
        silent, asking = await stranger(root), await stranger(root)
        # A request without a cookie is answered by a challenge; that is not yet an echo.
        request = wire.encode_open(OpenType.INQUIRE, bytes(32) + b"?")
        await asking.send_all(struct.pack("!H", len(request)) + request)
        assert await is_closed(silent)
        assert await is_closed(asking)
        await until(lambda: root.driver.carriers.statistics().ended == {"no link": 2})


async def test_one_byte_now_and_then_does_not_hold_a_connection(stranger, monkeypatch):
    """Slow loris: the rest of a frame must come in time, however it trickles."""
    monkeypatch.setattr(tcp, "FRAME_SECONDS", 0.1)
    async with dcp.open_endpoint(transport="auto") as root:
        stream = await stranger(root)
        await stream.send_all(b"\x01\x00")
        with trio.fail_after(30), contextlib.suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"\x10")
                await trio.sleep(0.01)
        await until(lambda: root.driver.carriers.statistics().ended == {"slow frame": 1})


async def test_a_peer_that_stops_reading_loses_only_its_own_link(monkeypatch):
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(connection, "MAX_QUEUE_BYTES", 64 << 10)
    gate = trio.Event()

    class Stuck(tcp.StreamConduit):
        """Its peer does not read."""

        is_stuck = False

        async def send(self, datagrams):
            if Stuck.is_stuck:
                await gate.wait()
            await super().send(datagrams)

    monkeypatch.setattr(tcp, "StreamConduit", Stuck)
    async with (
        dcp.open_endpoint(transport="auto") as root,
        dcp.open_endpoint(transport="tcp") as stalled,
        dcp.open_endpoint(transport="udp") as other,
        trio.open_nursery() as nursery,
    ):
        publisher = root.serve("asdi")
        stalled.subscribe("asdi", [root.address])
        found: list[bytes] = []

        async def read():
            found.extend(await received(other, [root.address], 500))
            nursery.cancel_scope.cancel()

        nursery.start_soon(read)
        with trio.fail_after(30):
            await publisher.wait_children(2)
            Stuck.is_stuck = True
            for i in range(500):
                await publisher.send(b"%d" % i * 300)
                await trio.lowlevel.checkpoint()
            await trio.sleep_forever()
    assert found == [b"%d" % i * 300 for i in range(500)]


async def test_a_host_with_many_connections_keeps_nobody_else_out(stranger, monkeypatch):
    """On loopback all are one host: the newcomer takes the place of the oldest that carries no link."""
    monkeypatch.setattr(seats.Seats.__init__, "__defaults__", (4, 4))
    async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
        publisher = root.serve("asdi")
        idle = [await stranger(root) for _ in range(4)]
        await until(lambda: len(root.driver.carriers.seats) == 4)
        await publisher.send(b"a")
        with trio.fail_after(30):
            assert await received(client, [root.address], 1, start=dcp.Start.OLDEST) == [b"a"]
        assert await is_closed(idle[0])
        assert root.driver.carriers.seats.cut == 1


async def test_goodbyes_go_out_over_connections_too():
    async with dcp.open_endpoint(transport="tcp") as root:
        publisher = root.serve("asdi")
        async with dcp.open_endpoint(transport="tcp") as client:
            client.subscribe("asdi", [root.address])
            with trio.fail_after(30):
                await publisher.wait_children()
        with trio.fail_after(4):  # less than the silence after which a link is closed
            while publisher.machine.children:
                await root.wait_turn()


async def test_a_taken_tcp_port_is_no_reason_not_to_start(caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with dcp.open_endpoint(taken.getsockname(), transport="auto") as root:
            assert not root.driver.carriers.listens
        assert "can't listen" in caplog.text
        with pytest.raises(OSError, match="in use"):
            async with dcp.open_endpoint(taken.getsockname(), transport="tcp"):
                pass


@pytest.mark.parametrize("name", ["sctp", "udp,udp", "", "udp,"])
async def test_unknown_transports_are_named(name):
    with pytest.raises(ValueError, match="transport"):
        async with dcp.open_endpoint(transport=name):
            pass


async def test_ipv6_and_ipv4_reach_one_listener():
    async with dcp.open_endpoint(("::", 0), transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
        await root.serve("asdi").send(b"a")
        address = ("127.0.0.1", root.address[1])
        with trio.fail_after(30):
            assert await received(client, [address], 1, start=dcp.Start.OLDEST) == [b"a"]
        async with dcp.open_endpoint(("::1", 0), transport="tcp") as other:
            with trio.fail_after(30):
                address = ("::1", root.address[1])
                assert await received(other, [address], 1, start=dcp.Start.OLDEST) == [b"a"]
