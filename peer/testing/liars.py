"""Peers that lie: whole peers whose words are changed on their way out, one kind of lie each.

A liar runs the real machines, so it knows every key and nonce that an honest peer would know: whatever it says is well
formed and sealed. What it cannot do is sign for a root, so no liar is one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dcp import EVERYTHING, control, wire
from dcp.links.downlink import Downlink
from peer.core import PeerCore
from peer.mesh import encoding
from peer.mesh.events import AcceptLink, Effect, PublishRecord, SendMessage
from peer.mesh.messages import Accept, Beat, Join, PeerId, RootProof
from peer.trust.batches import SIGNED_MARK, inner_untrusted
from xmlswitch import Query

if TYPE_CHECKING:
    from dcp.links.link import SocketAddress

FAR = 1 << 62
AHEAD = 50
"""Packets beyond the head: few enough to be believed by whoever cannot know better."""
OMITTED_SHARE = 0.04
TICK = 0.1


class Lie:
    """The truth; each kind of liar changes what it lies about."""

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        """Called once, before the peer starts."""

    def tick(self, core: PeerCore, now: float) -> None:
        """Called every `TICK` seconds."""

    def beat(self, beat: Beat) -> Beat:
        return beat

    def accept(self, accept: Accept) -> Accept:
        return accept

    def record(self, record: PublishRecord) -> PublishRecord:
        return record

    def lets_out(self, datagram: bytes) -> bool:
        return True


class LyingCore(PeerCore):
    """A peer with a lie. Its own clock may run at another rate, and from another beginning."""

    def __init__(self, *arguments: Any, lie: Lie, rate: float = 1.0, offset: float = 0.0, **options: Any) -> None:
        self.lie, self._rate, self._offset = lie, rate, offset
        super().__init__(*arguments, **options)
        lie.begin(self, options["rng"])

    def tick(self, *, now: float) -> None:
        self.lie.tick(self, self._own(now))

    def _run(self, effect: Effect, now: float) -> None:
        if isinstance(effect, SendMessage):
            message = encoding.decode_link_message_untrusted(effect.body)
            if isinstance(message, Beat):
                effect = replace(effect, body=encoding.encode_link_message(self.lie.beat(message)))
        elif isinstance(effect, AcceptLink):
            accept = self.lie.accept(encoding.decode_accept_untrusted(effect.reply))
            effect = replace(effect, reply=encoding.encode_accept(accept))
        elif isinstance(effect, PublishRecord):
            effect = self.lie.record(effect)
        super()._run(effect, now)

    # Its own clock

    def _own(self, now: float) -> float:
        return now * self._rate + self._offset

    def start(self, *, now: float) -> None:
        super().start(now=self._own(now))

    def add_candidates(self, records: Any, *, now: float) -> None:
        super().add_candidates(records, now=self._own(now))

    def receive_datagram(self, data: bytes, address: SocketAddress, *, now: float) -> bool:
        return super().receive_datagram(data, address, now=self._own(now))

    def handle_timeout(self, *, now: float) -> None:
        super().handle_timeout(now=self._own(now))

    def datagrams_to_send(self, *, now: float) -> list[tuple[bytes, SocketAddress]]:
        lets_out = self.lie.lets_out
        while batch := super().datagrams_to_send(now=self._own(now)):
            if kept := [datagram for datagram in batch if lets_out(datagram[0])]:
                return kept
        return []

    def next_timeout(self, *, now: float) -> float | None:
        at = super().next_timeout(now=self._own(now))
        return None if at is None else max(now, (at - self._offset) / self._rate)


# --- about the stream -------------------------------------------------------------------------------------------------


def say(core: PeerCore, make: Callable[[Downlink], bytes | None]) -> None:
    """A datagram to every child."""
    sender = core.sender
    assert sender is not None
    for link in list(sender.links.values()):
        datagram = make(link)
        if datagram is not None:
            sender._post(link, datagram)


def keep_alive(link: Downlink, now: float, previous: int, highest: int, *, claim: bool = True) -> bytes:
    body = control.KeepAlive(link.times(now), link.child.epoch, claim, previous, highest)
    return link.encode(wire.KEEP_ALIVE, highest & 0xFFFFFFFF, previous & 0xFFFFFFFF, control.encode_keep_alive(body))


@dataclass
class Claims(Lie):
    """Nothing matches, up to a place that the stream has not reached."""

    beyond: int = AHEAD

    def tick(self, core: PeerCore, now: float) -> None:
        assert core.sender is not None
        until = core.sender.log.head + self.beyond
        say(core, lambda k: keep_alive(k, now, k.child.acked, until) if k.child.floor is not None else None)


class Holes(Lie):
    """What comes next is lost for good."""

    def tick(self, core: PeerCore, now: float) -> None:
        assert core.sender is not None
        until = core.sender.log.head + AHEAD

        def make(link: Downlink) -> bytes | None:
            if link.child.floor is None:
                return None
            hole = control.Hole(link.child.epoch, link.child.acked, until)
            return link.encode(wire.CONTROL, 0, 0, control.encode_hole(hole))

        say(core, lambda k: keep_alive(k, now, 0, until, claim=False) if k.child.floor is not None else None)
        say(core, make)


class Starts(Lie):
    """The oldest packet lies in the future."""

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        assert core.sender is not None
        log = core.sender.log
        log.oldest_covered = lambda query: log.head + 900  # type: ignore[method-assign]


@dataclass
class Omits(Lie):
    """Some packets, or all, never were; also when they are shown to it."""

    share: float = OMITTED_SHARE

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        leave_out(core, lambda an: rng.random() < self.share)
        core.doors.contradictions = None


@dataclass
class Hides(Lie):
    """Every `every`th packet never was: all liars of this kind leave out the same ones.

    One that `repents` corrects itself as soon as it is shown a packet.
    """

    every: int = 5
    repents: bool = False

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        leave_out(core, lambda an: an % self.every == 0)
        if not self.repents:
            core.doors.contradictions = None


def leave_out(core: PeerCore, is_left_out: Callable[[int], bool]) -> None:
    """These packets of a router do not reach its log."""
    assert core.sender is not None
    log, append = core.sender.log, core.sender.log.append

    def lying(an: int, payload: bytes, query: bytes = EVERYTHING) -> None:
        if is_left_out(an):
            log.advance(an, query)
        else:
            append(an, payload, query)

    def lying_many(ans: Any, payloads: Any, query: bytes = EVERYTHING) -> None:
        for an, payload in zip(ans, payloads, strict=True):
            lying(an, payload, query)

    log.append, log.append_many = lying, lying_many  # type: ignore[method-assign]


@dataclass
class Delays(Lie):
    """Everything, and `seconds` later than it came."""

    seconds: float = 1.0

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        assert core.sender is not None
        log = core.sender.log
        self._held: list[tuple[float, Callable[[], object]]] = []
        self._now = 0.0

        def late(method: Callable[..., object]) -> Callable[..., None]:
            return lambda *given: self._held.append((self._now + self.seconds, partial(method, *given)))

        log.append, log.append_many = late(log.append), late(log.append_many)  # type: ignore[method-assign]
        log.advance, log.hole = late(log.advance), late(log.hole)  # type: ignore[method-assign]

    def tick(self, core: PeerCore, now: float) -> None:
        self._now = now
        while self._held and self._held[0][0] <= now:
            self._held.pop(0)[1]()


@dataclass
class Forges(Lie):
    """Packets as no root has published them; `how` is one of `FORGERIES`."""

    how: str = "altered"
    share: float = 0.3

    def begin(self, core: PeerCore, rng: random.Random) -> None:
        assert core.sender is not None
        log, append = core.sender.log, core.sender.log.append
        before = b""

        def lying(an: int, payload: bytes, query: bytes = EVERYTHING) -> None:
            nonlocal before
            forged = FORGERIES[self.how](payload, before) if rng.random() < self.share else payload
            before = payload
            append(an, forged, query)

        def lying_many(ans: Any, payloads: Any, query: bytes = EVERYTHING) -> None:
            for an, payload in zip(ans, payloads, strict=True):
                lying(an, payload, query)

        log.append, log.append_many = lying, lying_many  # type: ignore[method-assign]


def _downgraded(payload: bytes, before: bytes) -> bytes:
    return b"\x00<f>forged</f>"


FORGERIES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "altered": lambda payload, before: payload[:-2] + b"!>",
    "stripped": lambda payload, before: inner_untrusted(payload) if payload[:1] == SIGNED_MARK else payload,
    "downgraded": _downgraded,
    "replayed": lambda payload, before: before or payload,
    "path": lambda payload, before: payload[:94] + bytes([payload[94] ^ 1]) + payload[95:],
}


@dataclass
class BlackHole(Lie):
    """Links, beats and all manners, but no packet. Without `claims` not even where it stands."""

    claims: bool = True

    def lets_out(self, datagram: bytes) -> bool:
        flags = datagram[1]
        if flags & wire.KEEP_ALIVE:
            return self.claims
        if not flags & wire.NOT_DATA:
            return False
        is_control = flags & wire.NOT_DATA == wire.CONTROL
        return not is_control or datagram[wire.BODY_AT] == control.ControlType.MESSAGE


# --- about itself -----------------------------------------------------------------------------------------------------


@dataclass
class Levels(Lie):
    """At another level with every word: now just below the roots' children, now far up."""

    rng: random.Random

    def _level(self, level: int) -> int:
        return self.rng.choice([1, 2, max(1, level - 300), level, level + 5_000])

    def beat(self, beat: Beat) -> Beat:
        return replace(beat, level=self._level(beat.level))

    def accept(self, accept: Accept) -> Accept:
        return replace(accept, level=self._level(accept.level))

    def record(self, record: PublishRecord) -> PublishRecord:
        return replace(record, level=self._level(record.level))


class Loads(Lie):
    """All room in the world, next to the root, as safe as can be; and one slot."""

    def record(self, record: PublishRecord) -> PublishRecord:
        return replace(record, hops=1, resilience=255, children=0, capacity=4_096, free=4_096, free_for_repair=4_096)

    def beat(self, beat: Beat) -> Beat:
        return replace(beat, hops=0, resilience=255)

    def accept(self, accept: Accept) -> Accept:
        return replace(accept, hops=0, resilience=255)


@dataclass
class Freshness(Lie):
    """The root has just beaten, a thousand times; or some root that nobody else knows."""

    rng: random.Random
    extra: int = 0

    def _feed(self, feed: RootProof) -> RootProof:
        self.extra += self.rng.randrange(1_000)
        run = feed.run if self.rng.random() < 0.7 else self.rng.getrandbits(63)
        return RootProof(run, feed.beat + self.extra, 0)

    def beat(self, beat: Beat) -> Beat:
        return replace(beat, feed=self._feed(beat.feed))

    def accept(self, accept: Accept) -> Accept:
        return replace(accept, feed=self._feed(accept.feed))


class Clocks(Lie):
    """Every beat is of this instant. The simulation runs its clock at another rate as well."""

    def beat(self, beat: Beat) -> Beat:
        return replace(beat, feed=replace(beat.feed, age_ms=0))

    def accept(self, accept: Accept) -> Accept:
        return replace(accept, feed=replace(accept.feed, age_ms=0))


class Sybil(BlackHole):
    """One of many names of one host: a fine parent by its record, and a black hole."""

    def record(self, record: PublishRecord) -> PublishRecord:
        return replace(record, level=1, hops=1, resilience=255, children=0, free=6, free_for_repair=6)

    def beat(self, beat: Beat) -> Beat:
        return replace(beat, hops=1, resilience=255)

    def accept(self, accept: Accept) -> Accept:
        return replace(accept, hops=1, resilience=255)


# --- as children ------------------------------------------------------------------------------------------------------


@dataclass
class QueryBomber(Lie):
    """Another query every tick, each of them expensive."""

    rng: random.Random

    def tick(self, core: PeerCore, now: float) -> None:
        number = self.rng.randrange(1_000)
        deep = "//*" * self.rng.randrange(1, 6)
        core.change_query(Query.parse(f"{deep}[. = {number} or contains(., '{number}')]"), now=now)


@dataclass
class JoinStormer(Lie):
    """Joins everybody it hears of, under a new name each time, as if many depended on it."""

    rng: random.Random
    targets: Callable[[], list[SocketAddress]]
    links: int = 0

    def tick(self, core: PeerCore, now: float) -> None:
        assert core.receiver is not None
        ours = {core.dcp_link(parent) for parent in core.mesh.parents.links}
        for link in [link for link in core.receiver.links if link not in ours][: -8 or None]:
            core.receiver.remove_sender(link)
        for address in self.rng.sample(self.targets(), k=min(4, len(self.targets()))):
            self.links += 1
            name = PeerId(self.rng.randbytes(20))
            hello = Join(name, self.rng.getrandbits(63), 1, 1 << 31, 3, 0, 0, is_repair=True, has_children=True)
            core.hub.add_sender(core.config.stream, address, encoding.encode_join(hello), now=now)
