"""Whole peers in virtual time: dcp, mesh and switch of each, on one simulated network, repeatable from a seed.

The promises are checked as it runs: after every input of a peer, that levels fall along each of its links that both
ends hold and that it has no more children than it said; and as each client takes what it is handed, that this is
exactly its part of the stream or an explicit gap.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dcp import Config, Packet
from dcp.links.link import SocketAddress
from dcp.parent import Parent
from dcp.testing import Conditions, Network, StreamBroken, StreamCheck, Truth
from peer.core import PeerCore, PeerEvent
from peer.coreconfig import CoreConfig
from peer.items import Content
from peer.mesh import events as meshevents
from peer.mesh.candidates import CandidateRecord
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.mesh.placement.moves import Placement
from peer.queries import XPathPolicy, token_of
from peer.role import Role
from peer.testing.bounds import excess
from xmlswitch import Query

STREAM = "sim"
MAX_TIMEOUTS_A_SECOND = 600
"""A peer's timers that fire more often over a second or more are spinning (the hub allows 1,000)."""
TRACE_LINES = 60


class PromiseBroken(AssertionError):
    """With the seed, the instant and the last things that happened."""


@dataclass(slots=True)
class SimPeer:
    name: str
    address: SocketAddress
    config: CoreConfig
    core: PeerCore
    check: StreamCheck | None = None
    alive: bool = True
    placement: Placement | None = None
    make: Callable[..., PeerCore] = PeerCore
    last_published: int = 0
    seen_version: int = -1
    """The mesh's version when its links were last checked."""
    cold_restarts: int = 0
    degraded_at: float | None = None
    repair_times: list[float] = field(default_factory=list)
    takes: bool = True
    """Whether the client takes what is there for it; False for one that has stopped listening."""
    takes_a_second: float = float("inf")
    """How many packets it takes in a second, for one that is slow."""

    @property
    def is_honest(self) -> bool:
        return self.make is PeerCore


class PeerSimulation:
    """Build it, add peers, plan faults with `network.at`, call `run_until`."""

    def __init__(
        self,
        seed: int,
        *,
        conditions: Conditions | None = None,
        directory_delay: tuple[float, float] = (0.02, 0.15),
        before: int = 0,
    ) -> None:
        """`before`: the position after which the feed begins."""
        self.seed = seed
        self.rng = random.Random(seed)
        self.network = Network(
            self.rng.getrandbits(64),
            conditions=conditions or Conditions(delay=0.005),
            on_event=self._on_event,
            on_turn=self._on_turn,
        )
        self.peers: dict[str, SimPeer] = {}
        self._by_address: dict[SocketAddress, SimPeer] = {}
        self._by_id: dict[PeerId, SimPeer] = {}
        self._records: dict[PeerId, CandidateRecord] = {}
        self._directory_delay = directory_delay
        self._version = 0
        self._policy = XPathPolicy()  # the oracle evaluates one query at a time, without the index
        self.truth = Truth(self._matches, before=before)
        self.listeners: list[Callable[[str, PeerEvent], None]] = []
        """Called with a peer's name and its event, before the simulation acts on it."""
        self.accusations: list[str] = []
        """Disputes and starving where every peer is honest."""
        self._trace: deque[str] = deque(maxlen=TRACE_LINES)

    # --- peers --------------------------------------------------------------------------------------------------------

    def add_root(self, name: str, **options: Any) -> SimPeer:
        """`options`: those of `_add`, and any field of `CoreConfig`."""
        return self._add(name, Role.ROOT, None, **options)

    def add_router(self, name: str, *, query: str | None = None, **options: Any) -> SimPeer:
        return self._add(name, Role.ROUTER, query, **options)

    def add_leaf(self, name: str, *, query: str | None = None, **options: Any) -> SimPeer:
        return self._add(name, Role.LEAF, query, **options)

    def _add(
        self,
        name: str,
        role: Role,
        query: str | None,
        *,
        parents: int = 2,
        capacity: int = 6,
        dynamic: bool = False,
        deliver: bool = True,
        mesh: MeshConfig | None = None,
        dcp: Config | None = None,
        placement: Placement | None = None,
        make: Callable[..., PeerCore] = PeerCore,
        host: str | None = None,
        **core: Any,
    ) -> SimPeer:
        """`make` builds the machine of a peer that is not honest; `host` puts it where others are."""
        mesh = replace(mesh or MeshConfig(), parents_wanted=parents, capacity=0 if role is Role.LEAF else capacity)
        parsed = Query.parse(query) if query is not None else None
        config = CoreConfig(
            stream=STREAM,
            role=role,
            mesh=mesh,
            dcp=dcp or Config(),
            query=parsed,
            dynamic=dynamic,
            deliver=deliver,
            **core,
        )
        number = len(self.peers) + 1
        address: SocketAddress = (
            host or f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            4000 + number if host else 4000,
        )
        core_made = self._new_core(name, config, placement, make)
        peer = SimPeer(name, address, config, core_made, placement=placement, make=make)
        if role is not Role.ROOT and deliver and peer.is_honest:
            peer.check = self._new_check(peer)
        self.peers[name] = peer
        self._by_address[address] = peer
        self._by_id[peer.core.mesh.peer_id] = peer
        self._boot(peer)
        return peer

    def _new_core(
        self, name: str, config: CoreConfig, placement: Placement | None, make: Callable[..., PeerCore] = PeerCore
    ) -> PeerCore:
        peer_id = PeerId(random.Random(f"{self.seed} {name}").randbytes(20))
        return make(config, peer_id, rng=random.Random(self.rng.getrandbits(64)), placement=placement)

    def _new_check(self, peer: SimPeer) -> StreamCheck:
        return StreamCheck(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def _boot(self, peer: SimPeer) -> None:
        self.network.add(peer.address, peer.core)
        if peer.config.role is Role.ROOT and peer.last_published and peer.core.sender is not None:
            peer.core.sender.publish_hole(peer.last_published)
        peer.core.start(now=self.network.now)
        self.network.pump(peer.address)

    # --- faults -------------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """As kill -9: no word to anybody, and the directory keeps its record until it expires."""
        peer = self.peers[name]
        self._note(f"kill {name}")
        peer.alive = False
        self.network.crash(peer.address)
        self.network.after(60.0, lambda: self._forget_dead(peer))

    def _forget_dead(self, peer: SimPeer) -> None:
        if not peer.alive:
            self._records.pop(peer.core.mesh.peer_id, None)

    def restart(self, name: str) -> None:
        """The same identity and address, with empty hands."""
        peer = self.peers[name]
        self._note(f"restart {name}")
        peer.alive = True
        peer.core = self._new_core(name, peer.config, peer.placement, peer.make)
        peer.seen_version = -1
        if peer.check is not None:
            peer.check = self._new_check(peer)
        self._boot(peer)

    def freeze(self, name: str, duration: float) -> None:
        self._note(f"freeze {name} for {duration:.2f} s")
        address = self.peers[name].address
        self.network.freeze(address)
        self.network.after(duration, lambda: self._thaw(name))

    def _thaw(self, name: str) -> None:
        self._note(f"thaw {name}")
        self.network.thaw(self.peers[name].address)

    def partition(self, one: Sequence[str], other: Sequence[str]) -> None:
        self._note(f"partition {list(one)} | {list(other)}")
        for a in one:
            for b in other:
                self.network.cut(self.peers[a].address, self.peers[b].address)

    # --- the feed -----------------------------------------------------------------------------------------------------

    def publish(self, payload: bytes, *, lags: Callable[[str], float] = lambda name: 0.0) -> int:
        """One packet to every root, each after its own lag."""
        an = self.truth.last + 1
        envelope = self._policy.envelope.pack(payload)
        self.truth.add(an, payload)
        for peer in self.peers.values():
            if peer.config.role is Role.ROOT:
                self.network.after(lags(peer.name), self._arrive, peer, an, envelope)
        return an

    def _arrive(self, peer: SimPeer, an: int, envelope: bytes) -> None:
        if not peer.alive or self.network.is_frozen(peer.address) or peer.core.sender is None:
            return
        log = peer.core.sender.log
        if log.started and an <= log.head:
            return
        if not log.started:
            peer.core.sender.publish_hole(an - 1)
        peer.core.publish(envelope, an=an, contiguous=log.head == an - 1)
        peer.last_published = an
        self.network.pump(peer.address)

    def feed(self, *, rate: float, until: float, make: Callable[[int], bytes]) -> None:
        """A steady stream from now on."""

        def tick() -> None:
            if self.network.now < until:
                self.publish(make(self.truth.last + 1))
                self.network.after(1 / rate, tick)

        self.network.after(1 / rate, tick)

    def _matches(self, query: bytes, content: bytes) -> bool:
        return self._policy.matches(query, self._policy.envelope.pack(content))

    # --- running ------------------------------------------------------------------------------------------------------

    def run_until(self, end: float, *, step: float = 0.02) -> None:
        began, fired = self.network.now, self.network.timeouts.copy()
        try:
            while self.network.now < end:
                self.network.run_until(min(self.network.now + step, end))
                self._drain(step)
            for peer in self.peers.values():
                if peer.alive and peer.is_honest:
                    self.check_peer(peer)
            self.check_bounds()
            if self.accusations:
                raise PromiseBroken(f"an accusation without a liar: {self.accusations[0]}")
            self._check_timers(self.network.now - began, self.network.timeouts - fired)
        except (StreamBroken, PromiseBroken) as error:
            error.add_note(self._story())
            raise

    def _drain(self, seconds: float) -> None:
        for peer in self.peers.values():
            receiver = peer.core.receiver
            if not (peer.alive and peer.takes) or receiver is None or self.network.is_frozen(peer.address):
                continue
            took = False
            left = peer.takes_a_second * seconds
            if left < 1 and self.rng.random() < left:
                left = 1
            while left >= 1 and (item := peer.core.next_content()) is not None:
                took = True
                left -= isinstance(item, Packet)
                if peer.check is not None:
                    peer.check.take(item)
                    self._took(peer, item)
            if took and receiver.has_closed_window:
                receiver.reopen_window(self.network.now)
                self.network.pump(peer.address)

    def _took(self, peer: SimPeer, item: Content) -> None:
        """A client was handed this; for simulations that measure more."""

    def _on_turn(self, address: SocketAddress) -> None:
        peer = self._by_address.get(address)  # a test may put strangers on the network
        if peer is not None and peer.is_honest and peer.core.mesh.version != peer.seen_version:
            peer.seen_version = peer.core.mesh.version
            self.check_peer(peer)

    def check_peer(self, peer: SimPeer) -> None:
        """Promise 3, and fan-out: over every link of this peer that both its ends hold."""
        mesh = peer.core.mesh
        if len(mesh.children) > mesh.config.capacity:
            raise PromiseBroken(f"{peer.name} has {len(mesh.children)} children, {mesh.config.capacity} at most")
        for parent_id in {parent.peer_id for parent in mesh.parents.links.values()}:
            self._check_levels(peer, parent_id)
        for child_id in mesh.children.peer_ids():
            child = self._by_id.get(child_id)
            if child is not None and child.is_honest:
                self._check_levels(child, mesh.peer_id)

    def _check_levels(self, child: SimPeer, parent_id: PeerId) -> None:
        above = self._by_id.get(parent_id)
        if above is None or not (child.alive and above.alive and above.is_honest):
            return
        if above.core.mesh.level < child.core.mesh.level:
            return
        for parent in child.core.mesh.parents.links.values():
            if parent.peer_id == parent_id and self.is_held_by_both(child, parent.link, above):
                raise PromiseBroken(
                    f"{child.name} (level {child.core.mesh.level}) is a child of {above.name} "
                    f"(level {above.core.mesh.level})"
                )

    def check_bounds(self) -> None:
        """Promise 5: nothing in a peer outgrows what the mesh and the configuration allow."""
        for peer in self.peers.values():
            if peer.alive and peer.is_honest:
                found = excess(peer.core)
                if found is not None:
                    raise PromiseBroken(f"{peer.name}: {found}")

    def _check_timers(self, seconds: float, fired: Counter[SocketAddress]) -> None:
        for address, times in fired.items():
            peer = self._by_address.get(address)  # a test may put strangers on the network
            if peer is not None and peer.is_honest and seconds >= 1.0 and times > seconds * MAX_TIMEOUTS_A_SECOND:
                raise PromiseBroken(f"{peer.name}: {times} timer turns in {seconds:.1f} s")

    def uplinks(self) -> Iterator[tuple[SimPeer, meshevents.LinkId, Parent, bool]]:
        """Every link that a live child believes in, and whether its parent holds it too."""
        by_id = {peer.core.mesh.peer_id: peer for peer in self.peers.values() if peer.alive}
        for child in by_id.values():
            if child.core.receiver is None:
                continue
            for parent in child.core.mesh.parents.links.values():
                other = by_id.get(parent.peer_id)
                uplink = child.core.receiver.parents.get(child.core.dcp_link(parent.link) or 0)
                if uplink is not None:
                    held = other is not None and self.is_held_by_both(child, parent.link, other)
                    yield child, parent.link, uplink, held

    def is_held_by_both(self, child: SimPeer, link: meshevents.LinkId, parent: SimPeer) -> bool:
        uplink_id = child.core.dcp_link(link)
        if uplink_id is None or child.core.receiver is None or parent.core.sender is None:
            return False
        uplink = child.core.receiver.links.get(uplink_id)
        return uplink is not None and uplink.remote_id in parent.core.sender.children

    # --- the directory ------------------------------------------------------------------------------------------------

    def _on_event(self, address: SocketAddress, event: PeerEvent, now: float) -> None:
        peer = self._by_address[address]
        delay = self.rng.uniform(*self._directory_delay)
        core = peer.core
        for listener in self.listeners:
            listener(peer.name, event)
        match event:
            case meshevents.CandidatesWanted():
                self.network.after(delay, lambda: self._answer(peer, core, event))
            case meshevents.PublishRecord():
                self.network.after(delay, lambda: self._publish_record(peer, core, event))
            case meshevents.WithdrawRecord():
                self.network.after(delay, lambda: self._withdraw_record(core))
            case meshevents.Disputed() | meshevents.Starved() if all(p.is_honest for p in self.peers.values()):
                self.accusations.append(f"{now:.3f} {peer.name}: {event}")
            case meshevents.ColdRestart():
                peer.cold_restarts += 1
                self._note(f"{peer.name}: {event}")
            case meshevents.Degraded():
                peer.degraded_at = now if peer.degraded_at is None else peer.degraded_at
                self._note(f"{peer.name}: {event}")
            case meshevents.Restored():
                if peer.degraded_at is not None:
                    peer.repair_times.append(now - peer.degraded_at)
                peer.degraded_at = None
                self._note(f"{peer.name}: {event}")
            case _:
                self._note(f"{peer.name}: {type(event).__name__}")

    def _answer(self, peer: SimPeer, core: PeerCore, wanted: meshevents.CandidatesWanted) -> None:
        if not peer.alive or peer.core is not core or self.network.is_frozen(peer.address):
            return
        fitting = [
            record
            for record in self._records.values()
            if record.peer_id != core.mesh.peer_id
            and record.level < wanted.below_level
            and (record.is_root or record.free > 0 or (wanted.for_repair and record.free_for_repair > 0))
        ]
        self.rng.shuffle(fitting)
        core.add_candidates(fitting[: max(wanted.count, 8)], now=self.network.now)
        self.network.pump(peer.address)

    def forget_records_except(self, *names: str) -> None:
        """A directory that knows of these only, until others publish again."""
        kept = {self.peers[name].core.mesh.peer_id for name in names}
        self._records = {peer_id: record for peer_id, record in self._records.items() if peer_id in kept}

    def _withdraw_record(self, core: PeerCore) -> None:
        self._records.pop(core.mesh.peer_id, None)

    def _publish_record(self, peer: SimPeer, core: PeerCore, record: meshevents.PublishRecord) -> None:
        if peer.core is not core:
            return
        self._version += 1
        self._records[core.mesh.peer_id] = CandidateRecord(
            peer_id=core.mesh.peer_id,
            address=(str(peer.address[0]), int(peer.address[1])),
            level=record.level,
            hops=record.hops,
            load=record.children / record.capacity if record.capacity else 1.0,
            free=record.free,
            free_for_repair=record.free_for_repair,
            resilience=record.resilience,
            is_root=record.is_root,
            query=core.subscription,
            version=self._version,
        )

    # --- the story ----------------------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self._trace.append(f"{self.network.now:9.3f} {text}")

    def _story(self) -> str:
        return f"seed {self.seed}, at {self.network.now:.3f} s:\n" + "\n".join(f"  {line}" for line in self._trace)
