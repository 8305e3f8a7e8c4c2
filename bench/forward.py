"""Packets per second that a router forwards, by number of children (the paper's Figure 11).

A router process gets 262-byte flights from a root and gives each to every child, whose query is trivial but must be
evaluated; root and children live in another process. Beside it, a bare relay: `recvfrom`, parse with lxml, `sendto` a
child, one datagram a packet. The same with whole peers, once with encrypted links and signed packets, which the router
checks, and once without both. Rates are packets for each second of the *router's* processor time, so that neither the
load generator nor other work on the machine counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import trio

import dcp
from bench._processes import run_pair
from bench._protected import forwarding_load, forwarding_router
from bench.report import Report, Target, progress
from dcp.links.link import SocketAddress
from dht.identity import Identity

SUMMARY = "a router's packets per second by number of children, compared with a bare UDP relay (Figure 11)"

STREAM = "forward"
QUERY = "/flight"
FLIGHT = (
    b'<?xml version="1.0"?><flight><id>UAL1021</id><flightleg status="active"><speed type="ground">512</speed>'
    b'<altitude type="reported" mode="plain">290</altitude><coordinate><lat>4928N</lat><lon>12003W</lon></coordinate>'
    b"</flightleg></flight>"
).ljust(262)
END = b"end"
BATCH = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--packets", type=int, default=20_000, help="packets of one run (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each kind (%(default)s)")
    parser.add_argument("--children", type=int, nargs="+", default=[1, 2, 4, 8, 16])


def run(args: argparse.Namespace) -> Report:
    rows: list[dict[str, Any]] = []
    for children in args.children:
        rates: dict[str, list[float]] = {kind: [] for kind in ("mesh", "cleartext", "bare", "peers", "peers, bare")}
        for repetition in range(args.repetitions):
            progress(f"{children} children: repetition {repetition + 1} of {args.repetitions}")
            rates["mesh"].append(args.packets / _mesh_run(children, args.packets, encrypts=True))
            rates["cleartext"].append(args.packets / _mesh_run(children, args.packets, encrypts=False))
            rates["bare"].append(_bare_run(children, args.packets))
            for kind, protects in (("peers", True), ("peers, bare", False)):
                rates[kind].append(args.packets / _peers_run(children, args.packets, protects=protects))
        mesh, clear, bare, peers, plain = (statistics.median(found) for found in rates.values())
        rows.append(
            {
                "children": children,
                "packets_per_s": round(mesh),
                "cleartext_packets_per_s": round(clear),
                "bare_packets_per_s": round(bare),
                "ratio_to_cleartext": round(mesh / clear, 3),
                "ratio_to_bare": round(mesh / bare, 3),
                "peers_packets_per_s": round(peers),
                "peers_without_protection_packets_per_s": round(plain),
                "ratio_to_without_protection": round(peers / plain, 3),
            }
        )
    worst = min(row["ratio_to_bare"] for row in rows)
    protected = min(row["ratio_to_without_protection"] for row in rows)
    encrypted = min(row["ratio_to_cleartext"] for row in rows)
    return Report(
        name="forward",
        data={"packet_bytes": len(FLIGHT), "query": QUERY, "rows": rows},
        columns=(
            "children",
            "packets/s",
            "cleartext",
            "bare relay",
            "to cleartext",
            "to bare",
            "peers",
            "to plain peers",
        ),
        rows=[
            (
                r["children"],
                r["packets_per_s"],
                r["cleartext_packets_per_s"],
                r["bare_packets_per_s"],
                r["ratio_to_cleartext"],
                r["ratio_to_bare"],
                r["peers_packets_per_s"],
                r["ratio_to_without_protection"],
            )
            for r in rows
        ],
        notes=(
            "packets per second of the router's CPU time, with encrypted links and in cleartext; "
            "everything was delivered, in order, to every child",
        ),
        targets=[
            Target("ratio to bare >= 1.0 at every number of children", worst >= 1.0, f"{worst:.2f} at worst"),
            Target("ratio to cleartext >= 0.95", encrypted >= 0.95, f"{encrypted:.2f} at worst"),
            Target(
                "peers with encryption and signatures to peers without >= 0.8",
                protected >= 0.8,
                f"{protected:.2f} at worst",
            ),
        ],
        draw=lambda figure: _draw(rows, figure),
    )


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        if process.is_alive():
            process.terminate()
        process.join()


def _peers_run(children: int, packets: int, *, protects: bool) -> float:
    """Seconds of processor that a router between whole peers took."""
    options = {"packets": packets, "payload": FLIGHT, "query": QUERY, "children": children, "protects": protects}
    _, found = run_pair(forwarding_load, forwarding_router, **options)
    return float(found["cpu"])


# --- the mesh's router ------------------------------------------------------------------------------------------------


def _mesh_run(children: int, packets: int, *, encrypts: bool) -> float:
    """Seconds of processor that the router took."""
    with _process(_router, encrypts) as pipe:
        return trio.run(_mesh_load, pipe, children, packets)


def _router(pipe: Connection, encrypts: bool) -> None:
    trio.run(_router_main, pipe, encrypts)


async def _router_main(pipe: Connection, encrypts: bool) -> None:
    from peer.queries import XPathPolicy

    config = dcp.Config(encryption="require" if encrypts else "off")
    async with dcp.open_endpoint(config=config, identity=Identity.generate()) as endpoint:
        endpoint.relay(STREAM, [pipe.recv()], policy=XPathPolicy(), capacity=64)
        pipe.send(endpoint.address)
        await trio.to_thread.run_sync(pipe.recv)
        cpu = time.process_time()
        await trio.to_thread.run_sync(pipe.recv)
        pipe.send(time.process_time() - cpu)


async def _mesh_load(pipe: Connection, children: int, packets: int) -> float:
    from peer.queries import token_of
    from xmlswitch import Query

    query = token_of(Query.parse(QUERY))
    async with dcp.open_endpoint(identity=Identity.generate()) as root:
        publisher = root.serve(STREAM, follow_fastest=True)
        publisher.machine.publish_hole(0)
        pipe.send(root.address)
        address: SocketAddress = await trio.to_thread.run_sync(pipe.recv)
        await publisher.wait_children()
        waiting = [trio.Event() for _ in range(children)]
        async with trio.open_nursery() as nursery:
            for ready in waiting:
                nursery.start_soon(_mesh_child, address, query, packets, ready)
            for ready in waiting:
                await ready.wait()
            pipe.send("begin")
            for _ in range(packets // BATCH):
                await publisher.send_many([FLIGHT] * BATCH)
        pipe.send("end")
        seconds: float = await trio.to_thread.run_sync(pipe.recv)
        return seconds


async def _mesh_child(address: SocketAddress, query: bytes, packets: int, ready: trio.Event) -> None:
    async with dcp.open_endpoint(identity=Identity.generate()) as endpoint:
        subscription = endpoint.subscribe(STREAM, [address], query=query)
        got = 0
        while got < packets // BATCH * BATCH:
            for item in await subscription.receive_many():
                if isinstance(item, dcp.Started):
                    ready.set()
                    continue
                got += 1
                if item != (got, FLIGHT):
                    raise RuntimeError(f"packet {got}: {item!r:.60}")


# --- the bare relay ---------------------------------------------------------------------------------------------------


def _bare_run(children: int, packets: int) -> float:
    """Packets that the relay passed on for each second of processor it took."""
    sinks = [_udp() for _ in range(children)]
    with _process(_bare_relay, [sink.getsockname() for sink in sinks]) as pipe, _udp() as source:
        target = pipe.recv()
        for number in range(packets):
            source.sendto(FLIGHT, target)
            if number % BATCH == 0:
                for sink in sinks:
                    _drain(sink)
        while not pipe.poll(0.01):
            source.sendto(END, target)
            for sink in sinks:
                _drain(sink)
        passed, seconds = pipe.recv()
    for sink in sinks:
        sink.close()
    return float(passed / seconds)


def _bare_relay(pipe: Connection, children: list[SocketAddress]) -> None:
    from lxml import etree

    with _udp() as sock:
        sock.setblocking(True)
        pipe.send(sock.getsockname())
        sock.recvfrom(65_535)
        cpu = time.process_time()
        passed = 0
        while True:
            data, _ = sock.recvfrom(65_535)
            if data == END:
                break
            etree.fromstring(data)
            for child in children:
                sock.sendto(data, child)
            passed += 1
        pipe.send((passed, time.process_time() - cpu))


def _udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


def _drain(sock: socket.socket) -> None:
    try:
        while True:
            sock.recvfrom(65_535)
    except BlockingIOError:
        return


def _draw(rows: list[dict[str, Any]], figure: Any) -> None:
    axes = figure.subplots()
    for key, label in (("packets_per_s", "skymesh"), ("bare_packets_per_s", "bare relay")):
        axes.plot([r["children"] for r in rows], [r[key] for r in rows], marker="o", label=label)
    axes.set_xlabel("children")
    axes.set_ylabel("packets in per second of CPU time")
    axes.set_ylim(bottom=0)
    axes.set_title("A router's forwarding rate, 262-byte flights")
    axes.legend()
    axes.grid(alpha=0.3)
