"""What a child hears about stretches that it has passed already: indexes, packets by their AN, and corrections.

    index       the child asks which ANs of a stretch match its query (rule L6): numbers only, no packets
    fetch       it asks for a packet by its AN, however far past it the child is (exempt from rule S4)
    correction  a router was misled, and has the packet now: it goes to children past it until acknowledged (rule L8)

Bounded for each child: requests per second, ranges per request, packets looked at and bytes of index; packets are paid
from the child's budget for repairs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from dcp import control, wire
from dcp.admission import Bucket
from dcp.child import Child
from dcp.config import Config
from dcp.control import Fetch, Hole, Index, IndexRequest
from dcp.cursor import PAUSED, Cursor, DataClaim, HoleClaim, Paused
from dcp.links.framing import Framing, Outlet
from dcp.links.repairs import RepairBudget
from dcp.log import Interest
from dcp.serial import QUARTER

# Requests in each `audit_interval`. An honest child makes one, and one more for each recent query about which something
# is still open.
INDEX_REQUESTS_PER_INTERVAL = 4
# About 20,000 ANs of a dense stream.
INDEX_BYTES_PER_SECOND = 32 << 10
# Packets of the log looked at for one request.
INDEX_SCAN = 4_096
MAX_FETCHES_WAITING = 256
MAX_CORRECTIONS = 256
# A child that does not acknowledge within this many is given up.
MAX_CORRECTION_TRIES = 20
# About a query that is over the child only hears that the packet is there, this often: it fetches it if it lacks it.
NOTICES = 8


@dataclass(slots=True)
class _Correction:
    tries: int
    at: float


class _InEpoch:
    """The link, writing in an epoch that is over."""

    def __init__(self, past: Past, epoch: int) -> None:
        self.payload_room = past.link.payload_room
        self.fragments = past.link.fragments
        self._past = past
        self._epoch = epoch

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes:
        return self._past.link.encode_in(self._epoch, flags, an, prev, body)


class PastOutlet(Outlet, Protocol):
    """What is needed of the link."""

    def encode_in(self, epoch: int, flags: int, an: int, prev: int, body: bytes) -> bytes: ...

    def post(self, datagram: bytes) -> bool: ...


class Past:
    def __init__(self, child: Child, config: Config, framing: Framing, link: PastOutlet, budget: RepairBudget) -> None:
        self.link = link
        self.refused = 0
        """Requests beyond what a child may ask for; it asks again."""
        self.dropped = 0
        """Corrections that were given up: too many at once, or never acknowledged."""
        self._child = child
        self._framing = framing
        self._budget = budget
        self._interval = config.audit_interval
        rate = INDEX_REQUESTS_PER_INTERVAL / config.audit_interval
        self._requests = Bucket(rate, 2 * INDEX_REQUESTS_PER_INTERVAL)
        self._bytes = Bucket(INDEX_BYTES_PER_SECOND, INDEX_BYTES_PER_SECOND)
        self.waiting: deque[tuple[int, int]] = deque()
        """Packets that are to go out again, as (epoch, AN)."""
        self._corrections: dict[tuple[int, int], _Correction] = {}  # by (epoch, AN)

    # --- index --------------------------------------------------------------------------------------------------------

    def answer(self, request: IndexRequest, now: float) -> None:
        """Say what there is in these stretches, as far as it goes; the child asks again about the rest."""
        interest = self._child.interest_in(request.epoch)
        if interest is None or self._child.floor is None:
            return
        if not self._requests.allows(now):
            self.refused += 1
            return
        scan = INDEX_SCAN
        for start, end in request.ranges:
            if scan <= 0 or not self._bytes.has(now):
                self.refused += 1
                return
            scan -= self._answer_range(request.epoch, interest, start, min(end, self._child.log.head), scan)

    def _answer_range(self, epoch: int, interest: Interest, start: int, end: int, scan: int) -> int:
        """Returns how many packets were looked at, about."""
        if end <= start:
            return 0
        log = self._child.log
        covered, edge = log.stretch(start, interest.query)
        if not covered:
            self._post(epoch, control.encode_hole(Hole(epoch, start, edge)))
            return 1
        room = self.link.payload_room - control.INDEX_OVERHEAD
        first = log.ordinal_after(start)
        ans, until = log.index(interest, start, min(end, edge), most=min(control.MAX_INDEX_ANS, room // 2), scan=scan)
        if until > start:
            self._child.spoke_of(epoch, start)
            body = control.encode_index(Index(epoch, start, until, ans))
            while len(body) > room + control.INDEX_OVERHEAD:  # steps wider than two bytes
                ans = ans[: len(ans) // 2]
                body = control.encode_index(Index(epoch, start, ans[-1], ans))
            self._post(epoch, body)
        return log.ordinal_after(until) - first + 1

    def _post(self, epoch: int, body: bytes) -> None:
        self._bytes.take(len(body))
        self.link.post(self.link.encode_in(epoch, wire.CONTROL, 0, 0, body))

    # --- packets by their number --------------------------------------------------------------------------------------

    def fetch(self, fetch: Fetch) -> None:
        if self._child.interest_in(fetch.epoch) is None or self._child.floor is None:
            return
        for an in fetch.ans:
            if len(self.waiting) >= MAX_FETCHES_WAITING:
                self.refused += 1
                return
            if (fetch.epoch, an) not in self.waiting:
                self.waiting.append((fetch.epoch, an))

    def correct(self, an: int, epochs: list[int], now: float) -> None:
        """The child is past this packet, which has come only now: send it until that is acknowledged.

        Under which query a child passed it is known only to the child, when that has changed: see `NOTICES`.
        """
        for epoch in epochs:
            if len(self._corrections) >= MAX_CORRECTIONS:
                del self._corrections[next(iter(self._corrections))]
                self.dropped += 1
            self._corrections[epoch, an] = _Correction(0, now)
        self.handle_timeout(now)

    def acknowledged(self, an32: int) -> None:
        """The child answered a packet that asked for an acknowledgment, by the low 32 bits of its AN."""
        epoch = self._child.epoch
        for key in [key for key in self._corrections if key[0] == epoch and key[1] & 0xFFFFFFFF == an32]:
            del self._corrections[key]

    def next_datagram(self, now: float) -> bytes | Paused | None:
        """The next packet that is to go out again."""
        while self.waiting:
            if not self._budget.allows(now):
                self.refused += 1
                self.waiting.clear()  # corrections come again by their timer, and the child repeats a fetch
                return None
            epoch, an = self.waiting[0]
            found = self._datagram(epoch, an)
            if isinstance(found, Paused):
                return found
            self.waiting.popleft()
            if found is not None:
                return found
        return None

    def _datagram(self, epoch: int, an: int) -> bytes | Paused | None:
        child = self._child
        interest = child.interest_in(epoch)
        # Below a quarter of the AN space from what the child has confirmed, 32 bits would be misread (rule S3).
        if interest is None or an <= child.acked - QUARTER:
            return None
        link = _InEpoch(self, epoch)
        claim = Cursor(child.log, an - 1).next_claim(
            child.log, interest, limit=an, room=self.link.payload_room, max_packets=1
        )
        if claim is PAUSED:
            return PAUSED
        if isinstance(claim, HoleClaim):
            return link.encode(wire.CONTROL, 0, 0, control.encode_hole(Hole(epoch, *claim)))
        if not isinstance(claim, DataClaim):
            return None
        _, size, _ = self._framing.extent(claim)
        self._budget.spend(size)
        flags = wire.ACK_REQUEST if (epoch, an) in self._corrections else 0
        return self._framing.datagram(link, claim, flags)

    # --- time ---------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """The child's position was set: what it asked for before is asked for again."""
        self.waiting.clear()

    def next_timeout(self) -> float | None:
        if not self._corrections:
            return None
        return min([correction.at for correction in self._corrections.values()])

    def handle_timeout(self, now: float) -> bool:
        """Send corrections (again); whether there is something to send."""
        for key, correction in list(self._corrections.items()):
            if now < correction.at:
                continue
            epoch, an = key
            is_over = epoch != self._child.epoch
            if self._child.interest_in(epoch) is None or correction.tries >= (
                NOTICES if is_over else MAX_CORRECTION_TRIES
            ):
                del self._corrections[key]
                self.dropped += not is_over
                continue
            correction.tries += 1
            correction.at = now + self._interval
            if is_over:
                self._post(epoch, control.encode_index(Index(epoch, an - 1, an, [an])))
            elif len(self.waiting) < MAX_FETCHES_WAITING and key not in self.waiting:
                self.waiting.append(key)
        return bool(self.waiting)
