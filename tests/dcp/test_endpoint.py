"""The trio shell on real sockets: loopback only, ports that the system chooses."""

from __future__ import annotations

import random
import socket
from dataclasses import replace

import pytest
import trio
import trio.testing

import dcp
from dcp.compression import Compressor
from dcp.config import Config
from dcp.queries import PredicatePolicy
from dcp.udp import UdpSocket
from tests.dcp import packets
from tests.dcp.test_wire import mutate

pytestmark = pytest.mark.net

HOSTS = ["127.0.0.1", "::1"]
FAST = Config(keep_alive_interval=0.1, ack_interval=0.1, slow_nack_interval=0.1)


async def take(subscription: dcp.Subscription, count: int) -> list[tuple[int, bytes]]:
    """The next packets; anything else on the way is a failure, but for the start."""
    found: list[tuple[int, bytes]] = []
    with trio.fail_after(20):
        async for item in subscription:
            if isinstance(item, dcp.Started):
                continue
            assert isinstance(item, dcp.Packet), item
            found.append(tuple(item))
            if len(found) == count:
                break
    return found


@pytest.fixture(params=HOSTS)
def host(request):
    if request.param == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    return request.param


async def test_the_example_of_the_module(host):
    """As in dcp/endpoint.py: serve, send, subscribe to two senders, match what comes."""
    async with (
        dcp.open_endpoint((host, 0)) as one,
        dcp.open_endpoint((host, 0)) as two,
        dcp.open_endpoint((host, 0)) as me,
    ):
        publishers = [one.serve("asdi"), two.serve("asdi")]
        got = []
        subscription = me.subscribe("asdi", [one.address, two.address])
        with trio.fail_after(10):
            for publisher in publishers:
                await publisher.wait_children()
            for publisher in publishers:
                assert await publisher.send(b"<flight/>") == 1
            async for item in subscription:
                match item:
                    case dcp.Packet(an, payload):
                        got.append((an, payload))
                        break
                    case dcp.Gap(after, until):
                        pytest.fail(f"a gap from {after} to {until}")
        assert got == [(1, b"<flight/>")]


async def test_an_address_may_be_written_with_host_and_port_only():
    """Found by reading: an IPv6 address comes from the socket with four parts, and with two was never recognised."""
    async with dcp.open_endpoint(("::1", 0)) as root, dcp.open_endpoint(("::1", 0)) as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [("0:0:0:0:0:0:0:1", root.address[1])])
        with trio.fail_after(10):
            await publisher.wait_children()
        await publisher.send(b"x")
        assert await take(subscription, 1) == [(1, b"x")]
        subscription.remove_sender(("::1", root.address[1]))
        assert subscription.statistics().links == ()


async def test_one_socket_of_ipv6_reaches_ipv4_too():
    async with dcp.open_endpoint(("::", 0)) as root, dcp.open_endpoint(("127.0.0.1", 0)) as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [("127.0.0.1", root.address[1])])
        with trio.fail_after(10):
            await publisher.wait_children()
        await publisher.send(b"x")
        assert await take(subscription, 1) == [(1, b"x")]
        back = client.serve("back")
        await back.send(b"first")
        with trio.fail_after(10):
            answer = root.subscribe("back", [client.address], start=dcp.Start.OLDEST)
            assert await take(answer, 1) == [(1, b"first")]


@pytest.mark.parametrize("bad", [("localhost", 4000), ("no such host", 4000), ("127.0.0.1", 0), ("127.0.0.1", 70_000)])
async def test_a_senders_address_that_is_none_is_said_at_once(bad):
    """A name would be looked up by every sendto, in the middle of the event loop, and its answers never recognised."""
    async with dcp.open_endpoint() as endpoint:
        with pytest.raises(ValueError, match=r"address|port"):
            endpoint.subscribe("s", [bad])


@pytest.mark.parametrize("segmentation", [True, False])
async def test_many_packets_arrive_in_order_and_whole(host, segmentation):
    async with (
        dcp.open_endpoint((host, 0), segmentation=segmentation) as root,
        dcp.open_endpoint((host, 0), segmentation=segmentation) as client,
    ):
        publisher = root.serve("s", follow_fastest=True)
        subscription = client.subscribe("s", [root.address])
        rng = random.Random(1)
        payloads = [rng.randbytes(rng.choice([0, 1, 50, 350, 1_300, 3_000])) for _ in range(8_000)]
        with trio.fail_after(30):
            await publisher.wait_children()
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    for payload in payloads:
                        await publisher.send(payload)

                nursery.start_soon(send)
                got = await take(subscription, len(payloads))
        assert got == [(i + 1, payload) for i, payload in enumerate(payloads)]
        assert subscription.statistics().gaps == 0


async def test_a_mebibyte_and_a_byte_stream():
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as client:
        large = root.serve("large", compress="zlib")
        stream = root.serve("bytes", stream_mode=True)
        got_large = client.subscribe("large", [root.address])
        got_bytes = client.subscribe("bytes", [root.address], stream_mode=True)
        with trio.fail_after(20):
            await large.wait_children()
            await stream.wait_children()
        rng = random.Random(2)
        payload = rng.randbytes(1 << 20)
        await large.send(payload)
        assert await take(got_large, 1) == [(1, payload)]
        data = rng.randbytes(300_000)
        for at in range(0, len(data), 70_000):
            await stream.send(data[at : at + 70_000])
        received = b""
        with trio.fail_after(20):
            while len(received) < len(data):
                for item in await got_bytes.receive_many():
                    if isinstance(item, dcp.Packet):
                        received += item.payload
        assert received == data


async def test_both_directions_over_one_socket_and_a_router_between():
    # A policy sees what is on the wire: a payload in its envelope, here a plain one.
    policy = PredicatePolicy(matches=lambda query, packet: packet[1:].startswith(query))
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as hop, dcp.open_endpoint() as client:
        down = root.serve("down", policy=policy)
        up = client.serve("up")
        hop.relay("down", [root.address], policy=policy)
        hop.relay("up", [client.address])
        at_client = client.subscribe("down", [hop.address], query=b"a")
        at_root = root.subscribe("up", [hop.address])
        with trio.fail_after(20):
            while not (at_client.machine.position is not None and at_root.machine.position is not None):
                await down.send(b"z")
                await up.send(b"z")
                await trio.sleep(0.01)
        for i in range(50):
            await down.send(b"a%d" % i)
            await down.send(b"b%d" % i)
            await up.send(b"u%d" % i)
        assert [payload for _, payload in await take(at_client, 50)] == [b"a%d" % i for i in range(50)]
        got: list[bytes] = []
        while len(got) < 50:
            got += [payload for _, payload in await take(at_root, 1) if payload != b"z"]
        assert got == [b"u%d" % i for i in range(50)]


async def test_garbage_by_the_thousand_is_counted_and_the_stream_goes_on(host):
    async with dcp.open_endpoint((host, 0)) as root, dcp.open_endpoint((host, 0)) as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [root.address])
        with trio.fail_after(20):
            await publisher.wait_children()
        rng = random.Random(3)
        samples = [sample.data for sample in packets.samples()]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as stranger:
            for i in range(3_000):
                data = mutate(rng.choice(samples), rng) if i % 3 else rng.randbytes(rng.randrange(60))
                for target in (root, client):
                    stranger.sendto(data, target.address[:2])
                if i % 50 == 0:
                    await trio.lowlevel.checkpoint()
        await publisher.send(b"after the garbage")
        assert await take(subscription, 1) == [(1, b"after the garbage")]
        assert sum(root.statistics().dropped.values()) > 2_000


async def test_a_cancelled_iteration_loses_nothing():
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [root.address])
        got: list[int] = []
        with trio.fail_after(30):
            await publisher.wait_children()
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    for i in range(2_000):
                        await publisher.send(b"%d" % i)
                        if i % 20 == 0:
                            await trio.sleep(0.001)

                nursery.start_soon(send)
                rng = random.Random(4)
                while len(got) < 2_000:
                    with trio.move_on_after(rng.random() * 0.004):
                        if rng.random() < 0.5:
                            async for item in subscription:
                                got += [item.an] if isinstance(item, dcp.Packet) else []
                        else:
                            batch = await subscription.receive_many(10)
                            got += [item.an for item in batch if isinstance(item, dcp.Packet)]
        assert got == list(range(1, 2_001))


async def test_a_cancelled_send_has_not_sent():
    """Found by reading: it published, and then raised Cancelled, so that a caller who tries again sent twice."""
    async with dcp.open_endpoint() as root:
        publisher = root.serve("s")
        await publisher.send(b"1")
        for batch in (False, True):
            with trio.CancelScope() as scope:
                scope.cancel()
                if batch:
                    await publisher.send_many([b"x", b"y"])
                else:
                    await publisher.send(b"x")
            assert scope.cancelled_caught
            assert publisher.statistics().head == 1
        for _ in range(200):
            with trio.CancelScope() as scope:
                scope.cancel()
                await publisher.send(b"x")
        assert publisher.statistics().head == 1
        await publisher.send_many([b"2", b"3"])
        assert publisher.statistics().head == 3


@pytest.mark.parametrize("batch", [1, 3_000])
async def test_with_follow_fastest_a_bulk_transfer_waits_and_loses_nothing(batch):
    """Found for batches: one larger than the log pushed its own beginning out, unsent."""
    config = replace(FAST, max_log_packets=200, max_ready_packets=64)
    async with dcp.open_endpoint(config=config) as root, dcp.open_endpoint(config=config) as client:
        publisher = root.serve("s", follow_fastest=True)
        subscription = client.subscribe("s", [root.address])
        with trio.fail_after(30):
            await publisher.wait_children()
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    payloads = [b"%d" % i for i in range(3_000)]
                    if batch > 1:
                        await publisher.send_many(payloads)
                        return
                    for payload in payloads:
                        await publisher.send(payload)

                nursery.start_soon(send)
                got: list[tuple[int, bytes]] = []
                while len(got) < 3_000:
                    got += await take(subscription, 50)
                    await trio.sleep(0.0005)
        assert got == [(i + 1, b"%d" % i) for i in range(3_000)]
        assert subscription.statistics().gaps == 0


async def test_a_stream_that_nobody_serves_ends_with_a_clear_word():
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as client:
        root.serve("asdi")
        subscription = client.subscribe("asdj", [root.address])
        with trio.fail_after(10), pytest.raises(dcp.LinkClosed, match=r"127\.0\.0\.1:\d+: stream unknown"):
            await anext(subscription)
        wrong = client.subscribe("asdi", [root.address], stream_mode=True)
        with trio.fail_after(10), pytest.raises(dcp.LinkClosed, match="mode mismatch"):
            await anext(wrong)


async def test_a_sender_that_went_away_is_dialled_again_with_the_same_hello():
    """Found by reading: the greeting was sent the first time only."""
    seen: list[bytes] = []
    async with dcp.open_endpoint(config=FAST) as client:
        subscription = client.subscribe("s", start=dcp.Start.OLDEST)
        port = 0
        for life in range(2):
            async with dcp.open_endpoint(("127.0.0.1", port), config=FAST) as root:
                port = root.address[1]
                publisher = root.serve("s")
                receive_request = publisher.machine.receive_request
                publisher.machine.receive_request = lambda request, address, now, f=receive_request: (
                    seen.append(request.hello),
                    f(request, address, now),
                )
                if life == 0:
                    subscription.add_sender(root.address, b"it is me")
                await publisher.send(b"life %d" % life, an=life + 1)
                got = await take(subscription, 1)
                assert got == [(life + 1, b"life %d" % life)]
        assert set(seen) == {b"it is me"}


async def test_close_ends_the_iteration_after_what_is_queued_and_is_for_good():
    """Found by reading: a sender that waited to be dialled again was dialled, after the close."""
    async with dcp.open_endpoint(config=FAST) as root, dcp.open_endpoint(config=FAST) as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [root.address, ("127.0.0.1", 9)])
        with trio.fail_after(10):
            await publisher.wait_children()
            await publisher.send_many([b"1", b"2", b"3"])
            while subscription.statistics().packets < 3:
                await client.wait_turn()
            subscription.redial.failed(("127.0.0.1", 9), dcp.Reason.SILENT, "silent", b"", trio.current_time())
            subscription.close()
            rest = [item async for item in subscription]
            assert [item.payload for item in rest if isinstance(item, dcp.Packet)] == [b"1", b"2", b"3"]
            with pytest.raises(trio.ClosedResourceError):
                await subscription.receive_many()
            await trio.sleep(0.5)
        assert subscription.statistics().links == ()
        with trio.fail_after(10):
            while publisher.machine.children:
                await root.wait_turn()


async def test_whoever_still_waits_when_an_endpoint_closes_is_woken():
    """Found by reading: a task outside the block waited forever."""
    ended: list[str] = []

    async def iterate(subscription: dcp.Subscription) -> None:
        async for _ in subscription:
            pass
        ended.append("iteration")

    async def wait(publisher: dcp.Publisher) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await publisher.wait_children(5)
        ended.append("publisher")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, dcp.open_endpoint() as endpoint:
            nursery.start_soon(iterate, endpoint.subscribe("other", [("127.0.0.1", 9)]))
            nursery.start_soon(wait, endpoint.serve("s"))
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(ended) == ["iteration", "publisher"]


async def test_an_unreadable_payload_is_a_gap_and_counted():
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as client:
        publisher = root.serve("s")
        subscription = client.subscribe("s", [root.address])
        with trio.fail_after(10):
            await publisher.wait_children()
            publisher.machine.publish(b"\x01 no zlib")
            publisher.machine.publish(b"\x09of a later version")
            await publisher.send(b"fine")
            found = [await anext(subscription) for _ in range(4)]
        assert found == [dcp.Started(0), dcp.Gap(0, 1), dcp.Gap(1, 2), dcp.Packet(3, b"fine")]
        assert (subscription.statistics().refused, subscription.unreadable) == (1, 1)


async def test_a_good_envelope_from_one_sender_wins_over_a_broken_one_from_another():
    """Found: the broken one, when it came first, became a gap although the good one was there."""
    async with dcp.open_endpoint() as broken, dcp.open_endpoint() as sound, dcp.open_endpoint() as client:
        roots = [broken.serve("s", compress="zstd"), sound.serve("s", compress="zstd")]
        subscription = client.subscribe("s", [broken.address, sound.address], start=dcp.Start.POSITION, position=0)
        payloads = [b"<flight/>" * 20 + b"%d" % number for number in range(20)]
        with trio.fail_after(10):
            for root in roots:
                await root.wait_children()
            for number, payload in enumerate(payloads):
                envelope = Compressor("zstd").pack(payload)
                roots[0].machine.publish(envelope[:-3] if number % 3 == 0 else envelope)
                broken.driver.turn()
                await trio.testing.wait_all_tasks_blocked()
                await roots[1].send(payload)
            found = [await anext(subscription) for _ in range(21)]
        assert found[1:] == [dcp.Packet(number + 1, payload) for number, payload in enumerate(payloads)]
        assert subscription.statistics().refused >= 7


async def test_more_children_than_room_are_refused():
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as a, dcp.open_endpoint() as b:
        publisher = root.serve("s", capacity=1)
        a.subscribe("s", [root.address])
        with trio.fail_after(10):
            await publisher.wait_children()
            b.subscribe("s", [root.address])
            while not publisher.statistics().refused:
                await root.wait_turn()
        assert len(publisher.machine.children) == 1


async def test_what_never_got_through_the_socket_is_counted():
    async with dcp.open_endpoint() as endpoint, dcp.open_endpoint() as other:
        endpoint.driver.udp.send_now([(bytes(66_000), other.address), (b"\xe0 of another protocol", other.address)])
        with trio.fail_after(5):
            while "foreign" not in other.statistics().dropped:
                await trio.lowlevel.checkpoint()
        assert endpoint.statistics().dropped == {"send error": 1}
        assert other.statistics().dropped == {"foreign": 1}


async def test_statistics_are_snapshots():
    async with dcp.open_endpoint() as endpoint:
        publisher = endpoint.serve("s")
        before = publisher.statistics()
        await publisher.send(b"x")
        assert (before.head, publisher.statistics().head) == (0, 1)
        with pytest.raises(AttributeError):
            before.head = 5


async def test_a_datagram_larger_than_the_network_takes_harms_no_other():
    udp = await UdpSocket.bind(("127.0.0.1", 0))
    other = await UdpSocket.bind(("127.0.0.1", 0))
    try:
        assert udp.send_now([(bytes(66_000), other.address), (b"fine", other.address)]) == 2
        assert udp.send_errors == 1
        with trio.fail_after(5):
            await other.wait_readable()
        assert other.receive_now(10) == [(b"fine", udp.address)]
    finally:
        udp.close()
        other.close()
