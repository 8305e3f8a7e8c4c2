"""Peers in two processes: what encryption, signatures and their checks cost a whole stream.

A root and a leaf; or a root and leaves in one process and a router between them in the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from bench._processes import Result
from dcp import Packet, Started
from dcp.links.link import SocketAddress
from dht.identity import Identity
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

STREAM = "firehose"
BATCH = 512
AHEAD = 16_384
"""Packets after which the root waits until its child has them all: a log holds four times as many."""


def peer_sender(announce: Callable[[SocketAddress], None], *, packets: int, size: int, protects: bool) -> Result:
    return trio.run(_sender, announce, packets, size, protects)


def peer_receiver(address: SocketAddress, *, packets: int, size: int, protects: bool) -> Result:
    return trio.run(_receiver, address, packets, size, protects)


def forwarding_load(
    announce: Callable[[SocketAddress], None],
    *,
    packets: int,
    payload: bytes,
    query: str,
    children: int,
    protects: bool,
) -> Result:
    return trio.run(_load, announce, packets, payload, query, children, protects)


def forwarding_router(
    address: SocketAddress, *, packets: int, payload: bytes, query: str, children: int, protects: bool
) -> Result:
    """The processor time of the router from the first packet to the last acknowledgment."""
    return trio.run(_router, address, packets, children, protects)


async def _load(
    announce: Callable[[SocketAddress], None], packets: int, payload: bytes, query: str, children: int, protects: bool
) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        Identity.load_or_create(Path(folder) / "owner.key")
        common: dict[str, Any] = {"stream": STREAM, "cleartext": not protects, "beacon": False, "transport": "udp"}
        options = PeerOptions(
            **common,
            role=Role.ROOT,
            owner=Path(folder) / "owner.key",
            unsigned=not protects,
            capacity=1,
            keep_numbers=False,
        )
        async with open_peer(options) as root, trio.open_nursery() as nursery:
            root.publish_hole(0)
            announce(root.address)
            while not root.statistics().children:
                await root.wait_turn()
            reach = [(root.address[0], root.address[1])]
            for _ in range(children):
                leaf = PeerOptions(
                    **common, role=Role.LEAF, parents=1, query=query, bootstrap=reach, multicast=False, audit=0.0
                )
                await nursery.start(_leaf, leaf, packets, payload)
            for sent in range(0, packets, BATCH):
                for _ in range(min(BATCH, packets - sent)):
                    root.publish_now(payload)
                await trio.lowlevel.checkpoint()
                if sent % AHEAD == 0:
                    await root.wait_children_caught_up()
        return {}


async def _leaf(
    options: PeerOptions, packets: int, payload: bytes, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with open_peer(options) as leaf:
        await leaf.wait_parents(1)
        task_status.started()
        got = 0
        while got < packets:
            items = [item for item in await leaf.receive_many(1_024) if not isinstance(item, Started)]
            if items != [Packet(an, payload) for an in range(got + 1, got + 1 + len(items))]:
                raise RuntimeError(f"not the packets after {got}: {items!r:.100}")
            got += len(items)


def _joining(address: SocketAddress, protects: bool) -> PeerOptions:
    return PeerOptions(
        stream=STREAM,
        role=Role.LEAF,
        parents=1,
        start="oldest",
        bootstrap=[(address[0], address[1])],
        cleartext=not protects,
        beacon=False,
        multicast=False,
        transport="udp",
    )


async def _router(address: SocketAddress, packets: int, children: int, protects: bool) -> Result:
    options = replace(_joining(address, protects), role=Role.ROUTER, capacity=2 * children + 2, deliver=False)
    async with open_peer(options) as router:
        while len(router.statistics().children) < children:
            await router.wait_turn()
        cpu = time.process_time()
        while (router.statistics().position or 0) < packets:
            await router.wait_turn()
        await router.wait_children_caught_up()
        used = time.process_time() - cpu
        if bool(router.trust.signatures) != protects or router.trust.forged:
            raise RuntimeError(
                "signatures were to be checked, and all to be right" if protects else "nothing was signed"
            )
        return {"cpu": used}


async def _sender(announce: Callable[[SocketAddress], None], packets: int, size: int, protects: bool) -> Result:
    payload = bytes(size)
    with tempfile.TemporaryDirectory() as folder:
        options = PeerOptions(
            stream=STREAM,
            role=Role.ROOT,
            owner=Path(folder) / "owner.key",
            unsigned=not protects,
            cleartext=not protects,
            raw=True,
            beacon=False,
            keep_numbers=False,
            transport="udp",
        )
        Identity.load_or_create(Path(folder) / "owner.key")
        async with open_peer(options) as root:
            root.publish_hole(0)  # begun, and still empty: who joins now gets everything
            announce(root.address)
            while not root.statistics().children:
                await root.wait_turn()
            cpu = time.process_time()
            for sent in range(0, packets, BATCH):
                for _ in range(min(BATCH, packets - sent)):
                    root.publish_now(payload)
                await trio.lowlevel.checkpoint()
                if sent % AHEAD == 0:
                    await root.wait_children_caught_up()
            await root.wait_children_caught_up()
            return {"packets": packets, "cpu": time.process_time() - cpu}


async def _receiver(address: SocketAddress, packets: int, size: int, protects: bool) -> Result:
    payload = bytes(size)
    async with open_peer(_joining(address, protects)) as leaf:
        started = await anext(leaf)
        if started != Started(0):
            raise RuntimeError(f"the stream was to start at 0: {started}")
        began, cpu = time.perf_counter(), time.process_time()
        got = 0
        while got < packets:
            items = await leaf.receive_many(1_024)
            if items != [Packet(an, payload) for an in range(got + 1, got + 1 + len(items))]:
                raise RuntimeError(f"not the packets after {got}: {items!r:.100}")
            got += len(items)
        seconds = time.perf_counter() - began
        complete = leaf.statistics().forged == 0 and bool(leaf.trust.signatures) == protects
        return {"packets": got, "seconds": seconds, "cpu": time.process_time() - cpu, "complete": complete}
