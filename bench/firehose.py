"""Packets per second from one process to another over loopback, compared with the simplest loop in Python.

Both ways: one sending process, one receiving process, the same payloads. The bare loop is `sendto` and `recvfrom`, one
datagram a packet, no order, no repair; its rate is what its receiver got, and losses are reported. DCP delivers every
packet, in order, and each is compared with what was sent. The two take turns, and medians are compared, because the
machine has other things to do. Two peers, a root and a leaf, run the same with encrypted links and signed packets, and
without both.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import trio

import dcp
from bench._processes import Result, run_pair
from bench._protected import peer_receiver, peer_sender
from bench.report import Report, Target, progress
from dcp.links.link import SocketAddress
from dcp.udp import BUFFER_BYTES

SUMMARY = "packets per second between two processes, compared with a bare sendto/recvfrom loop; memory over a long run"

STREAM = "firehose"
# Distinct payloads, used in turn: enough that a packet in the wrong place is noticed, few enough to stay in the cache.
POOL = 1_024
BATCH = 512
END = b"end"
# The log fills in the first 65,536 packets: what memory does before is warm-up.
WARM_UP = 200_000
# Growth after warm-up that is still called flat: the allocator's own comings and goings.
FLAT_BYTES = 8 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--packets", type=int, default=1_000_000, help="packets of the memory run (%(default)s)")
    parser.add_argument("--sample", type=int, default=200_000, help="packets of one speed run (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="speed runs of each kind (%(default)s)")
    parser.add_argument("--size", type=int, default=350, help="bytes per packet (%(default)s)")


def run(args: argparse.Namespace) -> Report:
    runs: dict[str, list[Result]] = {"bare": [], "dcp": [], "dcp one by one": [], "peers, bare": [], "peers": []}
    for repetition in range(args.repetitions):
        progress(f"speed: repetition {repetition + 1} of {args.repetitions}")
        options = {"packets": args.sample, "size": args.size}
        received, sent = run_pair(bare_receiver, bare_sender, **options)
        runs["bare"].append(received | {"loss": 1 - received["packets"] / sent["packets"], "sender": sent})
        runs["dcp"].append(_both(run_pair(dcp_sender, dcp_receiver, **options, batch=BATCH)))
        runs["dcp one by one"].append(_both(run_pair(dcp_sender, dcp_receiver, **options, batch=1)))
        for kind, protects in (("peers, bare", False), ("peers", True)):
            runs[kind].append(_both(run_pair(peer_sender, peer_receiver, **options, protects=protects)))
    progress(f"memory: {args.packets:,} packets")
    long = _both(run_pair(dcp_sender, dcp_receiver, packets=args.packets, size=args.size, batch=BATCH))

    rates = {kind: [run["packets"] / run["seconds"] for run in found] for kind, found in runs.items()}
    middle = {kind: statistics.median(found) for kind, found in rates.items()}
    ratio = middle["dcp"] / middle["bare"]
    protected = middle["peers"] / middle["peers, bare"]
    data: dict[str, Any] = {
        "packet_bytes": args.size,
        "bare_packets_per_second": round(middle["bare"]),
        "bare_loss": round(statistics.median(run["loss"] for run in runs["bare"]), 4),
        "dcp_packets_per_second": round(middle["dcp"]),
        "dcp_one_by_one_packets_per_second": round(middle["dcp one by one"]),
        "delivered_in_order": all(
            run["complete"] for kind, found in runs.items() if kind != "bare" for run in (*found, long)
        ),
        "peers_packets_per_second": round(middle["peers"]),
        "peers_without_protection_packets_per_second": round(middle["peers, bare"]),
        "ratio_to_without_protection": round(protected, 3),
        "ratio_to_bare": round(ratio, 3),
        "ratio_to_bare_one_by_one": round(middle["dcp one by one"] / middle["bare"], 3),
        "rows": [
            {"kind": kind, "packets_per_second": [round(rate) for rate in found]} for kind, found in rates.items()
        ],
        "memory": {
            "packets": args.packets,
            "packets_per_second": round(args.packets / long["seconds"]),
            "warm_up_packets": min(WARM_UP, args.packets // 2),
            "sender_rss_bytes": long["sender"]["rss"],
            "sender_growth_bytes": long["sender"]["growth"],
            "receiver_rss_bytes": long["rss"],
            "receiver_growth_bytes": long["growth"],
            "sender_growth_in_second_half_bytes": long["sender"]["late_growth"],
            "receiver_growth_in_second_half_bytes": long["late_growth"],
        },
    }
    growth = max(long["growth"], long["sender"]["growth"])
    late_growth = max(long["late_growth"], long["sender"]["late_growth"])
    return Report(
        name="firehose",
        data=data,
        columns=(
            "kind",
            "packets/s",
            "slowest",
            "fastest",
            "to bare",
            "sender us/packet",
            "receiver us/packet",
            "lost",
        ),
        rows=[
            (
                kind,
                middle[kind],
                min(rates[kind]),
                max(rates[kind]),
                middle[kind] / middle["bare"],
                *_processor_time(found),
                f"{statistics.median(run.get('loss', 0.0) for run in found):.1%}",
            )
            for kind, found in runs.items()
        ],
        notes=(
            f"memory over {args.packets:,} packets, after a warm-up of {data['memory']['warm_up_packets']:,}:"
            f" sender {long['sender']['rss'] / 1e6:.1f} MB, grown by {long['sender']['growth'] / 1e6:.2f} MB"
            f" ({long['sender']['late_growth'] / 1e6:.2f} in the second half);"
            f" receiver {long['rss'] / 1e6:.1f} MB, grown by {long['growth'] / 1e6:.2f} MB"
            f" ({long['late_growth'] / 1e6:.2f} in the second half)",
        ),
        targets=[
            Target("everything in order", data["delivered_in_order"], "every payload compared with the one sent"),
            Target("ratio to bare >= 1.0", ratio >= 1.0, f"{ratio:.2f}"),
            Target(
                "peers with encryption and signatures to peers without >= 0.6", protected >= 0.6, f"{protected:.2f}"
            ),
            Target(
                "memory is flat",
                growth <= FLAT_BYTES and late_growth <= FLAT_BYTES // 4,
                f"{growth / 1e6:.2f} MB after warm-up (8.4 allowed), {late_growth / 1e6:.2f} in the second half (2.1)",
            ),
        ],
        draw=partial(_draw, rates),
    )


def _both(results: tuple[Result, Result]) -> Result:
    """The receiver's result, with the sender's in it."""
    sent, received = results
    return received | {"sender": sent}


def _processor_time(runs: list[Result]) -> tuple[float, float]:
    """Microseconds of processor a packet: at the sender, at the receiver."""
    return (
        statistics.median(run["sender"]["cpu"] / run["sender"]["packets"] for run in runs) * 1e6,
        statistics.median(run["cpu"] / run["packets"] for run in runs) * 1e6,
    )


def payload_pool(size: int) -> list[bytes]:
    """The same in both processes."""
    rng = random.Random(350)
    return [rng.randbytes(size) for _ in range(POOL)]


def rss() -> int:
    """Bytes of memory that this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Memory:
    """How far the resident memory rises after the warm-up, and how far in the second half of the run alone.

    The first may be the allocator settling; what leaks goes on rising.
    """

    def __init__(self, packets: int) -> None:
        self._warm_at = self._next_at = min(WARM_UP, packets // 2)
        self._half_at = (self._warm_at + packets) // 2
        self._step = max(1, packets // 200)
        self._warm = 0
        self._most = [0, 0]

    def note(self, packets: int) -> None:
        if packets >= self._next_at:
            self._next_at = packets + self._step
            now = rss()
            self._warm = self._warm or now
            half = packets >= self._half_at
            self._most[half] = max(self._most[half], now)

    def result(self) -> Result:
        first, second = self._most
        return {
            "rss": max(first, second),
            "growth": max(first, second) - self._warm,
            "late_growth": max(0, second - first),
        }


# --- the bare loop ----------------------------------------------------------------------------------------------------


def bare_receiver(announce: Callable[[SocketAddress], None], *, packets: int, size: int) -> Result:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        sock.bind(("127.0.0.1", 0))
        announce(sock.getsockname())
        count = 0
        sock.recvfrom(65_535)
        began, cpu = time.perf_counter(), time.process_time()
        while True:
            data, _ = sock.recvfrom(65_535)
            if data == END:
                break
            count += 1
        return {"packets": count, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def bare_sender(address: SocketAddress, *, packets: int, size: int) -> Result:
    pool = payload_pool(size)
    rounds = max(1, packets // POOL)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"begin", address)
        cpu = time.process_time()
        for _ in range(rounds):
            for payload in pool:
                sock.sendto(payload, address)
        cpu = time.process_time() - cpu
        # Once more and more, until the receiver has room for it and closes its socket: this is not being measured.
        try:
            sock.connect(address)
            while True:
                sock.send(END)
                time.sleep(0.001)
        except ConnectionRefusedError:
            pass
    return {"packets": rounds * POOL, "cpu": cpu}


# --- DCP --------------------------------------------------------------------------------------------------------------


def dcp_sender(announce: Callable[[SocketAddress], None], *, packets: int, size: int, batch: int) -> Result:
    return trio.run(_dcp_sender, announce, packets, size, batch)


def dcp_receiver(address: SocketAddress, *, packets: int, size: int, batch: int) -> Result:
    return trio.run(_dcp_receiver, address, packets, size, batch)


def _batches(pool: list[bytes], packets: int, batch: int) -> Iterator[list[bytes]]:
    at = 0
    while packets > 0:
        part = pool[at : at + min(batch, packets)]
        yield part
        packets -= len(part)
        at = (at + len(part)) % len(pool)


async def _dcp_sender(announce: Callable[[SocketAddress], None], packets: int, size: int, batch: int) -> Result:
    pool = payload_pool(size)
    async with dcp.open_endpoint() as endpoint:
        publisher = endpoint.serve(STREAM, follow_fastest=True)
        publisher.machine.publish_hole(0)  # begun, and still empty: who joins now gets everything
        announce(endpoint.address)
        await publisher.wait_children()
        memory = Memory(packets)
        cpu = time.process_time()
        sent = 0
        for part in _batches(pool, packets, max(batch, 64)):
            if batch == 1:
                for payload in part:
                    await publisher.send(payload)
            else:
                await publisher.send_many(part)
            sent += len(part)
            memory.note(sent)
        while publisher.machine.children and publisher.statistics().links[0].acknowledged < packets:
            await endpoint.wait_turn()
        return {"packets": packets, "cpu": time.process_time() - cpu} | memory.result()


async def _dcp_receiver(address: SocketAddress, packets: int, size: int, batch: int) -> Result:
    pool = payload_pool(size)
    async with dcp.open_endpoint() as endpoint:
        subscription = endpoint.subscribe(STREAM, [address])
        started = await anext(subscription)
        if started != dcp.Started(0):
            raise RuntimeError(f"the stream was to start at 0: {started}")
        memory = Memory(packets)
        began, cpu = time.perf_counter(), time.process_time()
        got = 0
        while got < packets:
            if batch == 1:
                # One at a time, as most programs would, up to where they are looked at.
                items = []
                async for item in subscription:
                    items.append(item)
                    if len(items) == POOL or got + len(items) == packets:
                        break
            else:
                items = await subscription.receive_many()
            _check(items, got, pool)
            got += len(items)
            memory.note(got)
        seconds = time.perf_counter() - began
        complete = got == packets and subscription.statistics().gaps == 0
        return {"packets": got, "seconds": seconds, "cpu": time.process_time() - cpu, "complete": complete} | (
            memory.result()
        )


def _check(items: list[dcp.Packet | Any], got: int, pool: list[bytes]) -> None:
    """The right packets at the right places."""
    at = got % POOL
    payloads = pool[at : at + len(items)]
    if len(payloads) < len(items):
        payloads += pool[: len(items) - len(payloads)]
    if items != list(zip(range(got + 1, got + 1 + len(items)), payloads, strict=True)):
        raise RuntimeError(f"not the packets after {got}: {items!r:.100}")


def _draw(rates: dict[str, list[float]], figure: Any) -> None:
    axes = figure.subplots()
    names = list(rates)
    axes.boxplot([rates[name] for name in names], tick_labels=names)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("packets per second")
    axes.set_title("350-byte packets from process to process over loopback")
    axes.grid(axis="y", alpha=0.3)
