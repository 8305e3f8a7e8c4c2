"""The mesh as seen from outside: who the directory lists, and what each peer says of itself, its parents and children.

Asks by the primitives `Status`, `Parents` and `Children`, which every peer answers, from the listed peers outwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from dcp import Config, Hub
from dcp.carriers.opening import open_carriers
from dcp.carriers.pool import Pool
from dcp.carriers.registry import AUTO, carriers_named
from dcp.driver import Driver
from dcp.events import Event, InquiryAnswered
from dcp.links.address import UDP
from dcp.udp import UdpSocket
from peer.dht_ways import DirectoryWays
from peer.mesh import encoding
from peer.mesh.hostport import HostPort
from peer.mesh.messages import (
    About,
    AboutRequest,
    Answer,
    ChildrenRequest,
    InquiryRequest,
    MalformedMessage,
    ParentsRequest,
    Peers,
    State,
    StatusRequest,
    Wanted,
    WantsRequest,
)
from peer.sockets import PeerSocket

if TYPE_CHECKING:
    from dht import PeerRecord
    from dht.shell.trio_directory import TrioDirectory

MAX_PEERS = 10_000
"""A crawl ends there, and says so."""
MAX_AT_ONCE = 32
MAX_SILENT = 1_024
"""Peers that were named and don't answer; each costs a second of one visitor. Beyond that a peer is lying, or
half of the mesh has just died: the crawl ends, and says that it did not see everybody."""
MAX_STREAMS = 1_024
ANSWER_TIMEOUT = 1.0
FRUITLESS_TRIES = 16
"""An answer names up to 16 children, at random: a peer with more is asked again, until all are known or this many
answers in a row brought none that is new. The last one of 64 is missed by 16 answers with a chance of 1 %."""


@dataclass(slots=True)
class PeerView:
    """One peer. What it did not report is None."""

    peer_id: bytes
    address: HostPort
    role: str | None = None
    level: int | None = None
    hops: int | None = None
    parents_held: int | None = None
    parents_wanted: int | None = None
    children_held: int | None = None
    capacity: int | None = None
    parents: list[bytes] = field(default_factory=list)
    children: list[bytes] = field(default_factory=list)
    query: str | None = None
    """Canonical; empty when it asks for everything, None when that is not known."""
    resilience: int | None = None
    rooted: bool | None = None
    """Fed from a root, as it says itself."""
    age: float | None = None
    """Seconds since its record was published; None for peers that are not in the directory."""
    answered: bool = False
    name: str = ""
    """As it calls itself: it proves nothing, and two may have the same."""
    version: str = ""
    packets_per_second: float | None = None
    loss: float | None = None
    """The share of packets that its parents did not bring unasked."""
    protection: str = ""
    """What it asks its parents to send unasked, in its words."""
    disputes: str = ""
    """Which of its parents it contradicts, and why, in its words."""
    tree_degree: int | None = None
    """Of the reference tree that it follows, as it says."""

    @property
    def lacks_parents(self) -> bool:
        """A peer that does not answer is not counted: it may have left a moment ago."""
        if self.role == "root" or self.parents_held is None or self.parents_wanted is None:
            return False
        return self.parents_held < self.parents_wanted


@dataclass(slots=True)
class MeshView:
    stream: str
    peers: dict[bytes, PeerView]
    is_whole: bool = True
    """False when there were more than MAX_PEERS, or more than MAX_SILENT that don't answer."""

    def roots(self) -> list[PeerView]:
        return [peer for peer in self.peers.values() if peer.role == "root"]

    @property
    def silent_roots(self) -> list[PeerView]:
        """Listed as roots, and do not answer: dead, or never there. Newcomers try them before the others."""
        return [peer for peer in self.roots() if not peer.answered]

    @property
    def has_root(self) -> bool:
        """Whether a root answers. A dead one is listed until its record expires, which says nothing about the mesh."""
        return any(root.answered for root in self.roots())

    @property
    def lacking(self) -> list[PeerView]:
        return [peer for peer in self.peers.values() if peer.lacks_parents]


@dataclass(slots=True)
class StreamSeen:
    stream: str
    peers: int = 0
    roots: int = 0
    """Listed in the directory, of any owner."""
    packets_per_second: float = 0.0
    """The most that a peer receives or publishes."""


class Crawler:
    """Open with `open_crawler`."""

    def __init__(
        self,
        udp: UdpSocket,
        rng: random.Random,
        transports: tuple[str, ...] = (UDP,),
        carriers: Pool | None = None,
    ) -> None:
        self.hub = Hub(Config(transports=transports), rng=rng)
        self.ways = DirectoryWays(self.hub.ways, trio.current_time)
        self.driver = self.ways.driver = Driver(
            self.hub, udp, on_event=self._on_event, on_other=self.ways.receive, carriers=carriers, hub=self.hub
        )
        self.directory: TrioDirectory | None = None
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, bytes | None] = {}

    async def look(self, stream: str) -> MeshView:
        """One look at the whole mesh. DirectoryUnavailable, StreamOwnerChanged."""
        from dht import CandidateQuery

        assert self.directory is not None
        view = MeshView(stream, {})
        queue: list[PeerView] = []
        roots = await self.directory.roots(stream)
        others = await self.directory.candidates(stream, CandidateQuery(repair=True))
        for record in [*roots, *others]:
            self._meet(view, queue, bytes(record.peer_id), record.addresses[0])
            _note_record(view.peers[bytes(record.peer_id)], record)
        while queue:
            if sum(not peer.answered for peer in view.peers.values()) - len(queue) > MAX_SILENT:
                view.is_whole = False
                break
            batch, queue[:] = queue[:MAX_AT_ONCE], queue[MAX_AT_ONCE:]
            async with trio.open_nursery() as nursery:
                for peer in batch:
                    nursery.start_soon(self._visit, view, queue, peer)
        return view

    async def streams(self) -> list[StreamSeen]:
        """Every stream of the peers that this DHT knows, by what they say about themselves."""
        assert self.directory is not None
        addresses = await self.directory.nodes(MAX_PEERS)
        found: dict[str, StreamSeen] = {}

        async def visit(address: HostPort) -> None:
            async with limit:
                about = await self._ask(address, AboutRequest())
            if isinstance(about, About) and about.stream and len(found) < MAX_STREAMS:
                seen = found.setdefault(about.stream, StreamSeen(about.stream))
                seen.peers += 1
                seen.packets_per_second = max(seen.packets_per_second, about.packets_per_second or 0.0)

        limit = trio.Semaphore(MAX_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(visit, address)
        for seen in found.values():
            seen.roots = len(await self.directory.claimed_roots(seen.stream))
        return sorted(found.values(), key=lambda seen: seen.stream)

    async def sources(self, stream: str) -> tuple[str, ...]:
        """What a combined stream consists of, by the word of its roots; empty for a stream of another kind."""
        assert self.directory is not None
        for record in await self.directory.roots(stream):
            about = await self._ask(record.addresses[0], AboutRequest())
            if isinstance(about, About) and about.stream == stream and about.sources:
                return about.sources
        return ()

    def _meet(self, view: MeshView, queue: list[PeerView], peer_id: bytes, address: HostPort) -> None:
        if peer_id in view.peers:
            return
        if len(view.peers) >= MAX_PEERS:
            view.is_whole = False
            return
        view.peers[peer_id] = peer = PeerView(peer_id, address)
        queue.append(peer)

    async def _visit(self, view: MeshView, queue: list[PeerView], peer: PeerView) -> None:
        state = await self._ask(peer.address, StatusRequest())
        if not isinstance(state, State) or state.peer_id != peer.peer_id:
            return
        peer.answered = True
        peer.level, peer.hops = state.level, state.hops
        peer.parents_held, peer.parents_wanted = state.parents_held, state.parents_wanted
        peer.children_held, peer.capacity = state.children, state.capacity
        peer.resilience, peer.rooted = state.resilience, state.is_rooted
        if peer.role is None:
            peer.role = "leaf" if state.capacity == 0 else "router"
        about = await self._ask(peer.address, AboutRequest())
        if isinstance(about, About):
            peer.name, peer.version = about.name, about.version
            peer.packets_per_second, peer.loss = about.packets_per_second, about.loss
            peer.disputes, peer.protection = about.disputes, about.protection
            peer.tree_degree = about.tree_degree
        await self._name_peers(view, queue, peer, ParentsRequest(), peer.parents)
        fruitless = 0
        while len(peer.children) < state.children and fruitless < FRUITLESS_TRIES and view.is_whole:
            found = await self._name_peers(view, queue, peer, ChildrenRequest(b""), peer.children)
            if found is None:
                break
            fruitless = 0 if found else fruitless + 1
        if peer.role != "root":
            asked = await self._ask(peer.address, WantsRequest())
            if isinstance(asked, Wanted) and asked.query is not None:
                peer.query = _query_text(asked.query)

    async def _name_peers(
        self, view: MeshView, queue: list[PeerView], peer: PeerView, request: InquiryRequest, known: list[bytes]
    ) -> int | None:
        """Ask once for neighbours; how many were new. None when nobody answered."""
        answer = await self._ask(peer.address, request)
        if not isinstance(answer, Peers):
            return None
        before = len(known)
        for other in answer.peers:
            peer_id = bytes(other.peer_id)
            if peer_id not in known:
                known.append(peer_id)
                self._meet(view, queue, peer_id, other.address)
        return len(known) - before

    async def _ask(self, address: HostPort, request: InquiryRequest) -> Answer | None:
        reply = await self.ask(address, encoding.encode_request(request))
        try:
            return encoding.decode_answer_untrusted(reply) if reply is not None else None
        except MalformedMessage:
            return None

    async def ask(self, address: HostPort, body: bytes) -> bytes | None:
        """The answer to an inquiry, as it came; None if there was none in time."""
        number = self.hub.inquire(address, body, timeout=ANSWER_TIMEOUT, now=trio.current_time())
        answered = self._waiting[number] = trio.Event()
        self.driver.turn()
        try:
            await answered.wait()
            return self._answers.pop(number, None)
        finally:
            self._waiting.pop(number, None)
            self._answers.pop(number, None)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, InquiryAnswered) and event.inquiry in self._waiting:
            self._answers[event.inquiry] = event.body
            self._waiting[event.inquiry].set()


def _query_text(token: bytes) -> str | None:
    """What a stranger says it asks for, as text; None for nonsense."""
    from xmlswitch import MalformedQuery, Query, QueryError, QuerySet, is_query_set

    if not token:
        return ""
    try:
        return QuerySet.decode_untrusted(token).text if is_query_set(token) else Query.decode_untrusted(token).canonical
    except (MalformedQuery, QueryError):
        return None


def _note_record(peer: PeerView, record: PeerRecord) -> None:
    from dht import NodeConfig

    peer.role = record.role.name.lower()
    peer.level, peer.hops = record.level, record.hops
    peer.children_held, peer.capacity = record.children, record.capacity
    peer.query = record.query.text if record.query is not None else None
    peer.age = max(0.0, time.time() - (record.expires_at - NodeConfig().record_lifetime))


@asynccontextmanager
async def open_crawler(
    listen: HostPort, bootstrap: Sequence[HostPort], *, beacon: bool, transport: str = AUTO
) -> AsyncIterator[Crawler]:
    """A visitor: it asks, and is nobody's contact."""
    from dht import DirectoryOptions, Identity, open_directory

    transports = carriers_named(transport)
    udp, carriers = await open_carriers(listen, transports, PeerSocket.bind)
    try:
        crawler = Crawler(udp, random.SystemRandom(), transports, carriers)
        host, port = udp.address[:2]
        options = DirectoryOptions(bootstrap=tuple(bootstrap), beacon=beacon, read_only=True)
        async with (
            trio.open_nursery() as nursery,
            open_directory(Identity.generate(), options, send=crawler.ways.send, address=(host, port)) as directory,
        ):
            crawler.directory = crawler.ways.directory = directory
            nursery.start_soon(crawler.driver.run)
            yield crawler
            nursery.cancel_scope.cancel()
    finally:
        udp.close()
        if carriers is not None:
            carriers.close()
