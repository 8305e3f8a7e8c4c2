"""One child, seen from its parent: what to send it next.

Theory of operation. The peer has one log; a downlink has a *cursor* into it and nothing else that grows with the
stream. `next_datagram` is pulled, one datagram at a time, by whoever has room on the socket: so a child that is slow
keeps its cursor back and delays nobody. In the order in which they are served:

  outbox   answers and control messages, small and few
  repairs  stretches that the child asked for again, each as a cursor with an end
  live     the cursor, as far as the window, the receiver's room and (for history) the pacer allow
  timers   a keep-alive when nothing was sent for a while, which also carries the position through pruned stretches

No data goes out before the child has confirmed where it starts: until then `floor` is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dcp import control, wire
from dcp.admission import Bucket
from dcp.config import Config
from dcp.control import Range
from dcp.cursor import BytesClaim, Claim, Cursor, DataClaim, EmptyClaim, HoleClaim, Paused
from dcp.links.link import Address, Link
from dcp.links.repairs import RecentRepairs, RepairBudget, merged
from dcp.links.rtt import Pace
from dcp.links.window import Pacer, SendWindow
from dcp.log import Interest, Log
from dcp.serial import HALF, QUARTER
from dcp.stats import DownlinkStatistics

MAX_REPAIRS = 256
EPOCHS = 16
MAX_OUTBOX = 64
# Sent-at marks of the live cursor: what was sent less than a round trip ago is on its way, not lost.
MAX_MARKS = 512


class Downlink(Link):
    def __init__(
        self, link_id: int, address: Address, log: Log, config: Config, request: control.Request, *, now: float
    ) -> None:
        super().__init__(link_id, address, config, now=now)
        self._config = config
        self._log = log
        self.remote_id = request.link
        self.child_nonce = request.nonce
        self.query = request.query
        self.epoch = request.epoch
        self.stream_mode = bool(request.mode & control.MODE_STREAM)
        self.ticket = 0
        self.waiting = True
        """Accepted by the owner but not yet by the log: our own query does not cover the child's so far."""
        self.interest: Interest | None = None
        self.pending_epoch: int | None = None
        self.pending_query = b""
        self.pending_interest: Interest | None = None
        self.prepared = False
        self.start: int | None = request.position if request.start == control.Start.POSITION else None
        self.from_oldest = request.start == control.Start.OLDEST
        self.came_early = not log.started
        """It was here before the first packet, so that is where it starts."""
        self.acked = 0
        self.floor: int | None = None
        """The child's last confirmed position; NACKs below it are stale (rule S4). None: not confirmed yet."""
        self.cursor = Cursor(log, 0)
        self.window = SendWindow(config, request.room)
        self.pace = Pace()
        self.fed = True
        self.behind_since: float | None = None
        """Since when the child has been in the older half of the log with no gain."""
        self.behind_least = 0
        """Its smallest lag since then."""
        self.outbox: deque[bytes] = deque()
        self._fragments: deque[bytes] = deque()
        self.fragment_bytes = 0
        """Of large packets, cut and waiting to go out."""
        self.paused = False
        """It waits for the next slice of history (`log.history`)."""
        self.repair_budget = RepairBudget()
        # A receiver can't use more than 16 epochs in their lifetime: no honest child makes twice as many.
        self.query_changes = Bucket(2 * EPOCHS / config.epoch_lifetime, EPOCHS)
        self._repairs: deque[tuple[Cursor, int]] = deque()
        self._recent = RecentRepairs(MAX_REPAIRS)
        self._marks: deque[tuple[int, float]] = deque()
        self._asked: tuple[int, float] | None = None
        self._packets_since_ask = 0
        self._bytes_since_ask = 0
        self._pacer = Pacer(burst=4 * self.max_datagram)
        self._keep_alives = 0
        self._keep_alive_at = now
        self.probe_at: float | None = None
        self._closing = False
        self.stats_packets = 0
        self.stats_bytes = 0
        self.stats_retransmitted = 0
        self.stats_nacks = 0

    def counts(self) -> tuple[int, int, int, int]:
        """Packets, bytes, retransmitted packets, NACKs."""
        return self.stats_packets, self.stats_bytes, self.stats_retransmitted, self.stats_nacks

    def statistics(self, now: float) -> DownlinkStatistics:
        return DownlinkStatistics(
            link=self.id,
            address=self.address,
            confirmed=self.floor is not None,
            acknowledged=self.acked,
            lag=self.lag,
            round_trip=self.rtt.smoothed,
            heard_ago=now - self.heard_at,
            window=self.window.size,
            in_flight=self.window.bytes,
            packets=self.stats_packets,
            bytes=self.stats_bytes,
            retransmitted=self.stats_retransmitted,
            nacks=self.stats_nacks,
        )

    @property
    def is_there(self) -> bool:
        """The child has confirmed where it starts; or it waits, on an open link, for a stream that has not begun."""
        return self.floor is not None or (not self._log.started and self.heard_at > self.opened_at)

    def proposed_start(self) -> int | None:
        """Where the child may begin; None while the stream has not begun here."""
        log = self._log
        if self.start is not None:
            return self.start
        if not log.started:
            return None
        if self.from_oldest:
            return log.oldest_covered(self.query)
        return log.low if self.came_early else log.head

    # --- what the child said ------------------------------------------------------------------------------------------

    def acknowledge(self, position: int, asked_an: int, room: int, now: float) -> None:
        """The child has everything up to `position`. Behind it, we skip ahead: that is the squelch."""
        self.window.room = room
        if self.floor is None or position > self.floor:
            self.floor = position
        if position > self.acked:
            self.acked = position
            self.window.acknowledged(position)
        if asked_an and self._asked is not None and self._asked[0] & 0xFFFFFFFF == asked_an:
            # Sure (Karn): a request goes out only on a packet's first sending, and other answers say 0.
            self.rtt.sample(now - self._asked[1])
            self._asked = None
        if self.cursor.position < position:
            self.cursor.move(self._log, position)
        self.probe_at = None if not self.window.bytes else now + self._rto()

    def reposition(self, position: int) -> None:
        """The child confirmed a start, or a new epoch, at `position`: everything after it is to be claimed anew."""
        self.floor = self.acked = position
        self.cursor.move(self._log, position)
        self.window.reset()
        self._repairs.clear()
        self._recent.clear()
        self._fragments.clear()
        self.fragment_bytes = 0
        self._marks.clear()
        self._asked = None
        self.probe_at = None

    def request_repair(
        self, position: int, highest: int, missing: Sequence[Range], pieces: Sequence[Range], now: float
    ) -> None:
        """Send again what is missing, unless it went out within the last round trip.

        The round trip is what the child's echoes make of it: it is never taken as shorter than `min_rto`, or a child
        that lies about it gets the same bytes again with every NACK.
        """
        self.stats_nacks += 1
        head = self.cursor.position
        rtt = max(self.rtt.smoothed, self._config.min_rto)
        stale_before = self._sent_before(now - rtt)
        ranges = list(missing)
        beyond = max(highest, position)
        if missing:
            # A full list may have left something out: then nothing is known beyond its last stretch.
            self.window.heard_of(beyond if len(missing) < control.MAX_RANGES else missing[-1][1], missing)
        if stale_before > beyond:
            ranges.append((beyond, stale_before))  # sent more than a round trip ago, and never heard of
        if not ranges and head <= position:
            self._keep_alive_at = now  # nothing to send again: say so
            return
        if self.fragment_bytes > self.window.size or not self.repair_budget.allows(now):
            self.repair_budget.refused += 1
            return
        wanted = [(max(start, position), min(end, head)) for start, end in ranges]
        wanted = [(start, end) for start, end in wanted if start < end]
        again = self._recent.without_recent(wanted, now - rtt)
        for start, end in again:
            if len(self._repairs) >= MAX_REPAIRS:
                break
            self._recent.add((start, end), now)
            if pieces and missing[0] == (start, end) and self._repair_pieces(start, end, pieces):
                continue
            self._repairs.append((Cursor(self._log, start), end))
        if again:
            self.window.lost(now, rtt)

    def _repair_pieces(self, start: int, an: int, pieces: Sequence[Range]) -> bool:
        """Send again only these bytes of the large packet `an`, if that is what follows `start` here too."""
        if self.interest is None:
            return False
        cursor = Cursor(self._log, start)
        claim = cursor.next_claim(self._log, self.interest, limit=self._limit(), room=1, max_packets=1)
        if not isinstance(claim, DataClaim) or claim.packets[0][0] != an:
            return False
        payload = claim.packets[0][1]
        if len(payload) <= self._payload_room():
            return False
        before = self.fragment_bytes
        for first, until in merged(pieces):
            self._queue_fragments(claim.prev, an, payload, first, min(until, len(payload)))
        self.repair_budget.spend(self.fragment_bytes - before)
        return True

    def _sent_before(self, when: float) -> int:
        """The highest AN of the live cursor that went out before `when`."""
        highest = 0
        for an, sent_at in self._marks:
            if sent_at > when:
                break
            highest = an
        return min(highest, self.cursor.position)

    def handle_probe(self, now: float) -> None:
        """The child wants to hear from us now."""
        self._keep_alive_at = now
        self.handle_timeout(now)

    # --- what to send -------------------------------------------------------------------------------------------------

    def next_datagram(self, now: float) -> bytes | None:
        """The next datagram for this child, or None when nothing may go out now."""
        if self.outbox:
            return self.outbox.popleft()
        if self._fragments:
            return self._next_fragment()
        if self.floor is None or self.interest is None or self._closing:
            return None
        log = self._log
        if log.head < self.acked - HALF // 4:
            return None  # far behind the child: a keep-alive with 64-bit positions, and no 32-bit claim (rule S3)
        self.paused = False
        while self._repairs:
            if not self.repair_budget.allows(now):
                self.repair_budget.refused += 1
                self._repairs.clear()  # the child asks again
                break
            cursor, end = self._repairs[0]
            claim = self._next_claim(cursor, self.interest, limit=min(end, self._limit()), max_packets=256)
            if claim is None:
                self._repairs.popleft()
                continue
            if isinstance(claim, Paused):
                self.paused = True
                break
            if isinstance(claim, DataClaim):
                self.stats_retransmitted += len(claim.packets)
            elif isinstance(claim, BytesClaim):
                self.stats_retransmitted += 1
            return self._encode_claim(claim, now, live=False)
        if not self.window.is_open or not self.cursor.has_more(log, self._limit()):
            return None
        if self.is_catching_up and not self._pacer.allows(now, self._catch_up_rate()):
            return None
        room_packets = self.window.room - self.window.packets
        claim = self._next_claim(self.cursor, self.interest, limit=self._limit(), max_packets=max(1, room_packets))
        if isinstance(claim, Paused):
            self.paused = True
            return None
        if claim is None:
            return None
        return self._encode_claim(claim, now, live=True)

    def _next_fragment(self) -> bytes:
        fragment = self._fragments.popleft()
        self.fragment_bytes -= len(fragment)
        return fragment

    def _next_claim(self, cursor: Cursor, interest: Interest, *, limit: int, max_packets: int) -> Claim | Paused | None:
        if self.stream_mode:
            return cursor.next_bytes(self._log, limit=limit, room=self._payload_room())
        return cursor.next_claim(self._log, interest, limit=limit, room=self._payload_room(), max_packets=max_packets)

    def _encode_claim(self, claim: Claim, now: float, *, live: bool) -> bytes:
        if isinstance(claim, HoleClaim):
            self._sent(now)
            return self.encode(wire.CONTROL, 0, 0, control.encode_hole(control.Hole(self.epoch, *claim)))
        if isinstance(claim, EmptyClaim):
            self._sent(now)
            return self._keep_alive(claim.prev, claim.until, now)
        if isinstance(claim, BytesClaim):
            an, size, count = claim.start + len(claim.data), len(claim.data), 1
        else:
            an, count = claim.packets[-1][0], len(claim.packets)
            size = sum([len(payload) for _, payload in claim.packets])
        flags = 0
        if live:
            self.pace.tick(now, count)
            self._packets_since_ask += count
            self._bytes_since_ask += size
            self.window.sent(an, size, count)
            self.repair_budget.earn(size)
            self.stats_packets += count
            self.stats_bytes += size
            if not self._marks or self._marks[-1][1] < now:
                if len(self._marks) >= MAX_MARKS:
                    self._marks.popleft()
                self._marks.append((an, now))
            if self._must_ask():
                flags |= wire.ACK_REQUEST
                self._ask(claim.start + 1 if isinstance(claim, BytesClaim) else an, now)
            if self.is_catching_up:
                self._pacer.spent(size)
        else:
            self.repair_budget.spend(size)
        self._sent(now)
        if isinstance(claim, BytesClaim):
            # As in the paper: AN is the number of the first byte, previous AN that of the last byte before it.
            return self.encode(flags | wire.STREAM, claim.start + 1, claim.start, claim.data)
        prev, packets = claim
        if len(packets) == 1:
            payload = packets[0][1]
            if len(payload) > self._payload_room():
                self._queue_fragments(prev, an, payload, 0, len(payload), flags)
                return self._next_fragment()
            return self.encode(flags, an, prev, payload)
        return self.encode(flags | wire.CONTROL, an, prev, control.encode_bundle(prev, packets))

    def _queue_fragments(self, prev: int, an: int, payload: bytes, first: int, until: int, flags: int = 0) -> None:
        step = self._payload_room() - control.FRAGMENT_OVERHEAD
        offset = first
        while offset < until:
            piece = payload[offset : min(offset + step, until)]
            last = offset + step >= until
            body = control.encode_fragment(offset, len(payload), piece)
            # Only the last one asks: an acknowledgment of a half packet can't say anything.
            datagram = self.encode(wire.CONTROL | (flags if last else 0), an, prev, body)
            self._fragments.append(datagram)
            self.fragment_bytes += len(datagram)
            offset += step

    def _payload_room(self) -> int:
        return self.max_datagram - wire.BODY_AT - 1 - control.ENTRY.size

    def _limit(self) -> int:
        """No 32-bit claim beyond a quarter of the AN space from what the child has confirmed (rule S3)."""
        return self.acked + QUARTER

    def _must_ask(self) -> bool:
        quarter = max(1, min(self._config.ack_every_packets, self.window.room // 4))
        return (
            self._packets_since_ask >= quarter
            or self._bytes_since_ask >= self.window.size // 4
            or not self.window.is_open
        )

    def _ask(self, an: int, now: float) -> None:
        self._packets_since_ask = 0
        self._bytes_since_ask = 0
        if self._asked is None or now - self._asked[1] > 4 * self._rto():
            self._asked = (an, now)
        if self.probe_at is None:
            self.probe_at = now + self._rto()

    # --- catching up --------------------------------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """Packets in the log beyond the cursor, wanted or not."""
        return max(0, self._log.next_ordinal - self._log.ordinal_after(self.cursor.position))

    @property
    def is_catching_up(self) -> bool:
        return self.lag > self._config.catch_up_lag

    def _catch_up_rate(self) -> float:
        """A quarter above what the window would bring anyway, spread evenly over the round trip."""
        return max(self._config.min_catch_up_rate, 1.25 * self.window.size / max(self.rtt.smoothed, 1e-3))

    # --- timers -------------------------------------------------------------------------------------------------------

    def _sent(self, now: float) -> None:
        self._keep_alives = 0
        self._keep_alive_at = now + self._keep_alive_delay()

    def _keep_alive_delay(self) -> float:
        """After a packet soon, since only a later claim shows the loss of the last one; then doubled each time."""
        config = self._config
        if not config.adaptive:
            return config.keep_alive_interval
        first = max(config.min_keep_alive_interval, self.rtt.smoothed)
        if self.pace.interval is not None:
            first = max(config.min_keep_alive_interval, min(first, 2 * self.pace.interval))
        return min(first * 2.0 ** min(self._keep_alives, 16), config.keep_alive_interval)

    def _rto(self) -> float:
        return self.rtt.timeout(self._config.min_rto, self._config.max_rto)

    def next_timeout(self, now: float) -> float | None:
        """When `handle_timeout` has something to do, or the pacer lets more through."""
        if self.interest is None:
            return None
        at = self._keep_alive_at
        if self.probe_at is not None:
            at = min(at, self.probe_at)
        if (
            self.floor is not None
            and self.cursor.position < self._log.head  # before what costs more: most links are idle
            and not self.paused  # until the next slice of history
            and self.is_catching_up
            and self.window.is_open
            and self.cursor.has_more(self._log, self._limit())
        ):
            at = min(at, self._pacer.ready_at(now, self._catch_up_rate()))
        return at

    def handle_timeout(self, now: float) -> None:
        if self.interest is None:
            return
        if self.probe_at is not None and now >= self.probe_at:
            # The window waits for an acknowledgment that does not come: ask again, with a claim.
            self.probe_at = now + 2 * self._rto()
            self._keep_alive_at = now
        if now >= self._keep_alive_at:
            self._keep_alives += 1
            self._keep_alive_at = now + self._keep_alive_delay()
            if len(self.outbox) < MAX_OUTBOX:
                self.outbox.append(self._current_keep_alive(now))

    def _current_keep_alive(self, now: float) -> bytes:
        """Where we stand, as a claim wherever one can be made."""
        log = self._log
        can_claim = (
            self.floor is not None
            and self.acked - HALF // 4 <= log.head
            and self.cursor.position >= log.low
            and self.cursor.prev <= self.cursor.position <= log.head
        )
        if not can_claim:
            start = self.proposed_start() if self.floor is None and log.started else None
            if start is not None and start <= log.head:
                return self._keep_alive(start, log.head, now, claim=False, start=True)
            return self._keep_alive(0, log.head if log.started else 0, now, claim=False)
        return self._keep_alive(max(self.cursor.prev, self.cursor.position - QUARTER), self.cursor.position, now)

    def _keep_alive(self, prev: int, until: int, now: float, *, claim: bool = True, start: bool = False) -> bytes:
        flags = wire.KEEP_ALIVE
        if self.window.bytes:
            flags |= wire.ACK_REQUEST
        body = control.encode_keep_alive(
            control.KeepAlive(self.times(now), self.epoch, self.fed, claim, min(prev, until), until, start)
        )
        return self.encode(flags, until, prev, body)

    def say_goodbye(self, reason: int, body: bytes = b"") -> bytes:
        self._closing = True
        return self.encode(wire.CLOSE, 0, 0, control.encode_close(reason, body))
