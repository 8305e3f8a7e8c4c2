"""A DHT node: lookups, reads and writes over the protocol, and the upkeep that lets it live for weeks.

asyncio is its only world: a plain loop with a socket, the simulator's loop with a virtual clock, or trio-asyncio inside
trio. What the node cannot know (sockets, files of keys, streams) is given to it or left to `directory`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from dht.addresses import is_ip_literal
from dht.config import DEFAULT_CONFIG, DEFAULT_LIMITS, NodeConfig, StoreLimits
from dht.errors import RecordRejected, Refusal
from dht.faults import border, fault
from dht.ids import ID_BYTES, NodeId
from dht.keys import Key, keys_of
from dht.lookup import Lookup
from dht.record import Address, RecordVerifier, SignedRecord
from dht.results import LookupResult, ReadResult, WriteResult
from dht.shell.protocol import NodeProtocol, Transport
from dht.storage import RecordStore
from dht.wire import MAX_RECORDS_PER_MESSAGE, Answer, Contact, FindNode, FindValue, Found, Store, Stored

log = logging.getLogger(__name__)

_MAX_PAGES = 16  # of one holder: 64 records of the largest size need fewer
_PAGED_HOLDERS = 3  # a liar among them may hide records; three that lie are the sybil's case, bounded elsewhere
_STORE_OVERHEAD = 96  # header, name, ids, token and lengths of a store
_MAX_CLOCK_STEP = 3600.0  # seconds that a clock may have gone back; a "newer version" from beyond is a lie
_MAX_TASKS = 256  # upkeep and hand-overs under way at once
_REFUSALS = frozenset(Refusal)


class Node:
    """`await start()`, then `read`, `write` and `join`; `await close()` at the end."""

    def __init__(
        self,
        node_id: NodeId,
        *,
        transport: Transport,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap: Sequence[Address] = (),
        remembered: Sequence[Address] = (),
        config: NodeConfig = DEFAULT_CONFIG,
        limits: StoreLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        verifier: RecordVerifier | None = None,
        read_only: bool = False,
    ) -> None:
        self.id = node_id
        self.config = config
        self.clock = clock
        self.rng = rng if rng is not None else random.SystemRandom()
        self.loop = loop if loop is not None else asyncio.get_running_loop()
        self.verifier = verifier if verifier is not None else RecordVerifier()
        self.store = RecordStore(self.verifier, limits)
        self.protocol = NodeProtocol(
            node_id,
            self.store,
            transport=transport,
            loop=self.loop,
            clock=clock,
            rng=self.rng,
            config=config,
            read_only=read_only,
        )
        self.protocol.on_new_contact = self._on_new_contact
        self.protocol.on_given_up = self._on_given_up
        self.bootstrap = list(bootstrap)
        self._remembered = list(remembered)
        self._sender_id = None if read_only else node_id
        self._given_up: OrderedDict[Address, None] = OrderedDict()
        self._placements: OrderedDict[Key, tuple[float, list[tuple[Contact, Found]]]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    # --- life

    def start(self) -> None:
        """Start maintenance; the node joins as soon as another one answers."""
        self._spawn(self._keep_joined())
        self._spawn(self._every(self.config.probe_interval, self._probe))
        self._spawn(self._every(self.config.refresh_interval, self._refresh))
        self._spawn(self._every(self.config.handoff_interval, self._hand_off_unrefreshed))

    async def close(self) -> None:
        self.is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        self.protocol.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def datagram_received(
        self, data: bytes, addr: Any, *, reply: Callable[[bytes], None] | None = None, own_port: int | None = None
    ) -> None:
        if not self.is_closed:
            self.protocol.datagram_received(data, addr, reply=reply, own_port=own_port)

    def counters(self) -> Counter[str]:
        """Datagrams and requests by what became of them, and what the store had to do."""
        evicted = {"evicted_from_key": self.store.evicted, "evicted_from_store": self.store.evicted_from_store}
        return self.protocol.counters + Counter(evicted)

    @property
    def contacts(self) -> list[Contact]:
        return self.protocol.router.contacts

    @property
    def is_isolated(self) -> bool:
        silent = self.loop.time() - self.protocol.last_answer_at
        return not len(self.protocol.router) or silent > 3 * self.config.probe_interval

    @property
    def knows_somebody(self) -> bool:
        """Whether there is anybody to ask at all: an empty network of one's own is not an outage."""
        return bool(self.bootstrap or self._remembered or self._given_up or len(self.protocol.router))

    def remember(self) -> list[Address]:
        """Addresses worth trying after a restart, the nearest contacts first."""
        return [contact.address for contact in self.protocol.router.nearest(self.id, 4 * self.config.k)]

    def hint(self, address: Address) -> None:
        """Somebody may be there (a beacon, a record, an operator). Asked at once, believed when it answers."""
        if address not in self._known_addresses():
            self._spawn(self._try_address(address))

    # --- lookups

    async def find_nodes(self, key: bytes) -> LookupResult:
        return await self._lookup(key, FindNode(self._sender_id, Key(key)), on_found=lambda contact, found: None)

    async def read(self, key: Key, *, everything: bool = False) -> ReadResult:
        """The records under a key: a fair sample of a large set, or (`everything`) page after page of it."""
        result = ReadResult()
        for held in self.store.records(key, now=self.clock()):
            result.records[held.record.peer_id] = SignedRecord(held.record, held.wire)
        last_seen: dict[Contact, bytes] = {}

        def take(contact: Contact, found: Found) -> None:
            result.is_full |= found.is_full
            last = self._merge(result, key, found.wires)
            if last is not None:
                last_seen[contact] = last

        lookup = await self._lookup(key, None, on_found=take)
        result.queries, result.answers = lookup.queries, len(lookup.holders)
        if everything:
            await self._read_pages(result, key, lookup, last_seen)
        return result

    async def write(self, key: Key, wires: Sequence[bytes], *, handed: bool = False) -> WriteResult:
        """Store records on the k nodes nearest to a key, this one included when it is among them."""
        result = WriteResult()
        placed_at, holders = self._placements.pop(key, (float("-inf"), []))
        if self.loop.time() - placed_at <= self.config.placement_lifetime:
            await self._store_at(holders, key, wires, result, handed=handed)
        # Where those of last time died, or restarted and gave other tokens: look again.
        if result.replicas * 2 < len(holders) * len(wires) or not result.answers:
            lookup = await self.find_nodes(key)
            placed_at, holders = self.loop.time(), lookup.holders
            result = WriteResult(queries=result.queries + lookup.queries)
            await self._store_at(holders, key, wires, result, handed=handed)
        if result.answers:
            self._placements[key] = (placed_at, holders)
            if len(self._placements) > self.config.k:
                self._placements.popitem(last=False)
        if self._is_near(key, [contact for contact, _ in holders]):
            self._store_here(key, wires, result, handed=handed)
        return result

    async def _lookup(
        self, key: bytes, request: FindNode | None, *, on_found: Callable[[Contact, Found], None]
    ) -> LookupResult:
        """Drive a Lookup. Without a request it reads records, from another random place of the set at each replica."""
        router = self.protocol.router
        router.mark_used(key, now=self.loop.time())
        # More than k to start from: the nearest may all have died together.
        machine = Lookup(key, own_id=self.id, config=self.config, start=router.nearest(key, 4 * self.config.k))
        found_at: dict[Contact, Found] = {}
        wake = asyncio.Event()

        def finished(contact: Contact, future: asyncio.Future[Answer | None]) -> None:
            try:
                answer = future.result()
                self.protocol.settle(contact, answer)
                if not isinstance(answer, Found):
                    machine.failed(contact)
                elif machine.answered(contact, by=answer.node_id, contacts=answer.contacts):
                    found_at[contact] = answer
                    on_found(contact, answer)
            except Exception as exc:
                machine.failed(contact)  # whatever it answered: the lookup goes on without it
                self.protocol.counters["fault"] += 1
                fault("dht answer", exc)
            finally:
                wake.set()

        def late(contact: Contact) -> None:
            machine.late(contact)
            wake.set()

        while not machine.is_done:
            while (contact := machine.next_query()) is not None:
                question = request or FindValue(self._sender_id, Key(key), self.rng.randbytes(ID_BYTES))
                future = self.protocol.ask(contact.address, question, on_late=partial(late, contact))
                future.add_done_callback(partial(finished, contact))
            # An answer can be here already (too many requests under way): then there is nothing to wait for.
            if not wake.is_set():
                await wake.wait()
            wake.clear()
        holders = [(contact, found_at[contact]) for contact in machine.nearest_answered if contact in found_at]
        return LookupResult(holders, machine.queries)

    def _merge(self, result: ReadResult, key: Key, wires: Sequence[bytes]) -> bytes | None:
        """Verify and take in what one replica sent; its last peer id, to page on from."""
        now, last = self.clock(), None
        for wire in wires:
            try:
                signed = self.verifier.verify(wire, now=now)
                if key not in keys_of(signed.record):
                    raise RecordRejected(Refusal.WRONG_KEY)
            except RecordRejected as exc:
                self.protocol.counters[f"read_{exc.reason.name.lower()}"] += 1
                if len(result.refused) < self.store.limits.max_records_per_key:
                    result.refused.append((wire, exc.reason))
                continue
            last = signed.record.peer_id
            known = result.records.get(last)
            if known is None or known.record.version < signed.record.version:
                result.records[last] = signed
        return last

    async def _read_pages(
        self, result: ReadResult, key: Key, lookup: LookupResult, last_seen: dict[Contact, bytes]
    ) -> None:
        """Ask the holders of the largest sets for the rest, until nothing new comes."""
        holders = sorted(lookup.holders, key=lambda pair: -pair[1].total)[:_PAGED_HOLDERS]
        for contact, found in holders:
            last = last_seen.get(contact)
            for _ in range(_MAX_PAGES):
                if last is None or len(result.records) >= found.total:
                    break
                following = (int.from_bytes(last, "big") + 1) % (1 << 8 * ID_BYTES)
                question = FindValue(self._sender_id, key, following.to_bytes(ID_BYTES, "big"))
                answer = await self.protocol.ask_contact(contact, question)
                result.queries += 1
                last = self._merge(result, key, answer.wires) if isinstance(answer, Found) else None

    # --- stores

    async def _store_at(
        self,
        holders: Sequence[tuple[Contact, Found]],
        key: Key,
        wires: Sequence[bytes],
        result: WriteResult,
        *,
        handed: bool,
    ) -> None:
        batches = self._batches(wires)
        asked = [
            self.protocol.ask_contact(contact, Store(self._sender_id, key, found.token, handed, batch))
            for contact, found in holders
            for batch in batches
        ]
        result.queries += len(asked)
        for answer in await asyncio.gather(*asked):
            if not isinstance(answer, Stored):
                continue
            result.answers += 1
            if answer.newest_version <= 1000 * (self.clock() + _MAX_CLOCK_STEP):
                result.newest_version = max(result.newest_version, answer.newest_version)
            for code in answer.codes:
                if code == 0:
                    result.replicas += 1
                elif code in _REFUSALS:
                    result.refused[Refusal(code)] += 1

    def _store_here(self, key: Key, wires: Sequence[bytes], result: WriteResult, *, handed: bool) -> None:
        for wire in wires:
            refusal = self.store.put(key, wire, source="here", now=self.clock(), handed=handed)
            if refusal is None:
                result.replicas += 1
            else:
                result.refused[refusal] += 1

    def _batches(self, wires: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        batches: list[list[bytes]] = []
        room = 0
        for wire in wires:
            if not batches or len(wire) + 3 > room or len(batches[-1]) >= MAX_RECORDS_PER_MESSAGE:
                batches.append([])
                room = self.config.max_datagram_bytes - _STORE_OVERHEAD
            batches[-1].append(wire)
            room -= len(wire) + 3
        return [tuple(batch) for batch in batches]

    def _is_near(self, key: bytes, others: Sequence[Contact]) -> bool:
        """Whether this node is among the k nearest, going by the others' ids."""
        if self._sender_id is None:
            return False
        target = int.from_bytes(key, "big")
        own = int.from_bytes(self.id, "big") ^ target
        closer = sum(int.from_bytes(other.id, "big") ^ target < own for other in others)
        return closer < self.config.k

    # --- joining, and joining again

    async def join(self) -> bool:
        """Find the network from every known address; False if no node answers."""
        addresses = await self._resolved(self.bootstrap)
        others = [*self._remembered, *self._given_up, *self.remember()]
        self.rng.shuffle(others)
        addresses = list(dict.fromkeys([*addresses, *others[: 2 * self.config.k]]))
        answers = await asyncio.gather(*(self._greet(address) for address in addresses))
        if not any(answers):
            return False
        await self.find_nodes(self.id)
        await self._refresh_buckets()
        return True

    async def _greet(self, address: Address) -> Found | None:
        # find_node, not ping: the same cost, and it brings the first neighbours.
        answer = await self.protocol.ask(address, FindNode(self._sender_id, Key(self.id)))
        if not isinstance(answer, Found) or answer.node_id == self.id:
            return None
        self._given_up.pop(address, None)
        self.protocol.settle(Contact(answer.node_id, address), answer)
        return answer

    async def _try_address(self, address: Address) -> None:
        """Ask an address; when it knows none of our neighbours it is of another network, or we are new: join it."""
        known = self._known_addresses()
        answer = await self._greet(address)
        if answer is not None and not any(contact.address in known for contact in answer.contacts):
            await self.find_nodes(self.id)
            self.protocol.counters["networks_joined"] += 1

    async def _resolved(self, endpoints: Sequence[Address]) -> list[Address]:
        """Names are looked up at every attempt: an operator may have moved the machine."""
        resolved: list[Address] = []
        for host, port in endpoints:
            if is_ip_literal(host):
                resolved.append((host, port))
                continue
            try:
                infos = await self.loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
                resolved += [(str(info[4][0]), port) for info in infos]
            except OSError as exc:
                log.warning("bootstrap %s does not resolve: %s", host, exc)
        return resolved

    async def _keep_joined(self) -> None:
        """Join, and join again whenever everybody is gone; or find one's place after others found us."""
        delay = self.config.rejoin_min_delay
        is_placed = False
        while True:
            with border("dht upkeep"):
                if self.is_isolated:
                    if is_placed:
                        log.info("lost all DHT contacts, retrying")
                    is_placed = False
                    is_placed = self.knows_somebody and await self.join()
                    if is_placed:
                        log.info("joined the DHT")
                elif not is_placed:
                    await self.find_nodes(self.id)
                    await self._refresh_buckets()
                    is_placed = True
            delay = min(2 * delay, self.config.rejoin_max_delay) if self.is_isolated else self.config.rejoin_min_delay
            await asyncio.sleep(delay * self.rng.uniform(0.5, 1.5))

    # --- upkeep

    async def _probe(self) -> None:
        """Is the contact heard least recently still there? Is one that was given up back (a partition healed)?"""
        oldest = self.protocol.router.least_recently_heard()
        if oldest is not None and self.loop.time() - oldest.heard_at > self.config.probe_interval:
            await self.protocol.ask_contact(oldest.contact, FindNode(self._sender_id, Key(self.id)))
        known = self._known_addresses()
        lost = [address for address in (*self._given_up, *self._remembered, *self.bootstrap) if address not in known]
        if lost:
            for address in await self._resolved([self.rng.choice(lost)]):
                await self._try_address(address)

    async def _refresh(self) -> None:
        await self.find_nodes(self.id)
        await self._refresh_buckets()

    async def _refresh_buckets(self) -> None:
        since = self.loop.time() - self.config.bucket_refresh_interval
        for target in self.protocol.router.unused_targets(since=since, rng=self.rng):
            await self.find_nodes(target)

    async def _hand_off_unrefreshed(self) -> None:
        """Store records again that were not refreshed: other replicas may have died.

        Every replica would, at jittered times; the first one refreshes the others, as in the paper.
        """
        now = self.clock()
        waiting: dict[Key, list[bytes]] = {}
        for key, held in self.store.unrefreshed(older_than=now - self.config.handoff_interval, now=now):
            waiting.setdefault(key, []).append(held.wire)
        for key, unrefreshed in waiting.items():
            wires = unrefreshed[: self.config.max_handoffs]
            self.protocol.counters["handed_off"] += len(wires)
            await self.write(key, wires, handed=True)
            self._store_here(key, wires, WriteResult(), handed=True)  # refreshed here too, near to the key or not

    def _on_new_contact(self, contact: Contact) -> None:
        """Give a newcomer what belongs to it (kademlia's `welcome_if_new`, without hashing keys that are hashes)."""
        self._given_up.pop(contact.address, None)
        router = self.protocol.router
        for key in self.store.keys:
            neighbours = router.nearest(key, self.config.k, exclude=contact.id)
            target = int.from_bytes(key, "big")
            distance = int.from_bytes(contact.id, "big") ^ target
            is_near = len(neighbours) < self.config.k or distance < int.from_bytes(neighbours[-1].id, "big") ^ target
            if is_near and self._is_nearest(key, exclude=contact.id):
                self._spawn(self._hand_over(contact, key))

    async def _hand_over(self, contact: Contact, key: Key) -> None:
        question = FindValue(self._sender_id, key, bytes(ID_BYTES))
        answer = await self.protocol.ask_contact(contact, question)
        if not isinstance(answer, Found):
            return
        has = set(answer.wires)
        wires = [held.wire for held in self.store.records(key, now=self.clock()) if held.wire not in has]
        wires = wires[: self.config.max_handoffs]
        if wires:
            self.protocol.counters["handed_over"] += len(wires)
            await self._store_at([(contact, answer)], key, wires, WriteResult(), handed=True)

    def _is_nearest(self, key: Key, *, exclude: NodeId | None) -> bool:
        nearest = self.protocol.router.nearest(key, 1, exclude=exclude, only_sound=True)
        target = int.from_bytes(key, "big")
        own = int.from_bytes(self.id, "big") ^ target
        return not nearest or own < int.from_bytes(nearest[0].id, "big") ^ target

    def _on_given_up(self, contact: Contact) -> None:
        self._given_up[contact.address] = None
        if len(self._given_up) > self.config.max_given_up:
            self._given_up.popitem(last=False)

    def _known_addresses(self) -> set[Address]:
        return {contact.address for contact in self.contacts}

    async def _every(self, interval: float, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Jittered; otherwise a mesh started by one script would always ask at the same instant."""
        while True:
            await asyncio.sleep(interval * self.rng.uniform(0.75, 1.25))
            with border("dht upkeep"):
                await action()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self.is_closed or len(self._tasks) >= _MAX_TASKS:
            work.close()
            self.protocol.counters["too_many_tasks"] += not self.is_closed
            return
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = task.exception() if not task.cancelled() else None
        if isinstance(error, Exception):
            self.protocol.counters["fault"] += 1
            fault("dht upkeep", error)
