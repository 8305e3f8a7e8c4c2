"""A stream of bytes from one program to another, over several senders at once.

    async with dcp.open_endpoint() as endpoint:
        publisher = endpoint.serve("video", stream_mode=True, follow_fastest=True)
        await publisher.wait_children()
        await dcp.send_bytes(publisher, source)

    async with dcp.open_endpoint() as endpoint:
        subscription = endpoint.subscribe("video", senders, stream_mode=True, ends=True)
        await dcp.receive_bytes(subscription, target)

`source` and `target` are trio streams, or anything else with the one method that is used.
"""

from __future__ import annotations

from typing import Protocol

from dcp.endpoint import Publisher, Subscription
from dcp.errors import BytesLost, LinkClosed
from dcp.events import Gap, Packet

CHUNK_BYTES = 64 << 10


class Source(Protocol):
    async def receive_some(self, max_bytes: int) -> bytes | bytearray: ...


class Target(Protocol):
    async def send_all(self, data: bytes) -> None: ...


async def send_bytes(publisher: Publisher, source: Source) -> int:
    """Send what `source` gives until it ends, and wait until every child has it. Returns the number of bytes.

    Serve the stream with `follow_fastest=True`, so that a fast source waits for the children.
    """
    total = 0
    while data := await source.receive_some(CHUNK_BYTES):
        await publisher.send(bytes(data))
        total += len(data)
    await publisher.wait_delivered()
    return total


async def receive_bytes(subscription: Subscription, target: Target) -> int:
    """Write what comes to `target` until the subscription ends. Returns the number of bytes.

    Raises `BytesLost` if some bytes can't be had from any sender; everything before them has been written. Raises
    `LinkClosed` if the senders left before everything they had sent was here.
    """
    total = 0
    async for item in subscription:
        if isinstance(item, Packet):
            await target.send_all(item.payload)
            total += len(item.payload)
        elif isinstance(item, Gap):
            raise BytesLost(item.after, item.until)
    if subscription.statistics().buffered:
        raise LinkClosed(f"the senders have left, and bytes after {total} are missing")
    return total
