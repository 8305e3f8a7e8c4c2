"""Small meshes on loopback for the benchmarks: n roots, a bad network in front of each, one client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import dcp
from dcp.testing.conditions import Conditions
from dcp.testing.proxy import LossyProxy, open_proxy

STREAM = "bench"


@dataclass(frozen=True)
class Star:
    """One client with n parents, which all have the same stream. Nothing was sent yet; every link is up."""

    roots: list[dcp.Endpoint]
    publishers: list[dcp.Publisher]
    proxies: list[LossyProxy]
    subscription: dcp.Subscription

    async def send_all(self, payloads: list[bytes]) -> None:
        """The same packets from every parent, as nearly at once as one process can."""
        for publisher in self.publishers:
            await publisher.send_many(payloads)


@asynccontextmanager
async def open_star(parents: int, conditions: Conditions, config: dcp.Config, *, seed: int) -> AsyncIterator[Star]:
    """The links are opened over a good network; then `conditions` hold, in both directions."""
    async with AsyncExitStack() as stack:
        roots = [await stack.enter_async_context(dcp.open_endpoint(config=config)) for _ in range(parents)]
        publishers = [root.serve(STREAM) for root in roots]
        for publisher in publishers:
            publisher.machine.publish_hole(0)  # begun, and still empty: who joins now gets everything
        calm = Conditions(delay=conditions.delay)
        proxies = [
            await stack.enter_async_context(open_proxy(root.address, calm, seed=seed * 16 + number))
            for number, root in enumerate(roots)
        ]
        client = await stack.enter_async_context(dcp.open_endpoint(config=config))
        subscription = client.subscribe(STREAM, [proxy.address for proxy in proxies])
        for publisher in publishers:
            await publisher.wait_children()
        started = await anext(subscription)
        if started != dcp.Started(0):
            raise RuntimeError(f"expected the stream to start at 0: {started}")
        for proxy in proxies:
            proxy.set_conditions(conditions)
        yield Star(roots, publishers, proxies, subscription)
