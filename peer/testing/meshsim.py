"""Whole meshes of mesh machines in virtual time, with every fault we know of and the promises checked after each event.

    simulation = MeshSimulation(seed=7, network=hostile(0.15))
    simulation.populate(roots=2, peers=20, over=5.0)
    simulation.chaos(start=10.0, until=60.0, every=1.0)
    simulation.run(120.0)
    simulation.check_settled()

A broken promise raises `MeshViolation` with the seed and the last lines of the story. Faults: loss, delay, reordering
and duplication (the network model), partitions, freezes with the inbox held, crashes, restarts, leaving, stale records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any

from dcp.links.link import SocketAddress
from dcp.testing import Conditions, Network
from peer.mesh.candidates import CandidateRecord
from peer.mesh.config import MeshConfig
from peer.mesh.events import (
    CandidatesWanted,
    ColdRestart,
    Degraded,
    Event,
    ParentLost,
    PublishRecord,
    Restored,
    Thawed,
    WithdrawRecord,
)
from peer.mesh.hostport import HostPort
from peer.mesh.machine import Mesh
from peer.mesh.membership import SEEKING, Membership
from peer.mesh.messages import PeerId
from peer.testing.directory import SimDirectory
from peer.testing.meshpeer import Measures, MeshPeer
from peer.testing.simlinks import SimLinks
from peer.testing.violations import MeshViolation

if TYPE_CHECKING:
    from peer.mesh.levels import LevelRules
    from peer.mesh.placement.moves import Placement

LAN = Conditions(delay=0.002, jitter=0.018)
TRACE_LINES = 60


def hostile(loss: float) -> Conditions:
    """For campaigns: some datagrams overtake each other by seconds, and copies come long after."""
    return Conditions(
        delay=0.005,
        jitter=0.045,
        loss=loss,
        reorder=0.15,
        reorder_delay=2.5,
        duplicate=0.03,
        duplicate_delay=8.0,
    )


class MeshSimulation:
    def __init__(
        self,
        seed: int,
        *,
        config: MeshConfig | None = None,
        network: Conditions | None = None,
        stale_share: float = 0.2,
        rules: Callable[[MeshConfig], LevelRules] | None = None,
        placement: Callable[[PeerId, MeshConfig], Placement] | None = None,
        lists_places: bool = False,
        fresh_nonces: bool = True,
        is_checked: bool = True,
        walks_up: bool = True,
        max_cold_depth: int | None = None,
    ) -> None:
        """`rules`, `fresh_nonces`: switch a rule off, to see that the checks can fail.

        `lists_places`: routers are listed by place (`dht.places`), for placement by the reference tree.
        `walks_up`: look for cycles by walking all ancestors, independent of levels. With thousands of peers that is
        most of the time, and the order of levels, which is always checked, implies it.
        """
        self.seed = seed
        self.config = config or MeshConfig()
        self.rng = Random(seed)
        self.network = Network(
            self.rng.getrandbits(64), conditions=network or LAN, on_event=self._note, on_turn=self._look
        )
        self.directory = SimDirectory(Random(self.rng.getrandbits(64)), stale_share=stale_share)
        self.peers: list[MeshPeer] = []
        self.measures = Measures()
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._rules, self._placement, self._fresh_nonces = rules, placement, fresh_nonces
        self._lists_places = lists_places
        self._is_checked = is_checked
        self._walks_up = walks_up
        self._max_cold_depth = max_cold_depth
        self._at: dict[SocketAddress, MeshPeer] = {}
        self._named: dict[PeerId, int] = {}

    @property
    def now(self) -> float:
        return self.network.now

    # Who is there

    def populate(self, *, roots: int, peers: int, over: float = 5.0, root_capacity: int | None = None) -> None:
        """Roots now, the others at random moments within `over` seconds."""
        for _ in range(roots):
            self.add(is_root=True, capacity=root_capacity)
        for _ in range(peers):
            self.network.after(self.rng.uniform(0, over), self._arrive)

    def _arrive(self) -> None:
        self.add()

    def add(self, *, is_root: bool = False, **changes: Any) -> MeshPeer:
        """One more peer, now; `changes` are knobs in which it differs from the others (None: it does not)."""
        index = len(self.peers)
        config = replace(self.config, **{knob: value for knob, value in changes.items() if value is not None})
        peer_id = PeerId(blake2b(index.to_bytes(4, "big"), digest_size=20).digest())
        # Two peers a host, eight hosts a prefix: independence is something that can be had or missed.
        host = index // 2
        address = (f"10.{host // 2048 % 256}.{host // 8 % 256}.{host % 8 + 1}", 4_000 + index % 2)
        self._named[peer_id] = index
        peer = MeshPeer(index, is_root, config, peer_id, address, self._machine(address, 1, config, peer_id), self.now)
        self.peers.append(peer)
        self._at[address] = peer
        self._start(peer)
        return peer

    def _machine(self, address: HostPort, life: int, config: MeshConfig, peer_id: PeerId) -> SimLinks:
        mesh = Mesh(
            peer_id,
            config,
            rng=Random(self.rng.getrandbits(64)),
            rules=self._rules(config) if self._rules else None,
            placement=self._placement(peer_id, config) if self._placement else None,
        )
        links = SimLinks(
            life,
            mesh,
            clock=self.network,
            rng=self.rng,
            directory=lambda effect: self._use_directory(self._at[address], links, effect),
            is_awake=lambda: self.network.is_awake(address, links),
            after_input=lambda: self.network.pump(address),
            fresh_nonces=self._fresh_nonces,
        )
        return links

    def _start(self, peer: MeshPeer) -> None:
        self._say(peer, "starts as a root" if peer.is_root else "starts")
        if peer.is_root:
            peer.mesh.start_root(now=self.now)
        else:
            peer.mesh.start(now=self.now)
        self.network.add(peer.address, peer.links)

    def live(self, *, with_roots: bool = False) -> list[MeshPeer]:
        return [p for p in self.peers if p.is_alive and (with_roots or not p.is_root)]

    # Faults

    def crash(self, peer: MeshPeer) -> None:
        if peer.is_alive:
            self._say(peer, "dies")
            peer.is_alive = False
            self.network.crash(peer.address)

    def restart(self, peer: MeshPeer) -> None:
        """A new life at the old address with the old identity, and no memory."""
        if peer.is_alive:
            return
        self._say(peer, "is born again")
        peer.life += 1
        peer.is_alive = True
        peer.frozen_until = 0.0
        peer.seen_version = -1
        peer.joined_at = None
        peer.cold_blame = 0
        peer.born_at = self.now
        peer.links = self._machine(peer.address, peer.life, peer.config, peer.peer_id)
        self._start(peer)

    def freeze(self, peer: MeshPeer, seconds: float) -> None:
        """As SIGSTOP: nothing runs, the socket fills; then everything at once, timers and inbox in either order."""
        if not peer.is_alive or peer.frozen_until > self.now:
            return
        self._say(peer, f"freezes for {seconds:.1f} s")
        peer.frozen_until = self.now + seconds
        self.network.freeze(peer.address)
        self.network.at(peer.frozen_until, self._thaw, peer, peer.life)

    def part(self, group: set[int], seconds: float, *, leak: float = 0.0) -> None:
        """Cut the network between the group and the rest; a share `leak` of the directed pairs stays open."""
        inside = [self.peers[index].address for index in group]
        outside = [p.address for p in self.peers if p.index not in group]
        self.network.heal()
        for source, to in [pair for x in inside for y in outside for pair in ((x, y), (y, x))]:
            if self.rng.random() >= leak:
                self.network.cut_one_way(source, to)
        self._say(None, f"parts {sorted(group)} from the rest for {seconds:.1f} s")
        self.network.after(seconds, self._heal)

    def leave(self, peer: MeshPeer) -> None:
        if self._is_awake(peer) and peer.mesh.state in (*SEEKING, Membership.ROOT):
            self._say(peer, "leaves")
            peer.mesh.leave(now=self.now)
            self.network.pump(peer.address)

    def chaos(self, *, start: float, until: float, every: float, spare_roots: bool = False) -> None:
        """Random faults about every so many seconds."""
        at = start
        while at < until:
            self.network.at(at, self._havoc, spare_roots)
            at += self.rng.expovariate(1 / every)

    def calm(self) -> None:
        """No more faults but those on their way: the network is good again, and the dead come back."""
        self.network.set_conditions(replace(LAN, loss=0.05))
        self._heal()
        for peer in self.peers:
            self.restart(peer)

    def _havoc(self, spare_roots: bool) -> None:
        rng = self.rng
        peer = rng.choice(self.peers)
        if peer.is_root and spare_roots:
            return
        chance = rng.random()
        if chance < 0.30:
            self.crash(peer)
            self.network.after(rng.choice([0.1, 0.3, 2.0, 10.0]), self.restart, peer)
        elif chance < 0.65:
            self.freeze(peer, rng.choice([0.5, 2.0, 5.0, 20.0]))
        elif chance < 0.80:
            indices = [p.index for p in self.peers]
            group = set(rng.sample(indices, rng.randint(1, max(1, len(indices) // 2))))
            self.part(group, rng.uniform(0.5, 6.0), leak=0.2)
        elif chance < 0.90:
            self.leave(peer)
            self.network.after(rng.uniform(3.0, 8.0), self._replace_left, peer)
        elif peer.mesh.parents:  # a parent's link breaks off on its own
            link = rng.choice(list(peer.mesh.parents.links))
            if self._is_awake(peer):
                peer.links.drop(link)
                self.network.pump(peer.address)

    def _replace_left(self, peer: MeshPeer) -> None:
        self.crash(peer)
        self.restart(peer)

    def _heal(self) -> None:
        self.network.heal()
        self._say(None, "heals")

    def _thaw(self, peer: MeshPeer, life: int) -> None:
        if not peer.is_alive or peer.life != life or peer.frozen_until > self.now:
            return
        self._say(peer, "thaws")
        self.network.thaw(peer.address)

    # Driving the machines

    def run(self, until: float) -> None:
        self.network.run_until(until)

    def _is_awake(self, peer: MeshPeer) -> bool:
        return self.network.is_awake(peer.address, peer.links)

    def _look(self, address: SocketAddress) -> None:
        """After each input of a machine: the checks, if anything changed that they look at."""
        peer = self._at[address]
        if peer.mesh.version != peer.seen_version:
            peer.seen_version = peer.mesh.version
            if self._is_checked:
                self._check(peer)

    def _use_directory(
        self, peer: MeshPeer, links: SimLinks, effect: CandidatesWanted | PublishRecord | WithdrawRecord
    ) -> None:
        self.network.after(self.rng.uniform(0.02, 0.1), self._directory_done, peer, links, effect)

    def _directory_done(
        self, peer: MeshPeer, links: SimLinks, effect: CandidatesWanted | PublishRecord | WithdrawRecord
    ) -> None:
        if isinstance(effect, WithdrawRecord):
            self.directory.withdraw(peer.peer_id)
        elif isinstance(effect, PublishRecord):
            load = effect.children / max(1, effect.capacity)
            record = CandidateRecord(
                peer.peer_id,
                peer.address,
                effect.level,
                effect.hops,
                load,
                effect.free,
                effect.free_for_repair,
                effect.resilience,
                effect.is_root,
                effect.capacity,
                self._lists_places and not effect.is_root,
                version=self.network.steps,
            )
            self.directory.publish(record, self.now)
        elif self.network.is_awake(peer.address, links):
            peer.mesh.add_candidates(self.directory.lookup(effect, self.now), now=self.now)
            self.network.pump(peer.address)

    # What happened

    def _note(self, address: SocketAddress, event: Event, now: float) -> None:
        peer = self._at[address]
        self._say(peer, self._describe(event))
        measures = self.measures
        if isinstance(event, Restored):
            peer.cold_blame = 0
            measures.restored.append((peer.index, self.now))
            if peer.joined_at is None:
                peer.joined_at = self.now
                measures.join_times.append(event.after)
                counters = peer.mesh.counters
                asked, lookups = counters["joins_sent"] + counters["inquiries"], counters["lookups"]
                measures.join_counts.append((asked, lookups))
                measures.join_messages.append(2 * (asked + lookups))
            else:
                measures.repair_times.append(event.after)
        elif isinstance(event, Degraded):
            measures.degraded += 1
        elif isinstance(event, ParentLost) and event.reason.endswith("cold_restart"):
            other = self.peers[self._index_of(event.peer_id)]
            peer.cold_blame = max(peer.cold_blame, other.cold_blame)
        elif isinstance(event, ColdRestart):
            measures.cold_restarts += 1
            peer.cold_blame += 1
            measures.cold_depth = max(measures.cold_depth, peer.cold_blame)
            if self._max_cold_depth is not None and peer.cold_blame > self._max_cold_depth:
                self._fail(f"a cascade of {peer.cold_blame} cold restarts ends at peer {peer.index}")
        elif isinstance(event, Thawed):
            measures.thaws += 1

    def _describe(self, event: Event) -> str:
        """The event with peers by number, and without what only a program wants to know."""
        parts = []
        for item in fields(event):
            value = getattr(event, item.name)
            if item.name == "peer_id":
                parts.append(f"peer {self._index_of(value)}")
            elif item.name not in ("address", "query"):
                parts.append(f"{item.name} {value:.2f}" if isinstance(value, float) else f"{item.name} {value}")
        return f"{type(event).__name__} {', '.join(parts)}"

    def _index_of(self, peer_id: PeerId) -> int:
        return self._named[peer_id]

    def _say(self, peer: MeshPeer | None, text: str) -> None:
        who = "network" if peer is None else f"peer {peer.index} ({peer.mesh.state.value} at {peer.mesh.level})"
        self.trace.append(f"{self.now:9.3f} {who}: {text}")

    # The promises

    def parents_of(self, peer: MeshPeer) -> list[MeshPeer]:
        """Over links that both ends hold."""
        found = []
        for link in peer.mesh.parents.links:
            other = self._other_end(peer, link)
            if other is not None:
                found.append(other)
        return found

    def _other_end(self, peer: MeshPeer, link: Any, *, down: bool = False) -> MeshPeer | None:
        nonce = peer.links.nonce_of.get(link)
        if nonce is None:
            return None
        other = self._at.get(peer.links.end_at[link])
        if other is None or not other.is_alive:
            return None
        back = other.links.link_of.get(nonce)
        table = other.mesh.parents.links if down else other.mesh.children.links
        return other if back in table else None

    def _check(self, peer: MeshPeer) -> None:
        self.measures.checks += 1
        mesh = peer.mesh
        if len(mesh.children) > mesh.config.capacity:
            self._fail(f"peer {peer.index} has {len(mesh.children)} children, its capacity is {mesh.config.capacity}")
        for link in mesh.parents.links:
            parent = self._other_end(peer, link)
            if parent is not None and not mesh.level > parent.mesh.level:
                self._fail(
                    f"peer {peer.index} at level {mesh.level} is a child of peer {parent.index} at {parent.mesh.level}"
                )
        for link in mesh.children.links:
            child = self._other_end(peer, link, down=True)
            if child is not None and not child.mesh.level > mesh.level:
                self._fail(
                    f"peer {child.index} at level {child.mesh.level} is a child of peer {peer.index} at {mesh.level}"
                )
        if self._walks_up:
            self._check_acyclic(peer)

    def _check_acyclic(self, start: MeshPeer) -> None:
        """Independent of levels: can the peer reach itself upward?"""
        seen = {start.index}
        above = self.parents_of(start)
        while above:
            peer = above.pop()
            if peer is start:
                self._fail(f"a cycle through peer {start.index}")
            if peer.index not in seen:
                seen.add(peer.index)
                above += self.parents_of(peer)

    def _fail(self, what: str) -> None:
        raise MeshViolation(what, seed=self.seed, at=self.now, trace=self.trace)

    def unsettled(self) -> list[MeshPeer]:
        """Live peers without their n sound parents, over links that both ends hold."""
        return [p for p in self.live() if p.mesh.state in SEEKING and len(self.parents_of(p)) < p.config.parents_wanted]

    def check_settled(self) -> None:
        """Every live peer has n parents again, and is fed."""
        late = self.unsettled()
        if late:
            names = ", ".join(
                f"{p.index} ({p.mesh.state.value} at {p.mesh.level}, {len(p.mesh.parents)} parents)" for p in late[:8]
            )
            self._fail(f"{len(late)} of {len(self.live())} peers are short of parents: {names}")
        unfed = [p.index for p in self.live() if p.mesh.state in SEEKING and not p.mesh.is_rooted]
        if unfed:
            self._fail(f"peers {unfed[:8]} have parents but are not fed from a root")

    def depths(self) -> list[int]:
        """Hops to the farthest root along each peer's longest path, by what both ends hold."""
        depth = {p.index: 0 for p in self.peers if p.is_root and p.is_alive}
        for peer in sorted(self.live(), key=lambda p: p.mesh.level):
            above = [depth[q.index] for q in self.parents_of(peer) if q.index in depth]
            if above:
                depth[peer.index] = 1 + max(above)
        return sorted(d for index, d in depth.items() if not self.peers[index].is_root)
