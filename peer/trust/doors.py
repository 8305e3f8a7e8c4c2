"""Who comes in and whom we go to, asked before the mesh is: the door of every link of a peer.

dcp proves which key the other end of an encrypted link holds. Here that key is compared with the peer id that a join
names, and with the one that was asked for; then the gate is asked whether the owner's policy lets that peer in. Links
without encryption, to peers of earlier versions, prove nothing.

A policy comes with the credentials of an opening, or as a message on a link (0x50, then the policy). One that is newer
than ours goes on to all other links, and those that it does not allow are closed. So do the signed beats of roots
(`beats`): a message of 0x51, then the beat. A message of 0x52 shows a parent what it left out (`contradictions`).

Whether a child gets withheld packets is settled when its link is opened: it asks for them by saying that it has them
(`Shown.has_withheld`), and is refused if it may not, or if they are not here. So all parents of a peer have the same
stream. A peer whose grant for them ends leaves all its parents, and comes back without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dcp import Hub, Reason
from dcp import events as dcp_events
from dht.identity import id_text, peer_id_of
from peer.mesh.encoding import decode_join_untrusted
from peer.mesh.events import LinkDenied, LinkId
from peer.mesh.messages import MalformedMessage, PeerId, RefuseReason
from peer.trust.beats import BeatBook
from peer.trust.contradictions import MARK as CONTRADICTION
from peer.trust.contradictions import Contradictions
from peer.trust.counting import Counting
from peer.trust.gate import Gate, Shown
from peer.trust.rootkeys import RootKeys
from peer.trust.visitors import Visitors
from peer.trust.withholding import is_withheld_untrusted

if TYPE_CHECKING:
    from dht.streams import Grant
    from peer.link_map import LinkMap
    from peer.mesh.machine import Mesh
    from peer.trust.check import Trust

MAX_WAITING = 256
"""Joins that the mesh has not answered, as many as dcp keeps (`tickets`): the oldest are forgotten, and restricted."""
LOOK_INTERVAL = 5.0
"""How often grants that have run out are looked for."""
WITHHELD_ENDS = "this peer's grant for withheld packets ends: they no longer come. Ask the owner for a new one"
_BEAT = b"\x51"
_POLICY = b"\x50"  # the mesh's own messages begin with their version


def is_peer(peer_id: PeerId) -> Callable[[bytes], bool]:
    """Whether an Ed25519 key is that peer's."""
    return lambda public_key: bytes(peer_id_of(public_key)) == peer_id


class Doors:
    def __init__(
        self,
        stream: str,
        hub: Hub,
        links: LinkMap,
        gate: Gate | None,
        tell: Callable[[LinkDenied], None],
        *,
        trust: Trust | None = None,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Without a gate only keys are compared, and without trust no beats are heard."""
        self.book = BeatBook(stream, trust.keys, wall, trust.set_head) if trust is not None else None
        self.counting = Counting()
        self.gate = gate
        self._stream, self._hub, self._links, self._tell = stream, hub, links, tell
        self._waiting: dict[int, Shown] = {}  # by ticket
        self._children: dict[int, Shown] = {}  # by dcp's number
        self._parents: dict[int, Shown] = {}
        self._look_at = 0.0
        self._trust = trust
        self.visitors = Visitors(stream, hub)
        self.contradictions: Contradictions | None = None
        receiver = hub.receivers.get(stream)
        if trust is not None and receiver is not None:
            self.contradictions = Contradictions(receiver, hub.senders.get(stream), trust)
        if gate is not None:
            hub.keying.credentials = gate.credentials
            self.counting.has_withheld = gate.has_withheld
            if trust is not None:
                trust.takes_withheld = gate.has_withheld
            if gate.holds_withheld and stream in hub.senders:
                hub.senders[stream].log.withholds = is_withheld_untrusted

    def learn_keys(self, trust: Trust, own: tuple[bytes, Grant | None] | None) -> None:
        """Learn the keys of roots from parents too, and show all that are known, and our own, to whoever is linked."""
        if self.gate is None:
            return
        self.gate.root_keys = RootKeys(self._stream, lambda key, expires_at: trust.add_key(key, expires_at=expires_at))
        if own is not None:
            self.gate.root_keys.add(*own)

    def admits(self, opening: dcp_events.OpeningReceived, mesh: Mesh, now: float) -> bool:
        """Whether the mesh may look at a join; if not, it has been refused, or was no join but a visit."""
        why = _other_peer_untrusted(opening)
        if why is not None:
            self._hub.refuse(self._stream, opening.ticket, Reason.OTHER_PEER, why.encode())
            return False
        if self.gate is None:
            return not self.visitors.receives(opening, now)
        shown, is_news = self.gate.look_untrusted(opening.public_key, opening.credentials)
        if is_news:
            self.policy_changed(mesh, now)
        why = self.gate.why_not_child(shown)
        if why is not None:
            self.gate.denied += 1
            self._hub.refuse(self._stream, opening.ticket, Reason.DENIED, why.encode())
            return False
        if self.gate.is_unfit_child(shown):
            self._hub.refuse(self._stream, opening.ticket, Reason.MODE_MISMATCH, b"no withheld packets here")
            return False
        if self.visitors.receives(opening, now, is_restricted=self.gate.restricts(shown)):
            return False
        self._waiting[opening.ticket] = shown
        if len(self._waiting) > MAX_WAITING:  # dcp gave them up, and the mesh never answered
            del self._waiting[next(iter(self._waiting))]
        return True

    def restricts(self, ticket: int) -> bool:
        """Whether a child that is about to be accepted gets no withheld packets."""
        return self.gate is not None and self.gate.restricts(self._waiting.get(ticket, Shown(None)))

    def answered(self, ticket: int, number: int | None) -> None:
        """The mesh has accepted a join as this link of dcp, or refused it."""
        shown = self._waiting.pop(ticket, Shown(None))
        if self.gate is not None and number is not None:
            self._children[number] = shown

    def enters(self, opened: dcp_events.LinkOpened, link: LinkId, mesh: Mesh, now: float) -> bool:
        """Whether a parent that has accepted us may be one; if not, it has been left."""
        if self.gate is None:
            return True
        shown, is_news = self.gate.look_untrusted(opened.public_key, opened.credentials)
        if is_news:
            self.policy_changed(mesh, now)
        why = self.gate.why_not_parent(shown)
        if why is None and not self.gate.is_unfit_parent(shown):
            self._parents[opened.link] = shown
            return True
        self._links.close(link, Reason.DENIED)
        mesh.link_refused(link, RefuseReason.POLICY, b"", now=now)
        if why is not None:
            self.gate.denied += 1
            self._tell(LinkDenied(opened.address[:2], why))
        return False

    def hears(self, message: dcp_events.MessageReceived, mesh: Mesh, now: float) -> bool:
        """Whether a message was about the policy, the head of the stream or a packet, and not for the mesh."""
        if message.data[:1] == _BEAT:
            is_of_parent = message.link in self._parents
            beat = self.book.hear_untrusted(message.data[1:], now) if self.book is not None and is_of_parent else None
            if beat is not None:
                self.counting.hear(beat, now)
                self.say_beat(message.data[1:])
            return True
        if message.data[:1] == CONTRADICTION:
            if self.contradictions is not None and message.link in self._children:
                self.contradictions.hear_untrusted(message.data[1:], now)
            return True
        if message.data[:1] != _POLICY:
            return False
        if self.gate is not None and self.gate.adopt_untrusted(message.data[1:]):
            self.policy_changed(mesh, now)
        return True

    def say_beat(self, beat: bytes) -> None:
        """To the children; those without encryption are of a version that does not know beats."""
        for number, shown in self._children.items():
            link = self._links.any(number)
            if link is not None and shown.peer_id is not None:
                self._links.send(link, _BEAT + beat)

    def policy_changed(self, mesh: Mesh, now: float) -> None:
        """Tell all links, and close those that it does not allow."""
        self._look_at = now
        if self.gate is None or self.gate.policy is None:
            return
        body = _POLICY + self.gate.policy.encode()
        for number in (*self._parents, *self._children):
            link = self._links.any(number)
            if link is not None:
                self._links.send(link, body)
        self.look(mesh, now)

    def look(self, mesh: Mesh, now: float) -> None:
        """Close links that are no longer allowed: by a new policy, or since a grant or a visit has run out."""
        self.visitors.look(now)
        if self.book is not None:
            self.book.look(now)
        if self.gate is None or now < self._look_at:
            return
        self._look_at = now + LOOK_INTERVAL
        loses_withheld = self.gate.loses_withheld()
        if loses_withheld:
            self._lose_withheld(mesh)
        for table, why_not, is_unfit in (
            (self._children, self.gate.why_not_child, self.gate.is_unfit_child),
            (self._parents, self.gate.why_not_parent, lambda shown: loses_withheld or self.gate.is_unfit_parent(shown)),
        ):
            for number, shown in list(table.items()):
                link = self._links.any(number)
                if link is None:
                    del table[number]
                elif why_not(shown) is not None or is_unfit(shown):
                    del table[number]
                    self.gate.denied += 1
                    self._links.close(link, Reason.DENIED)
                    mesh.link_reset(link, now=now)

    def _lose_withheld(self, mesh: Mesh) -> None:
        """What parents say from now on is not compared with what came before, when withheld packets still came."""
        self.counting.lose_withheld()
        if self._trust is not None:
            self._trust.takes_withheld = False
        if (receiver := self._hub.receivers.get(self._stream)) is not None:
            receiver.audit.begin()
        for parent in mesh.parents.links.values():
            self._tell(LinkDenied(parent.address, WITHHELD_ENDS))


def _other_peer_untrusted(opening: dcp_events.OpeningReceived) -> str | None:
    """Why a join is not that of the peer that opened the link."""
    if not opening.public_key:
        return None
    try:
        named = decode_join_untrusted(opening.hello).peer_id
    except MalformedMessage:
        return None  # the mesh says so, with the version that it speaks
    proved = peer_id_of(opening.public_key)
    if named == bytes(proved):
        return None
    return f"the join names another peer than {id_text(proved)}, whose key opened the link"


def other_peer_in_words(public_key: bytes) -> str:
    return f"the peer there is {id_text(peer_id_of(public_key))}, not the one that was asked for"
