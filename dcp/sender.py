"""The sending side of one stream: the log, and a downlink for each child.

The owner answers `OpeningReceived` with `accept` or `refuse`, calls `publish` when it is a root, and pulls datagrams.
A router does not publish: its receiver writes into the same log.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable

from dcp import control, events, wire
from dcp.admission import HostBuckets, query_cost
from dcp.config import Config
from dcp.control import Reason
from dcp.errors import MalformedDatagram
from dcp.guard import fault, guard
from dcp.history import SLICE_PAUSE
from dcp.links.downlink import MAX_OUTBOX, Downlink
from dcp.links.link import Address
from dcp.log import Interest, Log
from dcp.openings import Tickets
from dcp.publish import PublishedStream
from dcp.queries import EVERYTHING
from dcp.stats import SenderStatistics

# Datagrams that one child may put out before the next one's turn comes: fair, and still a batch.
QUANTUM = 8


class Sender(PublishedStream):
    """Use through `Hub`, which finds the link that a datagram belongs to."""

    def __init__(
        self,
        stream: str,
        log: Log,
        config: Config,
        rng: random.Random,
        *,
        new_link_id: Callable[[], int],
        emit: Callable[[events.Event], None],
        send_open: Callable[[control.Opening, Address], None],
        stream_mode: bool = False,
    ) -> None:
        super().__init__(stream, log, stream_mode=stream_mode)
        self.upstream_query: bytes = EVERYTHING
        """The query under which this peer receives. A root has everything."""
        self.is_fed = True
        """Told to children: whether a root's packets reach us. An unfed parent does not count towards their n."""
        self.children: dict[int, Downlink] = {}
        self.wants_revision = 0
        """Rises whenever `wanted_queries` may have changed: its owner looks only then."""
        self._config = config
        self._rng = rng
        self._new_link_id = new_link_id
        self._emit = emit
        self._send_open = send_open
        self._by_nonce: dict[bytes, Downlink] = {}
        self._accepts: dict[int, tuple[bytes, bytes]] = {}  # link id -> (our nonce, reply): an accept can be repeated
        self._tickets = Tickets()
        self._queries = HostBuckets(config.max_queries_per_second, config.max_queries_per_host)
        # Children that may have something to send, in the order of their turns: most have nothing, most of the time.
        self._busy: dict[int, Downlink] = {}
        self._flushed_head = -1
        # Children that wait for the next slice of history, and when that is.
        self._paused: dict[int, Downlink] = {}
        self._slice_at: float | None = None
        self._goodbyes: deque[tuple[bytes, Address]] = deque(maxlen=1024)
        self._refused = 0
        self._silent = 0
        self._behind = 0
        self._stale_nacks = 0
        self._query_changes_refused = 0
        self._repairs_refused = 0
        self._past = [0, 0, 0, 0]  # packets, bytes, retransmitted, NACKs of children that have gone
        self.malformed = 0

    # --- opening ------------------------------------------------------------------------------------------------------

    def receive_request(self, request: control.Request, address: Address, now: float) -> None:
        """An opening whose cookie was right. Idempotent: the same nonce is the same link."""
        known = self._by_nonce.get(request.nonce)
        if known is not None:
            if known.address == address and not known.waiting:
                self._send_accept(known, request.clock)
            return
        if request.nonce in self._tickets:
            return
        if bool(request.mode & control.MODE_STREAM) != self.stream_mode:
            self._refuse(request, address, Reason.MODE_MISMATCH)
        elif request.mode & control.MODE_UNSEALED and self._config.sealed:
            self._refuse(request, address, Reason.MODE_MISMATCH, b"this sender wants sealed packets")
        elif self.stream_mode and request.query != EVERYTHING:
            self._refuse(request, address, Reason.MODE_MISMATCH, b"a byte stream has no query")
        elif len(self.children) >= self._config.max_links:
            self._refuse(request, address, Reason.FULL)
        elif len(request.query) > self._config.max_query_bytes:
            self._refuse(request, address, Reason.MODE_MISMATCH, b"query too long")
        elif request.query and not self._queries.allows(now, address[0], query_cost(request.query)):
            self._tickets.dropped += 1
        elif (ticket := self._tickets.add(request, address, now)) is not None:
            # The query has not been looked at yet: that may cost something, and most of those refused need no look.
            self._emit(events.OpeningReceived(self.stream, ticket, address, request.query, request.hello))

    def accept(self, ticket: int, reply: bytes = b"", *, now: float) -> int | None:
        """Take the child: its link id, or None when the ticket has run out, or its query is refused.

        Only now is the query parsed: a join that the owner refuses costs no parse.
        """
        taken = self._tickets.take(ticket)
        if taken is None:
            return None
        request = taken.request
        if (why := self._why_not(request.query)) is not None:
            self._refuse(request, taken.address, Reason.MODE_MISMATCH, why.encode()[:512])
            return None
        link = Downlink(self._new_link_id(), taken.address, self.log, self._config, request, now=now)
        nonce = self._rng.randbytes(control.NONCE_BYTES)
        if not request.mode & control.MODE_UNSEALED:
            link.bind(request.nonce, nonce, is_child=False)
        self.children[link.id] = link
        self.wants_revision += 1
        self._by_nonce[request.nonce] = link
        self._accepts[link.id] = (nonce, reply)
        self._try_accept(link, now, clock=request.clock)
        return link.id if link.id in self.children else None

    def refuse(self, ticket: int, reason: int, body: bytes = b"") -> None:
        taken = self._tickets.take(ticket)
        if taken is not None:
            self._refuse(taken.request, taken.address, reason, body)

    def _why_not(self, query: bytes) -> str | None:
        """What the owner's policy has against a query from the network; None: nothing."""
        if query == EVERYTHING:
            return None
        try:
            return self.log.policy.check(query)
        except Exception as error:
            fault("query", error)
            return "this query can't be checked"

    def _open_interest(self, link: Downlink, query: bytes) -> Interest | None:
        """None when the policy can't evaluate the query after all: then the link is closed."""
        try:
            return self.log.open_interest(query)
        except Exception as error:
            fault("query", error)
            self.close(link.id, Reason.MODE_MISMATCH, b"this query can't be evaluated")
            return None

    def _refuse(self, request: control.Request, address: Address, reason: int, body: bytes = b"") -> None:
        self._refused += 1
        self._send_open(control.Refuse(request.nonce, reason, body), address)

    def _carries(self, query: bytes) -> bool:
        return self.log.covers(self.upstream_query, query)

    def _try_accept(self, link: Downlink, now: float, clock: int = 0) -> None:
        """Answer the child once our own query brings what it wants."""
        if not self._carries(link.query):
            self._emit(events.WiderQueryWanted(self.stream, link.id, link.query))
            return
        interest = self._open_interest(link, link.query)
        if interest is not None:
            link.waiting = False
            link.interest = interest
            self._send_accept(link, clock)

    def _send_accept(self, link: Downlink, clock: int) -> None:
        nonce, reply = self._accepts[link.id]
        start = link.proposed_start()
        status = control.ACCEPT_FED if self.is_fed else 0
        if start is not None:
            status |= control.ACCEPT_STARTED
        self._send_open(
            control.Accept(
                link.child_nonce, link.id, nonce, link.epoch, start or 0, self.log.head, clock, status, reply
            ),
            link.address,
        )

    # --- datagrams ----------------------------------------------------------------------------------------------------

    def receive(self, link: Downlink, flags: int, data: bytes, now: float) -> None:
        """A packet from a child whose seal is right. Raises MalformedDatagram only."""
        link.heard_at = now
        link.reset_at = None
        self._busy[link.id] = link
        body = data[wire.BODY_AT :]
        if flags & wire.NACK:
            nack = control.decode_nack_untrusted(body)
            self._on_nack(link, nack, flags, now)
        elif flags & wire.ACK:
            ack = control.decode_acknowledgment_untrusted(body)
            link.hear_times(ack.times, now)
            if not link.waiting and self._confirm(link, ack, now):
                link.acknowledge(ack.position, wire.HEADER.unpack_from(data)[4], ack.room, now)
                if flags & wire.ACK_REQUEST:
                    link.handle_probe(now)
        elif flags & wire.CLOSE:
            reason, text = control.decode_close_untrusted(body)
            self._drop(link, reason, text)
        elif flags & wire.CONTROL:
            message = control.decode_control_untrusted(body)
            if isinstance(message, control.Prepare):
                self._on_prepare(link, message, now)
            elif isinstance(message, control.Message):
                self._emit(events.MessageReceived(self.stream, link.id, message.data))
            else:
                raise MalformedDatagram("type", "not for a sender")
        else:
            raise MalformedDatagram("type", "not for a sender")

    def _on_nack(self, link: Downlink, nack: control.Nack, flags: int, now: float) -> None:
        link.hear_times(nack.ack.times, now)
        if link.waiting or not self._confirm(link, nack.ack, now):
            return
        link.window.room = nack.ack.room
        if link.floor is not None and nack.ack.position < link.floor:
            self._stale_nacks += 1
            return
        link.acknowledge(nack.ack.position, 0, nack.ack.room, now)
        link.request_repair(nack.ack.position, nack.highest, nack.missing, nack.pieces, now)
        if flags & wire.ACK_REQUEST:
            link.handle_probe(now)

    def _confirm(self, link: Downlink, ack: control.Acknowledgment, now: float) -> bool:
        """Whether the child speaks of its present epoch, and of a position in it.

        A prepared epoch commits; the first position confirms the start.
        """
        if ack.epoch == link.pending_epoch and link.prepared and link.pending_interest is not None:
            if link.interest is not None:
                self.log.close_interest(link.interest)
            link.interest = link.pending_interest
            link.query = link.pending_query
            self.wants_revision += 1
            link.epoch = ack.epoch
            link.pending_epoch = None
            link.pending_interest = None
            link.prepared = False
            if link.floor is not None and ack.position != control.NO_POSITION:
                link.reposition(ack.position)
        if ack.epoch != link.epoch:
            if ack.epoch > link.epoch:
                self.close(link.id, Reason.RESET)  # an epoch that was never prepared: never silence
            return False
        if ack.position == control.NO_POSITION:
            return False
        if link.floor is None:
            link.reposition(ack.position)
            self._emit(events.ChildOpened(self.stream, link.id, link.address))
        return True

    def _on_prepare(self, link: Downlink, prepare: control.Prepare, now: float) -> None:
        if link.waiting or len(prepare.query) > self._config.max_query_bytes:
            return
        if prepare.epoch == link.epoch:
            self._send_prepared(link, prepare.epoch, link.query)
            return
        if prepare.epoch < link.epoch or (link.pending_epoch is not None and prepare.epoch < link.pending_epoch):
            return
        if prepare.epoch != link.pending_epoch:
            if not link.query_changes.allows(now, query_cost(prepare.query)):
                self._query_changes_refused += 1  # it says so again, a little later
                return
            if self._why_not(prepare.query) is not None:
                self.close(link.id, Reason.MODE_MISMATCH, b"not a query")
                return
            self._drop_pending(link)
            link.pending_epoch = prepare.epoch
            link.pending_query = prepare.query
            self.wants_revision += 1
            link.prepared = False
            if not self._carries(prepare.query):
                self._emit(events.WiderQueryWanted(self.stream, link.id, prepare.query))
        self._try_prepare(link, again=True)

    def _try_prepare(self, link: Downlink, *, again: bool = False) -> None:
        if link.pending_epoch is None or not self._carries(link.pending_query):
            return
        if not link.prepared:
            link.pending_interest = self._open_interest(link, link.pending_query)
            if link.pending_interest is None:
                return
            link.prepared = True
        elif not again:
            return
        self._send_prepared(link, link.pending_epoch, link.pending_query)

    def _send_prepared(self, link: Downlink, epoch: int, query: bytes) -> None:
        body = control.encode_prepared(control.Prepared(epoch, self.log.covered_since(query)))
        self._post(link, link.encode(wire.CONTROL, 0, 0, body))

    def upstream_changed(self, query: bytes, now: float) -> None:
        """Our own query has been switched: who waited for it can be answered."""
        self.upstream_query = query
        for link in list(self.children.values()):
            if link.waiting:
                self._try_accept(link, now)
            else:
                self._try_prepare(link)

    def wanted_queries(self) -> list[bytes]:
        """What the children want now, and what they are about to: the owner asks upstream for no less."""
        found = []
        for link in self.children.values():
            found.append(link.query)
            if link.pending_epoch is not None:
                found.append(link.pending_query)
        return found

    # --- closing ------------------------------------------------------------------------------------------------------

    def send_message(self, link_id: int, data: bytes) -> bool:
        link = self.children.get(link_id)
        return link is not None and self._post(link, link.encode(wire.CONTROL, 0, 0, control.encode_message(data)))

    def close(self, link_id: int, reason: int, body: bytes = b"") -> None:
        link = self.children.get(link_id)
        if link is not None:
            goodbye = link.say_goodbye(reason, body)
            # Best effort: three copies, since there is nobody left to ask for a lost one.
            for _ in range(3):
                self._goodbyes.append((goodbye, link.address))
            self._drop(link, reason, body)

    def close_all(self, reason: int, body: bytes = b"") -> None:
        for link_id in list(self.children):
            self.close(link_id, reason, body)

    def _drop(self, link: Downlink, reason: int, body: bytes) -> None:
        if self.children.pop(link.id, None) is None:
            return
        del self._by_nonce[link.child_nonce]
        del self._accepts[link.id]
        self._past = [past + more for past, more in zip(self._past, link.counts(), strict=True)]
        self.wants_revision += 1
        self._repairs_refused += link.repair_budget.refused
        self._busy.pop(link.id, None)
        self._paused.pop(link.id, None)
        if link.interest is not None:
            self.log.close_interest(link.interest)
            link.interest = None
        self._drop_pending(link)
        self._emit(events.ChildLost(self.stream, link.id, link.address, reason, body))

    def _drop_pending(self, link: Downlink) -> None:
        if link.pending_interest is not None:
            self.log.close_interest(link.pending_interest)
            link.pending_interest = None

    def receive_reset(self, link: Downlink, now: float) -> None:
        """Somebody says that the child does not know this link: ask, and close it if nothing valid comes."""
        if link.floor is None:
            self._drop(link, Reason.RESET, b"")
        elif link.reset_at is None:
            link.reset_at = now + 3 * link.rtt.timeout(self._config.min_rto, self._config.max_rto)
            link.handle_probe(now)
            self._busy[link.id] = link

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        for ticket in self._tickets.older_than(now - self._config.open_timeout):
            self.refuse(ticket, Reason.TIMED_OUT)
        if self._slice_at is not None and now >= self._slice_at:
            self._go_on_with_history()
        for link in list(self.children.values()):
            try:
                self._look_after(link, now)
            except Exception as error:
                self._end_faulty(link)
                fault("timer", error)

    def _look_after(self, link: Downlink, now: float) -> None:
        """The timers of one child."""
        config = self._config
        if link.reset_at is not None and now >= link.reset_at:
            self._drop(link, Reason.RESET, b"")
        elif self._is_unconfirmed(link) and now - link.opened_at > config.confirm_timeout:
            self.close(link.id, Reason.TIMED_OUT)
        elif now - link.heard_at > config.dead_after:
            self._silent += 1
            self.close(link.id, Reason.SILENT)
        elif self._is_behind(link, now):
            self._behind += 1
            self.close(link.id, Reason.BEHIND)
        else:
            link.fed = self.is_fed
            link.handle_timeout(now)
            if link.outbox or link.is_catching_up:
                self._busy[link.id] = link

    def _end_faulty(self, link: Downlink) -> None:
        """Something went wrong that nobody expected: this child has to come again, and the others go on."""
        with guard("close"):
            self.close(link.id, Reason.RESET)

    def _go_on_with_history(self) -> None:
        """A new turn: one more slice of history for all children that wait for it, another one first each time."""
        self._slice_at = None
        self.log.history.refill()
        paused, self._paused = list(self._paused.items()), {}
        first = self.log.history.slices % len(paused) if paused else 0
        self._busy.update(paused[first:] + paused[:first])

    def _is_unconfirmed(self, link: Downlink) -> bool:
        """Whether the child owes us a word. One that was here before the stream began has nothing to confirm yet."""
        return link.floor is None and (link.waiting or (self.log.started and not link.came_early))

    def _is_behind(self, link: Downlink, now: float) -> bool:
        """Whether the child has stayed in the older half of a full log too long, with no gain on the head."""
        log = self.log
        if not log.evicted or link.floor is None:
            return False
        lag = log.next_ordinal - log.ordinal_after(link.acked)
        if lag <= len(log) // 2:
            link.behind_since = None
            return False
        if link.behind_since is None or lag < link.behind_least:
            link.behind_since = now
            link.behind_least = lag
        return now - link.behind_since > self._config.behind_after

    def next_timeout(self, now: float) -> float | None:
        config = self._config
        at = math.inf
        for link in self.children.values():
            at = min(at, link.heard_at + config.dead_after)
            if (due := link.next_timeout(now)) is not None and due < at:
                at = due
            if link.reset_at is not None and link.reset_at < at:
                at = link.reset_at
            if link.floor is None and self._is_unconfirmed(link):
                at = min(at, link.opened_at + config.confirm_timeout)
            if link.behind_since is not None:
                at = min(at, link.behind_since + config.behind_after)
        if (asked_at := self._tickets.oldest_at()) is not None:
            at = min(at, asked_at + config.open_timeout + 1e-3)
        if self._paused:
            if self._slice_at is None:  # the pause counts from the end of the turn
                self._slice_at = now + SLICE_PAUSE
            at = min(at, self._slice_at)
        return None if at == math.inf else at

    def next_datagrams(self, now: float, most: int) -> list[tuple[bytes, Address]]:
        """Up to `most` datagrams, each child's turn after the other's."""
        out: list[tuple[bytes, Address]] = []
        while self._goodbyes and len(out) < most:
            out.append(self._goodbyes.popleft())
        busy = self._busy
        if self.log.head != self._flushed_head:
            self._flushed_head = self.log.head
            busy.update(self.children)
        while busy and len(out) < most:
            link_id, link = next(iter(busy.items()))
            del busy[link_id]
            try:
                self._take_turn(link, now, min(QUANTUM, most - len(out)), out)
            except Exception as error:
                self._end_faulty(link)
                fault("send", error)
        return out

    def _take_turn(self, link: Downlink, now: float, most: int, out: list[tuple[bytes, Address]]) -> None:
        for _ in range(most):
            datagram = link.next_datagram(now)
            if datagram is None:
                if link.paused:
                    self._paused[link.id] = link
                return
            out.append((datagram, link.address))
        self._busy[link.id] = link  # to the end of the line

    def _post(self, link: Downlink, datagram: bytes) -> bool:
        if len(link.outbox) >= MAX_OUTBOX:
            return False
        link.outbox.append(datagram)
        self._busy[link.id] = link
        return True

    # --- looking ------------------------------------------------------------------------------------------------------

    def statistics(self, now: float) -> SenderStatistics:
        log = self.log
        totals = [
            sum(each) for each in zip(self._past, *(link.counts() for link in self.children.values()), strict=True)
        ]
        return SenderStatistics(
            low=log.low,
            head=log.head,
            log_packets=len(log),
            log_bytes=log.bytes,
            evicted=log.evicted,
            packets=totals[0],
            bytes=totals[1],
            retransmitted=totals[2],
            nacks=totals[3],
            refused=self._refused,
            disconnected_silent=self._silent,
            disconnected_behind=self._behind,
            stale_nacks=self._stale_nacks,
            repairs_refused=self._repairs_refused + sum(k.repair_budget.refused for k in self.children.values()),
            query_changes_refused=self._query_changes_refused,
            openings_dropped=self._tickets.dropped,
            unrouted=log.unrouted,
            history_slices=log.history.slices,
            malformed=self.malformed,
            links=tuple(link.statistics(now) for link in self.children.values()),
        )
