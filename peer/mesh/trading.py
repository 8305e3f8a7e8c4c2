"""Exchanges of slots (rule O7): x takes the slot of k at q, and k takes the slot that x leaves at `old`.

Slots near the roots are always taken, so that a peer which only moves to where there is room soon finds no better
place. An exchange needs four peers, which agree before anything moves:

    x to old   LOCK      x may leave; old lends a slot that is kept for repairs until x is gone
    x to q     TRADE     q lends one, too, and asks its least important children:
    q to k     OFFER     k measures old; AGREED if its loss is less than what x gains
    q to x     READY     x joins q, and says TAKEN
    q to k     GO        k joins old and leaves q; x has left old

Every step is an ordinary join: levels decide, the new parent comes before the old one goes, and whatever is left undone
leaves a legal mesh. All four grant one lock at a time, which expires after 2 s. A peer that repairs takes no part.

A peer that has lent its last slot, or has more children than the goal allows, asks the least important one to go
elsewhere (AWAY). A peer falls to a lower level on request (FALL), if R5 allows it, while it lends a slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dcp.admission import HostBuckets
from peer.mesh import attributes, trades
from peer.mesh.attributes import Attributes, AttributesRequest
from peer.mesh.events import Inquire, Inquiry, SendMessage
from peer.mesh.lock import Lock
from peer.mesh.membership import Membership
from peer.mesh.messages import Join, MalformedMessage, PeerAt, PeerId
from peer.mesh.trades import TradeMessage, TradeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peer.mesh.candidates import CandidateCache
    from peer.mesh.children import ChildTable
    from peer.mesh.events import LinkId
    from peer.mesh.hostport import HostPort
    from peer.mesh.parents import ParentTable
    from peer.mesh.placement.moves import Trade
    from peer.mesh.placement.neighbourhood import Neighbourhood
    from peer.mesh.seeking import Seeking
    from peer.mesh.state import MeshState
    from peer.mesh.surroundings import Surroundings

MAX_OFFERS = 3
"""Children that are asked at once to make room."""
MAX_TRADES_PER_SECOND = 5.0
"""TRADE, READY and FALL that are looked at per second."""
TIDY_INTERVAL = 30.0
"""Seconds between two requests to a child to go elsewhere."""
ASKED_FOR = 300.0
"""Seconds until a child is asked again to go elsewhere."""
WILLING = frozenset({Membership.STEADY, Membership.ROOT})


class Trader(Protocol):
    """The part of a guide that knows what slots are worth."""

    def limit(self, capacity: int) -> int | None:
        """The most children that the goal allows; None if it says nothing about that."""

    def givers(self, around: Neighbourhood, old: PeerAt) -> list[LinkId]:
        """Children that could go to `old`, the least important first."""

    def price(self, around: Neighbourhood, parent: PeerId, new: PeerId) -> float | None:
        """What it costs everybody below us to have `new` instead of `parent`; None: it is out of the question."""

    def swap(self, parent: PeerId, new: PeerId) -> None:
        """`new` will be joined, and `parent` is to be given up once it is there."""

    def elsewhere(self, around: Neighbourhood, parent: LinkId) -> PeerId | None:
        """A candidate that could replace this parent at no great loss."""

    def measured(self, peer: PeerId, round_trip: float, values: Mapping[int, bytes], now: float) -> None: ...


@dataclass(slots=True)
class _Bid:
    """Of x."""

    old: LinkId
    new: PeerId
    until: float
    is_locked: bool = False
    is_ready: bool = False


@dataclass(slots=True)
class _Deal:
    """Of q."""

    peer_id: PeerId
    address: HostPort
    most: float
    until: float
    asked: set[LinkId] = field(default_factory=set)
    agreed: LinkId | None = None


@dataclass(slots=True)
class _Offered:
    """Of k."""

    parent: LinkId
    old: PeerAt
    most: float
    until: float


class Trading:
    """Invariant: at most one bid, one deal and one offer at a time, no longer than the lock under which it began."""

    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        candidates: CandidateCache,
        surroundings: Surroundings,
        seeking: Seeking,
        trader: Trader,
    ) -> None:
        self._own, self._parents, self._children, self._candidates = own, parents, children, candidates
        self._surroundings, self._seeking, self._trader = surroundings, seeking, trader
        self._lock = Lock()
        self._bid: _Bid | None = None
        self._deal: _Deal | None = None
        self._offered: _Offered | None = None
        self._lent_until = float("-inf")
        self._may_fall = False
        self._asked: dict[Inquiry, tuple[TradeType | PeerId, float]] = {}
        self._tidied_at = float("-inf")
        self._asked_away: dict[PeerId, float] = {}
        self._requests = HostBuckets(MAX_TRADES_PER_SECOND, MAX_TRADES_PER_SECOND)
        children.borrows = self.may_borrow

    @property
    def _is_idle(self) -> bool:
        """Nothing to repair and nothing on its way."""
        return self._own.state in WILLING and not self._seeking.pending

    # x: wants another slot

    def begin(self, trade: Trade, now: float) -> None:
        parent = self._parents.links.get(trade.parent)
        candidate = self._candidates.find(trade.candidate)
        if parent is None or candidate is None or not self._is_idle or not self._lock.grant(self._own.peer_id, now):
            return
        self._own.counters["trades_proposed"] += 1
        self._bid = _Bid(trade.parent, trade.candidate, self._lock.until)
        self._say(trade.parent, TradeMessage(TradeType.LOCK))
        leaves = PeerAt(parent.peer_id, parent.address, parent.reported)
        self._ask(
            candidate.address,
            TradeMessage(TradeType.TRADE, amount=trade.most, peer_id=self._own.peer_id, peers=(leaves,)),
            now,
        )

    def _join_if_agreed(self, now: float) -> None:
        bid = self._bid
        if bid is None or not (bid.is_locked and bid.is_ready) or now >= bid.until:
            return
        parent = self._parents.links.get(bid.old)
        if parent is None or not self._is_idle or not self._seeking.replace(bid.new, bid.old, now, is_trade=True):
            self._bid = None
            return
        self._trader.swap(parent.peer_id, bid.new)

    def arrived(self, link: LinkId, peer_id: PeerId) -> bool:
        """A better parent was joined: whether by an exchange, so that there is no time for a trial."""
        if self._bid is not None and self._bid.new == peer_id:
            self._bid = None
            self._own.counters["trades_done"] += 1
            self._say(link, TradeMessage(TradeType.TAKEN))
            return True
        if self._offered is not None and self._offered.old.peer_id == peer_id:
            self._offered = None
            self._own.counters["made_room"] += 1
            return True
        return False

    # Everybody: what comes

    def receive(self, link: LinkId, body: bytes, now: float) -> None:
        try:
            message = trades.decode_untrusted(body)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return
        if link in self._children.links:
            self._from_child(link, message, now)
        elif link in self._parents.links:
            self._from_parent(link, message, now)

    def _from_child(self, link: LinkId, message: TradeMessage, now: float) -> None:
        child = self._children.links[link]
        deal = self._deal if self._deal is not None and now < self._deal.until else None
        match message.kind:
            case TradeType.LOCK:
                yes = self._is_idle and self._children.free_for_repair > 0 and self._lock.grant(child.peer_id, now)
                if yes:
                    self._lent_until, self._may_fall = self._lock.until, True
                self._say(link, TradeMessage(TradeType.LOCKED, yes=yes))
            case TradeType.AGREED if deal is not None and link in deal.asked:
                deal.asked.discard(link)
                if message.yes and message.amount < deal.most and deal.agreed is None:
                    deal.agreed = link
                    self._ask(deal.address, TradeMessage(TradeType.READY, peer_id=self._own.peer_id), now)
            case TradeType.TAKEN if deal is not None and child.peer_id == deal.peer_id and deal.agreed is not None:
                self._say(deal.agreed, TradeMessage(TradeType.GO))
                self._deal = None

    def _from_parent(self, link: LinkId, message: TradeMessage, now: float) -> None:
        match message.kind:
            case TradeType.LOCKED if self._bid is not None and self._bid.old == link:
                self._bid.is_locked = message.yes
                if not message.yes:
                    self._bid = None
                self._join_if_agreed(now)
            case TradeType.OFFER if message.peers:
                self._consider(link, message.peers[0], message.amount, now)
            case TradeType.GO if self._offered is not None and self._offered.parent == link:
                self._go(self._offered, now)
            case TradeType.AWAY:
                self._go_elsewhere(link, now)

    def answer(self, request: bytes, address: HostPort, now: float) -> bytes | None:
        """TRADE, READY and FALL, from anybody."""
        try:
            message = trades.decode_untrusted(request)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return None
        if not self._requests.allows(now, address[0]):
            self._own.counters["trades_ignored"] += 1
            return None
        yes = False
        match message.kind:
            case TradeType.TRADE if message.peers and message.peer_id:
                yes = self._open_deal(message, address, now)
            case TradeType.READY:
                yes = self._bid is not None and self._bid.new == message.peer_id and now < self._bid.until
                if yes and self._bid is not None:
                    self._bid.is_ready = True
                    self._join_if_agreed(now)
            case TradeType.FALL:
                yes = self._fall(round(message.amount), now)
        return trades.encode(TradeMessage(TradeType.ANSWER, yes=yes, amount=float(self._own.level)))

    # q: has the slot

    def _open_deal(self, message: TradeMessage, address: HostPort, now: float) -> bool:
        peer_id, old = message.peer_id, message.peers[0]
        if self._deal is not None and now < self._deal.until:
            return self._deal.peer_id == peer_id  # asked twice
        is_near = peer_id in self._children.peer_ids() or peer_id in self._parents.peer_ids()
        if is_near or not self._is_idle or self._children.free_for_repair <= 0:
            return False
        givers = self._trader.givers(self._surroundings.at(now), old)[:MAX_OFFERS]
        if not givers or not self._lock.grant(peer_id, now):
            return False
        self._deal = _Deal(peer_id, address, message.amount, self._lock.until, set(givers))
        for link in givers:
            self._say(link, TradeMessage(TradeType.OFFER, amount=message.amount, peers=(old,)))
        return True

    def may_borrow(self, join: Join, now: float) -> bool:
        """Whether a join may have a slot that is kept for repairs, for the seconds that an exchange takes."""
        if not join.is_trade:
            return False
        if self._deal is not None and self._deal.peer_id == join.peer_id:
            return now < self._deal.until
        is_lent = now < self._lent_until
        self._lent_until = float("-inf")  # one slot, once
        return is_lent

    # k: makes room

    def _consider(self, link: LinkId, old: PeerAt, most: float, now: float) -> None:
        parent = self._parents.links[link]
        busy = old.peer_id in self._parents.peer_ids() | self._children.peer_ids() | {self._own.peer_id}
        if busy or not self._is_idle or not self._lock.grant(parent.peer_id, now):
            self._say(link, TradeMessage(TradeType.AGREED, yes=False))
            return
        self._candidates.add_hearsay((old,), teller=None, now=now)
        self._offered = _Offered(link, old, most, self._lock.until)
        self._inquire(old.address, attributes.encode(AttributesRequest()), old.peer_id, now)

    def _weigh(self, offered: _Offered, now: float) -> None:
        """The peer that we would go to has answered."""
        own, old = self._own, offered.old
        if self._children and old.level >= own.level:
            self._ask(old.address, TradeMessage(TradeType.FALL, amount=float(own.level)), now)
            return
        parent = self._parents.links.get(offered.parent)
        around = self._surroundings.at(now)
        price = self._trader.price(around, parent.peer_id, old.peer_id) if parent is not None else None
        yes = price is not None and price < offered.most and self._is_idle and around.may_ask(old.peer_id)
        self._say(offered.parent, TradeMessage(TradeType.AGREED, yes=yes, amount=price if yes and price else 0.0))
        if not yes:
            self._offered = None

    def _go(self, offered: _Offered, now: float) -> None:
        parent = self._parents.links.get(offered.parent)
        if parent is None or not self._is_idle or now >= offered.until + 1.0:
            self._offered = None
        elif self._seeking.replace(offered.old.peer_id, offered.parent, now, is_trade=True):
            self._trader.swap(parent.peer_id, offered.old.peer_id)

    def _fall(self, below: int, now: float) -> bool:
        """R5, for a peer that is about to take a slot that we lend: once, to the middle of what is allowed."""
        own = self._own
        if own.is_root or not self._may_fall or now >= self._lock.until:
            return False
        floor = max(self._parents.reported(), default=None)
        if own.level < below:
            return True
        if floor is None or below - floor < 2:
            return False
        self._may_fall = False
        lower = (floor + below) // 2
        if not own.rules.may_fall(lower, self._parents.reported()):
            return False
        own.counters["fell"] += 1
        own.set_level(lower)
        return True

    # Slots that are given back

    def tidy(self, now: float) -> None:
        """Ask a child to go elsewhere, if too many are here or no slot is left for a repair."""
        if now - self._tidied_at < TIDY_INTERVAL or not self._is_idle or now < self._lock.until:
            return
        self._tidied_at = now
        limit = self._trader.limit(self._own.config.capacity)
        is_over = limit is not None and len(self._children) > limit
        if not is_over and self._children.free_for_repair > 0:
            return
        self._asked_away = {p: at for p, at in self._asked_away.items() if now - at < ASKED_FOR}
        around = self._surroundings.at(now)
        nowhere = PeerAt(self._own.peer_id, ("0.0.0.0", 1), 0)
        for link in self._trader.givers(around, nowhere):
            child = self._children.links[link]
            if child.peer_id not in self._asked_away:
                self._asked_away[child.peer_id] = now
                self._own.counters["asked_to_go"] += 1
                self._say(link, TradeMessage(TradeType.AWAY))
                return

    def _go_elsewhere(self, link: LinkId, now: float) -> None:
        if not self._is_idle or self._own.state is Membership.ROOT or now < self._lock.until:
            return
        new = self._trader.elsewhere(self._surroundings.at(now), link)
        if new is not None and self._seeking.replace(new, link, now):
            self._trader.swap(self._parents.links[link].peer_id, new)
            self._own.counters["went_elsewhere"] += 1

    # Messages

    def _say(self, link: LinkId, message: TradeMessage) -> None:
        self._own.effects.append(SendMessage((link,), trades.encode(message)))

    def _ask(self, address: HostPort, message: TradeMessage, now: float) -> None:
        self._inquire(address, trades.encode(message), message.kind, now)

    def _inquire(self, address: HostPort, request: bytes, what: TradeType | PeerId, now: float) -> None:
        inquiry = Inquiry(self._own.new_link())
        self._asked[inquiry] = what, now
        self._own.effects.append(Inquire(inquiry, address, request))

    def answered(self, inquiry: Inquiry, body: bytes, now: float) -> bool:
        """Whether the answer was to one of these inquiries."""
        if inquiry not in self._asked:
            return False
        what, sent_at = self._asked.pop(inquiry)
        try:
            if not isinstance(what, TradeType):
                said = attributes.decode_untrusted(body)
                if isinstance(said, Attributes):
                    self._trader.measured(what, now - sent_at, dict(said.values), now)
                    if self._offered is not None and self._offered.old.peer_id == what:
                        self._weigh(self._offered, now)
            else:
                message = trades.decode_untrusted(body)
                self._answered(what, message.yes, message.amount, now)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
        return True

    def _answered(self, what: TradeType, yes: bool, level: float, now: float) -> None:
        offered = self._offered
        if what is TradeType.FALL and offered is not None:
            old = offered.old
            if yes and 0 <= level < self._own.level:
                offered.old = PeerAt(old.peer_id, old.address, round(level))
                self._candidates.add_hearsay((offered.old,), teller=None, now=now)
                self._weigh(offered, now)
            else:
                self._offered = None
                self._say(offered.parent, TradeMessage(TradeType.AGREED, yes=False))
        elif what is TradeType.TRADE and not yes and self._bid is not None and not self._bid.is_ready:
            self._bid = None
            self._lock.release(self._own.peer_id)
        elif what is TradeType.READY and not yes and self._deal is not None:
            self._lock.release(self._deal.peer_id)
            self._deal = None

    def timed_out(self, inquiry: Inquiry) -> bool:
        return self._asked.pop(inquiry, None) is not None
