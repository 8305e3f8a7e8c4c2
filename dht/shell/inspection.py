"""A look into the directory from outside, for operators: every record of a stream, and what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dht.errors import DirectoryUnavailable, Refusal
from dht.identity import Identity
from dht.keys import MAX_SHARD_DEPTH, SHARD_BITS, Key, buckets_below, candidates_key, roots_key
from dht.shell.service import DirectoryOptions, DirectoryService

if TYPE_CHECKING:
    from dht.record import Address, PeerRecord
    from dht.results import ReadResult

MAX_KEYS_READ = 256  # of a large stream a good part is enough to see what is wrong with it


@dataclass(slots=True)
class StreamView:
    records: list[PeerRecord] = field(default_factory=list)
    refused: list[tuple[bytes, Refusal]] = field(default_factory=list)
    queries: int = 0


async def read_stream(stream: str, *, bootstrap: Sequence[Address], beacon: bool, wait: float) -> StreamView:
    """Read as a passer-by: in nobody's table, storing nothing. DirectoryUnavailable when nobody answers in time."""
    options = DirectoryOptions(bootstrap=tuple(bootstrap), beacon=beacon, read_only=True)
    listen = ("::", 0) if any(":" in host for host, _ in bootstrap) else ("0.0.0.0", 0)
    loop = asyncio.get_running_loop()
    service = await DirectoryService.open(Identity.generate(), options, loop=loop, listen=listen)
    try:
        try:
            async with asyncio.timeout(wait):
                while service.node.is_isolated:  # noqa: ASYNC110 - becoming known has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise DirectoryUnavailable(
                f"no DHT node answered within {wait:.0f} s; name one with --bootstrap HOST:PORT"
            ) from None
        return await _read_all(service, stream)
    finally:
        await service.close()


async def _read_all(service: DirectoryService, stream: str) -> StreamView:
    view = StreamView()
    newest: dict[bytes, PeerRecord] = {}
    refused: dict[bytes, Refusal] = {}
    frontier: list[tuple[Key, int, int, int]] = [
        (candidates_key(stream, bucket=bucket, depth=0, shard=0), bucket, 0, 0) for bucket in buckets_below(None)
    ]
    results = [await service.node.read(roots_key(stream), everything=True)]
    keys_read = 1
    while frontier and keys_read < MAX_KEYS_READ:
        batch, frontier = frontier[:8], frontier[8:]
        found: list[ReadResult] = await asyncio.gather(*(service.node.read(key, everything=True) for key, *_ in batch))
        keys_read += len(batch)
        for (_, bucket, depth, shard), result in zip(batch, found, strict=True):
            if result.is_full and depth < MAX_SHARD_DEPTH:
                for part in range(1 << SHARD_BITS):
                    below = (shard << SHARD_BITS) + part
                    key = candidates_key(stream, bucket=bucket, depth=depth + 1, shard=below)
                    frontier.append((key, bucket, depth + 1, below))
        results += found
    for result in results:
        view.queries += result.queries
        refused.update(result.refused)
        for signed in result.records.values():
            known = newest.get(signed.record.peer_id)
            if known is None or known.version < signed.record.version:
                newest[signed.record.peer_id] = signed.record
    view.records = sorted(newest.values(), key=lambda record: (record.level, record.peer_id))
    view.refused = list(refused.items())
    return view
