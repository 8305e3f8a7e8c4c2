"""One UDP address: every link of a peer, both directions, behind the five methods.

The hub finds the link that a datagram belongs to, checks its seal, and hands it on; it opens links, proves addresses,
and carries questions from outside any link. It is a pure machine: `now` and the random source are given in.

    receive_datagram(data, address, now=...)   input from the network; never raises, whatever the bytes
    handle_timeout(now=...)                    input from the clock
    datagrams_to_send(now=...)                 output, in batches, until empty
    next_timeout(now=...)                      output: absolute time or None
    next_event()                               output: what the owner must know or answer
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from dcp import events, handshake, versions, wire
from dcp.acceptance import Accepts
from dcp.admission import Bucket, HostBuckets
from dcp.authority import Authority
from dcp.config import Config
from dcp.connections import Connections
from dcp.control import Reason
from dcp.errors import MalformedDatagram
from dcp.guard import fault, guard
from dcp.handshake import Start
from dcp.inquiries import Inquiries
from dcp.kinds import kind_of
from dcp.links.address import SocketAddress, is_group
from dcp.links.cookies import CookieJar
from dcp.links.downlink import Downlink
from dcp.links.keying import OFF, Keying, LinkIdentity
from dcp.links.secrecy import is_encrypted
from dcp.links.unsealing import bound_id_untrusted, link_id_of, opened_untrusted
from dcp.links.uplink import Uplink
from dcp.links.ways import Ways
from dcp.log import Log, log_of
from dcp.memberships import Memberships
from dcp.outbox import Outbox
from dcp.profile import PLAIN, Profile
from dcp.queries import EVERYTHING, QueryPolicy
from dcp.receiver import Receiver
from dcp.sender import Sender
from dcp.stats import HubStatistics

MAX_EVENTS = 65_536
MAX_OUTBOX = 4_096
# Answers to strangers, and our own openings: with a long query each of those is up to 60 KB.
MAX_OUTBOX_BYTES = 4 << 20
# Resets are answers to bytes from anybody: few enough per second that nobody can use us to flood others. As few are
# handled: each is compared with every link, and one that is ignored comes again with the next packet.
MAX_RESETS_PER_SECOND = 100
# No timer fires sooner after the last one: a deadline that lies in the past must not spin the shell.
MIN_TIMER_STEP = 1e-3


class Hub:
    def __init__(
        self,
        config: Config | None = None,
        *,
        rng: random.Random,
        clock: Callable[[], float] | None = None,
        identity: LinkIdentity | None = None,
    ) -> None:
        """With a clock, history is looked through in slices of time, not only of packets: that is its only use.
        With an identity, links are encrypted as `Config.encryption` says; `rng` must then be the system's."""
        self.config = config or Config()
        self.keying = Keying(identity, self.config.encryption if identity is not None else OFF, rng)
        self._clock = clock
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self._rng = rng
        self._cookies = CookieJar(rng)
        self._downlinks: dict[int, tuple[Sender, Downlink]] = {}
        self._uplinks: dict[int, tuple[Receiver, Uplink]] = {}
        self._outbox = Outbox(MAX_OUTBOX, MAX_OUTBOX_BYTES)
        self.memberships = Memberships(self.config, self._outbox.add)
        """Multicast groups of our parents."""
        self.connections = Connections(self._uplinks, self._downlinks)
        self._events: deque[events.Event] = deque()
        self._dropped: Counter[str] = Counter()
        self._openings = HostBuckets(self.config.max_openings_per_second, self.config.max_openings_per_host)
        self._resets = Bucket(MAX_RESETS_PER_SECOND, MAX_RESETS_PER_SECOND)
        self._resets_heard = Bucket(MAX_RESETS_PER_SECOND, MAX_RESETS_PER_SECOND)
        self.ways = Ways(self.config.transports)
        self._inquiries = Inquiries(rng, self.ways, emit=self._emit, send_open=self._send_open)
        self._counts = [0, 0, 0, 0]  # datagrams in, out, bytes in, out
        self._now = 0.0
        self._timers_at = -1.0

    # --- streams ------------------------------------------------------------------------------------------------------

    def serve(self, stream: str, *, policy: QueryPolicy | None = None, stream_mode: bool = False) -> Sender:
        """Be a root of `stream`: `publish` on the sender gives it packets."""
        return self._add_sender(stream, log_of(self.config, policy, self._clock), stream_mode=stream_mode)

    def subscribe(
        self,
        stream: str,
        *,
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        stream_mode: bool = False,
        accepts: Accepts | None = None,
        authority: Authority | None = None,
        profile: Profile = PLAIN,
    ) -> Receiver:
        """Be a client of `stream`.

        `accepts(an, payload)` is asked about every copy of a packet before it counts; see `dcp.acceptance`.
        `authority` makes it a signed stream; see `dcp.authority`. `profile`: see `dcp.profile`.
        """
        return self._add_receiver(
            stream,
            query,
            start,
            position,
            stream_mode=stream_mode,
            accepts=accepts,
            authority=authority,
            profile=profile,
        )

    def relay(
        self,
        stream: str,
        *,
        policy: QueryPolicy | None = None,
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        deliver: bool = False,
        stream_mode: bool = False,
        accepts: Accepts | None = None,
        authority: Authority | None = None,
        profile: Profile = PLAIN,
    ) -> tuple[Receiver, Sender]:
        """Be a router of `stream`: what the receiver takes goes into the log that the sender serves from.

        `accepts`, `authority`: as for a client; what `accepts` refuses is not passed on either.
        """
        log = log_of(self.config, policy, self._clock)
        sender = self._add_sender(stream, log, stream_mode=stream_mode)
        sender.upstream_query = query
        receiver = self._add_receiver(
            stream,
            query,
            start,
            position,
            log=log,
            deliver=deliver,
            stream_mode=stream_mode,
            accepts=accepts,
            authority=authority,
            profile=profile,
        )
        return receiver, sender

    def look_into(self, stream: str, aside: str, *, position: int, config: Config, accepts: Accepts) -> Receiver:
        """See what others than our parents have after `position`, beside whatever we receive of the stream.

        Its name for `add_sender` and `remove_stream` is the stream's and `aside`, which begins with a space. It goes
        with the stream at the latest. It emits no events.
        """
        handshake.check_stream(stream)
        given = EVERYTHING, Start.POSITION, position
        return self._add_receiver(stream, *given, accepts=accepts, aside=aside, config=config)

    def _add_sender(self, stream: str, log: Log, *, stream_mode: bool) -> Sender:
        handshake.check_stream(stream)
        if stream in self.senders:
            raise ValueError(f"stream {stream!r} is already served here")
        sender = Sender(
            stream,
            log,
            self.config,
            self._rng,
            new_link_id=self._new_link_id,
            emit=self._emit,
            send_open=self._send_open,
            keying=self.keying,
            kind=kind_of(stream_mode=stream_mode),
        )
        self.senders[stream] = sender
        return sender

    def _add_receiver(
        self,
        stream: str,
        query: bytes,
        start: Start,
        position: int | None,
        *,
        log: Log | None = None,
        deliver: bool = True,
        stream_mode: bool = False,
        accepts: Accepts | None = None,
        authority: Authority | None = None,
        profile: Profile = PLAIN,
        aside: str = "",
        config: Config | None = None,
    ) -> Receiver:
        handshake.check_stream(stream)
        if stream + aside in self.receivers:
            raise ValueError(f"stream {stream!r} is already received here")
        if len(query) > self.config.max_query_bytes:
            raise ValueError(f"a query holds at most {self.config.max_query_bytes} bytes, got {len(query)}")
        sender = self.senders.get(stream) if log is not None else None
        receiver = Receiver(
            stream,
            config or self.config,
            self._rng,
            new_link_id=self._new_link_id,
            forget_link=self._forget_uplink,
            emit=(lambda event: None) if aside else self._emit,
            send_open=self._send_open,
            ways=self.ways,
            keying=self.keying,
            group_offered=self.memberships.offered,
            siblings_named=self.memberships.siblings_named,
            query=query,
            start=start,
            position=position,
            log=log,
            deliver=deliver,
            kind=kind_of(stream_mode=stream_mode),
            accepts=accepts,
            authority=authority,
            profile=profile,
            children_deadline=sender.wanted_deadline if sender is not None and not deliver else None,
            on_switch=sender.upstream_changed if sender is not None else None,
            on_late=sender.insert_late if sender is not None else None,
        )
        self.receivers[stream + aside] = receiver
        return receiver

    def add_sender(
        self,
        stream: str,
        address: SocketAddress,
        hello: bytes = b"",
        *,
        now: float,
        is_expected: Callable[[bytes], bool] | None = None,
    ) -> int:
        """Open a link from our receiver of `stream` to the sender at `address`.

        If the link is encrypted, `is_expected` says whether the sender with this Ed25519 key is the one meant.
        """
        receiver = self.receivers[stream]
        link_id = receiver.add_sender(address, hello, now=now)
        link = receiver.links[link_id]
        link.is_expected = is_expected
        self._uplinks[link_id] = (receiver, link)
        return link_id

    def remove_stream(self, stream: str, reason: int = Reason.NORMAL) -> None:
        """Leave the stream on both sides, and say goodbye to every peer on it."""
        for name in [name for name in self.receivers if name == stream or name.startswith(f"{stream} ")]:
            receiver = self.receivers.pop(name)
            for link_id in list(receiver.links):
                receiver.remove_sender(link_id, reason)
            self._outbox.add_all(receiver.next_datagrams(MAX_OUTBOX))
        sender = self.senders.get(stream)
        if sender is not None:
            sender.close_all(reason)
            sender.closed = True
            self._outbox.add_all(sender.next_datagrams(self._now, MAX_OUTBOX))
            del self.senders[stream]

    # --- children ----------------------------------------------------------------------------------------------------

    def accept(
        self, stream: str, ticket: int, reply: bytes = b"", *, now: float, is_restricted: bool = False
    ) -> int | None:
        """Answer an `OpeningReceived`: take the child. None when it is too late, for the ticket or the stream."""
        sender = self.senders.get(stream)
        link_id = sender.accept(ticket, reply, now=now, is_restricted=is_restricted) if sender is not None else None
        if sender is not None and link_id is not None:
            self._downlinks[link_id] = (sender, sender.links[link_id])
        return link_id

    def refuse(self, stream: str, ticket: int, reason: int, body: bytes = b"") -> None:
        sender = self.senders.get(stream)
        if sender is not None:
            sender.refuse(ticket, reason, body)

    # --- inquiries ----------------------------------------------------------------------------------------------------

    def inquire(self, address: SocketAddress, body: bytes, *, timeout: float, now: float) -> int:
        """Ask a peer something outside any link. `InquiryAnswered` with the number given back brings the answer."""
        return self._inquiries.ask(address, body, timeout=timeout, now=now)

    def answer(self, ticket: int, body: bytes) -> None:
        """Answer an `InquiryReceived`. Once; a repeated question gets its answer by being asked again."""
        self._inquiries.answer(ticket, body)

    # --- input --------------------------------------------------------------------------------------------------------

    def receive_datagram(self, data: bytes, address: SocketAddress, *, now: float) -> bool:
        """Any bytes from anybody. What is not a packet of ours is counted and dropped: False, nothing has changed."""
        self._now = now
        self._counts[0] += 1
        self._counts[2] += len(data)
        try:
            if len(address) == 3 and is_group(address):
                self.memberships.receive(data, address, now)
                return True
            if versions.is_opening_of_other_version(data):
                self._dropped["version"] += 1
                if self._resets.allows(now) and (no := versions.refusal_untrusted(data, address, self._outbox.add)):
                    self._receive_opening(no, address, now)
                return True
            if not is_encrypted(data) and wire.decode_header_untrusted(data)[0] & wire.OPEN:
                kind, body = wire.decode_open_untrusted(data)
                self._receive_opening(handshake.decode_opening_untrusted(kind, body), address, now)
            else:
                self._receive_bound(data, address, now)
        except MalformedDatagram as error:
            self._dropped[error.reason] += 1
            return False
        except Exception as error:
            self._dropped["fault"] += 1
            self.connections.end(link_id_of(data))
            fault("datagram", error)
        return True

    def _receive_bound(self, data: bytes, address: SocketAddress, now: float) -> None:
        link_id = bound_id_untrusted(data)
        up = self._uplinks.get(link_id)
        if up is not None:
            receiver, uplink = up
            opened = opened_untrusted(uplink, data, address)
            try:
                receiver.receive(uplink, opened[1], opened, now)
            except MalformedDatagram:
                receiver.malformed += 1
                raise
            return
        down = self._downlinks.get(link_id)
        if down is None:
            if self.memberships.is_of_sibling(link_id) and not is_encrypted(data):
                self.memberships.receive_lateral(link_id, data, address, now)
                return
            if not self._resets.allows(now):
                raise MalformedDatagram("unknown link")
            self._dropped["unknown link"] += 1
            self._send_open(handshake.Reset(link_id), address)
            return
        sender, downlink = down
        opened = opened_untrusted(downlink, data, address)
        try:
            sender.receive(downlink, opened[1], opened, now)
        except MalformedDatagram:
            sender.malformed += 1
            raise

    def _receive_opening(self, message: handshake.Opening, address: SocketAddress, now: float) -> None:
        match message:
            case handshake.OpenRequest():
                self._on_request(message, address, now)
            case handshake.Inquire():
                self._on_inquire(message, address, now)
            case handshake.Challenge(nonce=nonce) if nonce in self._inquiries:
                self._inquiries.receive_challenge(message, address, now)
            case handshake.Challenge() | handshake.Accept() | handshake.Refuse():
                if not any(r.receive_opening(message, address, now) for r in list(self.receivers.values())):
                    self._dropped["unknown opening"] += 1
                    if isinstance(message, handshake.Accept) and self._resets.allows(now):
                        # A parent took us for a child although we gave up on it: tell it, so that it can forget us.
                        self._send_open(handshake.Reset(message.link), address)
            case handshake.Reset():
                self._on_reset(message, address, now)
            case handshake.Answer():
                if not self._inquiries.receive_answer(message, address, now):
                    self._dropped["unknown answer"] += 1

    def _on_request(self, request: handshake.OpenRequest, address: SocketAddress, now: float) -> None:
        if not self._cookies.is_ours(request.cookie, address, now):
            suites = self.keying.suites if request.mode & handshake.MODE_ENCRYPTS else 0
            self._send_open(handshake.Challenge(request.nonce, self._cookies.bake(address, now), suites), address)
            return
        if not self._openings.allows(now, address[0]):
            self._dropped["opening rate"] += 1
            return
        try:
            stream = request.stream.decode()
        except UnicodeDecodeError:
            raise MalformedDatagram("stream name") from None
        sender = self.senders.get(stream)
        if sender is None:
            self._send_open(handshake.Refuse(request.nonce, Reason.STREAM_UNKNOWN, b""), address)
            return
        sender.receive_request(request, address, now)

    def _on_inquire(self, inquire: handshake.Inquire, address: SocketAddress, now: float) -> None:
        if not self._cookies.is_ours(inquire.cookie, address, now):
            self._send_open(handshake.Challenge(inquire.nonce, self._cookies.bake(address, now)), address)
            return
        self._inquiries.check(inquire)
        if not self._openings.allows(now, address[0]):
            self._dropped["opening rate"] += 1
            return
        self._inquiries.receive(inquire, address)

    def _on_reset(self, reset: handshake.Reset, address: SocketAddress, now: float) -> None:
        """Only a hint: the link is asked first."""
        if not self._resets_heard.allows(now):
            self._dropped["reset rate"] += 1  # anybody can send these; silence finds a dead link too, only later
            return
        if not self.connections.receive_reset(reset, address, now):
            self._dropped["unknown reset"] += 1

    def handle_timeout(self, *, now: float) -> None:
        self._now = self._timers_at = now
        for sender in list(self.senders.values()):
            sender.handle_timeout(now)
        for receiver in list(self.receivers.values()):
            try:
                receiver.handle_timeout(now)
            except Exception as error:
                # Which link it was about is not known, and the same timer would fire again at once.
                for link_id in list(receiver.links):
                    with guard("close"):
                        receiver.give_up(link_id, Reason.RESET)
                fault("timer", error)
        self._inquiries.handle_timeout(now)
        self.memberships.handle_timeout(now)

    # --- output -------------------------------------------------------------------------------------------------------

    def datagrams_to_send(self, *, now: float, most: int = 256) -> list[tuple[bytes, SocketAddress]]:
        """The next batch; call again until it is empty. Nothing is computed before it can be sent."""
        out = self._outbox.take(most)
        for receiver in self.receivers.values():
            if len(out) < most:
                out += receiver.next_datagrams(most - len(out))
        for sender in self.senders.values():
            if len(out) < most:
                out += sender.next_datagrams(now, most - len(out))
        counts = self._counts
        counts[1] += len(out)
        for data, _ in out:
            counts[3] += len(data)
        return out

    def next_timeout(self, *, now: float) -> float | None:
        times = [sender.next_timeout(now) for sender in self.senders.values()]
        times += [receiver.next_timeout(now) for receiver in self.receivers.values()]
        times += [self._inquiries.next_timeout(), self.memberships.next_timeout()]
        soonest = min([t for t in times if t is not None], default=None)
        # From the last time that timers were looked at, not from now: else reading it again and again moves it on.
        return None if soonest is None else max(soonest, self._timers_at + MIN_TIMER_STEP)

    def next_event(self) -> events.Event | None:
        return self._events.popleft() if self._events else None

    @property
    def links_held(self) -> int:
        """Links in both directions, opening ones too."""
        return len(self._downlinks) + len(self._uplinks)

    def statistics(self) -> HubStatistics:
        datagrams_in, datagrams_out, bytes_in, bytes_out = self._counts
        return HubStatistics(datagrams_in, datagrams_out, bytes_in, bytes_out, dict(self._dropped))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _emit(self, event: events.Event) -> None:
        if isinstance(event, events.ChildLost):
            self._downlinks.pop(event.link, None)
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self._dropped["event overflow"] += 1

    def _forget_uplink(self, link_id: int) -> None:
        self._uplinks.pop(link_id, None)

    def _send_open(self, message: handshake.Opening, address: SocketAddress) -> None:
        kind, body = handshake.encode_opening(message)
        if not self._outbox.add(wire.encode_open(kind, body), address):
            self._dropped["outbox full"] += 1

    def _new_link_id(self) -> int:
        while True:
            link_id = self._rng.getrandbits(32)
            if link_id and link_id not in self._uplinks and link_id not in self._downlinks:
                return link_id
