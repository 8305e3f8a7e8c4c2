"""Throughput of a mesh of two tiers by loss: the paper's Figures 9 and 10.

Every link has 75 kbit/s, 10 ms, and loses either way with probability p. The source gives 262 bytes at a time, 2,381
bytes per second: much less than a link can carry. Three ways to the client:

  DCP      two roots, two routers, one client; two parents at each tier (six links)
  TCP      the kernel's, with a splice in the middle: server, router, client (two links)
  erasure  the paper's formula for a carousel code on two disjoint paths of two hops: 1 - (1 - (1 - p)^2)^2

What counts is what the client was given until a second after the source ended, over the time that the source took. DCP
runs over loopback through the proxy, TCP through namespaces and TUN devices, over the same model of a link: the same
rate, the same queue, the same kind of dice. Connections are made before the losses begin.
"""

from __future__ import annotations

import argparse
import socket
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

import dcp
from bench._processes import Result, run_all
from bench._tun import Cable, Namespace, Unavailable
from bench.report import Report, Target, progress
from dcp.links.link import SocketAddress
from dcp.testing.conditions import Conditions
from dcp.testing.proxy import LossyProxy, open_proxy

SUMMARY = "throughput of a two-tier mesh by loss: DCP, kernel TCP and an erasure code (Figures 9 and 10)"

CHUNK = 262
RATE = 2_381.0
INTERVAL = CHUNK / RATE
LINK_RATE = 75_000 / 8
LINK_DELAY = 0.010
# Dummynet's queue, which the paper used: 50 packets.
QUEUE_BYTES = 50 * (CHUNK + 50)
# For what is on its way when the source ends: 86 ms over two links, more on a machine that has much else to do.
GRACE = 1.0
STREAM = "bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--loss", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the source sends (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=2, help="runs, each in its own process (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> Report:
    chunks = max(1, round(args.seconds / INTERVAL))
    progress(f"{args.repetitions} times {len(args.loss)} meshes for {chunks * INTERVAL:.0f} s")
    results = run_all(
        measure,
        [{"losses": args.loss, "chunks": chunks, "seed": args.seed + 100 * i} for i in range(args.repetitions)],
    )
    skipped = next((result["tcp_skipped"] for result in results if result["tcp_skipped"]), None)
    points = []
    for number, loss in enumerate(args.loss):
        tcp = None if skipped else statistics.fmean(result["tcp"][number] for result in results)
        points.append(Point(loss, statistics.fmean(result["dcp"][number] for result in results), tcp))
    below = [f"{point.loss:g}" for point in points if not point.dcp_leads]
    return Report(
        name="throughput",
        data={
            "rows": [
                {
                    "loss": point.loss,
                    "dcp_bytes_per_second": round(point.dcp, 1),
                    "tcp_bytes_per_second": None if point.tcp is None else round(point.tcp, 1),
                    "erasure_bytes_per_second": round(point.erasure, 1),
                }
                for point in points
            ],
            "source_bytes_per_second": RATE,
            "seconds": round(chunks * INTERVAL, 1),
            "grace_seconds": GRACE,
            "repetitions": args.repetitions,
            "tcp_skipped": skipped,
            "tcp_congestion_control": next((r["congestion_control"] for r in results), None),
        },
        columns=("loss", "DCP byte/s", "TCP byte/s", "erasure byte/s"),
        rows=[(p.loss, p.dcp, "skipped" if p.tcp is None else p.tcp, p.erasure) for p in points],
        notes=[f"TCP was skipped: {skipped}"] if skipped else [],
        targets=[
            Target(
                "DCP at or above the others at every loss",
                not below,
                f"not at {', '.join(below)}" if below else f"{len(points)} losses",
            )
        ],
        draw=partial(_draw, points),
    )


@dataclass(frozen=True)
class Point:
    loss: float
    dcp: float
    tcp: float | None

    @property
    def erasure(self) -> float:
        return float(RATE * (1 - (1 - (1 - self.loss) ** 2) ** 2))

    @property
    def dcp_leads(self) -> bool:
        return self.dcp >= max(self.tcp or 0.0, self.erasure) - 1e-6


class Tally:
    """Bytes that came in time."""

    def __init__(self) -> None:
        self._until = float("inf")
        self.bytes = 0

    def begin(self, chunks: int) -> None:
        self._until = trio.current_time() + chunks * INTERVAL + GRACE

    def add(self, size: int) -> None:
        if trio.current_time() <= self._until:
            self.bytes += size

    def rate(self, chunks: int) -> float:
        return self.bytes / (chunks * INTERVAL)

    async def wait_over(self) -> None:
        await trio.sleep_until(self._until)


def measure(*, losses: list[float], chunks: int, seed: int) -> Result:
    return trio.run(_measure, losses, chunks, seed)


async def _measure(losses: list[float], chunks: int, seed: int) -> Result:
    dcp_tallies = [Tally() for _ in losses]
    tcp_tallies = [Tally() for _ in losses]
    skipped: list[str] = []
    control: list[str] = []

    async def tcp(loss: float, tally: Tally, seed: int) -> None:
        try:
            await _tcp(loss, chunks, tally, seed, control)
        except Unavailable as error:
            skipped.append(str(error))

    async with trio.open_nursery() as nursery:
        for number, loss in enumerate(losses):
            nursery.start_soon(_dcp, loss, chunks, dcp_tallies[number], seed + number)
            nursery.start_soon(tcp, loss, tcp_tallies[number], seed + number)
    return {
        "dcp": [tally.rate(chunks) for tally in dcp_tallies],
        "tcp": [tally.rate(chunks) for tally in tcp_tallies],
        "tcp_skipped": skipped[0] if skipped else None,
        "congestion_control": control[0] if control else None,
    }


def link_conditions(loss: float) -> Conditions:
    return Conditions(delay=LINK_DELAY, loss=loss, rate=LINK_RATE, queue_bytes=QUEUE_BYTES)


# --- DCP --------------------------------------------------------------------------------------------------------------


@dataclass
class Mesh:
    publishers: list[dcp.Publisher]
    client: dcp.Subscription
    links: list[LossyProxy] = field(default_factory=list)


@asynccontextmanager
async def _open_mesh(seed: int) -> AsyncIterator[Mesh]:
    """Two roots, two routers, one client, each joined to both of the tier above by links that lose nothing yet."""
    async with AsyncExitStack() as stack:
        links: list[LossyProxy] = []

        async def endpoint() -> dcp.Endpoint:
            return await stack.enter_async_context(dcp.open_endpoint())

        async def links_to(parents: list[dcp.Endpoint]) -> list[SocketAddress]:
            new = [
                await stack.enter_async_context(
                    open_proxy(parent.address, link_conditions(0.0), seed=seed * 64 + len(links) + number)
                )
                for number, parent in enumerate(parents)
            ]
            links.extend(new)
            return [link.address for link in new]

        roots = [await endpoint(), await endpoint()]
        publishers = [root.serve(STREAM) for root in roots]
        for publisher in publishers:
            publisher.machine.publish_hole(0)  # begun, and still empty: who joins now gets everything
        routers = [await endpoint(), await endpoint()]
        relays = [router.relay(STREAM, await links_to(roots))[1] for router in routers]
        client = (await endpoint()).subscribe(STREAM, await links_to(routers))
        for publisher in publishers:
            await publisher.wait_children(2)
        for relay in relays:
            await relay.wait_children(1)
        yield Mesh(publishers, client, links)


async def _dcp(loss: float, chunks: int, tally: Tally, seed: int) -> None:
    async with _open_mesh(seed) as mesh, trio.open_nursery() as nursery:

        async def client() -> None:
            async for item in mesh.client:
                if isinstance(item, dcp.Packet):
                    tally.add(len(item.payload))

        nursery.start_soon(client)
        for link in mesh.links:
            link.set_conditions(link_conditions(loss))
        tally.begin(chunks)
        began = trio.current_time()
        for number in range(chunks):
            await trio.sleep_until(began + number * INTERVAL)
            for publisher in mesh.publishers:
                await publisher.send(bytes(CHUNK))
        await tally.wait_over()
        nursery.cancel_scope.cancel()


# --- TCP --------------------------------------------------------------------------------------------------------------


async def _tcp(loss: float, chunks: int, tally: Tally, seed: int, control: list[str]) -> None:
    """Server, splice and client, each in a namespace of its own."""
    with ExitStack() as spaces:
        server_space, splice_space, client_space = (spaces.enter_context(closing(Namespace())) for _ in range(3))
        calm = link_conditions(0.0)
        cables = [
            Cable(server_space.add_tun("up", "10.9.1.1"), splice_space.add_tun("up", "10.9.1.2"), calm, seed * 2),
            Cable(
                splice_space.add_tun("down", "10.9.2.2"), client_space.add_tun("down", "10.9.2.1"), calm, seed * 2 + 1
            ),
        ]
        async with AsyncExitStack() as stack:
            for cable in cables:
                stack.callback(cable.close)
            nursery = await stack.enter_async_context(trio.open_nursery())
            for cable in cables:
                nursery.start_soon(cable.run)
            served, upstream = await _connected(stack, server_space, "10.9.1.1", splice_space)
            downstream, client = await _connected(stack, splice_space, "10.9.2.2", client_space)
            control.append(_congestion_control(served))
            for cable in cables:
                cable.set_conditions(link_conditions(loss))
            tally.begin(chunks)
            nursery.start_soon(_serve, served, chunks)
            nursery.start_soon(_splice, upstream, downstream)
            nursery.start_soon(_count, client, tally)
            await tally.wait_over()
            nursery.cancel_scope.cancel()


async def _connected(
    stack: AsyncExitStack, listening: Namespace, host: str, connecting: Namespace
) -> tuple[trio.socket.SocketType, trio.socket.SocketType]:
    """A connection from one namespace to the other: the accepted end, and the one that connected."""
    listener = stack.enter_context(listening.tcp_socket())
    await listener.bind((host, 0))
    listener.listen(1)
    theirs = stack.enter_context(connecting.tcp_socket())
    await theirs.connect(listener.getsockname())
    ours, _ = await listener.accept()
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stack.enter_context(ours), theirs


def _congestion_control(sock: trio.socket.SocketType) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


async def _serve(sock: trio.socket.SocketType, chunks: int) -> None:
    stream = trio.SocketStream(sock)
    began = trio.current_time()
    for number in range(chunks):
        await trio.sleep_until(began + number * INTERVAL)
        await stream.send_all(bytes(CHUNK))


async def _splice(source: trio.socket.SocketType, to: trio.socket.SocketType) -> None:
    stream = trio.SocketStream(to)
    while data := await source.recv(65_536):
        await stream.send_all(data)


async def _count(sock: trio.socket.SocketType, tally: Tally) -> None:
    while data := await sock.recv(65_536):
        tally.add(len(data))


def _draw(points: list[Point], figure: Any) -> None:
    axes = figure.subplots()
    losses = [point.loss for point in points]
    axes.plot(losses, [point.dcp for point in points], "o-", label="DCP, two parents at each tier")
    axes.plot(losses, [point.erasure for point in points], "--", label="erasure code on two paths (formula)")
    if all(point.tcp is not None for point in points):
        axes.plot(losses, [point.tcp for point in points], "s-", label="kernel TCP with a splice")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("loss rate of every link, each way")
    axes.set_ylabel("throughput at the client, bytes/s")
    axes.set_title("Two tiers, 75 kbit/s links, a stream of 2,381 bytes/s")
    axes.grid(alpha=0.3)
    axes.legend()
