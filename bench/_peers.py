"""Real peers in processes of their own, for the benchmarks that kill and freeze them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trio

import dcp
from dcp.links.link import SocketAddress
from dcp.testing.faulty import lossy
from dcp.udp import UdpSocket
from dht.addresses import parse_endpoint
from peer.items import Content
from peer.node import Peer
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from xmlswitch import Query


class PeerProcess:
    """A peer that answers questions over a pipe. Ends with the block of `Peers`, however that is left."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        # One process imports everything once, and the peers are forked from it: a restart takes no second.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["bench._peers"])
        self.name = name
        self.options = dict(options)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, options), daemon=True)
        self._process.start()
        theirs.close()
        self.address: SocketAddress = tuple(self._pipe.recv())
        self.alive = True

    def ask(self, question: str, argument: Any = None, *, patience: float = 30.0) -> Any:
        self._pipe.send((question, argument))
        if not self._pipe.poll(patience):
            raise RuntimeError(f"{self.name} did not answer {question!r} within {patience:.0f} s")
        return self._pipe.recv()

    def wait_parents(self, count: int, *, patience: float = 30.0) -> None:
        deadline = time.monotonic() + patience
        while (held := self.ask("parents")) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} has {held} of {count} parents after {patience:.0f} s")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        if number is signal.SIGKILL:
            self.alive = False

    def restarted(self) -> PeerProcess:
        """A new process with the same options at the same address; this one must be dead."""
        self.stop()
        return PeerProcess(self.name, self.options | {"listen": self.address[:2]})

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.kill()  # a stopped process does not see anything milder
        self._process.join()
        self._pipe.close()


class Peers:
    """All peers of one mesh."""

    def __init__(self) -> None:
        self.all: list[PeerProcess] = []

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.all:
            peer.stop()

    def start(self, name: str, **options: Any) -> PeerProcess:
        peer = PeerProcess(name, options)
        self.all.append(peer)
        return peer

    def restart(self, peer: PeerProcess) -> PeerProcess:
        """In the place of the dead one, and with its address."""
        again = peer.restarted()
        self.all[self.all.index(peer)] = again
        return again

    def at(self, address: SocketAddress) -> PeerProcess:
        return next(peer for peer in self.all if peer.address == address)


def _main(pipe: Connection, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    gc.freeze()  # as the command line does
    trio.run(_run, pipe, options)


async def _run(pipe: Connection, options: dict[str, Any]) -> None:
    role = Role(options.pop("role"))
    owner = options.pop("owner", None)
    identity = options.pop("identity", None)
    loss = options.pop("loss", 0.0)
    payloads = options.pop("payloads", None)
    async with open_peer(
        PeerOptions(
            stream=options.pop("stream", "bench"),
            role=role,
            beacon=False,
            owner=Path(owner) if owner and role is Role.ROOT else None,
            identity=Path(identity) if identity else None,
            **options,
        ),
        rng=random.SystemRandom(),
        bind=lossy(loss, random.SystemRandom()) if loss else UdpSocket.bind,
    ) as peer:
        pipe.send(peer.address)
        client = _Client(peer, Expectation(payloads, options.get("query")) if payloads else None)
        async with trio.open_nursery() as nursery:
            if role is Role.LEAF:
                nursery.start_soon(client.follow)
            while True:
                try:
                    question, argument = await trio.to_thread.run_sync(pipe.recv, abandon_on_cancel=True)
                except EOFError:
                    nursery.cancel_scope.cancel()
                    return
                if question == "feed":
                    nursery.start_soon(_feed, peer, *argument)
                    pipe.send(None)
                else:
                    pipe.send(client.answer(question, argument))


class Expectation:
    """Follows a client of a feed whose packet k is `payloads[k % len(payloads)]`: is this its part of it?"""

    def __init__(self, payloads: list[bytes], query: str | None) -> None:
        self._payloads = payloads
        parsed = Query.parse(query) if query is not None else None
        self._wanted = [parsed is None or parsed.matches(payload) for payload in payloads]
        self.position: int | None = None
        self.packets = 0
        self.gaps: list[tuple[int, int]] = []
        self.wrong: list[str] = []

    def take(self, item: Content) -> None:
        if isinstance(item, dcp.Started):
            self.position = item.position
            return
        if self.position is None:
            self._complain(f"{item} before the start")
            return
        if isinstance(item, dcp.Packet):
            self._skip_to(item.an - 1)
            if item.an <= self.position:
                self._complain(f"{item.an} repeated or out of order, at {self.position}")
            elif not self._wanted[item.an % len(self._payloads)]:
                self._complain(f"{item.an} was not asked for")
            elif item.payload != self._payloads[item.an % len(self._payloads)]:
                self._complain(f"{item.an} is not the feed's packet")
            self.packets += 1
            self.position = item.an
        elif isinstance(item, dcp.Gap):
            self._skip_to(item.after)
            if len(self.gaps) < 100:
                self.gaps.append((item.after, item.until))
            self.position = max(self.position, item.until)

    def _skip_to(self, until: int) -> None:
        """Nothing that was asked for may lie between."""
        assert self.position is not None
        for number in range(self.position + 1, until + 1):
            if self._wanted[number % len(self._payloads)]:
                self._complain(f"{number} was skipped in silence")

    def _complain(self, text: str) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(text)

    def told(self, last: int) -> dict[str, Any]:
        """`missing`: the first packet up to `last` that should be here and is not."""
        missing: int | None = 1
        if self.position is not None:
            wanted = (n for n in range(self.position + 1, last + 1) if self._wanted[n % len(self._payloads)])
            missing = next(wanted, None)
        return {"packets": self.packets, "gaps": self.gaps, "wrong": self.wrong, "missing": missing}


async def _feed(
    peer: Peer,
    start_at: float,
    rate: float,
    payloads: list[bytes],
    last: int | None = None,
    first: int | None = None,
) -> None:
    """The same packets with the same numbers at every root: the clock of the machine says which is due.

    A root that comes later, or again, goes on from there: what was before is a hole to it. With `first` it publishes
    at once everything from that number on that is overdue.
    """
    number = max(0, int((time.monotonic() - start_at) * rate)) if first is None else first
    if number:
        peer.publish_hole(number)
    while last is None or number < last:
        due = int((time.monotonic() - start_at) * rate)
        while number < due and (last is None or number < last):
            number += 1
            await peer.send(payloads[number % len(payloads)], an=number)
        await trio.sleep(max(0.0, start_at + (number + 1) / rate - time.monotonic()))


class _Client:
    """What a client got, and when."""

    def __init__(self, peer: Peer, expectation: Expectation | None = None) -> None:
        self._peer = peer
        self._arrivals: list[tuple[float, int]] = []
        self._lost = 0
        self._expectation = expectation

    async def follow(self) -> None:
        async for item in self._peer:
            if self._expectation is not None:
                self._expectation.take(item)
                continue
            if isinstance(item, dcp.Packet):
                self._arrivals.append((time.monotonic(), item.an))
            elif isinstance(item, dcp.Gap):
                self._lost += item.until - item.after

    def answer(self, question: str, argument: Any) -> Any:
        peer = self._peer
        if question == "parents":
            return peer.parents
        if question == "parent addresses":
            return [parse_endpoint(parent.address) for parent in peer.statistics().parents]
        if question == "arrivals":
            arrivals, self._arrivals = self._arrivals, self._arrivals[-1:]
            return arrivals, self._lost
        if question == "expectation":
            return self._expectation.told(argument) if self._expectation is not None else None
        raise ValueError(question)
