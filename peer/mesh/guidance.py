"""Where a goal meets the mesh: passes it on, measures candidates for it, and carries what peers say of their costs.

What all that means is known to a `Guide`, which is a placement that can follow a goal; without one, or without a goal,
nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dcp.admission import HostBuckets
from peer.mesh import attributes, encoding
from peer.mesh.attributes import Attributes, AttributesRequest, GoalData, GoalRequest
from peer.mesh.events import Inquire, Inquiry, SendMessage
from peer.mesh.membership import SEEKING
from peer.mesh.messages import MalformedMessage, ParentsRequest, PeerId, Peers
from peer.mesh.timers import Timer
from peer.mesh.trades import is_trade_message
from peer.mesh.trading import Trader, Trading

if TYPE_CHECKING:
    from random import Random

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

TELL_INTERVAL = 1.0
"""Seconds between two reports of our attributes to each neighbour."""
PROBE_PATIENCE = 1.0
"""Seconds that answers to probes are waited for before a move is considered."""
PERIOD = 30.0
"""With a goal, a better place is sought about this often."""
MAX_PROBES = 8
"""Inquiries in flight for it."""
MAX_GOALS_PER_SECOND = 5.0
"""Offered goals that are looked at per second: each costs the check of a signature."""


@runtime_checkable
class Guide(Trader, Protocol):
    """A placement that follows a goal. Calls are synchronous and never nested."""

    trial: float
    """Seconds to hold one parent too many after a move, so that its copies show what it is worth."""

    @property
    def is_active(self) -> bool:
        """Whether there is a goal."""

    @property
    def goal_data(self) -> bytes:
        """As its owner signed it; empty if there is none."""

    def take_goal(self, data: bytes) -> bool:
        """Whether it is the owner's and newer than ours; then it is ours from now on."""

    def values(self, around: Neighbourhood, parent: PeerId | None = None) -> Mapping[int, bytes]:
        """What to say about ourselves, to this parent or to anybody."""

    def heard(self, peer: PeerId, values: Mapping[int, bytes], now: float) -> bool:
        """A neighbour's attributes; whether it has a newer goal."""

    def is_due(self, own: PeerId) -> bool:
        """Whether a better place is to be looked for at once; said once."""

    def to_probe(self, around: Neighbourhood, rng: Random) -> list[PeerId]:
        """Whom to measure before a better place is looked for."""


class Guidance:
    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        candidates: CandidateCache,
        surroundings: Surroundings,
        guide: Guide | None,
        seeking: Seeking,
    ) -> None:
        self._own, self._parents, self._children, self._candidates = own, parents, children, candidates
        self._surroundings, self._guide = surroundings, guide
        self._trading: Trading | None = None
        if guide is not None:
            self._trading = Trading(own, parents, children, candidates, surroundings, seeking, guide)
            children.most = lambda: guide.limit(own.config.capacity)
        self._probes: dict[Inquiry, tuple[PeerId, float]] = {}
        self._told_at = {"up": float("-inf"), "down": float("-inf")}
        self._explored_at = float("-inf")
        self._offers = HostBuckets(MAX_GOALS_PER_SECOND, MAX_GOALS_PER_SECOND)

    @property
    def is_active(self) -> bool:
        return self._guide is not None and self._guide.is_active

    @property
    def trial(self) -> float:
        """How long to keep a parent that may be given up for a new one."""
        return self._guide.trial if self._guide is not None and self._guide.is_active else 0.0

    @staticmethod
    def speaks(body: bytes) -> bool:
        """Whether a message or an inquiry belongs here."""
        return attributes.is_attribute_message(body) or is_trade_message(body)

    def arrived(self, link: LinkId, peer_id: PeerId) -> float:
        """A better parent was joined: how long to hold it beside the one that it may replace."""
        return 0.0 if self._trading is not None and self._trading.arrived(link, peer_id) else self.trial

    def trade(self, move: Trade, now: float) -> None:
        """Try to exchange slots."""
        if self._trading is not None:
            self._trading.begin(move, now)

    def values(self, now: float) -> Mapping[int, bytes]:
        """What we say about ourselves now; empty without a goal."""
        return self._guide.values(self._surroundings.at(now)) if self._guide is not None else {}

    # On links

    def tell(self, links: Mapping[LinkId, object], *, up: bool, now: float) -> None:
        """Say our attributes to these neighbours, if it is time."""
        way = "up" if up else "down"
        if self._guide is None or not self.is_active or not links or now - self._told_at[way] < TELL_INTERVAL:
            return
        self._told_at[way] = now
        if up:
            around = self._surroundings.at(now)
            for parent in around.parents:  # each is told what it is worth to us
                values = self._guide.values(around, parent.peer_id)
                self._send(parent.link, Attributes(tuple(values.items())))
            return
        self._own.effects.append(SendMessage(tuple(links), self._attributes(self._guide, now)))
        if self._trading is not None:
            self._trading.tidy(now)

    def receive(self, link: LinkId, body: bytes, now: float) -> None:
        neighbour = self._parents.links.get(link) or self._children.links.get(link)
        if neighbour is None or self._guide is None or self._trading is None:
            return
        if is_trade_message(body):
            self._trading.receive(link, body, now)
            return
        try:
            message = attributes.decode_untrusted(body)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return
        match message:
            case Attributes(values):
                if self._guide.heard(neighbour.peer_id, dict(values), now):
                    self._send(link, GoalRequest())
                if self._own.state in SEEKING and self._guide.is_due(self._own.peer_id):
                    self._own.timers.set_earlier(Timer.REPLACE, now)
            case GoalRequest() if self._guide.goal_data:
                self._send(link, GoalData(self._guide.goal_data))
            case GoalData(data):
                self._offered(data, neighbour.address, now)

    def _offered(self, data: bytes, address: HostPort, now: float) -> None:
        if self._guide is None or not self._offers.allows(now, address[0]):
            self._own.counters["goals_ignored"] += 1
        elif self._guide.take_goal(data):
            self._own.counters["goals_taken"] += 1
            self._told_at = dict.fromkeys(self._told_at, float("-inf"))  # neighbours hear of it with the next beat
            if self._own.state in SEEKING:
                self._own.timers.set_earlier(Timer.REPLACE, now + self._own.jittered(PERIOD))
        elif data != self._guide.goal_data:
            self._own.counters["goals_refused"] += 1

    def _send(self, link: LinkId, message: attributes.AttributeMessage) -> None:
        self._own.effects.append(SendMessage((link,), attributes.encode(message)))

    def _attributes(self, guide: Guide, now: float) -> bytes:
        return attributes.encode(Attributes(tuple(guide.values(self._surroundings.at(now)).items())))

    # Inquiries

    def answer(self, request: bytes, address: HostPort, now: float) -> bytes | None:
        """An inquiry about the goal or our attributes, or the offer of a goal."""
        if self._guide is None or self._trading is None:
            return None
        if is_trade_message(request):
            return self._trading.answer(request, address, now)
        try:
            asked = attributes.decode_untrusted(request)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
            return None
        match asked:
            case GoalRequest():
                return attributes.encode(GoalData(self._guide.goal_data))
            case GoalData(data):
                self._offered(data, address, now)
        return self._attributes(self._guide, now)

    # Measuring

    def explore(self, now: float) -> bool:
        """Measure candidates; False if there is nothing to measure, or if that has just been done."""
        guide = self._guide
        if guide is None or not guide.is_active or now - self._explored_at < 2 * PROBE_PATIENCE:
            return False
        self._explored_at = now
        self._probes.clear()
        around = self._surroundings.at(now)
        for parent in around.parents[: MAX_PROBES // 2]:  # their parents are the first candidates of the next round
            self._ask(parent.peer_id, parent.address, encoding.encode_request(ParentsRequest()), now)
        for peer in guide.to_probe(around, self._own.rng)[:MAX_PROBES]:
            candidate = self._candidates.find(peer)
            address = candidate.address if candidate is not None else self._address_of_parent(peer)
            if address is not None:
                self._ask(peer, address, attributes.encode(AttributesRequest()), now)
        return bool(self._probes)

    def _address_of_parent(self, peer: PeerId) -> HostPort | None:
        return next((p.address for p in self._parents.links.values() if p.peer_id == peer), None)

    def _ask(self, peer: PeerId, address: HostPort, request: bytes, now: float) -> None:
        inquiry = Inquiry(self._own.new_link())
        self._probes[inquiry] = (peer, now)
        self._own.counters["probes"] += 1
        self._own.effects.append(Inquire(inquiry, address, request))

    def answered(self, inquiry: Inquiry, answer: bytes, now: float) -> bool:
        """Whether the answer was to one of these inquiries."""
        asked = self._probes.pop(inquiry, None)
        if asked is None:
            return self._trading is not None and self._trading.answered(inquiry, answer, now)
        peer, sent_at = asked
        try:
            if attributes.is_attribute_message(answer):
                message = attributes.decode_untrusted(answer)
                if isinstance(message, Attributes) and self._guide is not None:
                    self._guide.measured(peer, now - sent_at, dict(message.values), now)
            else:
                found = encoding.decode_answer_untrusted(answer)
                if isinstance(found, Peers):
                    self._candidates.add_hearsay(found.peers, teller=self._candidates.find(peer), now=now)
        except MalformedMessage:
            self._own.counters["malformed"] += 1
        return True

    def timed_out(self, inquiry: Inquiry) -> bool:
        is_ours = self._probes.pop(inquiry, None) is not None
        return is_ours or (self._trading is not None and self._trading.timed_out(inquiry))
