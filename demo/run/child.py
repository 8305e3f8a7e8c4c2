"""One process of a demo: a root, a router, a client, or a bare node of the DHT. Runs until its channel closes.

It reports, in lines of JSON, what it received and what happens around it; on command it degrades its network, consumes
slowly, or changes its query. The demo, not this process, decides what is right and wrong.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
import zlib
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import trio

from dcp import Config, Gap, Omitted, Packet, Start, Started
from dcp.testing.faulty import FaultySocket
from demo.run.channel import Channel
from demo.run.faults import Weather
from demo.run.feed import FeedPlan
from demo.run.lifeline import die_with_parent
from demo.run.lying import Liar
from demo.run.settings import STREAM
from dht import DirectoryOptions, Identity, id_text, open_directory
from dht.addresses import parse_endpoint
from peer.errors import Overrun
from peer.items import QuerySwitched
from peer.mesh.hostport import HostPort
from peer.node import Peer
from peer.observe.statistics import Statistics
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

REPORT_INTERVAL = 0.1
"""Interval between reports: a viewer does not notice shorter ones."""
STATUS_INTERVAL = 0.5
TICK = 0.1
BEHIND_THE_DEMO = 5
"""Who measures goes before who is measured: on a busy machine the demo, which has the most to do, got no more than each
of its peers, and its page stood still for a minute after a storm of joins."""
CLIENT_QUEUE = 512
"""Packets that a client leaves untaken before its window closes: small, so that a slow client is seen in seconds."""
READ_AHEAD = 64


def main(sock: socket.socket, spec: dict[str, Any]) -> None:
    """What the forked process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's to handle
    die_with_parent()
    os.nice(BEHIND_THE_DEMO)
    trio.run(_run, sock, spec)


async def _run(sock: socket.socket, spec: dict[str, Any]) -> None:
    channel = Channel(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.run_writer)
        if spec["role"] == "dht":
            await _run_node(spec, channel)
        else:
            await _run_peer(spec, channel)
        nursery.cancel_scope.cancel()


async def _run_node(spec: dict[str, Any], channel: Channel) -> None:
    identity = Identity.load_or_create(Path(spec["identity"]))
    options = DirectoryOptions(bootstrap=tuple(map(tuple, spec["bootstrap"])), beacon=False)
    async with open_directory(identity, options, listen=tuple(spec["listen"])) as directory, trio.open_nursery() as n:
        channel.post({"k": "ready", "address": directory.address[:2], "id": id_text(identity.peer_id)})

        async def report() -> None:
            while True:
                stats = directory.stats()
                channel.post(
                    {"k": "stat", "cpu": _cpu(), "contacts": stats.contacts, "records": stats.records_held, "up": []}
                )
                await trio.sleep(STATUS_INTERVAL)

        n.start_soon(report)
        async for _ in channel.messages():
            pass  # a bare node takes no orders
        os._exit(0)


async def _run_peer(spec: dict[str, Any], channel: Channel) -> None:
    role = Role(spec["role"])
    options = PeerOptions(
        stream=STREAM,
        role=role,
        query=spec.get("query"),
        parents=spec["parents"],
        capacity=spec["capacity"],
        listen=tuple(spec["listen"]),
        bootstrap=[tuple(address) for address in spec["bootstrap"]],
        beacon=False,
        transport="udp",  # faults are made in the UDP socket: over TCP a peer that is cut off would not be
        profile="latency" if role is not Role.ROOT else "reliable",
        identity=Path(spec["identity"]),
        start=Start.NEW if spec.get("position") is None else Start.POSITION,
        position=spec.get("position"),
        deliver=role is Role.LEAF,
        owner=Path(spec["owner"]) if role is Role.ROOT else None,
        dcp=Config(
            max_log_packets=spec["log_packets"],
            max_ready_packets=CLIENT_QUEUE if role is Role.LEAF else Config().max_ready_packets,
        ),
    )
    async with open_peer(options, bind=FaultySocket.bind) as peer, trio.open_nursery() as nursery:
        liar = None if role is Role.LEAF else Liar(peer)
        child = _Child(peer, channel, spec, liar)
        channel.post({"k": "ready", "address": peer.address, "id": id_text(peer.identity.peer_id)})
        nursery.start_soon(child.report_events)
        nursery.start_soon(child.report_status)
        nursery.start_soon(child.watch_machine)
        if liar is not None:
            nursery.start_soon(liar.run)
        if role is Role.ROOT:
            nursery.start_soon(child.publish)
            nursery.start_soon(child.report_batches)
        elif role is Role.LEAF:
            nursery.start_soon(child.follow)
            nursery.start_soon(child.report_batches)
        async for order in channel.messages():
            if order["do"] == "leave":
                await peer.leave()
                break
            child.obey(order)
        else:
            os._exit(0)  # no one is left to report to, and saying goodbye to the other peers would only delay the exit
        nursery.cancel_scope.cancel()


class _Child:
    def __init__(self, peer: Peer, channel: Channel, spec: dict[str, Any], liar: Liar | None) -> None:
        self._peer = peer
        self._liar = liar
        self._channel = channel
        self._spec = spec
        self._items: list[list[Any]] = []
        self._published: list[int] | None = None
        self._takes_a_second: float | None = None
        self._pace_changed = trio.Event()
        self._pause = (0.0, 0.0)

    # --- orders -------------------------------------------------------------------------------------------------------

    def obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "weather":
                udp = self._peer.driver.udp
                assert isinstance(udp, FaultySocket)
                everywhere = Weather.from_json(order["everywhere"])
                links = {
                    _pair(address): everywhere.worse(Weather.from_json(weather)).conditions()
                    for address, weather in order["links"]
                }
                cut = frozenset(_pair(address) for address in order["cut"])
                udp.set_conditions(None if everywhere.is_fair else everywhere.conditions(), links, cut)
            case "lie":
                assert self._liar is not None
                self._liar.lie(order["how"])
            case "goal" if self._peer.goals is not None:
                self._peer.goals.take_goal(bytes.fromhex(order["data"]))
            case "query":
                self._peer.change_query(order["text"])
            case "pace":
                self._takes_a_second = order["rate"]
                self._pace_changed.set()
                self._pace_changed = trio.Event()

    # --- a client -----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        while True:
            try:
                async for item in self._peer:
                    self._items.append(self._told(item))
                    if self._takes_a_second is not None:
                        with trio.move_on_after(1 / self._takes_a_second):
                            await self._pace_changed.wait()
                return
            except Overrun as error:
                self._channel.post({"k": "event", "name": "Overrun", "reason": str(error), "at": time.monotonic()})
                self._peer.rejoin()

    def _told(self, item: object) -> list[Any]:
        match item:
            case Packet(an, payload):
                return [an, zlib.crc32(payload), round(time.monotonic(), 4)]
            case Omitted(an, payload):
                return ["omitted", an, zlib.crc32(payload)]
            case Gap(after, until):
                return ["gap", after, until]
            case Started(position):
                return ["start", position]
            case QuerySwitched(position, query):
                return ["query", position, query.canonical if query is not None else "true()"]
        raise TypeError(f"unexpected stream item {item!r}")

    # --- a root -------------------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        plan = FeedPlan(**self._spec["feed"])
        now = time.monotonic()
        packets = await trio.to_thread.run_sync(plan.packets_after, now)
        last: int | None = None
        while True:
            for packet in list(islice(packets, READ_AHEAD)):
                if last is None:
                    self._peer.publish_hole(packet.an - 1)
                due = plan.due_at(packet.time)
                if due > time.monotonic():
                    await trio.sleep(due - time.monotonic())
                last = await self._peer.send(packet.payload, an=packet.an)
                if self._published is None:
                    self._published = [last, last]
                self._published[1] = last

    # --- reports ------------------------------------------------------------------------------------------------------

    async def report_batches(self) -> None:
        while True:
            await trio.sleep(REPORT_INTERVAL)
            self.flush()

    def flush(self) -> None:
        if self._items:
            items, self._items = self._items, []
            self._channel.post({"k": "got", "items": items})
        if self._published is not None:
            published, self._published = self._published, None
            self._channel.post({"k": "published", "first": published[0], "last": published[1]})

    async def report_events(self) -> None:
        async for event in self._peer.events():
            if isinstance(event, Gap | Statistics):
                continue  # gaps come in their place among the packets
            told = {
                field.name: value
                for field in fields(event)
                if isinstance(value := getattr(event, field.name), int | float | str)
            }
            peer_id = getattr(event, "peer_id", None)
            if peer_id is not None:
                told["peer"] = id_text(peer_id)
            self.flush()  # what was handed out before goes before
            self._channel.post({"k": "event", "name": type(event).__name__, "at": time.monotonic()} | told)

    async def watch_machine(self) -> None:
        """How long the machine let this process wait: what a timer was late, less what the process did meanwhile."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await trio.sleep(TICK)
            now = time.monotonic()
            pause = now - began - TICK - (time.process_time() - used)
            if pause > self._pause[0]:
                self._pause = (round(pause, 4), began)

    async def report_status(self) -> None:
        while True:
            told = {"k": "stat", "cpu": _cpu(), "at": time.monotonic(), "pause": self._pause}
            self._pause = (0.0, 0.0)
            self._channel.post(told | self._status())
            await trio.sleep(STATUS_INTERVAL)

    def _status(self) -> dict[str, Any]:
        now = self._peer.statistics()
        udp = self._peer.driver.udp
        assert isinstance(udp, FaultySocket)
        state: dict[str, Any] = {
            "level": now.level,
            "hops": now.hops,
            "sound": now.parents_sound,
            "children": len(now.children),
            "resilience": now.resilience,
        }
        goal = self._peer.goal()
        if goal is not None:
            state["goal"] = {"cost": goal.cost, "moves": goal.moves, "broken": goal.broken or goal.problem}
        receiver = self._peer.internals().receiver
        if receiver is not None:
            state |= {
                "position": now.position,
                "packets": now.packets,
                "duplicates": now.duplicates,
                "nacks": now.nacks + receiver.slow_nacks,
                "recovered": now.recovered,
                "gaps": now.gaps,
                "omitted": now.omitted,
                "disputed": now.disputed,
                "protection": now.protection,
                "protection_why": now.protection_why,
                "protection_seconds": now.protection_seconds,
                "protection_changes": now.protection_changes,
                "waiting": now.waiting,
            }
        state["up"] = [
            {
                "address": parent.address,
                "sound": parent.sound,
                "dispute": parent.dispute,
                "protection": parent.protection,
                "first": parent.first_copies,
                "copies": parent.copies,
                "rtt": round(parent.round_trip * 1e3, 2) if parent.round_trip is not None else None,
                "lost": udp.lost[parse_endpoint(parent.address)],
                "passed": udp.passed[parse_endpoint(parent.address)],
            }
            for parent in now.parents
        ]
        state["retransmitted"] = now.retransmitted
        state["down"] = [
            {
                "address": child.address,
                "packets": child.packets,
                "bytes": child.bytes,
                "retransmitted": child.retransmitted,
                "lag": child.lag,
            }
            for child in now.children
        ]
        return state


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_utime + usage.ru_stime, 3)


def _pair(address: Any) -> HostPort:
    return str(address[0]), int(address[1])
