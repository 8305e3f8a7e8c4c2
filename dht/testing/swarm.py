"""A network and a clock to test against: asyncio in virtual time, exactly repeatable from a seed.

An asyncio loop runs its ready queue in order, so one seed gives one run. A selector that jumps the clock forward where
a real one would sleep is all that it takes; no thread, no socket, no other source of events exists.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from dht.config import DEFAULT_CONFIG, DEFAULT_LIMITS, NodeConfig, StoreLimits
from dht.identity import Identity
from dht.record import Address, RecordVerifier
from dht.shell.node import Node

T = TypeVar("T")

EPOCH = 1_800_000_000.0  # wall clock at virtual time 0


class _JumpingSelector:
    """Where a selector would wait for `timeout`, time passes at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set: this run would hang forever")
        self._loop.advance(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without a world: timers only."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._selector = _JumpingSelector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual_now

    def wall_time(self) -> float:
        return EPOCH + self._virtual_now

    def advance(self, seconds: float) -> None:
        self._virtual_now += max(seconds, 0.0)

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run_virtual(main: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    """Run `main` to its end in virtual time, and every task it left behind to its cancellation."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_as_coroutine(main(loop)))
    finally:
        left = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(_as_coroutine(asyncio.gather(*left, return_exceptions=True)))
        loop.close()


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class SimulatedNetwork:
    """Datagrams with delay, jitter, loss and partitions between addresses that exist only here."""

    def __init__(
        self, loop: VirtualLoop, rng: random.Random, *, loss: float = 0.0, delay: tuple[float, float] = (0.01, 0.06)
    ) -> None:
        self._loop, self._rng = loop, rng
        self.loss, self.delay = loss, delay
        self.sent = 0
        self.largest = 0
        self.by_first_byte: Counter[int] = Counter()
        self._receivers: dict[Address, Callable[[bytes, Address], None]] = {}
        self._side_of: dict[Address, int] = {}

    def attach(self, address: Address, receive: Callable[[bytes, Address], None]) -> None:
        self._receivers[address] = receive

    def detach(self, address: Address) -> None:
        """Remove the node: datagrams in flight to it are lost."""
        self._receivers.pop(address, None)

    def partition(self, *sides: Iterable[Address]) -> None:
        """Datagrams between different sides are lost, until `partition()` without sides heals it."""
        self._side_of = {address: index for index, side in enumerate(sides) for address in side}

    def send(self, data: bytes, source: Address, target: Address) -> None:
        self.sent += 1
        self.largest = max(self.largest, len(data))
        self.by_first_byte[data[0] if data else -1] += 1
        if self._rng.random() < self.loss or self._side_of.get(source) != self._side_of.get(target):
            return
        self._loop.call_later(self._rng.uniform(*self.delay), self._deliver, data, source, target)

    def _deliver(self, data: bytes, source: Address, target: Address) -> None:
        receive = self._receivers.get(target)
        if receive is not None:
            receive(data, source)


class SimulatedTransport:
    """One node's way out; `dht.shell.protocol.Transport`."""

    def __init__(self, network: SimulatedNetwork, address: Address) -> None:
        self.network, self.address = network, address

    def sendto(self, data: bytes, addr: Address) -> None:
        self.network.send(data, self.address, addr)


class Swarm:
    """Many nodes on a simulated network, each with its own address, key and random numbers, all from one seed."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        seed: int,
        loss: float = 0.0,
        config: NodeConfig = DEFAULT_CONFIG,
        limits: StoreLimits = DEFAULT_LIMITS,
    ) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.network = SimulatedNetwork(loop, random.Random(self.rng.getrandbits(64)), loss=loss)
        self.config, self.limits = config, limits
        self.identities: dict[Address, Identity] = {}
        self.nodes: dict[Address, Node] = {}
        # Replicas verify the same bytes: one memory for all spares the simulation most of its signature checks.
        self._verifier = RecordVerifier(max_remembered=65536)
        self._next_host = 0

    def add(self, *, bootstrap: int = 3, address: Address | None = None) -> Address:
        """A new node that knows a few of those present. It is started, not joined yet."""
        if address is None:
            address = self.new_address()
        known = list(self.nodes)
        identity = Identity.from_seed(self.rng.randbytes(32))
        node = Node(
            identity.node_id,
            transport=SimulatedTransport(self.network, address),
            loop=self.loop,
            bootstrap=self.rng.sample(known, min(bootstrap, len(known))),
            config=self.config,
            limits=self.limits,
            clock=self.loop.wall_time,
            rng=random.Random(self.rng.getrandbits(64)),
            verifier=self._verifier,
        )
        self.network.attach(address, node.datagram_received)
        self.nodes[address] = node
        self.identities[address] = identity
        node.start()
        return address

    def new_address(self) -> Address:
        """A public address of its own, so that limits a source mean what they mean outside."""
        self._next_host += 1
        number = self._next_host
        return f"20.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 4700

    async def kill(self, address: Address) -> None:
        """Without a word, as a crash."""
        self.network.detach(address)
        del self.identities[address]
        await self.nodes.pop(address).close()
