"""A running peer under trio: the core on a UDP socket, the DHT on the same one, and the stream for the program.

    async with peer.join("asdi", query="/flight/flightleg/altitude > 300", parents=2) as stream:
        async for item in stream:
            ...

The shell is thin: it moves datagrams and asks the directory what the core wants to know. What to do is decided in the
core, which is pure and simulated.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from dcp import Config, Gap, LinkClosed, Packet, PayloadRefused, QuerySwitched, Start, Started
from dcp.compression import Compressor
from dcp.driver import Driver
from dcp.events import Content
from dcp.link import Address, is_loopback
from dcp.udp import UdpSocket
from peer import meshevents
from peer.candidates import CandidateRecord
from peer.core import CoreConfig, PeerCore, PeerEvent, Role
from peer.errors import Overrun, PeerError, StreamUnavailable, WrongOwner
from peer.flow import FlowConfig, FlowEvent
from peer.meshconfig import MeshConfig
from peer.messages import PeerId
from peer.queries import XPathPolicy
from xmlswitch import Query

if TYPE_CHECKING:
    from dht import Grant, Identity, PeerRecord
    from dht.trio_directory import TrioDirectory

log = logging.getLogger(__name__)

HostPort = tuple[str, int]

DEFAULT_CAPACITY = 6
OWN_GRANT_LIFETIME = 30 * 86_400.0
"""A root that holds the owner's key vouches for itself for so long; it does so anew at every start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Everything that a program may choose about a peer. The defaults join on this host."""

    stream: str
    role: Role = Role.ROUTER
    query: str | None = None
    namespaces: Mapping[str, str] = field(default_factory=dict)
    parents: int = 2
    capacity: int = DEFAULT_CAPACITY
    listen: HostPort | None = None
    """None: this host alone, unless `bootstrap` names somebody elsewhere; then every interface."""
    bootstrap: Sequence[HostPort] = ()
    beacon: bool = True
    """Find peers on this host and LAN by multicast."""
    identity: Path | None = None
    """Key file, made when it is not there; None: a key for this run only."""
    state: Path | None = None
    """Folder in which contacts and pinned owners are remembered; None: nothing is."""
    start: Start = Start.NEW
    position: int | None = None
    dynamic: bool = False
    deliver: bool = True
    compress: str = "none"
    dictionary: bytes | None = None
    grant: Path | None = None
    """A root's grant from the stream's owner (`python -m dht grant`), so that several roots serve one stream."""
    owner: Path | None = None
    """In place of a grant: the owner's own key file, with which this root vouches for itself."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dcp: Config = field(default_factory=Config)
    fallbacks: Sequence[str] = ()
    """Narrower queries, the widest first, to step down to when this program can't keep up with `query`."""
    flow: FlowConfig = field(default_factory=FlowConfig)

    def on_any_port(self, **changes: Any) -> PeerOptions:
        """The same for a second peer in this process: a socket and a key of its own, and nothing remembered."""
        listen = (self.listen[0], 0) if self.listen is not None else None
        return replace(self, listen=listen, identity=None, state=None, **changes)

    def core(self) -> CoreConfig:
        capacity = 0 if self.role is Role.LEAF else self.capacity
        mesh = replace(self.mesh, parents_wanted=self.parents, capacity=capacity)
        return CoreConfig(
            stream=self.stream,
            role=self.role,
            mesh=mesh,
            dcp=self.dcp,
            query=Query.parse(self.query, self.namespaces) if self.query is not None else None,
            dynamic=self.dynamic,
            deliver=self.deliver,
            start=self.start,
            position=self.position,
            fallbacks=tuple(Query.parse(query, self.namespaces) for query in self.fallbacks),
            flow=self.flow,
        )


class Peer:
    """One peer of one stream: an async iterator of `Packet`, `Gap`, `Started` and `QuerySwitched`."""

    def __init__(
        self,
        options: PeerOptions,
        identity: Identity,
        udp: UdpSocket,
        rng: random.Random,
        *,
        grant: Grant | None = None,
    ) -> None:
        self.options = options
        self.identity = identity
        self._grant = grant
        self._compressor = Compressor(
            "zstd" if options.dictionary and options.compress == "none" else options.compress,
            dictionary=options.dictionary,
        )
        self.core = PeerCore(
            options.core(), PeerId(bytes(identity.peer_id)), rng=rng, policy=XPathPolicy(self._compressor)
        )
        self.driver = Driver(self.core, udp, on_event=self._on_event, on_turn=self._on_turn, on_other=self._on_other)
        self.directory: TrioDirectory | None = None
        self.unreadable = 0
        """Packets whose envelope could not be opened: handed over as gaps."""
        self.problem: Exception | None = None
        self._left = trio.Event()
        self._readers = trio.lowlevel.ParkingLot()
        self._turns = trio.lowlevel.ParkingLot()
        self._lookup_wanted: meshevents.CandidatesWanted | None = None
        self._lookup = trio.Event()
        self._record: meshevents.PublishRecord | None = None
        self._publication = trio.Event()
        self._since_checkpoint = 0
        self._listeners: list[trio.MemorySendChannel[meshevents.Event | FlowEvent]] = []

    # --- for programs -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> HostPort:
        host, port = self.driver.udp.address[:2]
        return host, port

    @property
    def owner(self) -> bytes:
        """Whose word stands behind this peer as a root: the grant's owner, or itself."""
        return bytes(self._grant.owner if self._grant is not None else self.identity.peer_id)

    @property
    def level(self) -> int:
        return self.core.mesh.level

    @property
    def parents(self) -> int:
        """How many sound parents there are now."""
        return len(self.core.mesh.parents.sound())

    def __aiter__(self) -> Peer:
        return self

    async def __anext__(self) -> Content:
        while True:
            if self._since_checkpoint >= 64:  # before an item is taken: one that was taken must not get lost
                self._since_checkpoint = 0
                self._reopen()
                await trio.lowlevel.checkpoint()
            item = self.core.next_content()
            if item is not None:
                self._since_checkpoint += 1
                return self._unpacked(item)
            self._reopen()
            self._since_checkpoint = 0
            if self.problem is not None:
                raise self.problem
            if self._left.is_set():
                raise StopAsyncIteration
            if self.core.disconnected is not None:
                raise Overrun(self.core.disconnected)
            await self._readers.park()

    async def receive_many(self, most: int = 256) -> list[Content]:
        """Whatever is there, at least one and at most `most`; empty at the end. For programs that work in batches."""
        try:
            taken = [await self.__anext__()]
        except StopAsyncIteration:
            return []
        while len(taken) < most and (item := self.core.next_content()) is not None:
            taken.append(self._unpacked(item))
        self._since_checkpoint += len(taken)
        self._reopen()
        return taken

    def publish_now(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """As `send`, for callers that see to their own checkpoints."""
        number = self.core.publish(self._compressor.pack(payload), an=an, contiguous=contiguous)
        self.driver.turn_soon()
        return number

    async def send(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Publish a packet (roots only); returns its AN. Never waits for a child."""
        number = self.publish_now(payload, an=an, contiguous=contiguous)
        self._since_checkpoint += 1
        if self._since_checkpoint >= 64:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        return number

    def change_query(self, query: str | None, namespaces: Mapping[str, str] | None = None) -> None:
        """Want other packets from some position on, which a `QuerySwitched` tells; QueryError for a bad query."""
        parsed = Query.parse(query, namespaces or {}) if query is not None else None
        self.core.change_query(parsed, now=trio.current_time())
        self.driver.turn()

    async def leave(self) -> None:
        """Withdraw, tell parents and children, and return when they have had time to find others."""
        if not self._left.is_set():
            self.core.leave(now=trio.current_time())
            self.driver.turn()
            await self._left.wait()

    def rejoin(self) -> None:
        """After `Overrun`: look for parents again and go on from the position reached, with gaps for what is gone."""
        self.core.rejoin(now=trio.current_time())
        self.driver.turn()

    async def wait_parents(self, count: int) -> None:
        """Until so many sound parents are held."""
        while self.parents < count:
            if self.problem is not None:
                raise self.problem
            await self._turns.park()

    async def wait_turn(self) -> None:
        """Until the peer has dealt with some input: the moment to look again at whatever is waited for."""
        await self._turns.park()

    def events(self, buffer: int = 256) -> trio.MemoryReceiveChannel[meshevents.Event | FlowEvent]:
        """What happens in the mesh around this peer: parents gained and lost, degraded, restored and the like."""
        send, receive = trio.open_memory_channel[meshevents.Event | FlowEvent](buffer)
        self._listeners.append(send)
        return receive

    # --- inside -------------------------------------------------------------------------------------------------------

    def _unpacked(self, item: Content) -> Content:
        if not isinstance(item, Packet):
            return item
        try:
            return Packet(item.an, self._compressor.unpack_untrusted(item.payload))
        except PayloadRefused:
            self.unreadable += 1
            return Gap(item.an - 1, item.an)

    def _reopen(self) -> None:
        receiver = self.core.receiver
        if receiver is not None and receiver.has_closed_window:
            receiver.reopen_window(trio.current_time())
            self.driver.turn_soon()

    def _on_event(self, event: PeerEvent) -> None:
        match event:
            case meshevents.CandidatesWanted():
                self._lookup_wanted = event
                self._lookup.set()
            case meshevents.PublishRecord():
                self._record = event
                self._publication.set()
            case meshevents.WithdrawRecord():
                self._record = None
                self._publication.set()
            case meshevents.Left():
                self._left.set()
                self._tell(event)
            case _:
                log.info("%s: %s", self.options.stream, event)
                self._tell(event)

    def _tell(self, event: PeerEvent) -> None:
        for listener in list(self._listeners):
            try:
                listener.send_nowait(event)  # type: ignore[arg-type]
            except trio.WouldBlock:
                continue  # a listener that does not listen misses events, and harms nobody
            except trio.BrokenResourceError:
                self._listeners.remove(listener)

    def _on_turn(self) -> None:
        receiver = self.core.receiver
        if (
            self.core.disconnected is not None
            or self._left.is_set()
            or self.problem is not None
            or (receiver is not None and receiver.has_events)
        ):
            self._readers.unpark_all()
        self._turns.unpark_all()

    def _on_other(self, data: bytes, address: Address) -> None:
        if self.directory is not None:
            self.directory.datagram_received(data, address)

    async def run_lookups(self, directory: TrioDirectory) -> None:
        """Answer the core's questions for candidates: from the cache at once, from the DHT beside it."""
        from dht import DhtError, StreamOwnerChanged

        stream = self.options.stream
        while True:
            await self._lookup.wait()
            self._lookup = trio.Event()
            wanted = self._lookup_wanted
            if wanted is None:
                continue
            below = None if wanted.below_level >= 0xFFFF_FFFF else wanted.below_level
            self._found([*directory.cached_roots(stream), *directory.cached_candidates(stream, below_level=below)])
            try:
                roots = await directory.roots(stream)
                self._found(roots)
                self._found(await directory.candidates(stream, below_level=below, limit=64, repair=wanted.for_repair))
            except StreamOwnerChanged as error:
                self.fail(WrongOwner(str(error)))
            except DhtError as error:
                log.info("directory: %s", error)

    def _found(self, records: Sequence[PeerRecord]) -> None:
        if records:
            self.core.add_candidates([candidate_of(record) for record in records], now=trio.current_time())
            self.driver.turn()

    async def run_publications(self, directory: TrioDirectory) -> None:
        """Keep the directory's word about us the same as the core's."""
        from dht import DhtError

        while True:
            await self._publication.wait()
            self._publication = trio.Event()
            try:
                if self._record is None:
                    await directory.withdraw(self.options.stream)
                else:
                    await directory.publish(self._record_of(self._record, directory))
            except DhtError as error:
                log.info("directory: %s", error)

    def _record_of(self, record: meshevents.PublishRecord, directory: TrioDirectory) -> PeerRecord:
        from dht import PeerRecord, QuerySummary
        from dht import Role as DhtRole

        role = {Role.ROOT: DhtRole.ROOT, Role.ROUTER: DhtRole.ROUTER, Role.LEAF: DhtRole.LEAF}[self.options.role]
        query = self.core.config.query
        return PeerRecord(
            stream=self.options.stream,
            peer_id=self.identity.peer_id,
            addresses=(self._public_address(directory),),
            role=role,
            level=record.level,
            hops=record.hops,
            children=record.children,
            capacity=record.capacity,
            free_slots=record.free,
            free_repair_slots=record.free_for_repair,
            wanted_parents=record.parents_wanted,
            held_parents=record.parents_held,
            query=QuerySummary.of(query.canonical) if query is not None else None,
            grant=self._grant,
        )

    def _public_address(self, directory: TrioDirectory) -> HostPort:
        """Where others reach us: what we are bound to, or, bound to everything, where others saw us."""
        host, port = self.address
        if host in ("0.0.0.0", "::"):
            seen = directory.observed_addresses()
            return seen[0] if seen else ("127.0.0.1", port)
        return host, port

    def fail(self, problem: Exception) -> None:
        self.problem = problem
        self._readers.unpark_all()
        self._turns.unpark_all()


def default_listen(bootstrap: Sequence[HostPort]) -> HostPort:
    """Loopback unless told otherwise, and to name a peer elsewhere is to tell otherwise."""
    return ("127.0.0.1", 0) if all(is_loopback(address) for address in bootstrap) else ("0.0.0.0", 0)


def candidate_of(record: PeerRecord) -> CandidateRecord:
    """The directory's word in the mesh's terms."""
    from dht import Role as DhtRole

    return CandidateRecord(
        peer_id=PeerId(bytes(record.peer_id)),
        address=record.addresses[0],
        level=record.level,
        hops=record.hops,
        load=record.children / record.capacity if record.capacity else 1.0,
        free=record.free_slots,
        free_for_repair=record.free_repair_slots,
        resilience=record.held_parents if record.role is not DhtRole.ROOT else 255,
        is_root=record.role is DhtRole.ROOT,
        version=record.version,
    )


def _grant_of(options: PeerOptions, identity: Identity) -> Grant | None:
    """A root's proof that the stream's owner vouches for it; PeerError when the file does not say so."""
    from dht import Grant, IdentityError, RecordRejected
    from dht import Identity as Owner

    if options.role is not Role.ROOT or (options.grant is None and options.owner is None):
        return None
    if options.owner is not None:
        try:
            owner = Owner.load(options.owner)
        except IdentityError as error:
            raise PeerError(str(error)) from None
        expires_at = int(time.time() + OWN_GRANT_LIFETIME)
        return Grant.issue(owner, stream=options.stream, peer_id=identity.peer_id, expires_at=expires_at)
    assert options.grant is not None
    try:
        grant = Grant.from_text(options.grant.read_text())
    except (OSError, ValueError, RecordRejected) as error:
        raise PeerError(f"{options.grant}: {error}") from None
    if (grant.stream, grant.peer_id) != (options.stream, identity.peer_id):
        raise PeerError(f"{options.grant}: this grant is for another stream or another peer's key")
    return grant


@asynccontextmanager
async def open_peer(
    options: PeerOptions,
    *,
    rng: random.Random | None = None,
    bind: Callable[[HostPort], Awaitable[UdpSocket]] = UdpSocket.bind,
) -> AsyncIterator[Peer]:
    """Run a peer until the block ends; it leaves the mesh with a word to everybody. `bind` is for tests that lose."""
    from dht import DirectoryOptions, Identity, open_directory

    identity = Identity.load_or_create(options.identity) if options.identity is not None else Identity.generate()
    udp = await bind(options.listen or default_listen(options.bootstrap))
    try:
        peer = Peer(options, identity, udp, rng or random.SystemRandom(), grant=_grant_of(options, identity))
        state = options.state
        directory_options = DirectoryOptions(
            bootstrap=tuple(options.bootstrap),
            contacts_file=state / "contacts.json" if state is not None else None,
            pins_file=state / "pins.json" if state is not None else None,
            beacon=options.beacon,
        )
        async with (
            trio.open_nursery() as nursery,
            open_directory(identity, directory_options, send=peer.driver.send_other, address=peer.address) as directory,
        ):
            peer.directory = directory
            nursery.start_soon(peer.driver.run)
            nursery.start_soon(peer.run_lookups, directory)
            nursery.start_soon(peer.run_publications, directory)
            peer.core.start(now=trio.current_time())
            peer.driver.turn()
            try:
                yield peer
            finally:
                with trio.move_on_after(options.mesh.leave_grace + 1.0, shield=True):
                    await peer.leave()
                    await directory.withdraw(options.stream)
                nursery.cancel_scope.cancel()
    finally:
        udp.close()


__all__ = ["Gap", "LinkClosed", "Packet", "Peer", "PeerOptions", "QuerySwitched", "Started", "StreamUnavailable"]
