"""The face for programs: one UDP socket, streams in and out, under trio.

    async with dcp.open_endpoint() as endpoint:
        publisher = endpoint.serve("asdi")
        await publisher.send(b"<flight/>")

    async with dcp.open_endpoint() as endpoint:
        async for item in endpoint.subscribe("asdi", [("192.0.2.1", 4000), ("192.0.2.2", 4000)]):
            match item:
                case dcp.Packet(an, payload): ...
                case dcp.Gap(after, until): ...

Everything here is cancel-safe: a packet is either in your hands or still in the queue.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from dcp import events
from dcp.carriers.opening import open_carriers
from dcp.carriers.pool import Pool
from dcp.carriers.registry import carriers_named
from dcp.child import Child
from dcp.compression import PLAIN_MARK, Compressor, EnvelopeCheck
from dcp.config import Config
from dcp.control import Reason, reason_name
from dcp.driver import Driver
from dcp.errors import LinkClosed, PayloadRefused
from dcp.events import Content, Gap, Omitted, Packet
from dcp.guard import guard
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.kinds import BYTES
from dcp.links.address import SocketAddress
from dcp.links.keying import LinkIdentity
from dcp.plain_errors import with_plain_errors
from dcp.profile import PLAIN, Profile
from dcp.queries import EVERYTHING, QueryPolicy
from dcp.receiver import Receiver
from dcp.redial import Redial
from dcp.sender import Sender
from dcp.stats import HubStatistics, ReceiverStatistics, SenderStatistics
from dcp.udp import UdpSocket

# Packets handed over between two checkpoints: a checkpoint costs ten times as much as a packet.
BATCH = 256


class Publisher:
    """The root's end of a stream. Get one from `Endpoint.serve`."""

    def __init__(
        self, endpoint: Endpoint, machine: Sender, compressor: Compressor, *, capacity: int, follow_fastest: bool
    ) -> None:
        self.machine = machine
        self.capacity = capacity
        self._endpoint = endpoint
        self._compressor = compressor
        self._follow_fastest = follow_fastest
        # To follow the fastest, look more often than the log is filled.
        self._batch = min(BATCH, max(1, machine.log.max_packets // 4)) if follow_fastest else BATCH
        self._since_checkpoint = 0

    async def send(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Give the stream its next packet; returns its AN.

        Never waits for a child. With `follow_fastest` it waits while even the fastest child is half a log behind, which
        makes a bulk transfer lossless and still lets no slow child delay the others. When it is cancelled, nothing was
        sent. When the endpoint was closed, `trio.ClosedResourceError` says so.
        """
        self._check_open()
        self._since_checkpoint += 1
        if self._since_checkpoint >= self._batch:
            await self._yield()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        number = self.machine.publish(self._pack(payload), an=an, contiguous=contiguous)
        self._endpoint.driver.turn_soon()
        return number

    async def send_many(self, payloads: Iterable[bytes]) -> int:
        """Several packets at once, numbered one after the other; returns the last AN.

        With `follow_fastest` it waits in between: a batch larger than the log would push itself out of it.
        """
        self._check_open()
        waiting = list(payloads)
        step = max(1, self.machine.log.max_packets // 4) if self._follow_fastest else max(1, len(waiting))
        number = self.machine.log.head
        for at in range(0, len(waiting), step):
            await self._yield()
            batch = waiting[at : at + step]
            if self.machine.kind is not BYTES:
                batch = self._compressor.pack_many(batch)
            number = self.machine.publish_many(batch)
            self._endpoint.driver.turn()
        return number

    def _check_open(self) -> None:
        if self.machine.closed:
            raise trio.ClosedResourceError("this endpoint is closed: what is sent now would reach nobody")

    def _pack(self, payload: bytes) -> bytes:
        return payload if self.machine.kind is BYTES else self._compressor.pack(payload)

    async def _yield(self) -> None:
        self._since_checkpoint = 0
        await trio.lowlevel.checkpoint()
        if self._follow_fastest:
            while self._lead() > 0.5:
                await self._endpoint.wait_turn()

    def _lead(self) -> float:
        """The share of the log that even the fastest child has not acknowledged."""
        log = self.machine.log
        acked = [log.low if child.floor is None else child.acked for child in self._promised()]
        return log.share_after(max(acked)) if acked else 0.0

    def _promised(self) -> list[Child]:
        """The children that count on what is sent now.

        One that was here before the stream began counts, confirmed or not: it has been promised everything.
        """
        return [child for child in self.machine.children.values() if child.floor is not None or child.came_early]

    async def wait_children(self, count: int = 1) -> None:
        """Until `count` children are there: the next packet goes to all of them."""
        while sum(link.is_there for link in self.machine.links.values()) < count:
            await self._endpoint.wait_turn()

    async def wait_delivered(self) -> None:
        """Until every child that is there has acknowledged everything that was sent to it."""
        log = self.machine.log
        while any(child.acked < log.head for child in self._promised()):
            await self._endpoint.wait_turn()

    def statistics(self) -> SenderStatistics:
        return self.machine.statistics(trio.current_time())


class Subscription:
    """The client's end of a stream: an async iterator of packets, gaps and the like. Get one from `Endpoint`."""

    def __init__(self, endpoint: Endpoint, machine: Receiver, envelopes: EnvelopeCheck, *, ends: bool) -> None:
        self.machine = machine
        self._ends = ends
        self.unreadable = 0
        """Packets whose envelope could not be opened here: handed over as gaps."""
        self._endpoint = endpoint
        self._envelopes = envelopes
        self._lot = trio.lowlevel.ParkingLot()
        self._closed = False
        self._opened: deque[Content] = deque()
        """Out of the machine and out of their envelopes, a batch ahead of the iteration."""
        self.redial = Redial(random.Random(endpoint.rng.getrandbits(64)))

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Content:
        opened = self._opened
        while not opened:
            opened.extend(self._take(BATCH))
            if opened:
                break
            if self._closed or self._is_over:
                raise StopAsyncIteration
            await self._wait()
        return opened.popleft()

    async def receive_many(self, most: int = 1_024) -> list[Content]:
        """Whatever is there, at most `most`, at least one: for programs that work in batches. Empty at the end."""
        while not self._opened and not self.machine.has_events:
            if self._is_over:
                return []
            self._check_open()
            await self._wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._opened:
            return self._take(most)
        return [self._opened.popleft() for _ in range(min(most, len(self._opened)))]

    def _take(self, most: int) -> list[Content]:
        """Up to `most` from the machine, out of their envelopes."""
        taken: list[Content]
        if self.machine.kind is BYTES:
            taken = self.machine.take(most)
        else:
            items: list[Any] = self.machine.take_plain(most)  # mypy does not tell a bare tuple from a named one
            new = tuple.__new__
            taken = [
                # A plain envelope, which is the rule, is opened here: a call per packet would cost more than the rest.
                (new(Packet, (item[0], item[1][1:])) if item[1][:1] == PLAIN_MARK else self._unpack(*item))
                if type(item) is tuple
                else (self._unpack_omitted(item) if type(item) is Omitted else item)
                for item in items
            ]
        if self.machine.has_closed_window:
            self.machine.reopen_window(trio.current_time())
            self._endpoint.driver.turn_soon()
        return taken

    async def _wait(self) -> None:
        if self.redial.is_hopeless:
            raise LinkClosed(self.redial.why())
        if self.machine.has_events:
            await trio.lowlevel.checkpoint()
        else:
            await self._lot.park()

    def _unpack(self, an: int, envelope: bytes) -> Content:
        try:
            return Packet(an, self._envelopes.open(an, envelope))
        except PayloadRefused:
            self.unreadable += 1
            return Gap(an - 1, an)

    def _unpack_omitted(self, omitted: Omitted) -> Content:
        opened = self._unpack(*omitted)
        return Omitted(*opened) if isinstance(opened, Packet) else opened

    def wake(self) -> None:
        if self.machine.has_events or self._closed or self._is_over or self.redial.is_hopeless:
            self._lot.unpark_all()

    @property
    def _is_over(self) -> bool:
        """A sender has shut down and no other one is there: what there was of the stream is here."""
        return self._ends and self.redial.has_shut_down and not any(p.up for p in self.machine.parents.values())

    def add_sender(self, address: SocketAddress, hello: bytes = b"") -> None:
        """One more sender, by its IP address and port, redialled for as long as it is wanted."""
        self._check_open()
        address = self._endpoint.driver.udp.canonical(address)
        self.redial.want(address, hello)
        self._endpoint.hub.add_sender(self.machine.stream, address, hello, now=trio.current_time())
        self._endpoint.driver.turn_soon()

    def remove_sender(self, address: SocketAddress) -> None:
        address = self._endpoint.driver.udp.canonical(address)
        self.redial.forget(address)
        for link in list(self.machine.links.values()):
            if link.dialled == address:
                self.machine.remove_sender(link.id)
        self._endpoint.driver.turn_soon()

    def change_query(self, query: bytes) -> None:
        """Ask for other packets; a `QuerySwitched` in the stream says from where on."""
        self._check_open()
        self.machine.change_query(query, now=trio.current_time())
        self._endpoint.driver.turn_soon()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this subscription is closed")

    def statistics(self) -> ReceiverStatistics:
        return self.machine.statistics(trio.current_time())

    def close(self) -> None:
        """Leave every sender, for good; the iteration ends after what is still in the queue."""
        for link_id in list(self.machine.links):
            self.machine.remove_sender(link_id)
        self.ended()
        self._endpoint.driver.turn()

    def ended(self) -> None:
        """Nothing can come any more: wake the tasks that wait."""
        self._closed = True
        self.redial.forget_all()
        self._lot.unpark_all()


class Endpoint:
    """One UDP socket for many links, both directions."""

    def __init__(
        self,
        udp: UdpSocket,
        config: Config,
        rng: random.Random,
        carriers: Pool | None = None,
        identity: LinkIdentity | None = None,
    ) -> None:
        self.rng = rng
        self.hub = Hub(config, rng=rng, clock=time.perf_counter, identity=identity)
        self.driver = Driver(
            self.hub, udp, on_event=self._on_event, on_turn=self._on_turn, carriers=carriers, hub=self.hub
        )
        self._publishers: dict[str, Publisher] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._turns = trio.lowlevel.ParkingLot()
        self._redial_at = trio.CancelScope()
        self._closed = False

    @property
    def address(self) -> SocketAddress:
        return self.driver.udp.address

    def serve(
        self,
        stream: str,
        *,
        policy: QueryPolicy | None = None,
        compress: str = "none",
        dictionary: bytes | None = None,
        capacity: int = 64,
        stream_mode: bool = False,
        follow_fastest: bool = False,
    ) -> Publisher:
        """Be a root of `stream`. Up to `capacity` children are taken."""
        machine = self.hub.serve(stream, policy=policy, stream_mode=stream_mode)
        publisher = Publisher(
            self,
            machine,
            Compressor(compress, dictionary=dictionary),
            capacity=capacity,
            follow_fastest=follow_fastest,
        )
        self._publishers[stream] = publisher
        return publisher

    def subscribe(
        self,
        stream: str,
        senders: Iterable[SocketAddress] = (),
        *,
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        dictionary: bytes | None = None,
        stream_mode: bool = False,
        ends: bool = False,
        profile: Profile = PLAIN,
    ) -> Subscription:
        """Be a client of `stream`, from every one of `senders` at once.

        `ends`: the iteration ends when a sender has shut down and no other one is left. Without it, senders that went
        away are dialled again for as long as the endpoint is open. `profile`: see `profile_of`.
        """
        compressor = Compressor("zstd" if dictionary else "none", dictionary=dictionary)
        envelopes = EnvelopeCheck(compressor.unpack_untrusted, remember=True)
        machine = self.hub.subscribe(
            stream,
            query=query,
            start=start,
            position=position,
            stream_mode=stream_mode,
            accepts=None if stream_mode else envelopes,
            profile=profile,
        )
        return self._subscription(machine, senders, envelopes, ends=ends)

    def relay(
        self,
        stream: str,
        senders: Iterable[SocketAddress] = (),
        *,
        policy: QueryPolicy | None = None,
        query: bytes = EVERYTHING,
        capacity: int = 64,
        stream_mode: bool = False,
    ) -> tuple[Subscription, Publisher]:
        """Be a router of `stream`: what comes from `senders` is passed on to children. Nothing needs to be iterated."""
        envelopes = EnvelopeCheck(Compressor().unpack_untrusted)
        machine, sender = self.hub.relay(
            stream, policy=policy, query=query, stream_mode=stream_mode, accepts=None if stream_mode else envelopes
        )
        publisher = Publisher(self, sender, Compressor(), capacity=capacity, follow_fastest=False)
        self._publishers[stream] = publisher
        return self._subscription(machine, senders, envelopes, ends=False), publisher

    def _subscription(
        self, machine: Receiver, senders: Iterable[SocketAddress], envelopes: EnvelopeCheck, *, ends: bool
    ) -> Subscription:
        subscription = Subscription(self, machine, envelopes, ends=ends)
        self._subscriptions[machine.stream] = subscription
        for address in senders:
            subscription.add_sender(address)
        return subscription

    async def wait_turn(self) -> None:
        """Until the machine has dealt with some input."""
        if not self._closed:
            await self._turns.park()
        if self._closed:
            raise trio.ClosedResourceError("this endpoint is closed")

    def statistics(self) -> HubStatistics:
        counts = self.hub.statistics()
        return replace(counts, dropped=counts.dropped | self.driver.dropped)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _on_event(self, event: events.Event) -> None:
        now = trio.current_time()
        if isinstance(event, events.OpeningReceived):
            publisher = self._publishers[event.stream]
            if len(publisher.machine.children) < publisher.capacity:
                self.hub.accept(event.stream, event.ticket, now=now)
            else:
                self.hub.refuse(event.stream, event.ticket, Reason.FULL)
        elif isinstance(event, events.LinkOpened):
            self._subscriptions[event.stream].redial.opened(event.address)
        elif isinstance(event, events.LinkRefused | events.LinkLost):
            subscription = self._subscriptions[event.stream]
            subscription.redial.failed(event.address, event.reason, reason_name(event.reason), event.body, now)
            self._redial_at.deadline = min(self._redial_at.deadline, subscription.redial.next_at())
        elif isinstance(event, events.Stranded):
            # Publishers of this kind keep no numbers: the root was started again, and counts from the beginning.
            self.hub.receivers[event.stream].begin_again()
        elif isinstance(event, events.WiderQueryWanted):
            receiver = self.hub.receivers.get(event.stream)
            if receiver is not None:  # a router of this small kind asks for everything as soon as one child needs more
                receiver.change_query(EVERYTHING, now=now)

    def _on_turn(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.wake()
        self._turns.unpark_all()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.driver.run)
            nursery.start_soon(self._run_redial)

    async def _run_redial(self) -> None:
        while True:
            at = min((s.redial.next_at() for s in self._subscriptions.values()), default=float("inf"))
            with trio.CancelScope(deadline=at) as self._redial_at:
                await trio.sleep_forever()
            now = trio.current_time()
            for subscription in self._subscriptions.values():
                for address, hello in subscription.redial.due(now):
                    with guard("redial"):
                        self.hub.add_sender(subscription.machine.stream, address, hello, now=now)
            self.driver.turn()

    def goodbye(self) -> None:
        """A word to everybody on the other ends; best effort."""
        for stream in {*self.hub.senders, *self.hub.receivers}:
            self.hub.remove_stream(stream, Reason.SHUTTING_DOWN if stream in self._publishers else Reason.NORMAL)
        self._closed = True
        for subscription in self._subscriptions.values():
            subscription.ended()
        self.driver.turn()
        self._turns.unpark_all()


@with_plain_errors
@asynccontextmanager
async def open_endpoint(
    address: tuple[str, int] = ("127.0.0.1", 0),
    *,
    config: Config | None = None,
    rng: random.Random | None = None,
    segmentation: bool = True,
    transport: str = "udp",
    identity: LinkIdentity | None = None,
) -> AsyncIterator[Endpoint]:
    """Bind a UDP socket (by default on loopback, any free port) and run it until the block ends.

    `transport`: `auto` for UDP, then TCP when a sender does not answer, and a TCP listener beside the UDP port; `tcp`
    for TCP alone; or the names of installed transports, separated by commas (see `dcp.carriers.transport`).
    `identity`: with an Ed25519 key pair, links are encrypted with endpoints that have one too (`Config.encryption`).
    """
    config = replace(config or Config(), transports=carriers_named(transport))
    bind = partial(UdpSocket.bind, segmentation=segmentation)
    udp, carriers = await open_carriers(address, config.transports, bind)
    # Nonces, link ids and cookie secrets come from here: the system's generator, unless a test gives its own.
    endpoint = Endpoint(udp, config, rng or random.SystemRandom(), carriers, identity)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endpoint.run)
            try:
                yield endpoint
            finally:
                endpoint.goodbye()
                await endpoint.driver.flush()
                nursery.cancel_scope.cancel()
    finally:
        endpoint.driver.close()
