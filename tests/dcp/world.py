"""Small meshes in virtual time for tests: roots, relays and clients by name, every opening accepted."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dcp import control, events, wire
from dcp.config import Config
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.links.link import SocketAddress
from dcp.profile import PLAIN, Profile
from dcp.queries import EVERYTHING, QueryPolicy
from dcp.receiver import Receiver
from dcp.sender import Sender
from dcp.testing import Conditions, Network
from dht.identity import Identity

STREAM = "test"
STEP = 0.01


class World:
    def __init__(
        self,
        seed: int = 1,
        *,
        config: Config | None = None,
        conditions: Conditions | None = None,
        stream_mode: bool = False,
        encrypts: bool = False,
    ) -> None:
        self.encrypts = encrypts
        self.net = Network(seed, conditions=conditions, on_event=self._on_event)
        self.config = config or Config()
        self.stream_mode = stream_mode
        self.hubs: dict[str, Hub] = {}
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self.got: defaultdict[str, list[events.Content]] = defaultdict(list)
        self.events: defaultdict[str, list[events.Event]] = defaultdict(list)
        self.paused: set[str] = set()
        """Clients whose application takes nothing."""
        self.accepting = True

    @staticmethod
    def address(name: str) -> SocketAddress:
        return (name, 1)

    def hub(self, name: str, config: Config | None = None) -> Hub:
        rng = random.Random(self.net.rng.getrandbits(64))
        identity = Identity.from_seed(name.encode().ljust(32, b"\0")) if self.encrypts else None
        hub = Hub(config or self.config, rng=rng, identity=identity)
        self.hubs[name] = hub
        return hub

    def root(
        self, name: str, *, policy: QueryPolicy | None = None, start: int | None = 0, config: Config | None = None
    ) -> Sender:
        hub = self.hub(name, config)
        sender = self.senders[name] = hub.serve(STREAM, policy=policy, stream_mode=self.stream_mode)
        if start is not None:
            sender.publish_hole(start)
        self.net.add(self.address(name), hub)
        return sender

    def relay(
        self, name: str, parents: Iterable[str], *, policy: QueryPolicy | None = None, query: bytes = b""
    ) -> Receiver:
        hub = self.hub(name)
        receiver, sender = hub.relay(STREAM, policy=policy, query=query, stream_mode=self.stream_mode)
        self.senders[name], self.receivers[name] = sender, receiver
        self.net.add(self.address(name), hub)
        for parent in parents:
            self.join(name, parent)
        return receiver

    def client(
        self,
        name: str,
        parents: Iterable[str] = (),
        *,
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        config: Config | None = None,
        profile: Profile = PLAIN,
    ) -> Receiver:
        hub = self.hub(name, config)
        receiver = hub.subscribe(
            STREAM, query=query, start=start, position=position, stream_mode=self.stream_mode, profile=profile
        )
        self.receivers[name] = receiver
        self.net.add(self.address(name), hub)
        for parent in parents:
            self.join(name, parent)
        return receiver

    def join(self, child: str, parent: str) -> int:
        link = self.hubs[child].add_sender(STREAM, self.address(parent), now=self.net.now)
        self.net.pump(self.address(child))
        return link

    def publish(self, name: str, payload: bytes, **options: Any) -> int:
        an = self.senders[name].publish(payload, **options)
        self.net.pump(self.address(name))
        return an

    def run(self, seconds: float) -> World:
        end = self.net.now + seconds
        while self.net.now < end - 1e-9:
            self.net.run_until(min(self.net.now + STEP, end), max_steps=3_000_000)
            for name in self.receivers:
                self.drain(name)
        return self

    def drain(self, name: str) -> None:
        receiver = self.receivers[name]
        if name in self.paused or self.net.is_frozen(self.address(name)):
            return
        while (event := receiver.next_event()) is not None:
            self.got[name].append(event)
        receiver.reopen_window(self.net.now)
        self.net.pump(self.address(name))

    def packets(self, name: str) -> list[tuple[int, bytes]]:
        return [tuple(event) for event in self.got[name] if isinstance(event, events.Packet)]  # type: ignore[misc]

    def gaps(self, name: str) -> list[events.Gap]:
        return [event for event in self.got[name] if isinstance(event, events.Gap)]

    def told(self, name: str, kind: type) -> list[Any]:
        return [event for event in self.events[name] if isinstance(event, kind)]

    def _on_event(self, address: SocketAddress, event: events.Event, now: float) -> None:
        name = address[0]
        self.events[name].append(event)
        if isinstance(event, events.OpeningReceived) and self.accepting:
            self.hubs[name].accept(event.stream, event.ticket, now=now)


class Wire:
    """Watches every datagram of a world as it is handed to the network: who to whom, when, what."""

    def __init__(self, world: World) -> None:
        self.seen: list[tuple[float, str, str, bytes]] = []
        original = world.net.send

        def send(source: SocketAddress, to: SocketAddress, data: bytes) -> None:
            self.seen.append((world.net.now, source[0], to[0], data))
            original(source, to, data)

        world.net.send = send  # type: ignore[method-assign]

    def flagged(self, flag: int, source: str | None = None, to: str | None = None) -> list[tuple[float, bytes]]:
        return [
            (when, data)
            for when, a, b, data in self.seen
            if data[1] & flag and (source is None or a == source) and (to is None or b == to)
        ]

    def packets_sent(self, source: str, to: str) -> list[tuple[float, int]]:
        """(when, low 32 bits of the AN) for every packet, alone or in a bundle, from one to the other."""
        found: list[tuple[float, int]] = []
        for when, a, b, data in self.seen:
            if (a, b) != (source, to) or data[1] & wire.OPEN:
                continue
            _, _, _, an, prev = wire.HEADER.unpack_from(data)
            if not data[1] & wire.NOT_DATA:
                found.append((when, an))
            elif data[1] & wire.CONTROL and data[wire.BODY_AT] == control.ControlType.BUNDLE:
                for number, _ in control.decode_bundle_untrusted(data, wire.BODY_AT + 1, prev):
                    found.append((when, number & 0xFFFFFFFF))
        return found
