"""The link to one child: which datagram goes out next.

Theory of operation. The peer has one log; a child has a *cursor* into it (`child`) and nothing else that grows with the
stream. `next_datagram` is pulled, one datagram at a time, when there is room on the socket: so a slow child keeps its
cursor back and delays nobody. In the order in which they are served:

  outbox     answers and control messages, small and few
  fragments  the rest of a large packet of which the first piece has gone out
  repairs    stretches that the child asked for again (`retransmission`), then packets that it passed (`past`)
  live       the cursor, as far as the window, the receiver's room and (for history) the pacer allow
  timers     a keep-alive when nothing was sent for a while (`keep_alives`)

Behind live packets go the repairs that the child wants unasked (`protecting`), through the outbox.

No data goes out before the child has confirmed where it starts: until then its `floor` is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from dcp import control, handshake, wire
from dcp.child import Child
from dcp.config import Config
from dcp.control import Range
from dcp.cursor import BytesClaim, DataClaim, EmptyClaim, HoleClaim, LogClaim, Paused
from dcp.links.carriage import Carriage
from dcp.links.fragments import FragmentQueue
from dcp.links.framing import Framing
from dcp.links.keep_alives import KeepAliveTimer, current_keep_alive, settled_of
from dcp.links.keying import Ciphers
from dcp.links.link import Link, SocketAddress
from dcp.links.past import Past
from dcp.links.protecting import LATE_KEEP_ALIVE, Protection
from dcp.links.rtt import Pace
from dcp.links.window import Pacer, SendWindow
from dcp.protection import Protect
from dcp.serial import HALF, QUARTER
from dcp.stats import DownlinkStatistics

# A tuple: `HoleClaim | EmptyClaim` would be made again for every datagram.
_WITHOUT_DATA = (HoleClaim, EmptyClaim)
MAX_OUTBOX = 64
CARRIED = b""
"""In place of a datagram: a multicast group has it, or gets it."""


class Road(Protocol):
    """What may take live packets instead of the link (`dcp.groups`)."""

    def carry(self, link: Downlink, claim: DataClaim | BytesClaim, framing: Framing, now: float) -> bool: ...


class Downlink(Link):
    def __init__(
        self,
        link_id: int,
        address: SocketAddress,
        child: Child,
        config: Config,
        carriage: Carriage,
        request: handshake.OpenRequest,
        *,
        now: float,
    ) -> None:
        super().__init__(link_id, address, config, now=now)
        self.child = child
        self.remote_id = request.link
        self.child_nonce = request.nonce
        self.takes_groups = bool(request.mode & handshake.MODE_GROUPS)
        self.group: Road | None = None
        """The multicast group that it was offered."""
        self.payload_room = self.max_datagram - wire.BODY_AT - 1 - control.ENTRY.size
        """Bytes of payload, with their entries in a bundle, that fit a datagram."""
        self.outbox: deque[bytes] = deque()
        self.fragments = FragmentQueue()
        self.window = SendWindow(config, request.room)
        self.repairs = carriage.protection(
            child,
            config,
            carriage.framing,
            link=self,
            window=self.window,
            fragments=self.fragments,
            rtt=self.rtt,
        )
        self.past = Past(child, config, carriage.framing, self, self.repairs.budget)
        self.protection: Protection | None = None
        """Repairs that go out unasked, once the child wants some."""
        self.deadline: float | None = None
        """After how long the child gives up a packet; 0: it would rather be at the head than have everything."""
        self.paused = False
        """It waits for the next slice of history (`log.history`)."""
        self.pace = Pace()
        self.keep_alive = KeepAliveTimer(carriage.timing, self.rtt, self.pace, now)
        self.probe_at: float | None = None
        self._framing = carriage.framing
        self._config = config
        self._asked: tuple[int, float] | None = None
        self._packets_since_ask = 0
        self._bytes_since_ask = 0
        self._pacer = Pacer(burst=4 * self.max_datagram)
        self._closing = False
        self._packets = 0
        self._bytes = 0
        self._retransmitted = 0

    def counts(self) -> tuple[int, int, int, int]:
        """Packets, bytes, retransmitted packets, NACKs."""
        return self._packets, self._bytes, self._retransmitted, self.repairs.requests

    def statistics(self, now: float) -> DownlinkStatistics:
        return DownlinkStatistics(
            link=self.id,
            address=self.address,
            confirmed=self.child.floor is not None,
            acknowledged=self.child.acked,
            lag=self.child.lag,
            round_trip=self.rtt.smoothed,
            heard_ago=now - self.heard_at,
            window=self.window.size,
            in_flight=self.window.bytes,
            packets=self._packets,
            bytes=self._bytes,
            retransmitted=self._retransmitted,
            nacks=self.repairs.requests,
            protection=self.protection.every if self.protection is not None else 0,
            protection_repairs=self.protection.sent_repairs if self.protection is not None else 0,
            protection_bytes=self.protection.sent_bytes if self.protection is not None else 0,
            protection_held_back=self.protection.held_back if self.protection is not None else 0,
        )

    @property
    def is_there(self) -> bool:
        """The child has confirmed where it starts; or it waits, on an open link, for a stream that has not begun."""
        return self.child.floor is not None or (not self.child.log.started and self.heard_at > self.opened_at)

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes:
        return self.encode_in(self.child.epoch, flags, an, prev, body)

    def encrypt(self, ciphers: Ciphers, public_key: bytes) -> None:
        before = self.max_datagram
        super().encrypt(ciphers, public_key)
        self.payload_room -= before - self.max_datagram

    # --- what the child said ------------------------------------------------------------------------------------------

    def acknowledge(self, position: int, asked_an: int, room: int, now: float) -> None:
        """The child has everything up to `position`."""
        self.window.room = room
        if position > self.child.acked:
            self.window.acknowledged(position)
        self.child.acknowledge(position)
        if asked_an:
            self.past.acknowledged(asked_an)
        if asked_an and self._asked is not None and self._asked[0] & 0xFFFFFFFF == asked_an:
            # Sure (Karn): a request goes out only on a packet's first sending, and other answers say 0.
            self.rtt.sample(now - self._asked[1])
            self._asked = None
        self.probe_at = None if not self.window.bytes else now + self._rto()

    def reposition(self, position: int) -> None:
        """The child confirmed a start, or a new epoch, at `position`: nothing that is under way counts any longer."""
        self.child.reposition(position)
        self.window.reset()
        self.repairs.clear()
        self.past.clear()
        self.fragments.clear()
        if self.protection is not None:
            self.protection.clear()
        self._asked = None
        self.probe_at = None

    def request_repair(
        self, position: int, highest: int, missing: Sequence[Range], pieces: Sequence[Range], now: float
    ) -> None:
        if self.wants_newest or not self.repairs.request(position, highest, missing, pieces, now):
            self.keep_alive.at = now  # nothing to send again: say so

    def protect(self, wish: Protect) -> None:
        """What the child wants sent unasked, as far as we give it, and its deadline."""
        if self.protection is None:
            budget = self._config.max_protection
            self.protection = Protection(self, self.window, max_budget=budget, first_key=self.id)
        if self.protection.ask(wish):
            self.deadline = wish.deadline

    @property
    def wants_newest(self) -> bool:
        return self.deadline == 0

    def correct(self, an: int, epochs: list[int], now: float) -> None:
        """A packet was put into the log behind the cursor: no claim may deny it, and the child has to get it.

        `epochs`: under which of the child's queries it may be missing.
        """
        self.child.cursor.inserted(self.child.log, an)
        self.repairs.inserted(an)
        if self.protection is not None:
            self.protection.inserted(an)
        if epochs:
            self.past.correct(an, epochs, now)

    def handle_probe(self, now: float) -> None:
        """The child wants to hear from us now."""
        self.keep_alive.at = now
        self.handle_timeout(now)

    # --- what to send -------------------------------------------------------------------------------------------------

    def post(self, datagram: bytes) -> bool:
        """False when too much is waiting: everything that goes this way is repeated by a timer."""
        if len(self.outbox) >= MAX_OUTBOX:
            return False
        self.outbox.append(datagram)
        return True

    def next_datagram(self, now: float) -> bytes | None:
        """The next datagram for this child, `CARRIED`, or None when nothing may go out now."""
        if self.outbox:
            return self.outbox.popleft()
        if self.fragments.bytes:
            return self.fragments.next()
        child = self.child
        interest = child.interest
        if child.floor is None or interest is None or self._closing:
            return None
        log = child.log
        if log.head < child.acked - HALF // 4:
            return None  # far behind the child: a keep-alive with 64-bit positions, and no 32-bit claim (rule S3)
        # No 32-bit claim beyond a quarter of the AN space from what the child has confirmed (rule S3).
        limit = child.acked + QUARTER
        self.paused = False
        if self.repairs.queue and (claim := self.repairs.next_claim(now, limit, self.payload_room)) is not None:
            if not isinstance(claim, Paused):
                return self._repeat(claim, now)
            self.paused = True
        if self.past.waiting:
            late = self.past.next_datagram(now)
            if isinstance(late, bytes):
                self._retransmitted += 1
                return late
            self.paused = self.paused or late is not None
        window = self.window
        if not window.is_open or not child.cursor.has_more(log, limit):
            return None
        is_catching_up = child.lag > self._config.catch_up_lag
        if is_catching_up and self.wants_newest:
            return self._skip_to_head(now)
        if is_catching_up and not self._pacer.allows(now, self._catch_up_rate()):
            return None
        claim = self._framing.next_claim(
            child.cursor,
            log,
            interest,
            limit=limit,
            room=self.payload_room,
            max_packets=max(1, window.room - window.packets),
        )
        if isinstance(claim, Paused):
            self.paused = True
            return None
        if claim is None:
            return None
        return self._send_live(claim, now, is_paced=is_catching_up and child.lag > self._config.catch_up_lag)

    @property
    def may_sleep(self) -> bool:
        """Whether a group does all there is to do for a new packet."""
        return self.protection is None or not self.protection.every

    def walk(self, now: float) -> None:
        """Follow the group that carries the live packets, without waiting for a turn."""
        while not self.outbox and not self.fragments.bytes:
            datagram = self.next_datagram(now)
            if datagram is None:
                return
            if datagram is not CARRIED:
                self.outbox.append(datagram)

    def _skip_to_head(self, now: float) -> bytes:
        """A child that wants the newest and lags: the rest is a hole (rule T10)."""
        child = self.child
        hole = HoleClaim(child.cursor.prev, child.log.head)
        child.cursor.move(child.log, hole.end)
        return self._send_live(hole, now, is_paced=False)

    def _send_live(self, claim: LogClaim, now: float, *, is_paced: bool) -> bytes:
        protection = self.protection
        if protection is not None and protection.every and not is_paced:
            for repair in protection.sent(claim, now):
                self.post(repair)
        if isinstance(claim, _WITHOUT_DATA):
            return self._send_without_data(claim, now)
        an, size, count = self._framing.extent(claim)
        self.pace.tick(now, count)
        self._packets_since_ask += count
        self._bytes_since_ask += size
        self.window.sent(an, size, count)
        self.repairs.sent(an, size, now)
        self._packets += count
        self._bytes += size
        if self.group is not None and self.group.carry(self, claim, self._framing, now):
            return self._carried(now)
        flags = 0
        if self._must_ask():
            flags = wire.ACK_REQUEST
            self._ask(self._framing.number_to_echo(claim), now)
        if is_paced:
            self._pacer.spent(size)
        self.keep_alive.restart(now, LATE_KEEP_ALIVE if protection is not None and protection.copies else 0.0)
        return self._framing.datagram(self, claim, flags)

    def _carried(self, now: float) -> bytes:
        """A group has it. It can't ask for our acknowledgment, and its beats show what was lost: we only ask."""
        self.keep_alive.at = now + self._config.keep_alive_interval
        if self._must_ask():
            self._packets_since_ask = self._bytes_since_ask = 0
            self.probe_at = self.probe_at or now + self._rto()
            self.keep_alive.at = now
        return CARRIED

    def _repeat(self, claim: LogClaim, now: float) -> bytes:
        if isinstance(claim, _WITHOUT_DATA):
            return self._send_without_data(claim, now)
        _, size, count = self._framing.extent(claim)
        self._retransmitted += count
        self.repairs.budget.spend(size)
        self.keep_alive.restart(now)
        return self._framing.datagram(self, claim, 0)

    def _send_without_data(self, claim: HoleClaim | EmptyClaim, now: float) -> bytes:
        self.keep_alive.restart(now)
        epoch = self.child.epoch
        if isinstance(claim, HoleClaim):
            return self.encode(wire.CONTROL, 0, 0, control.encode_hole(control.Hole(epoch, *claim)))
        keep_alive = control.KeepAlive(self.times(now), epoch, True, *claim, settled=settled_of(self.child.log))
        return self._encode_keep_alive(keep_alive)

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

    @property
    def is_catching_up(self) -> bool:
        return self.child.lag > self._config.catch_up_lag

    def _catch_up_rate(self) -> float:
        """A quarter above what the window would bring anyway, spread evenly over the round trip."""
        return max(self._config.min_catch_up_rate, 1.25 * self.window.size / max(self.rtt.smoothed, 1e-3))

    # --- timers -------------------------------------------------------------------------------------------------------

    def _rto(self) -> float:
        return self.rtt.timeout(self._config.min_rto, self._config.max_rto)

    def next_timeout(self, now: float) -> float | None:
        """When `handle_timeout` has something to do, or the pacer lets more through."""
        child = self.child
        if child.interest is None:
            return None
        at = self.keep_alive.at
        if self.probe_at is not None:
            at = min(at, self.probe_at)
        if (correction_at := self.past.next_timeout()) is not None:
            at = min(at, correction_at)
        if self.protection is not None and (copy_at := self.protection.next_timeout()) is not None:
            at = min(at, copy_at)
        if (
            child.floor is not None
            and child.cursor.position < child.log.head  # before what costs more: most links are idle
            and not self.paused  # until the next slice of history
            and self.is_catching_up
            and self.window.is_open
            and child.cursor.has_more(child.log, child.acked + QUARTER)
        ):
            at = min(at, self._pacer.ready_at(now, self._catch_up_rate()))
        return at

    def handle_timeout(self, now: float) -> None:
        if self.child.interest is None:
            return
        if self.probe_at is not None and now >= self.probe_at:
            # The window waits for an acknowledgment that does not come: ask again, with a claim.
            self.probe_at = now + 2 * self._rto()
            self.keep_alive.at = now
        self.past.handle_timeout(now)
        if self.protection is not None:
            for copy in self.protection.due(now):
                self.post(copy)
        if self.keep_alive.is_due(now):
            self.post(self._encode_keep_alive(current_keep_alive(self.child, self.times(now))))

    def _encode_keep_alive(self, keep_alive: control.KeepAlive) -> bytes:
        flags = wire.KEEP_ALIVE
        if self.window.bytes:
            flags |= wire.ACK_REQUEST
        return self.encode(flags, keep_alive.highest, keep_alive.previous, control.encode_keep_alive(keep_alive))

    def say_goodbye(self, reason: int, body: bytes = b"") -> bytes:
        self._closing = True
        return self.encode(wire.CLOSE, 0, 0, control.encode_close(reason, body))
