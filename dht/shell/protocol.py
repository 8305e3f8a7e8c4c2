"""kademlia's protocol object with our own inside: guarded decoding, bounded state, adaptive timeouts, a retry.

What stays of kademlia: the framing, the RPC names, the table behind `router`, and that a transport with `sendto` below
and `datagram_received` above is all it needs. Nothing in here raises for anything that arrives.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kademlia.node import Node as KademliaNode
from kademlia.protocol import KademliaProtocol

from dht.addresses import canonical, neighbour_group, source_group
from dht.errors import Refusal
from dht.faults import border, fault
from dht.ratelimit import SourceLimiter
from dht.routing import ContactTable
from dht.rtt import Timeouts
from dht.wire import (
    ANSWER,
    HEADER_BYTES,
    MESSAGE_ID_BYTES,
    REQUEST,
    TOKEN_BYTES,
    Answer,
    Contact,
    FindNode,
    FindValue,
    Found,
    MalformedMessage,
    Ping,
    Request,
    Store,
    Stored,
    decode_answer_untrusted,
    decode_request_untrusted,
    encode_answer,
    encode_contact,
    encode_request,
)

if TYPE_CHECKING:
    from dht.config import NodeConfig
    from dht.ids import NodeId
    from dht.keys import Key
    from dht.record import Address
    from dht.storage import RecordStore


class Transport(Protocol):
    """What carries datagrams out. `sendto` must not raise and must not block."""

    def sendto(self, data: bytes, addr: Address) -> None: ...


@dataclass(slots=True)
class _Outstanding:
    """A request that waits for its answer."""

    kind: type[Request]
    address: Address
    datagram: bytes
    future: asyncio.Future[Answer | None]
    on_late: Callable[[], None] | None
    timer: asyncio.TimerHandle
    sent_at: float
    wait: float
    due_at: float
    is_retry: bool = False
    is_extended: bool = False


class NodeProtocol(KademliaProtocol):  # type: ignore[misc]  # kademlia has no types
    """Requests out with `ask`, everything in with `datagram_received`."""

    def __init__(
        self,
        node_id: NodeId,
        store: RecordStore,
        *,
        transport: Transport,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        rng: random.Random,
        config: NodeConfig,
        read_only: bool = False,
    ) -> None:
        super().__init__(KademliaNode(node_id), store, config.k)
        self.router = ContactTable(node_id, config)
        self.transport = transport
        self.counters: Counter[str] = Counter()  # what was dropped and why, and what was done
        self.largest_sent = 0
        self.last_answer_at = float("-inf")
        self._id = node_id
        self._sender_id = None if read_only else node_id
        self._store = store
        self._loop, self._clock, self._rng, self._config = loop, clock, rng, config
        self._outstanding: dict[bytes, _Outstanding] = {}
        self._limiter = SourceLimiter(
            rate=config.request_rate, burst=config.request_burst, max_sources=config.max_sources
        )
        self._timeouts = Timeouts(config)
        self._checking: set[Contact] = set()
        self._checked_at: OrderedDict[Contact, float] = OrderedDict()
        self._secret = rng.randbytes(16)
        self._observed: OrderedDict[str, Address] = OrderedDict()  # who -> what address they saw us at
        self.on_new_contact: Callable[[Contact], None] = lambda contact: None
        self.on_given_up: Callable[[Contact], None] = lambda contact: None

    def __getattr__(self, name: str) -> Any:
        """rpcudp turns every unknown name into a remote call; a typing error should be an error."""
        raise AttributeError(name)

    # --- out

    def ask(
        self, address: Address, request: Request, *, on_late: Callable[[], None] | None = None
    ) -> asyncio.Future[Answer | None]:
        """Send a request. The future brings the answer, or None after one retry. `on_late` is called at the retry."""
        future: asyncio.Future[Answer | None] = self._loop.create_future()
        if len(self._outstanding) >= self._config.max_outstanding:
            self.counters["too_many_outstanding"] += 1
            future.set_result(None)
            return future
        message_id = self._rng.randbytes(MESSAGE_ID_BYTES)
        padded_to = -(-self._config.max_datagram_bytes // self._config.max_reply_ratio)
        datagram = encode_request(message_id, request, padded_to=padded_to)
        wait = self._timeouts.first_wait(address)
        now = self._loop.time()
        timer = self._loop.call_at(now + wait, self._on_timeout, message_id)
        self._outstanding[message_id] = _Outstanding(
            type(request), address, datagram, future, on_late, timer, sent_at=now, wait=wait, due_at=now + wait
        )
        self.counters[f"asked_{type(request).__name__}"] += 1
        self._send(datagram, address)
        return future

    async def ask_contact(
        self, contact: Contact, request: Request, *, on_late: Callable[[], None] | None = None
    ) -> Answer | None:
        """`ask`, and report the outcome to the table. Also None if another node answers there."""
        answer = await self.ask(contact.address, request, on_late=on_late)
        self.settle(contact, answer)
        return answer if answer is not None and answer.node_id == contact.id else None

    def settle(self, contact: Contact, answer: Answer | None) -> None:
        """Enter into the table what a finished request showed."""
        if answer is None:
            if self.router.missed(contact):
                self.on_given_up(contact)
            return
        if answer.node_id != contact.id:
            self.counters["other_id_answered"] += 1
            self.router.missed(contact)
        answered_by = Contact(answer.node_id, contact.address)
        if self.router.heard(answered_by, now=self._loop.time()):
            self.on_new_contact(answered_by)

    def close(self) -> None:
        """Forget every request under way; their futures end with None."""
        for waiting in self._outstanding.values():
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_result(None)
        self._outstanding.clear()

    def observed_addresses(self) -> list[Address]:
        """The addresses at which others see us, the commonest first, one voice a source."""
        return [address for address, _ in Counter(self._observed.values()).most_common()]

    def _send(self, datagram: bytes, address: Address) -> None:
        self.largest_sent = max(self.largest_sent, len(datagram))
        self.transport.sendto(datagram, address)

    def _on_timeout(self, message_id: bytes) -> None:
        waiting = self._outstanding.get(message_id)
        if waiting is None:
            return
        now = self._loop.time()
        if now - waiting.due_at > _LOOP_LAG and not waiting.is_extended:
            # This timer fires late: we were busy, and the answer may lie unread in the socket.
            waiting.is_extended = True
            waiting.due_at = now + waiting.wait
            waiting.timer = self._loop.call_at(waiting.due_at, self._on_timeout, message_id)
            self.counters["loop_lagged"] += 1
            return
        if not waiting.is_retry:
            waiting.is_retry = True
            waiting.is_extended = False
            waiting.due_at = now + 2 * waiting.wait
            waiting.timer = self._loop.call_at(waiting.due_at, self._on_timeout, message_id)
            self.counters["retried"] += 1
            self._send(waiting.datagram, waiting.address)
            if waiting.on_late is not None:
                waiting.on_late()
            return
        del self._outstanding[message_id]
        self.counters["unanswered"] += 1
        if not waiting.future.done():
            waiting.future.set_result(None)

    # --- in

    def datagram_received(
        self, data: bytes, addr: Any, *, reply: Callable[[bytes], None] | None = None, own_port: int | None = None
    ) -> None:
        """Any bytes from anywhere. Never raises, never waits, and logs only what is a bug, once.

        `reply`: it came over a connection, which is the only way back to its sender. `own_port`: our port, when the one
        that an answer names is that of a connection.
        """
        try:
            address = canonical(addr)
        except (ValueError, IndexError, TypeError, AttributeError):
            self.counters["bad_address"] += 1  # a sender that is no IP address
            return
        try:
            self._receive(bytes(data), address, reply, own_port)
        except MalformedMessage as exc:
            self.counters[exc.args[0]] += 1
        except Exception as exc:
            self.counters["fault"] += 1
            fault("dht datagram", exc)

    def _receive(
        self, datagram: bytes, address: Address, reply: Callable[[bytes], None] | None, own_port: int | None
    ) -> None:
        if len(datagram) > self._config.max_datagram_bytes:
            raise MalformedMessage("oversized")
        if len(datagram) <= HEADER_BYTES:
            raise MalformedMessage("short")
        if datagram[0] == REQUEST:
            source, now = source_group(address), self._loop.time()
            if not self._limiter.allows(source, now=now):
                raise MalformedMessage("rate_limited")
            message_id, request = decode_request_untrusted(datagram)
            # Each record costs a check of its signature: a datagram with eight of them is not one request.
            if isinstance(request, Store) and not self._limiter.allows(source, now=now, cost=len(request.wires)):
                raise MalformedMessage("store_rate_limited")
            self._accept(message_id, request, address, len(datagram), reply)
        elif datagram[0] == ANSWER:
            self._take_answer(datagram, address, own_port)
        else:
            raise MalformedMessage("not_ours")

    def _take_answer(self, datagram: bytes, address: Address, own_port: int | None) -> None:
        message_id = datagram[1:HEADER_BYTES]
        waiting = self._outstanding.get(message_id)
        if waiting is None:
            raise MalformedMessage("unsolicited")
        if waiting.address != address:
            raise MalformedMessage("wrong_source")
        answer = decode_answer_untrusted(datagram, kind=waiting.kind)
        del self._outstanding[message_id]
        waiting.timer.cancel()
        now = self._loop.time()
        self._timeouts.learn(address, now - waiting.sent_at)
        self.last_answer_at = now
        self.counters["answered"] += 1
        if isinstance(answer, Found) and answer.observed is not None:
            group = source_group(address)
            self._observed.pop(group, None)
            self._observed[group] = answer.observed if own_port is None else (answer.observed[0], own_port)
            if len(self._observed) > self._config.k:
                self._observed.popitem(last=False)
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _accept(
        self,
        message_id: bytes,
        request: Request,
        address: Address,
        request_bytes: int,
        reply_over: Callable[[bytes], None] | None,
    ) -> None:
        self.counters["served"] += 1
        limit = min(self._config.max_datagram_bytes, self._config.max_reply_ratio * request_bytes)
        match request:
            case Ping():
                answer: Answer = self.rpc_ping(address)
            case FindNode(key=key):
                answer = self.rpc_find_node(address, request.node_id, key, limit)
            case FindValue(key=key, start=start):
                answer = self.rpc_find_value(address, request.node_id, key, start, limit)
            case Store():
                answer = self.rpc_store(address, request)
        reply = encode_answer(message_id, answer, kind=type(request))
        if len(reply) > limit:
            self.counters["reply_too_large"] += 1
        elif reply_over is not None:
            self.counters["answered_over_connection"] += 1
            reply_over(reply)
        else:
            self._send(reply, address)
        if request.node_id is not None and reply_over is None:
            self.welcome_if_new(Contact(request.node_id, address))

    # --- the four calls; kademlia's names, our arguments

    def rpc_ping(self, sender: Address) -> Found:
        return Found(self._id, observed=sender)

    def rpc_find_node(self, sender: Address, node_id: NodeId | None, key: bytes, limit: int) -> Found:
        contacts = self._neighbours(key, node_id, limit - _FOUND_OVERHEAD)
        return Found(self._id, sender, self._token(sender), contacts)

    def rpc_find_value(self, sender: Address, node_id: NodeId | None, key: Key, start: bytes, limit: int) -> Found:
        budget = limit - _FOUND_OVERHEAD
        contacts = self._neighbours(key, node_id, budget)
        budget -= sum(len(encode_contact(contact)) + 2 for contact in contacts)
        page = self._store.page(key, start=start, budget=budget, now=self._clock())
        return Found(self._id, sender, self._token(sender), contacts, page.total, page.is_full, page.wires)

    def rpc_store(self, sender: Address, request: Store) -> Stored:
        if not self._is_token(request.token, sender):
            self._store.refused[Refusal.BAD_TOKEN] += len(request.wires)
            return Stored(self._id, bytes([Refusal.BAD_TOKEN]) * len(request.wires), 0)
        now, source = self._clock(), source_group(sender)
        codes, newest = [], 0
        for wire in request.wires:
            refusal = self._store.put(request.key, wire, source=source, now=now, handed=request.handed)
            codes.append(refusal or 0)
            if refusal is Refusal.STALE:
                peer_id = self._store.verifier.verify(wire, now=now).record.peer_id
                newest = max(newest, self._store.version_held(request.key, peer_id))
        return Stored(self._id, bytes(codes), newest)

    def welcome_if_new(self, contact: Contact) -> None:
        """Somebody asked us something. It enters the table only after it answers a ping: a source can be forged."""
        now = self._loop.time()
        if (
            contact in self._checking
            or len(self._checking) >= self._config.k
            or now - self._checked_at.get(contact, float("-inf")) < self._config.recheck_interval
            or not self.router.has_room_for(contact)
        ):
            return
        self._checking.add(contact)
        self._checked_at.pop(contact, None)
        self._checked_at[contact] = now
        if len(self._checked_at) > self._config.max_sources:
            self._checked_at.popitem(last=False)
        future = self.ask(contact.address, Ping(self._sender_id))
        future.add_done_callback(partial(self._on_checked, contact))

    def _on_checked(self, contact: Contact, done: asyncio.Future[Answer | None]) -> None:
        self._checking.discard(contact)
        answer = done.result() if not done.cancelled() else None
        if answer is not None:
            with border("dht contact"):
                self.settle(contact, answer)

    def _neighbours(self, key: bytes, asker: NodeId | None, budget: int) -> tuple[Contact, ...]:
        """The nearest known nodes, few of one source unless there are no others: sybils must not fill a reply."""
        most = self._config.max_contacts_per_reply
        nearest = self.router.nearest(key, 4 * most, exclude=asker, only_sound=True)
        of_source: Counter[str] = Counter()
        first: list[Contact] = []
        surplus: list[Contact] = []
        for contact in nearest:
            group = neighbour_group(contact.address)
            of_source[group] += 1
            (first if of_source[group] <= self._config.max_per_source_in_lookup else surplus).append(contact)
        chosen = []
        for contact in (first + surplus)[:most]:
            budget -= len(encode_contact(contact)) + 2
            if budget < 0:
                break
            chosen.append(contact)
        return tuple(chosen)

    # --- tokens: a store must come from an address that received an answer of ours shortly before

    def _token(self, address: Address, *, age: int = 0) -> bytes:
        period = int(self._loop.time() / self._config.token_lifetime) - age
        message = f"{period} {address[0]} {address[1]}".encode()
        return hmac.digest(self._secret, message, hashlib.sha256)[:TOKEN_BYTES]

    def _is_token(self, token: bytes, address: Address) -> bool:
        return any(hmac.compare_digest(token, self._token(address, age=age)) for age in (0, 1))


_LOOP_LAG = 0.02  # a timer this late was held up by something else than the network
# Header, two ids and addresses, token, total, lengths: what an answer to a find costs before contacts and records.
_FOUND_OVERHEAD = HEADER_BYTES + 1 + 22 + 20 + 10 + 3 + 9 + 1 + 3
