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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from dcp import Gap, LinkClosed, Omitted, Packet, Started
from dcp.carriers.pool import Pool
from dcp.driver import Driver
from dcp.udp import UdpSocket
from peer import other_versions
from peer.core import PeerCore, PeerEvent
from peer.dht_ways import DirectoryWays
from peer.disputes import in_words as trouble_in_words
from peer.errors import FeedError, NotXml, Overrun, PeerClosed, StreamUnavailable, has_left
from peer.feeds.numbers import RESERVE, Numbers
from peer.flow import FlowEvent, in_words
from peer.items import Content, QuerySwitched
from peer.languages import language_named
from peer.listeners import Listeners
from peer.lookups import Lookups
from peer.mesh import events as meshevents
from peer.mesh.hostport import HostPort
from peer.mesh.messages import PeerId
from peer.observe.relate import Relate
from peer.observe.statistics import Internals, Statistics, internals, snapshot
from peer.observe.words import InWords
from peer.optimizer.following import GoalStanding
from peer.optimizer.placement import GoalPlacement
from peer.options import PeerOptions
from peer.packing import envelope_for, signer_for
from peer.placements import placement_of
from peer.publications import Publications
from peer.role import Role
from peer.trust.check import Trust
from peer.trust.files import gate_for, watch_policy
from peer.trust.grants import Policy
from peer.trust.rootkeys import RootKeys
from xmlswitch import MalformedDocument, parse_document

if TYPE_CHECKING:
    from dht import Grant, Identity, PeerRecord
    from dht.shell.trio_directory import TrioDirectory
    from peer.mesh.candidates import CandidateRecord

log = logging.getLogger(__name__)

Event = meshevents.Event | meshevents.ResilienceChanged | FlowEvent | Gap | Statistics
"""What a listener receives."""


class Peer:
    """One peer of one stream: an async iterator of `Packet`, `Gap`, `Started`, `QuerySwitched` and `Omitted`."""

    def __init__(
        self,
        options: PeerOptions,
        identity: Identity,
        udp: UdpSocket,
        rng: random.Random,
        *,
        carriers: Pool | None = None,
        grant: Grant | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self.options = options
        self.identity = identity
        self._grant = grant
        signer = signer_for(options, identity, grant)
        self._envelope = envelope_for(options, signer)
        self.trust = Trust(options.stream)
        gate = gate_for(options, identity, grant, time.time)

        def tree_degree() -> int:
            return gate.tree_degree or options.tree_degree

        self._placement = placement_of(
            options.selection,
            PeerId(bytes(identity.peer_id)),
            stream=options.stream,
            tree_degree=tree_degree,
            is_leaf=options.role is Role.LEAF or not options.capacity,
        )
        self.goals = self._placement if isinstance(self._placement, GoalPlacement) else None
        """What follows the stream's goals here; None with a placement that follows none."""
        if options.role is Role.ROOT:
            self._follow(self.owner)
        self.core = PeerCore(
            options.core(),
            PeerId(bytes(identity.peer_id)),
            rng=rng,
            policy=language_named(options.language).policy(self._envelope, time.perf_counter),
            placement=self._placement,
            trust=self.trust,
            signer=signer,
            wall=time.time,
            identity=identity,
            gate=gate,
        )
        if options.selection == "tree":
            self.core.observer.tree_degree = tree_degree
        own_key = (identity.public_key, grant) if self.core.signing is not None else None
        self.core.doors.counting.is_everything = options.query is None
        self.core.doors.learn_keys(self.trust, own_key)
        self.dht_ways = DirectoryWays(self.core.hub.ways, self.now)
        self.driver = self.dht_ways.driver = Driver(
            self.core,
            udp,
            on_event=self._on_event,
            on_turn=self._on_turn,
            on_other=self.dht_ways.receive,
            carriers=carriers,
            hub=self.core.hub,
        )
        self.problem: Exception | None = None
        self.published = 0
        self.published_bytes = 0
        self.not_xml = 0
        """What was refused by `send` because it is not XML."""
        self.relate = Relate(time.time)
        self.query = options.query
        """What the program asked for last."""
        self._numbers = numbers
        self._numbers_low = trio.Event()
        self.is_leaving = False
        self._left = trio.Event()
        self._readers = trio.lowlevel.ParkingLot()
        self._turns = trio.lowlevel.ParkingLot()
        self.lookups = Lookups(
            options.stream, found=self._found, roots_found=self._roots_found, failed=self.fail, turn=self.wait_turn
        )
        self.trust.key_wanted = self.lookups.ask_keys
        self.publications = Publications(self)
        self._since_checkpoint = 0
        self._clock = trio.lowlevel.current_clock()
        self._listeners = Listeners[Event](self.statistics)
        self._sound_told = -1

    # --- for programs -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> HostPort:
        host, port = self.driver.udp.address[:2]
        return host, port

    @property
    def grant(self) -> Grant | None:
        return self._grant

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
            item = self._next_item()
            if item is not None:
                self._since_checkpoint += 1
                return item
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
        while len(taken) < most and (item := self._next_item()) is not None:
            taken.append(item)
        self._since_checkpoint += len(taken)
        self._reopen()
        return taken

    def publish_now(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """As `send`, for callers that see to their own checkpoints."""
        if self.is_leaving:
            raise PeerClosed(f"this root of {self.options.stream} has left: nothing can be published any more")
        if not self.options.raw and self.options.language == "xpath":
            try:
                parse_document(payload)
            except MalformedDocument as error:
                self.not_xml += 1
                raise NotXml(f"this is not an XML document, so no query could match it ({error})") from None
        numbers = self._numbers
        if numbers is not None:
            if an is None:
                an, continues = numbers.next()
                contiguous = contiguous and continues
            if not numbers.covers(an):
                numbers.save(an + RESERVE)
        packed = self._envelope.pack(payload)
        number = self.core.publish(packed, an=an, contiguous=contiguous)
        self.published += 1
        self.published_bytes += len(packed)
        if numbers is not None:
            numbers.given(number)
            if numbers.runs_low:
                self._numbers_low.set()
        self.driver.turn_soon()
        return number

    def publish_hole(self, until: int) -> None:
        """Nothing up to this AN can be had any more, from this root or another (roots only)."""
        if self.is_leaving or self.core.sender is None:
            raise PeerClosed(f"this root of {self.options.stream} has left")
        if self.core.signing is not None:
            self.core.signing.publish_hole(until, self.now())
        else:
            self.core.sender.publish_hole(until)
        self.driver.turn_soon()

    def publish_late(self, payload: bytes, *, an: int) -> None:
        """Put a packet in its place behind the last one (roots only): children that are past it are sent it too."""
        if self.is_leaving or self.core.sender is None:
            raise PeerClosed(f"this root of {self.options.stream} has left")
        packed = self._envelope.pack(payload)
        if self.core.signing is not None:
            packed = self.core.signing.sealed_alone(an, packed)
        self.core.sender.insert_late(an, packed, self.now())
        self.driver.turn_soon()

    async def run_numbers(self) -> None:
        """Reserve ANs ahead, in a thread, so that `send` need not wait for the disk."""
        numbers = self._numbers
        while numbers is not None:
            await self._numbers_low.wait()
            self._numbers_low = trio.Event()
            try:
                await trio.to_thread.run_sync(numbers.save, numbers.last + RESERVE)
            except FeedError as error:
                log.warning("%s: %s", self.options.stream, error)  # `send` raises it when the last number is given

    async def send(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Publish a packet (roots only); returns its AN. Never waits for a child. NotXml, PeerClosed."""
        number = self.publish_now(payload, an=an, contiguous=contiguous)
        self._since_checkpoint += 1
        if self._since_checkpoint >= 64:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        return number

    def change_query(self, query: str | None, namespaces: Mapping[str, str] | None = None) -> None:
        """Want other packets from some position on, which a `QuerySwitched` names. QueryError for a bad query."""
        language = language_named(self.options.language)
        parsed = language.parse(query, namespaces or {}) if query is not None else None
        self._check_open()
        self.core.change_query(parsed, now=trio.current_time())
        self.query = query
        self.driver.turn()

    async def leave(self) -> None:
        """Withdraw, tell parents and children, and return when they have had time to find others.

        A second call, and one after a call that was cancelled, waits for the same end.
        """
        if not self.is_leaving:
            self.is_leaving = True
            self.core.leave(now=trio.current_time())
            self.driver.turn()
        await self._left.wait()

    def rejoin(self) -> None:
        """After `Overrun`: look for parents again and go on from the position reached, with gaps for what is gone."""
        self._check_open()
        self.core.rejoin(now=trio.current_time())
        self.driver.turn()

    def _check_open(self) -> None:
        if self.is_leaving:
            raise has_left(self.options.stream)

    async def wait_parents(self, count: int) -> None:
        """Until so many sound parents are held."""
        while self.parents < count:
            if self.problem is not None:
                raise self.problem
            await self._turns.park()

    async def wait_children_caught_up(self) -> None:
        """Until every child has acknowledged all that this peer has."""
        sender = self.core.sender
        signing = self.core.signing
        while sender is not None and (
            signing or any(link.acked < sender.log.head for link in sender.children.values())
        ):
            await self._turns.park()

    async def wait_turn(self) -> None:
        """Until the peer has dealt with some input: the moment to look again at whatever is waited for."""
        await self._turns.park()

    def statistics(self) -> Statistics:
        """What this peer counts. May be called outside a task of trio, in trio's thread."""
        return snapshot(
            self.core,
            published=self.published,
            published_bytes=self.published_bytes,
            relate=self.relate,
            now=self.now(),
        )

    def goal(self) -> GoalStanding | None:
        """The stream's goal, and how this peer does; None if there is none, or if it follows no goals."""
        return self.goals.standing(self.core.mesh.guidance.values(self.now())) if self.goals is not None else None

    def internals(self) -> Internals:
        """What the machines inside count, for metrics."""
        carriers = self.driver.carriers.statistics() if self.driver.carriers is not None else None
        return internals(self.core, dropped=self.driver.dropped, now=self.now(), carriers=carriers)

    def now(self) -> float:
        """The time that this peer's machines live in."""
        return self._clock.current_time()

    def events(self, buffer: int = 256, *, statistics_every: float | None = None) -> trio.MemoryReceiveChannel[Event]:
        """What happens around this peer: parents gained and lost, resilience, gaps and the like.

        The first is the resilience now. With `statistics_every` a `Statistics` comes at once and every so many seconds.
        """
        return self._listeners.add(buffer, self._resilience(), statistics_every)

    def start(self) -> None:
        """Take part in the mesh from now on: `open_peer` calls it."""
        self.core.start(now=trio.current_time())
        self.driver.turn()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _next_item(self) -> Content | None:
        item = self.core.next_content()
        if item is not None:
            self.relate.note(item)
            self.core.doors.counting.note(item)
        if isinstance(item, Gap):
            self._tell(item)
        elif isinstance(item, Omitted):
            log.warning("%s: packet %d is late: a parent had said that it is not there", self.options.stream, item.an)
        return item

    def _reopen(self) -> None:
        receiver = self.core.receiver
        if receiver is not None and receiver.has_closed_window:
            receiver.reopen_window(trio.current_time())
            self.driver.turn_soon()

    def _on_event(self, event: PeerEvent) -> None:
        match event:
            case meshevents.CandidatesWanted():
                self.lookups.ask(event)
            case meshevents.PublishRecord():
                self.publications.want(event)
            case meshevents.WithdrawRecord():
                self.publications.want(None)
            case meshevents.Left():
                self._left.set()
                self._tell(event)
            case _ if isinstance(event, FlowEvent):
                log.warning("%s: %s", self.options.stream, in_words(event), extra={"happened": event})
                self._tell(event)
            case meshevents.OtherVersion() | meshevents.LinkDenied():
                log.warning("%s: %s", self.options.stream, other_versions.in_words(event), extra={"happened": event})
                self._tell(event)
            case meshevents.Disputed() | meshevents.Starved() | meshevents.Incomplete() | meshevents.Uncovered():
                log.warning("%s: %s", self.options.stream, trouble_in_words(event), extra={"happened": event})
                self._tell(event)
            case _:
                log.info("%s: %s", self.options.stream, InWords(event), extra={"happened": event})
                self._tell(event)

    def _tell(self, event: PeerEvent | Event) -> None:
        self._listeners.tell(event)  # type: ignore[arg-type]

    def end_events(self) -> None:
        """The peer has gone: listeners see the end of their channel."""
        self._listeners.close()

    def _resilience(self) -> meshevents.ResilienceChanged:
        self._sound_told = self.parents
        wanted = 0 if self.options.role is Role.ROOT else self.options.parents
        return meshevents.ResilienceChanged(self._sound_told, wanted)

    async def run_statistics(self) -> None:
        """Snapshots for the listeners that asked for them."""
        await self._listeners.run_statistics()

    def _on_turn(self) -> None:
        missing = self.core.doors.counting.judge(self.core.receiver, self.now())
        if missing is not None:
            self._on_event(meshevents.Incomplete(*missing))
        if self._listeners and self.parents != self._sound_told:
            self._tell(self._resilience())
        receiver = self.core.receiver
        if (
            self.core.disconnected is not None
            or self._left.is_set()
            or self.problem is not None
            or (receiver is not None and receiver.has_events)
        ):
            self._readers.unpark_all()
        self._turns.unpark_all()

    @property
    def directory(self) -> TrioDirectory | None:
        return self.dht_ways.directory

    def _found(self, candidates: list[CandidateRecord]) -> None:
        self.core.add_candidates(candidates, now=trio.current_time())
        self.driver.turn()

    def _roots_found(self, roots: Sequence[PeerRecord]) -> None:
        """The directory has checked that the stream's owner vouches for them."""
        gate = self.core.doors.gate
        if roots:
            self._follow(bytes(roots[0].owner))
            self.trust.has_unsigned_roots = not all(root.signs for root in roots)
        for root in roots:
            if gate is not None and gate.set_owner(root.owner):
                self.core.doors.policy_changed(self.core.mesh, self.now())
            if root.signs:
                self.trust.add_key(root.public_key, expires_at=root.grant.expires_at if root.grant else None)
                if gate is not None and gate.root_keys is not None:
                    gate.root_keys.add(root.public_key, root.grant)

    def _follow(self, owner: bytes) -> None:
        """Goals of this owner count from now on."""
        if self.goals is not None:
            self.goals.follow(self.options.stream, owner)

    def keep_envelopes(self, keep: Callable[[int, bytes], None]) -> RootKeys | None:
        """Call `keep` with every packet that is handed over, as it was signed. What proves whose signatures count."""
        if self.core.client is not None:
            self.core.client.keeps = keep
        return self.core.doors.gate.root_keys if self.core.doors.gate is not None else None

    async def run_policy(self) -> None:
        """Follow the owner's policy in its file (roots)."""
        if self.options.policy is not None:
            await watch_policy(self.options.policy, self.options.stream, self._policy_read)

    def _policy_read(self, policy: Policy) -> None:
        gate = self.core.doors.gate
        if gate is not None and gate.adopt(policy):
            log.info("%s: policy %d is in force", self.options.stream, policy.version)
            self.core.doors.policy_changed(self.core.mesh, self.now())
            self.driver.turn()

    def fail(self, problem: Exception) -> None:
        self.problem = problem
        self._readers.unpark_all()
        self._turns.unpark_all()


__all__ = ["Gap", "LinkClosed", "Packet", "Peer", "PeerOptions", "QuerySwitched", "Started", "StreamUnavailable"]
