"""A seeded campaign: a swarm under churn and loss in virtual time, and what lookups found in it.

The tests run it small, `python -m bench dht --simulate` at full size; docs/dht.md quotes what that printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dht.config import DEFAULT_CONFIG
from dht.errors import DirectoryUnavailable
from dht.keys import roots_key
from dht.record import Address, PeerRecord, Role
from dht.shell.kademlia_directory import KademliaDirectory
from dht.testing.swarm import Swarm, VirtualLoop, run_virtual

if TYPE_CHECKING:
    from dht.config import NodeConfig
    from dht.ids import PeerId


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """Times in virtual seconds."""

    seed: int = 1
    nodes: int = 1000
    duration: float = 600.0
    half_life: float = 300.0  # of a node; each death is replaced by a newcomer at another address. inf: no churn
    loss: float = 0.05
    publishers: int = 20
    lookups_per_second: float = 10.0
    settle: float = 30.0
    config: NodeConfig = DEFAULT_CONFIG


@dataclass(slots=True)
class CampaignResult:
    lookups: int = 0
    found: int = 0
    ghosts_looked_for: int = 0  # lookups of records that were withdrawn, or whose peer died longer than a lifetime ago
    ghosts_found: int = 0
    deaths: int = 0
    latencies: list[float] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)  # requests per lookup, not counting retries
    datagrams: int = 0
    largest_datagram: int = 0

    @property
    def found_share(self) -> float:
        return self.found / self.lookups if self.lookups else 0.0

    @property
    def queries_per_lookup(self) -> float:
        return sum(self.queries) / len(self.queries) if self.queries else 0.0


@dataclass(slots=True)
class _Published:
    stream: str
    peer_id: PeerId
    address: Address
    directory: KademliaDirectory


def run_campaign(plan: CampaignPlan, progress: Callable[[str], None] = lambda text: None) -> CampaignResult:
    async def main(loop: VirtualLoop) -> CampaignResult:
        return await _Campaign(loop, plan, progress).run()

    return run_virtual(main)


class _Campaign:
    def __init__(self, loop: VirtualLoop, plan: CampaignPlan, progress: Callable[[str], None]) -> None:
        self._loop, self._plan, self._progress = loop, plan, progress
        self._swarm = Swarm(loop, seed=plan.seed, loss=plan.loss, config=plan.config)
        self._rng = self._swarm.rng
        self._result = CampaignResult()
        self._live: list[_Published] = []
        self._gone: list[tuple[float, _Published]] = []  # the time from which no lookup may find it
        self._streams = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> CampaignResult:
        plan, network = self._plan, self._swarm.network
        for _ in range(plan.nodes):
            self._add()
            await asyncio.sleep(0.05)
        await asyncio.sleep(plan.settle)
        for _ in range(plan.publishers):
            await self._publish_another()
        await asyncio.sleep(5.0)
        sent_before = network.sent
        end = self._loop.time() + plan.duration
        next_report = self._loop.time()
        while self._loop.time() < end:
            if self._loop.time() >= next_report:
                next_report += 60.0
                self._progress(f"{plan.nodes} nodes, {end - self._loop.time():.0f} virtual seconds to go")
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(self._loop.create_task(self._look_up()))
            await asyncio.sleep(self._rng.expovariate(plan.lookups_per_second))
            if self._live and self._rng.random() < 0.01:
                self._tasks.append(self._loop.create_task(self._withdraw()))
        await asyncio.gather(*self._tasks)
        self._result.datagrams = network.sent - sent_before
        self._result.largest_datagram = network.largest
        return self._result

    def _add(self) -> None:
        address = self._swarm.add()
        if math.isfinite(self._plan.half_life):
            life = self._rng.expovariate(math.log(2) / self._plan.half_life)
            self._loop.call_later(life, self._die, address)

    def _die(self, address: Address) -> None:
        """Die without notice, and be replaced."""
        self._result.deaths += 1
        for published in [item for item in self._live if item.address == address]:
            self._live.remove(published)
            lifetime = self._swarm.config.record_lifetime
            self._gone.append((self._loop.time() + lifetime + 1.0, published))
            self._tasks.append(self._loop.create_task(published.directory.close()))
            self._tasks.append(self._loop.create_task(self._publish_another()))
        self._tasks.append(self._loop.create_task(self._swarm.kill(address)))
        self._add()

    async def _publish_another(self) -> None:
        address = self._joined_node()
        identity, node = self._swarm.identities[address], self._swarm.nodes[address]
        self._streams += 1
        stream = f"stream-{self._streams}"
        directory = KademliaDirectory(node, identity)
        published = _Published(stream, identity.peer_id, address, directory)
        record = PeerRecord(stream, identity.peer_id, (address,), role=Role.ROOT, capacity=6, free_slots=6)
        with contextlib.suppress(DirectoryUnavailable):  # its node died over it; the check below sees that
            await directory.publish(record)
        if address in self._swarm.nodes:
            self._live.append(published)
        else:
            await directory.close()
            await self._publish_another()

    async def _withdraw(self) -> None:
        published = self._live.pop(self._rng.randrange(len(self._live)))
        await published.directory.withdraw()
        lifetime = self._swarm.config.record_lifetime
        self._gone.append((self._loop.time() + lifetime + 1.0, published))
        await self._publish_another()

    async def _look_up(self) -> None:
        """One lookup of a living record from a random node, or (one in ten) of one that must be gone."""
        node = self._swarm.nodes[self._joined_node()]
        gone = [item for since, item in self._gone if since <= self._loop.time()]
        is_ghost = bool(gone) and self._rng.random() < 0.1
        if not is_ghost and not self._live:
            return
        wanted = self._rng.choice(gone if is_ghost else self._live)
        started = self._loop.time()
        result = await node.read(roots_key(wanted.stream))
        if node.is_closed or (not is_ghost and wanted not in self._live):
            return  # the asker died over it, or the record's peer did: no verdict
        found = result.records.get(wanted.peer_id)
        is_found = found is not None and not found.record.withdrawn
        if is_ghost:
            self._result.ghosts_looked_for += 1
            self._result.ghosts_found += is_found
            return
        self._result.lookups += 1
        self._result.found += is_found
        self._result.latencies.append(self._loop.time() - started)
        self._result.queries.append(result.queries)

    def _joined_node(self) -> Address:
        while True:
            address = self._rng.choice(list(self._swarm.nodes))
            if not self._swarm.nodes[address].is_isolated:
                return address


def fit_logarithm(points: list[tuple[int, float]]) -> tuple[float, float, float]:
    """Least squares of y = a + b log2 N: (a, b, largest relative error)."""
    xs = [math.log2(n) for n, _ in points]
    ys = [y for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    start = mean_y - slope * mean_x
    error = max(abs(start + slope * x - y) / y for x, y in zip(xs, ys, strict=True))
    return start, slope, error
