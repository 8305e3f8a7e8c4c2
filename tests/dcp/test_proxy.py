"""The proxy between real sockets does what its conditions say, and nothing else."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager

import pytest
import trio

import dcp
from dcp.testing.conditions import Conditions
from dcp.testing.proxy import SLACK, LossyProxy, open_proxy

pytestmark = pytest.mark.net

INSTANT = Conditions(delay=0.0)


@asynccontextmanager
async def bound(host: str = "127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with trio.socket.socket(family, socket.SOCK_DGRAM) as sock:
        await sock.bind((host, 0))
        yield sock


@asynccontextmanager
async def pair(conditions: Conditions = INSTANT, **options):
    """A client, the proxy, and a server."""
    async with (
        bound() as client,
        bound() as server,
        open_proxy(server.getsockname(), conditions, **options) as proxy,
    ):
        yield client, proxy, server


async def survivors(proxy: LossyProxy, client, server, count: int) -> list[int]:
    """Which of so many numbered datagrams come through, in the order in which they come."""
    for number in range(count):
        await client.sendto(number.to_bytes(4, "big"), proxy.address)
    done = await proxy.wait_settled(to_server=count)
    got = []
    with trio.move_on_after(0.2):
        while len(got) < done.to_server.passed * 2:
            got.append(int.from_bytes((await server.recvfrom(64))[0], "big"))
    return got


async def test_both_ways_and_each_client_has_an_address_of_its_own():
    async with pair() as (client, proxy, server), bound() as other:
        seen = {}
        for sock, word in ((client, b"one"), (other, b"two")):
            await sock.sendto(word, proxy.address)
            data, seen[word] = await server.recvfrom(64)
            assert data == word
        assert seen[b"one"] != seen[b"two"]
        for sock, word in ((client, b"one"), (other, b"two")):
            await server.sendto(b"back " + word, seen[word])
            assert await sock.recvfrom(64) == (b"back " + word, proxy.address)
        counts = proxy.statistics()
        assert (counts.clients, counts.to_server.passed, counts.to_client.passed) == (2, 2, 2)


async def test_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    async with bound("::1") as client, bound("::1") as server, open_proxy(server.getsockname(), INSTANT) as proxy:
        await client.sendto(b"six", proxy.address)
        assert (await server.recvfrom(64))[0] == b"six"


async def test_only_the_server_is_heard_behind_it():
    async with pair() as (client, proxy, server), bound() as stranger:
        await client.sendto(b"hello", proxy.address)
        _, behind = await server.recvfrom(64)
        await stranger.sendto(b"forged", behind)
        await server.sendto(b"true", behind)
        assert (await client.recvfrom(64))[0] == b"true"


async def test_loss_is_as_told_and_repeatable_from_the_seed():
    runs = []
    for seed in (7, 7, 8):
        async with pair(Conditions(delay=0, loss=0.3), seed=seed) as (client, proxy, server):
            runs.append(await survivors(proxy, client, server, 400))
    assert runs[0] == runs[1] != runs[2]
    assert 230 < len(runs[0]) < 330
    assert runs[0] == sorted(runs[0])


async def test_bursts_lose_neighbours():
    async with pair(Conditions(delay=0, burst_enter=0.05, burst_leave=0.2), seed=3) as (client, proxy, server):
        got = await survivors(proxy, client, server, 400)
    lost = sorted(set(range(400)) - set(got))
    assert lost
    runs = sum(1 for number in lost if number - 1 not in lost)
    assert len(lost) / runs > 2


async def test_a_delay_is_never_cut_short():
    async with pair(Conditions(delay=0.03)) as (client, proxy, server):
        began = trio.current_time()
        await client.sendto(b"late", proxy.address)
        await server.recvfrom(64)
        assert trio.current_time() - began >= 0.03 - SLACK


async def test_a_rate_spreads_a_burst_and_its_queue_is_bounded():
    # 72 bytes with their headers at 1,000 bytes a second, and a queue for about three of them.
    slow = Conditions(delay=0, rate=1_000, queue_bytes=200)
    async with pair(slow) as (client, proxy, server):
        began = trio.current_time()
        for _ in range(20):
            await client.sendto(bytes(44), proxy.address)
        done = (await proxy.wait_settled(to_server=20)).to_server
        assert 3 <= done.passed <= 8
        for _ in range(done.passed):
            await server.recvfrom(64)
        assert trio.current_time() - began >= done.passed * 0.072 - SLACK


async def test_reordering_duplicates_and_corruption():
    async with pair(Conditions(delay=0, reorder=0.5, reorder_delay=0.02), seed=1) as (client, proxy, server):
        got = await survivors(proxy, client, server, 100)
        assert got != sorted(got) == list(range(100))
    async with pair(Conditions(delay=0, duplicate=1.0)) as (client, proxy, server):
        assert sorted(await survivors(proxy, client, server, 10)) == sorted([*range(10), *range(10)])
    async with pair(Conditions(delay=0, corrupt=1.0)) as (client, proxy, server):
        await client.sendto(b"abcdef", proxy.address)
        data, _ = await server.recvfrom(64)
        assert sum((a ^ b).bit_count() for a, b in zip(data, b"abcdef", strict=True)) == 1


async def test_conditions_change_while_it_runs():
    async with pair() as (client, proxy, server):
        proxy.set_conditions(Conditions(loss=1.0))
        assert await survivors(proxy, client, server, 20) == []
        proxy.set_conditions(to_server=INSTANT)
        await client.sendto(b"again", proxy.address)
        _, behind = await server.recvfrom(64)
        await server.sendto(b"lost", behind)
        assert (await proxy.wait_settled(to_client=1)).to_client.dropped == 1


async def test_leaving_it_closes_every_socket():
    async with pair() as (client, proxy, server):
        with trio.CancelScope() as scope:
            async with open_proxy(server.getsockname(), INSTANT) as inner:
                await client.sendto(b"x", inner.address)
                await server.recvfrom(64)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with pytest.raises(OSError, match="descriptor"):
            inner.address  # noqa: B018
        assert proxy.statistics().clients == 0


async def test_dcp_delivers_everything_through_it():
    bad = Conditions(delay=0.001, jitter=0.001, loss=0.2, duplicate=0.05, corrupt=0.02)
    with trio.fail_after(60):
        # Datagrams with room for a few packets only: on loopback one would carry all of them.
        small = dcp.Config(loopback_datagram_bytes=512)
        async with dcp.open_endpoint(config=small) as root, dcp.open_endpoint() as leaf:
            publisher = root.serve("s")
            publisher.machine.publish_hole(0)
            async with open_proxy(root.address, bad, seed=11) as proxy:
                subscription = leaf.subscribe("s", [proxy.address])
                await publisher.wait_children()
                for number in range(300):
                    await publisher.send(str(number).encode().rjust(200))
                got = []
                async for item in subscription:
                    assert not isinstance(item, dcp.Gap)
                    if isinstance(item, dcp.Packet):
                        got.append(int(item.payload))
                    if len(got) == 300:
                        break
                assert got == list(range(300))
                assert proxy.statistics().to_client.dropped > 0
