"""The sending side of one stream: the log, and a link to each child.

The owner answers `OpeningReceived` with `accept` or `refuse`, calls `publish` when it is a root, and pulls datagrams.
A router does not publish: its receiver writes into the same log.

What is true for a child (`child`, `preparing`) is apart from how it reaches the child (`links.downlink`), and that from
how links are opened (`links.answering`). Here they meet, with the children's turns and timers.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable

from dcp import control, events, handshake, protection, query_parts, wire
from dcp.child import PREVIOUS_QUERY_SECONDS, Child
from dcp.config import Config
from dcp.control import Reason
from dcp.errors import MalformedDatagram
from dcp.group_messages import decode_heard_untrusted
from dcp.groups import Groups
from dcp.guard import fault, guard
from dcp.history import SLICE_PAUSE
from dcp.kinds import PACKETS, StreamKind
from dcp.links.answering import Answering
from dcp.links.downlink import CARRIED, Downlink
from dcp.links.keying import Keying
from dcp.links.link import SocketAddress
from dcp.log import Log
from dcp.preparing import QueryService
from dcp.publish import PublishedStream
from dcp.stats import SenderStatistics

# Datagrams that one child may put out before the next one's turn comes: fair, and still a batch.
QUANTUM = 8
MIN_CHILDREN_DEADLINE = 0.05
"""Seconds. Children that want the newest only are not served better by a router that never asks again."""
_PROTECT = bytes((control.ControlType.PROTECT,))
_HEARD = bytes((control.ControlType.HEARD,))
_PART = bytes((control.ControlType.PART,))


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
        send_open: Callable[[handshake.Opening, SocketAddress], None],
        keying: Keying,
        kind: StreamKind = PACKETS,
    ) -> None:
        super().__init__(stream, log, kind)
        self.links: dict[int, Downlink] = {}
        self.children: dict[int, Child] = {}
        self._config = config
        self._emit = emit
        self._answering = Answering(
            stream, log, kind, config, rng, new_link_id=new_link_id, emit=emit, send_open=send_open, keying=keying
        )
        self._queries = QueryService(
            stream, log, config, emit=emit, post=self._post, close=self.close, allows=self._answering.allows_query
        )
        # Children that may have something to send, in the order of their turns: most have nothing, most of the time.
        self._busy: dict[int, Downlink] = {}
        self._flushed_head = -1
        # Children that wait for the next slice of history, and when that is.
        self._paused: dict[int, Downlink] = {}
        self._slice_at: float | None = None
        self._goodbyes: deque[tuple[bytes, SocketAddress]] = deque(maxlen=1024)
        self._silent = 0
        self._behind = 0
        self._stale_nacks = 0
        self._repairs_refused = 0
        self._indexes_refused = 0
        self._corrections_dropped = 0
        self._past = [0, 0, 0, 0]  # packets, bytes, retransmitted, NACKs of children that have gone
        self.malformed = 0
        self.groups = Groups(config, rng) if config.multicast and not kind.is_dense else None
        """Multicast groups of children; None where they are off."""

    # --- opening ------------------------------------------------------------------------------------------------------

    def receive_request(self, request: handshake.OpenRequest, address: SocketAddress, now: float) -> None:
        """An opening whose cookie was right. Idempotent: the same nonce is the same link."""
        self._answering.receive_request(request, address, children=len(self.links), now=now)

    def accept(self, ticket: int, reply: bytes = b"", *, now: float, is_restricted: bool = False) -> int | None:
        """Take the child: its link id, or None when the ticket has run out, or its query is refused.

        Only now is the query parsed: a join that the owner refuses costs no parse. A restricted child gets nothing that
        the log withholds.
        """
        taken = self._answering.tickets.take(ticket)
        if taken is None:
            return None
        request = taken.request
        if (why := self._queries.why_not(request.query)) is not None:
            self._answering.refuse(request, taken.address, Reason.MODE_MISMATCH, why.encode()[:512])
            return None
        try:
            link = self._answering.open_link(request, taken.address, reply, now=now)
        except MalformedDatagram as error:
            self._answering.refuse(request, taken.address, Reason.ENCRYPTION, str(error).encode())
            return None
        link.child.is_restricted = is_restricted
        self.links[link.id] = link
        self.children[link.id] = link.child
        self._queries.revision += 1
        self._try_accept(link, clock=request.clock)
        return link.id if link.id in self.links else None

    def refuse(self, ticket: int, reason: int, body: bytes = b"") -> None:
        taken = self._answering.tickets.take(ticket)
        if taken is not None:
            self._answering.refuse(taken.request, taken.address, reason, body)

    def _try_accept(self, link: Downlink, clock: int = 0) -> None:
        """Answer the child once our own query brings what it wants."""
        if self._queries.try_admit(link):
            self._answering.send_accept(link, clock)

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def upstream_query(self) -> bytes:
        """The query under which this peer receives. A root has everything."""
        return self._queries.upstream_query

    @upstream_query.setter
    def upstream_query(self, query: bytes) -> None:
        self._queries.upstream_query = query

    @property
    def wants_revision(self) -> int:
        """Rises whenever `wanted_queries` may have changed: its owner looks only then."""
        return self._queries.revision

    def upstream_changed(self, query: bytes, now: float) -> None:
        """Our own query has been switched: children that waited for it can be answered."""
        self.upstream_query = query
        for link in list(self.links.values()):
            if link.child.waiting:
                self._try_accept(link)
            else:
                self._queries.try_prepare(link)

    def wanted_queries(self) -> list[bytes]:
        """What the children want now, and what they are about to: the owner asks upstream for no less."""
        found = []
        for child in self.children.values():
            found.append(child.query)
            found += [wish.query for wish in child.unheard]
            if child.pending is not None:
                found.append(child.pending.query)
        return found

    def wanted_deadline(self) -> float | None:
        """After how long we may give up a packet for our children; None: one of them waits for everything.

        What a router gives up is lost for all its children: the one that bears the least loss decides. A child that
        has not said yet waits.
        """
        deadlines = [link.deadline for link in self.links.values()]
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(MIN_CHILDREN_DEADLINE, *known) if known and len(known) == len(deadlines) else None

    # --- datagrams ----------------------------------------------------------------------------------------------------

    def receive(self, link: Downlink, flags: int, data: bytes, now: float) -> None:
        """A packet from a child whose seal is right. Raises MalformedDatagram only."""
        link.heard_at = now
        link.reset_at = None
        self._busy[link.id] = link
        if link.group is not None:
            link.walk(now)  # what it speaks of is what the group has sent
        body = data[wire.BODY_AT :]
        if flags & wire.NACK:
            self._on_nack(link, control.decode_nack_untrusted(body), flags, now)
        elif flags & wire.ACK:
            ack = control.decode_acknowledgment_untrusted(body)
            link.hear_times(ack.times, now)
            if not link.child.waiting and self._queries.confirm(link, ack.epoch, ack.position):
                link.acknowledge(ack.position, wire.HEADER.unpack_from(data)[4], ack.room, now)
                if flags & wire.ACK_REQUEST:
                    link.handle_probe(now)
        elif flags & wire.CLOSE:
            reason, text = control.decode_close_untrusted(body)
            self._drop(link, reason, text)
        elif flags & wire.CONTROL and body[:1] == _PROTECT and not self.kind.is_dense:
            link.protect(protection.decode_protect_untrusted(body))
        elif flags & wire.CONTROL and body[:1] == _HEARD:
            if self.groups is not None:
                self.groups.heard(link, decode_heard_untrusted(body), now)
        elif flags & wire.CONTROL and body[:1] == _PART:
            self._receive_part(link, query_parts.decode_part_untrusted(body), now)
        elif flags & wire.CONTROL:
            message = control.decode_control_untrusted(body)
            if isinstance(message, control.Prepare):
                self._leave_group(link, message.epoch)
                self._queries.receive_prepare(link, message, now)
            elif isinstance(message, control.Message):
                self._emit(events.MessageReceived(self.stream, link.id, message.data))
            elif isinstance(message, control.IndexRequest):
                link.past.answer(message, now)
            elif isinstance(message, control.Fetch):
                link.past.fetch(message)
            else:
                raise MalformedDatagram("type", "not for a sender")
        else:
            raise MalformedDatagram("type", "not for a sender")

    def _receive_part(self, link: Downlink, part: query_parts.Part, now: float) -> None:
        self._leave_group(link, part.epoch)
        self._queries.receive_part(link, part, now)

    def _leave_group(self, link: Downlink, epoch: int) -> None:
        """A child that is about to want something else than its group gets."""
        if self.groups is not None and epoch > link.child.epoch:
            self.groups.leave(link)

    def _on_nack(self, link: Downlink, nack: control.Nack, flags: int, now: float) -> None:
        ack = nack.ack
        link.hear_times(ack.times, now)
        if link.child.waiting or not self._queries.confirm(link, ack.epoch, ack.position):
            return
        link.window.room = ack.room
        floor = link.child.floor
        if floor is not None and ack.position < floor:
            self._stale_nacks += 1
            return
        link.acknowledge(ack.position, 0, ack.room, now)
        link.request_repair(ack.position, nack.highest, nack.missing, nack.pieces, now)
        if flags & wire.ACK_REQUEST:
            link.handle_probe(now)

    # --- what was passed over -----------------------------------------------------------------------------------------

    def insert_late(self, an: int, payload: bytes, now: float) -> bool:
        """A router's receiver had passed this packet over: into the log, and to the children past it (rule L8)."""
        ordinal = self.log.insert(an, payload)
        if ordinal is None:
            return False
        if self.groups is not None:
            self.groups.inserted(an)
        for link in self.links.values():
            child = link.child
            if child.floor is not None:
                epochs = [epoch for epoch in child.epochs_at(an) if self._was_passed(child, epoch, an, ordinal)]
                link.correct(an, epochs, now)
                self._busy[link.id] = link
        return True

    def _was_passed(self, child: Child, epoch: int, an: int, ordinal: int) -> bool:
        """Whether a child wanted a packet under the query of this epoch, and is past it."""
        interest = child.interest_in(epoch)
        if interest is None or (epoch == child.epoch and child.cursor.position < an):
            return False  # what lies ahead of the cursor is sent anyway
        return self.log.covered_at(an, interest.query) and self.log.wanted(interest, ordinal)

    # --- closing ------------------------------------------------------------------------------------------------------

    def send_message(self, link_id: int, data: bytes) -> bool:
        link = self.links.get(link_id)
        return link is not None and self._post(link, link.encode(wire.CONTROL, 0, 0, control.encode_message(data)))

    def close(self, link_id: int, reason: int, body: bytes = b"") -> None:
        link = self.links.get(link_id)
        if link is not None:
            goodbye = link.say_goodbye(reason, body)
            # Best effort: three copies, since there is nobody left to ask for a lost one.
            for _ in range(3):
                self._goodbyes.append((goodbye, link.address))
            self._drop(link, reason, body)

    def close_all(self, reason: int, body: bytes = b"") -> None:
        for link_id in list(self.links):
            self.close(link_id, reason, body)

    def _drop(self, link: Downlink, reason: int, body: bytes) -> None:
        if self.links.pop(link.id, None) is None:
            return
        del self.children[link.id]
        if self.groups is not None:
            self.groups.leave(link)
        self._answering.forget(link)
        self._past = [past + more for past, more in zip(self._past, link.counts(), strict=True)]
        self._queries.revision += 1
        self._repairs_refused += link.repairs.budget.refused
        self._indexes_refused += link.past.refused
        self._corrections_dropped += link.past.dropped
        self._busy.pop(link.id, None)
        self._paused.pop(link.id, None)
        link.child.dismiss()
        self._emit(events.ChildLost(self.stream, link.id, link.address, reason, body))

    def receive_reset(self, link: Downlink, now: float) -> None:
        """Somebody says that the child does not know this link: ask, and close it if nothing valid comes."""
        if link.child.floor is None:
            self._drop(link, Reason.RESET, b"")
        elif link.reset_at is None:
            link.reset_at = now + 3 * link.rtt.timeout(self._config.min_rto, self._config.max_rto)
            link.handle_probe(now)
            self._busy[link.id] = link

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        for ticket in self._answering.tickets.older_than(now - self._config.open_timeout):
            self.refuse(ticket, Reason.TIMED_OUT)
        if self._slice_at is not None and now >= self._slice_at:
            self._go_on_with_history()
        if self.groups is not None:
            self.groups.handle_timeout(self.links, now)
        for link in list(self.links.values()):
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
        elif link.child.owes_confirmation and now - link.opened_at > config.confirm_timeout:
            self.close(link.id, Reason.TIMED_OUT)
        elif now - link.heard_at > config.dead_after:
            self._silent += 1
            self.close(link.id, Reason.SILENT)
        elif link.child.falls_behind(config.behind_after, now):
            self._behind += 1
            self.close(link.id, Reason.BEHIND)
        else:
            link.handle_timeout(now)
            link.child.expire_previous(PREVIOUS_QUERY_SECONDS, now)
            if link.outbox or link.is_catching_up or link.past.waiting:
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

    def next_timeout(self, now: float) -> float | None:
        config = self._config
        at = math.inf
        for link in self.links.values():
            child = link.child
            at = min(at, link.heard_at + config.dead_after)
            if (due := link.next_timeout(now)) is not None and due < at:
                at = due
            if link.reset_at is not None and link.reset_at < at:
                at = link.reset_at
            if child.floor is None and child.owes_confirmation:
                at = min(at, link.opened_at + config.confirm_timeout)
            if child.behind_since is not None:
                at = min(at, child.behind_since + config.behind_after)
        if (asked_at := self._answering.tickets.oldest_at()) is not None:
            at = min(at, asked_at + config.open_timeout + 1e-3)
        if self.groups is not None and (look_at := self.groups.next_timeout(self.links)) is not None:
            at = min(at, look_at)
        if self._paused or not self.log.history.is_open:  # an index that found it used up is asked for again
            if self._slice_at is None:  # the pause counts from the end of the turn
                self._slice_at = now + SLICE_PAUSE
            at = min(at, self._slice_at)
        return None if at == math.inf else at

    def next_datagrams(self, now: float, most: int) -> list[tuple[bytes, SocketAddress]]:
        """Up to `most` datagrams, each child's turn after the other's."""
        out: list[tuple[bytes, SocketAddress]] = []
        while self._goodbyes and len(out) < most:
            out.append(self._goodbyes.popleft())
        busy = self._busy
        if self.log.head != self._flushed_head:
            self._flushed_head = self.log.head
            asleep = self.groups.lead(now) if self.groups is not None and len(self.groups) else None
            busy.update({k: v for k, v in self.links.items() if k not in asleep} if asleep else self.links)
        while busy and len(out) < most:
            link_id, link = next(iter(busy.items()))
            del busy[link_id]
            try:
                self._take_turn(link, now, min(QUANTUM, most - len(out)), out)
            except Exception as error:
                self._end_faulty(link)
                fault("send", error)
        if self.groups is not None:
            while self.groups.outbox:  # no more than the turns above put there, and beats
                out.append(self.groups.outbox.popleft())
        return out

    def _take_turn(self, link: Downlink, now: float, most: int, out: list[tuple[bytes, SocketAddress]]) -> None:
        for _ in range(most):
            datagram = link.next_datagram(now)
            if datagram is None:
                if link.paused:
                    self._paused[link.id] = link
                return
            if datagram is not CARRIED:
                out.append((datagram, link.address))
        self._busy[link.id] = link  # to the end of the line

    def _post(self, link: Downlink, datagram: bytes) -> bool:
        if not link.post(datagram):
            return False
        self._busy[link.id] = link
        return True

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def bytes_sent(self) -> int:
        """Of packets, to all children that ever were."""
        return self._past[1] + sum(link.counts()[1] for link in self.links.values())

    def statistics(self, now: float) -> SenderStatistics:
        log = self.log
        totals = [sum(each) for each in zip(self._past, *(link.counts() for link in self.links.values()), strict=True)]
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
            refused=self._answering.refused,
            disconnected_silent=self._silent,
            disconnected_behind=self._behind,
            stale_nacks=self._stale_nacks,
            repairs_refused=self._repairs_refused + sum(k.repairs.budget.refused for k in self.links.values()),
            query_changes_refused=self._queries.refused,
            indexes_refused=self._indexes_refused + sum(k.past.refused for k in self.links.values()),
            corrections_dropped=self._corrections_dropped + sum(k.past.dropped for k in self.links.values()),
            openings_dropped=self._answering.tickets.dropped,
            unrouted=log.unrouted,
            history_slices=log.history.slices,
            malformed=self.malformed,
            links=tuple(link.statistics(now) for link in self.links.values()),
        )
