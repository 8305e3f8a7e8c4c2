"""Byte streams for programs: `send_bytes` and `receive_bytes` over real sockets, and the example of docs/dcp.md."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import trio

import dcp
from dcp.config import Config
from dcp.testing.conditions import Conditions
from dcp.testing.proxy import open_proxy

pytestmark = pytest.mark.net

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "dcp.md"


class Chunks:
    """A source that gives what it has in pieces of its own, and then ends."""

    def __init__(self, data: bytes, size: int) -> None:
        self.left, self.size = data, size

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        size = min(self.size, max_bytes)
        piece, self.left = self.left[:size], self.left[size:]
        return piece


class Collected:
    def __init__(self) -> None:
        self.data = b""

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.data += data


async def serve(data: bytes, size: int, task_status, *, config: Config | None = None) -> None:
    """A root of its own, which leaves when everything has arrived."""
    async with dcp.open_endpoint(config=config) as endpoint:
        publisher = endpoint.serve("bytes", stream_mode=True, follow_fastest=True)
        task_status.started(endpoint.address)
        await publisher.wait_children()
        assert await dcp.send_bytes(publisher, Chunks(data, size)) == len(data)


async def received(senders: list, **options) -> bytes:
    target = Collected()
    async with dcp.open_endpoint() as client:
        subscription = client.subscribe("bytes", senders, stream_mode=True, ends=True, **options)
        total = await dcp.receive_bytes(subscription, target)
    assert total == len(target.data)
    return target.data


async def start(nursery: trio.Nursery, data: bytes, size: int, **options):
    async def root(task_status=trio.TASK_STATUS_IGNORED):
        await serve(data, size, task_status, **options)

    return await nursery.start(root)


async def test_bytes_cross_two_senders_that_cut_differently_and_the_stream_ends_with_them():
    data = random.Random(1).randbytes(300_000)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            senders = [await start(nursery, data, size) for size in (7_000, 20_011)]
            assert await received(senders, start=dcp.Start.POSITION, position=0) == data


async def test_a_source_faster_than_the_log_is_large_waits_for_the_child():
    """Found by reading: the wait counted packets only, and large ones were evicted by their bytes before it began."""
    data = random.Random(2).randbytes(3_000_000)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            sender = await start(nursery, data, 50_000, config=Config(max_log_bytes=400_000))
            assert await received([sender], start=dcp.Start.POSITION, position=0) == data


async def test_bytes_that_nobody_has_are_an_error_and_not_a_splice():
    target = Collected()
    async with dcp.open_endpoint() as root, dcp.open_endpoint() as client:
        publisher = root.serve("bytes", stream_mode=True)
        subscription = client.subscribe("bytes", [root.address], stream_mode=True)
        with trio.fail_after(10):
            await publisher.wait_children()
            await publisher.send(b"begin")
            await publisher.send(b"end", an=100, contiguous=False)
            with pytest.raises(dcp.BytesLost, match="bytes 6 to 97 ") as caught:
                await dcp.receive_bytes(subscription, target)
    assert (caught.value.after, caught.value.until) == (5, 97)
    assert target.data == b"begin"


async def test_senders_that_leave_too_early_are_an_error():
    """The first bytes are lost on the way, and the sender is gone before they can be sent again."""
    async with dcp.open_endpoint() as client, dcp.open_endpoint() as root:
        publisher = root.serve("bytes", stream_mode=True)
        async with open_proxy(root.address, Conditions(delay=0.0)) as proxy:
            subscription = client.subscribe(
                "bytes", [proxy.address], stream_mode=True, start=dcp.Start.POSITION, position=0, ends=True
            )
            with trio.fail_after(10):
                await publisher.wait_children()
                lossy = Conditions(loss=1.0)  # no request for repair gets through either
                proxy.set_conditions(to_client=lossy, to_server=lossy)
                before = proxy.statistics().to_client
                await publisher.send(b"lost")
                root.driver.turn()
                await proxy.wait_settled(to_client=before.passed + before.dropped + 1)
                proxy.set_conditions(to_client=Conditions(delay=0.0))
                await publisher.send(b"there")
                root.driver.turn()
                root.goodbye()
                with pytest.raises(dcp.LinkClosed, match="missing"):
                    await dcp.receive_bytes(subscription, Collected())


async def test_a_relay_passes_a_byte_stream_on():
    data = random.Random(3).randbytes(50_000)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery, dcp.open_endpoint() as relay:
            sender = await start(nursery, data, 5_000)
            subscription, publisher = relay.relay("bytes", [sender], stream_mode=True)
            target = Collected()
            async with dcp.open_endpoint() as client:
                below = client.subscribe("bytes", [relay.address], stream_mode=True, start=dcp.Start.OLDEST)
                with trio.CancelScope() as scope:
                    async for item in below:
                        if isinstance(item, dcp.Packet):
                            await target.send_all(item.payload)
                        if len(target.data) == len(data):
                            scope.cancel()
            assert subscription.statistics().position == publisher.statistics().head == len(data)
    assert target.data == data


async def test_the_example_of_the_specification_runs():
    section = DOCUMENT.read_text().split("## 8. Byte streams")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    scope: dict = {}
    exec(compile(example, "docs/dcp.md", "exec"), scope)
    with trio.fail_after(20):
        assert await scope["main"]() == b"one byte after the other " * 10_000
