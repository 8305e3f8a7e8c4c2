"""The whole peer as one pure machine: dcp's hub, the mesh machine and the XML switch behind the five methods.

It knows no socket, clock or directory. What it can't do itself comes out as an event: `CandidatesWanted` asks for the
directory's answer by `add_candidates`, `PublishRecord` and `WithdrawRecord` say what the directory should hold. What
the client is handed comes, in the order of the stream, from `next_content`.

The two machines inside meet here and nowhere else: the mesh decides which links there are, dcp carries them.

    mesh effect      dcp call                     dcp event          mesh input
    OpenLink         add_sender                   LinkOpened         link_opened
    AcceptLink       accept                       LinkRefused        link_refused, open_timed_out
    RefuseLink       refuse                       LinkLost, ChildLost link_closed, link_reset
    SendMessage      send_message                 MessageReceived    receive_message
    CloseLink        remove_sender, close         OpeningReceived    receive_join
    Inquire          inquire                      InquiryAnswered    inquiry_answered, inquiry_timed_out
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

from dcp import EVERYTHING, Hub, Reason
from dcp import events as dcp_events
from dcp.guard import fault
from dcp.links.keying import LinkIdentity
from dcp.links.link import SocketAddress
from dcp.verdicts import FORGED
from peer.asking import Asking, asking_for
from peer.content import Subscription
from peer.coreconfig import CoreConfig
from peer.envelope import Envelope
from peer.errors import QueryNotCarried
from peer.flow import (
    Decision,
    Disconnected,
    FallingBehind,
    FlowEvent,
    JoinExperiments,
    KeepingUp,
    NumbersRestarted,
    QueryNarrowed,
    QueryWidened,
)
from peer.items import Content
from peer.link_map import LinkMap
from peer.mesh import events as meshevents
from peer.mesh.candidates import CandidateRecord
from peer.mesh.events import Inquiry, JoinTicket, LinkId
from peer.mesh.machine import Mesh
from peer.mesh.messages import MAX_QUERY_BYTES, CloseReason, PeerId, RefuseReason
from peer.mesh.placement.moves import Placement
from peer.mesh.placement.neighbourhood import LinkQuality
from peer.observer import Observer
from peer.other_versions import of_refusal
from peer.presence import Presence
from peer.queries import XPathPolicy, token_of
from peer.role import Role
from peer.standing import StandingQuery
from peer.streaming import open_stream
from peer.trust.audits import audits_for
from peer.trust.batches import BatchSigner
from peer.trust.check import Trust
from peer.trust.doors import Doors, is_peer
from peer.trust.gate import Gate
from peer.trust.signing import SigningQueue

# dcp keeps the reasons below 64 for itself: ours go above.
REASON_BASE = 64
NOT_CARRIED = "the query wants more than this router may carry: narrow the query, or widen what is carried"
# What dcp refuses by itself, in the mesh's words; whatever else the other side says is POLICY.
_REFUSALS: dict[int, RefuseReason] = {
    Reason.STREAM_UNKNOWN: RefuseReason.STREAM_UNKNOWN,
    Reason.FULL: RefuseReason.FULL,
    Reason.SHUTTING_DOWN: RefuseReason.SHUTTING_DOWN,
}
PeerEvent = meshevents.Event | meshevents.Effect | FlowEvent


class PeerCore:
    def __init__(
        self,
        config: CoreConfig,
        peer_id: PeerId,
        *,
        rng: random.Random,
        policy: XPathPolicy | None = None,
        placement: Placement | None = None,
        trust: Trust | None = None,
        signer: BatchSigner | None = None,
        wall: Callable[[], float] = lambda: 0.0,
        identity: LinkIdentity | None = None,
        gate: Gate | None = None,
    ) -> None:
        """With a signer a root signs its packets, with the Unix time of `wall()`; `trust` is for all others. With an
        identity, links are encrypted; with a gate, the owner's policy says with whom there are links."""
        self.config = config
        if policy is None:
            policy = XPathPolicy(Envelope(remembers=config.role is Role.ROUTER and config.deliver))
        self.policy = policy
        self.hub = Hub(config.dcp, rng=rng, clock=self.policy.clock, identity=identity)
        self.client: Subscription | None = None
        """What the client here is handed; None at a root, and at a router that only passes packets on."""
        own = token_of(config.query)
        if config.carry is not None and not config.carry.travels:
            raise QueryNotCarried("what a router carries must be XPath 1.0: it is compared with its children's queries")
        self._carry = token_of(config.carry)
        if config.deliver and config.role is Role.ROUTER and not self._carries(own):
            raise QueryNotCarried(NOT_CARRIED)
        self._asking: Asking | None = None
        self._fitted = 0
        query = own if config.role is Role.LEAF else self._first_upstream_query()
        self.trust = trust
        self.receiver, self.sender = open_stream(self.hub, config, self.policy, trust, query=query)
        if self.receiver is not None and self.sender is not None and config.dynamic:
            self._asking = asking_for(
                policy,
                self.receiver,
                self.sender,
                carry=self._carry,
                carries=self._carries,
                narrow_after=config.narrow_after,
                epoch_lifetime=config.dcp.epoch_lifetime,
            )
        self.signing: SigningQueue | None = None
        if signer is not None and self.sender is not None:
            self.signing = SigningQueue(self.sender, signer, wall, say=lambda beat: self.doors.say_beat(beat))
        if self.receiver is not None and (config.deliver or config.role is Role.LEAF):
            self.client = Subscription(self.receiver, self.policy, config.query, is_router=config.role is Role.ROUTER)
        self._links = LinkMap(self.receiver, self.sender)
        self._presence = Presence(config, self.receiver, self.sender, self.client)
        self.observer = Observer(self._links, self._presence, self.client, policy)
        self.mesh = self._new_mesh(peer_id, rng, placement)
        self._inquiries: dict[int, Inquiry] = {}
        self._events: deque[PeerEvent] = deque()
        self.doors = Doors(config.stream, self.hub, self._links, gate, self._events.append, trust=trust, wall=wall)
        self.audits = audits_for(config, self.hub, self.receiver, trust, rng, self._events.append)
        self._rng = rng
        self._placement = placement
        self._ladder: tuple[StandingQuery | None, ...] = (config.query, *config.fallbacks)
        self._flow = JoinExperiments(config.flow, len(self._ladder), rng)
        self._look_at: float | None = None
        self._disconnecting: str | None = None
        self.disconnected: str | None = None
        """Why this peer gave up its parents, until `rejoin`."""

    def _new_mesh(self, peer_id: PeerId, rng: random.Random, placement: Placement | None) -> Mesh:
        mesh = Mesh(
            peer_id,
            self.config.mesh,
            rng=random.Random(rng.getrandbits(64)),
            placement=placement,
            observer=self.observer,
            admits=self.config.admits,
            carries=self._carries,
            covers=self.policy.covers_untrusted,
            coverage=self._coverage,
            query=own if len(own := token_of(self.config.query)) <= MAX_QUERY_BYTES else EVERYTHING,
        )
        self.observer.parents = mesh.parents.links.values
        return mesh

    def _first_upstream_query(self) -> bytes:
        if not self.config.dynamic:
            return self._carry
        if self.config.deliver:
            return token_of(self.config.query)
        return EVERYTHING if self.policy.nothing is None else self.policy.nothing

    @property
    def subscription(self) -> bytes:
        """What this peer asks its parents for, which is what it has for its children; a root has everything."""
        return EVERYTHING if self.receiver is None else self.receiver.change.target

    def _carries(self, query: bytes) -> bool:
        return self.policy.covers_untrusted(self._carry, query)  # a join's comes here before dcp has checked it

    def _coverage(self, carried: bytes) -> float:
        """Whether a candidate has what we ask for already; if not, it must first ask its own parents for more."""
        return 1.0 if self.policy.covers_untrusted(carried, self.subscription) else 0.0

    # --- commands -----------------------------------------------------------------------------------------------------

    def start(self, *, now: float) -> None:
        """Take part in the mesh from now on."""
        begin = self.mesh.start_root if self.config.role is Role.ROOT else self.mesh.start
        begin(now=now)
        if self.client is not None:
            self._look_at = now + self.config.flow.look_interval
        self._settle(now)

    def rejoin(self, *, now: float) -> None:
        """After `Disconnected`: look for parents again, and go on from the position reached, with the whole query."""
        if self.disconnected is None:
            raise ValueError("this peer is not disconnected")
        self.disconnected = None
        if self._flow.rung:
            self._want(self._ladder[0], now)
        self.mesh = self._new_mesh(self.mesh.peer_id, self._rng, self._placement)
        self._flow = JoinExperiments(self.config.flow, len(self._ladder), self._rng)
        self.start(now=now)

    def publish(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Give the mesh its next packet (roots only): an envelope, see `peer.envelope`."""
        if self.config.role is not Role.ROOT or self.sender is None:
            raise ValueError("only a root publishes")
        if self.signing is not None:
            return self.signing.add(payload, an=an, contiguous=contiguous)
        return self.sender.publish(payload, an=an, contiguous=contiguous)

    def add_candidates(self, records: Iterable[CandidateRecord], *, now: float) -> None:
        self.mesh.add_candidates(records, now=now)
        self._settle(now)

    def change_query(self, query: StandingQuery | None, *, now: float) -> None:
        """Want other packets; `QuerySwitched` in the content says from which position on. Fallbacks no longer apply."""
        if self.receiver is None:
            raise ValueError("a root has no query")
        if self.config.role is Role.ROUTER and not self._carries(token_of(query)):
            raise QueryNotCarried(NOT_CARRIED)
        self._ladder = (query,)
        self._flow = JoinExperiments(self.config.flow, 1, self._rng)
        self._want(query, now)
        self._settle(now)

    def _want(self, query: StandingQuery | None, now: float) -> None:
        assert self.receiver is not None
        if self.client is not None:
            self.client.want(query)
        if self.config.role is Role.LEAF:
            self.receiver.change_query(token_of(query), now=now)
        else:
            self._fit_query(now)

    def leave(self, *, now: float) -> None:
        """Tell everybody; `Left` comes when the children have had time to find other parents."""
        if self.signing is not None:
            self.signing.flush(now, at_once=True)
        if self.disconnected is not None:  # the mesh has been left already
            self._tell(meshevents.Left())
        else:
            self.mesh.leave(now=now)
        self._settle(now)

    # --- the five methods ---------------------------------------------------------------------------------------------

    def receive_datagram(self, data: bytes, address: SocketAddress, *, now: float) -> bool:
        """Whether it changed anything: garbage does not."""
        if not self.hub.receive_datagram(data, address, now=now):
            return False
        self._settle(now)
        return True

    def handle_timeout(self, *, now: float) -> None:
        self.hub.handle_timeout(now=now)
        at = self.mesh.next_timeout()
        if at is not None and now >= at:
            self.mesh.handle_timeout(now=now)
        if self._asking is not None and now >= self._asking.due:
            self._fit_query(now)
        self._presence.look(now)
        self.doors.look(self.mesh, now)
        if self.audits is not None:
            self.audits.look(self.mesh, now)
        if self._look_at is not None and now >= self._look_at:
            self._look_at = now + self.config.flow.look_interval
            self._control_flow(now)
        self._settle(now)

    def datagrams_to_send(self, *, now: float) -> list[tuple[bytes, SocketAddress]]:
        if self.signing is not None:
            self.signing.flush(now)
        return self.hub.datagrams_to_send(now=now)

    def next_timeout(self, *, now: float) -> float | None:
        sign_at = self.signing.due_at if self.signing is not None else None
        fit_at = self._asking.due if self._asking is not None and not self._asking.is_done else None
        times = (self.hub.next_timeout(now=now), self.mesh.next_timeout(), self._look_at, sign_at, fit_at)
        return min((t for t in times if t is not None), default=None)

    def next_event(self) -> PeerEvent | None:
        return self._events.popleft() if self._events else None

    def next_content(self) -> Content | None:
        """The next packet, with its envelope opened, gap, start or query switch for the client here."""
        return None if self.client is None else self.client.next()

    # --- what the mesh asks of dcp ------------------------------------------------------------------------------------

    def qualities(self, now: float) -> dict[LinkId, LinkQuality]:
        """What dcp measured on the links to parents and children."""
        return self.observer.qualities(now)

    def dcp_link(self, link: LinkId) -> int | None:
        """dcp's number for a link of the mesh."""
        return self._links.dcp_link(link)

    def cut_off(self, link: LinkId) -> int:
        """Packets that passed to a child unmatched, because its query would have taken too long."""
        child = self.sender.children.get(self._links.dcp_link(link) or 0) if self.sender is not None else None
        slot = child.interest.slot if child is not None and child.interest is not None else None
        return 0 if slot is None else self.policy.cut_off(slot)

    @property
    def asked(self) -> dict[str, int]:
        """Of a dynamic router: what its queries upstream are made of."""
        return self._asking.counts() if self._asking is not None else {}

    @property
    def links_mapped(self) -> int:
        """Links that are known to both machines here."""
        return len(self._links)

    @property
    def events_waiting(self) -> int:
        return len(self._events)

    def _settle(self, now: float) -> None:
        """Let the two machines answer each other until both are quiet."""
        while True:
            busy = False
            for effect in self.mesh.take_effects():
                busy = True
                try:
                    self._run(effect, now)
                except Exception as error:
                    fault("mesh effect", error)
            while (event := self.hub.next_event()) is not None:
                busy = True
                try:
                    self._on_dcp(event, now)
                except Exception as error:
                    fault("link event", error)
                    self._drop_link_of(event, now)
            while (news := self.mesh.next_event()) is not None:
                self._tell(news)
            if self.sender is not None and self.sender.wants_revision != self._fitted:
                # Before a narrower query that is being prepared upstream takes effect: a child may just have come
                # that needs more than it.
                self._fitted = self.sender.wants_revision
                self._fit_query(now)
            if not busy:
                return

    def _drop_link_of(self, event: dcp_events.Event, now: float) -> None:
        """Whatever it was that we could not deal with, its sender gets no second try on this link."""
        number = getattr(event, "link", None)
        link = self._links.any(number) if number is not None else None
        if link is not None:
            self._links.close(link, REASON_BASE + CloseReason.MALFORMED)
            self.mesh.link_reset(link, now=now)

    def _tell(self, news: meshevents.Event) -> None:
        if isinstance(news, meshevents.Left) and self._disconnecting is not None:
            self.disconnected, self._disconnecting = self._disconnecting, None
            self._events.append(Disconnected(self.disconnected))
            return
        self._events.append(news)
        if isinstance(news, meshevents.Left):
            self._look_at = None
            self.hub.remove_stream(self.config.stream, Reason.SHUTTING_DOWN)

    def _run(self, effect: meshevents.Effect, now: float) -> None:
        stream = self.config.stream
        match effect:
            case meshevents.OpenLink(link, peer_id, address, hello):
                number = self.hub.add_sender(stream, address, hello, now=now, is_expected=is_peer(peer_id))
                self._links.add_parent(number, link)
            case meshevents.AcceptLink(ticket, link, reply):
                restricted = self.doors.restricts(ticket)
                accepted = self.hub.accept(stream, ticket, reply, now=now, is_restricted=restricted)
                self.doors.answered(ticket, accepted)
                if accepted is None:
                    self.mesh.link_reset(link, now=now)
                else:
                    self._links.add_child(accepted, link)
            case meshevents.RefuseLink(ticket, reason, body):
                self.doors.answered(ticket, None)
                self.hub.refuse(stream, ticket, REASON_BASE + reason, body)
            case meshevents.SendMessage(links, body):
                for link in links:
                    self._links.send(link, body)
            case meshevents.CloseLink(link, reason):
                self._links.close(link, REASON_BASE + reason)
            case meshevents.Inquire(inquiry, address, question):
                timeout = self.config.inquiry_timeout
                self._inquiries[self.hub.inquire(address, question, timeout=timeout, now=now)] = inquiry
            case _:
                self._events.append(effect)

    def _on_dcp(self, event: dcp_events.Event, now: float) -> None:
        mesh = self.mesh
        match event:
            case dcp_events.OpeningReceived(_, ticket, address, query, hello):
                if self.doors.admits(event, mesh, now):
                    mesh.receive_join(JoinTicket(ticket), address[:2], hello, now=now, query=query)
            case dcp_events.LinkOpened(_, number, _, reply):
                link = self._links.parent(number)
                if link is not None and self.doors.enters(event, link, mesh, now):
                    mesh.link_opened(link, reply, now=now)
            case dcp_events.LinkRefused(_, number, address, reason, body):
                if (news := of_refusal(address, reason, body)) is not None:
                    self._events.append(news)
                if (link := self._links.forget_parent(number)) is not None:
                    self._refused(link, reason, body, now)
            case dcp_events.LinkLost(_, number, _, reason, _):
                if (link := self._links.forget_parent(number)) is not None:
                    self._ended(link, reason, now)
            case dcp_events.ChildLost(_, number, _, reason, _):
                if (link := self._links.forget_child(number)) is not None:
                    self._ended(link, reason, now)
            case dcp_events.MessageReceived(_, number, data):
                if not self.doors.hears(event, mesh, now) and (link := self._links.any(number)) is not None:
                    mesh.receive_message(link, data, now=now)
            case dcp_events.InquiryReceived(ticket, address, body):
                answer = mesh.answer_inquiry(body, address[:2], now=now)
                if answer is not None:
                    self.hub.answer(ticket, answer)
            case dcp_events.InquiryAnswered(number, _, reply):
                if (inquiry := self._inquiries.pop(number, None)) is None:
                    return
                if reply is None:
                    mesh.inquiry_timed_out(inquiry, now=now)
                else:
                    mesh.inquiry_answered(inquiry, reply, now=now)
            case dcp_events.WiderQueryWanted(_, number, query):
                if (link := self._links.child(number)) is not None and not self._carries(query):
                    mesh.drop_child(link, CloseReason.QUERY_NOT_CARRIED, now=now)
                else:
                    self._fit_query(now)
            case dcp_events.Stranded(_, position, head):
                if self.receiver is not None:
                    self._events.append(NumbersRestarted(position, head))
                    self.receiver.begin_again()
                    for link in self._links.children():
                        # The head they know from us no longer holds; on a new link they learn the new numbers.
                        mesh.drop_child(link, CloseReason.COLD_RESTART, now=now)
            case dcp_events.Disputed(_, number, _, after, until, why):
                if (link := self._links.parent(number)) is not None:
                    mesh.parent_disputed(link, after=after, until=until, reason=why, now=now)
            case dcp_events.Contradicted(_, number, an) if self.doors.contradictions is not None:
                self.doors.contradictions.show(number, an)
            case dcp_events.Convicted(_, number, _, an, why):
                if (link := self._links.parent(number)) is not None:
                    mesh.parent_convicted(link, an=an, reason=why, closes=why == FORGED, now=now)
            case dcp_events.Starved(_, head, since):
                mesh.starved(head=head, seconds=now - since, now=now)
            case dcp_events.ParentWanted(_, wanted, _):
                mesh.want_spare(wanted, now=now)

    def _refused(self, link: LinkId, reason: int, body: bytes, now: float) -> None:
        if reason == Reason.TIMED_OUT:
            self.mesh.open_timed_out(link, now=now)
        elif reason >= REASON_BASE:
            self.mesh.link_refused(link, reason - REASON_BASE, body, now=now)
        else:
            self.mesh.link_refused(link, _REFUSALS.get(reason, RefuseReason.POLICY), b"", now=now)

    def _ended(self, link: LinkId, reason: int, now: float) -> None:
        if reason >= REASON_BASE:
            self.mesh.link_closed(link, reason - REASON_BASE, now=now)
        else:
            self.mesh.link_reset(link, now=now)

    # --- flow control -------------------------------------------------------------------------------------------------

    def _control_flow(self, now: float) -> None:
        """Look how full the client's queue is, and do what the experiments say."""
        if self.receiver is None or self.disconnected is not None:
            return
        backlog = self.receiver.backlog
        decision = self._flow.look(backlog, now)
        match decision:
            case Decision.WARN:
                self._events.append(FallingBehind(backlog))
            case Decision.RECOVERED:
                self._events.append(KeepingUp())
            case Decision.STEP_DOWN | Decision.TRY_WIDER:
                query = self._ladder[self._flow.rung]
                words = query.canonical if query is not None else ""
                kind = QueryNarrowed if decision is Decision.STEP_DOWN else QueryWidened
                self._events.append(kind(self._flow.rung, words))
                self._want(query, now)
            case Decision.GIVE_UP if self.config.role is Role.LEAF:
                # A router goes on for its children: its own client, which is served from the log, gets gaps.
                self._disconnecting = "the application is not consuming packets"
                self._look_at = None
                self.mesh.leave(now=now)
            case _:
                pass

    # --- content configuration ----------------------------------------------------------------------------------------

    def _fit_query(self, now: float) -> None:
        """Ask upstream for what is wanted here."""
        if self._asking is not None and self._asking.fit(self.client.tokens if self.client is not None else (), now):
            self.mesh.carried_changed(now=now)
