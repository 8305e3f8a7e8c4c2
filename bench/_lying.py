"""Liars beside honest parents, real machines in virtual time: what a client gets, under which rules.

A liar is a root that serves a false log, or puts false datagrams on its links. What the harness gives from outside in a
signed stream is what signatures will give: which copies are authentic, the newest signed head (once a second), and
whether a packet exists that somebody denied.

`without(rule)` switches a rule off, by replacing what implements it: that a check can fail is shown by switching off
the rule it is about.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from dcp import control, events, wire
from dcp.audit import Audit
from dcp.claims import Claim
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.intake import Intake
from dcp.ledger import Ledger
from dcp.links.downlink import Downlink
from dcp.links.link import SocketAddress
from dcp.queries import PredicatePolicy
from dcp.reach import Reach
from dcp.receiver import Receiver
from dcp.sender import Sender
from dcp.serial import MAX_POSITION
from dcp.starting import StartChoice
from dcp.testing import Conditions, Network
from dcp.verdicts import Verdicts

STREAM = "liars"
QUERY = b"Q"
FAR = 1 << 62
LIE_INTERVAL = 0.3
OMITTED_SHARE = 0.04
PAYLOAD_BYTES = 300
WANTED_EVERY = 4
HEAD_INTERVAL = 1.0

LIARS: dict[str, tuple[str, ...]] = {
    "far": ("far",),
    "hole": ("hole",),
    "ahead": ("ahead",),
    "sent": ("sent",),
    "omit": ("omit",),
    "omitall": ("omitall",),
    "mute": ("mute",),
    "forge": ("forge",),
    "start": ("start",),
    "2 omit": ("omit", "omit"),
    "far+omit": ("far", "omit"),
}
"""By name: what each of the liars beside the honest parent does.

far, hole, sent: keep-alive, hole, "all sent" up to 2**62; ahead: nothing up to 50 beyond the head; omit, omitall: 4 %
or all packets left out; mute: a link, and nothing on it; forge: a false packet 40 ahead; start: proposes 2**62.
"""
RULES = ("tail", "reach", "hole", "start", "late", "index", "settled", "correct")


# --- rules that can be switched off -----------------------------------------------------------------------------------


def _take_emptiness(self: Intake, claim: Claim, now: float) -> None:
    """Without rule L1: the first claim wins, whether there is data behind it or not."""
    parent, epoch, prev, until, _ = claim
    position = self.position
    assert position is not None
    if (book := self.audit.book_of(epoch)) is not None:
        book.account(parent.link.id).ledger.say(prev, until, ())
    if until <= position or not self.handover.has_room(position):
        return
    if prev > position:
        self.buffer.add(epoch, prev, until, [])
        return
    self._apply(epoch, until, [], parent, now)
    self.drain(now)
    self._owner.advanced(now)


def _first_proposal(self: StartChoice, parents: Any, now: float) -> int | None:
    return next((parent.start for parent in parents if parent.up and parent.start is not None), None)


_SWITCHES: dict[str, list[tuple[type, str, Any]]] = {
    "tail": [
        (Intake, "_hold", _take_emptiness),
        (Intake, "tail_of", lambda self, parent: self.position),
        (Ledger, "quiet_since", lambda self, prev: prev),
    ],
    "reach": [(Reach, "limit", lambda *_: MAX_POSITION), (Reach, "signed_limit", lambda self: None)],
    "hole": [(Reach, "gap_limit", lambda *_: MAX_POSITION)],
    "start": [(StartChoice, "proposed", _first_proposal)],
    "late": [(Intake, "_hand_over_late", lambda *_: None)],
    "index": [(Audit, "_ask", lambda *_: None)],
    "settled": [(Verdicts, "is_due", lambda *_: True)],
    "correct": [(Sender, "insert_late", lambda *_: None)],
}


@contextmanager
def without(*rules: str) -> Iterator[None]:
    """Run with these rules switched off."""
    with ExitStack() as stack:
        for rule in rules:
            for owner, name, replacement in _SWITCHES[rule]:
                stack.enter_context(patch.object(owner, name, replacement))
        yield


# --- liars ------------------------------------------------------------------------------------------------------------


def false_datagrams(kind: str, link: Downlink, head: int, now: float) -> list[bytes]:
    """What a liar of this kind puts on a link each time."""
    acked = link.child.acked
    hole = link.encode(wire.CONTROL, 0, 0, control.encode_hole(control.Hole(link.child.epoch, acked, FAR)))
    return {
        "far": lambda: [_keep_alive(link, now, 0, FAR)],
        "hole": lambda: [_keep_alive(link, now, 0, FAR, claim=False), hole],
        "ahead": lambda: [_keep_alive(link, now, acked, max(acked, head) + 50)],
        "sent": lambda: [_keep_alive(link, now, FAR - 1, FAR)],
        "forge": lambda: [link.encode(0, (head + 40) & 0xFFFFFFFF, acked & 0xFFFFFFFF, b"forged")],
        "leap": lambda: [link.encode(0, (head + (1 << 28)) & 0xFFFFFFFF, acked & 0xFFFFFFFF, b"forged")],
    }.get(kind, list)()


def _keep_alive(link: Downlink, now: float, previous: int, highest: int, *, claim: bool = True) -> bytes:
    body = control.KeepAlive(link.times(now), link.child.epoch, claim, previous, highest, settled=highest)
    return link.encode(wire.KEEP_ALIVE, highest & 0xFFFFFFFF, previous & 0xFFFFFFFF, control.encode_keep_alive(body))


def payload_of(an: int) -> bytes:
    return an.to_bytes(8, "big") + bytes(PAYLOAD_BYTES - 8)


def is_wanted(query: bytes, payload: bytes) -> bool:
    return int.from_bytes(payload[:8], "big") % WANTED_EVERY == 0


class Signatures:
    """What signatures will give: see `dcp.authority`."""

    def __init__(self) -> None:
        self.published: dict[int, float] = {}
        self._head: int | None = None

    def publish_head(self) -> None:
        self._head = max(self.published, default=None)

    def head(self) -> int | None:
        return self._head

    def proves(self, an: int, query: bytes) -> bool:
        return an in self.published and is_wanted(query, payload_of(an))

    def condemns(self, an: int) -> bool:
        return True

    def accepts(self, an: int, payload: bytes) -> bool:
        return an in self.published and payload == payload_of(an)


@dataclass
class Outcome:
    """What became of the packets that one client wanted."""

    wanted: int = 0
    silent: int = 0
    gapped: int = 0
    late: int = 0
    stuck: int = 0
    wrong: int = 0
    """Packets that were never published, or not wanted."""
    repeated: int = 0
    honest_convicted: int = 0
    liars_convicted: int = 0
    disputed: set[str] = field(default_factory=set)
    """Parents that were disputed, by name."""
    delays: list[float] = field(default_factory=list)
    bytes: int = 0

    @property
    def worst_delay(self) -> float:
        return max(self.delays, default=0.0)

    @property
    def p99(self) -> float:
        return sorted(self.delays)[int(len(self.delays) * 0.99)] if self.delays else 0.0

    @property
    def mean(self) -> float:
        return sum(self.delays) / len(self.delays) if self.delays else 0.0


class Mesh:
    """Roots, liars among them; a client below them, or below two routers that have all of them as parents."""

    def __init__(self, seed: int, *, signed: bool, conditions: Conditions) -> None:
        self.net = Network(seed, conditions=conditions, on_event=self._on_event, on_turn=self._drain)
        self.signatures = Signatures()
        self.signed = signed
        self.hubs: dict[str, Hub] = {}
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self.events: list[tuple[str, float, events.Event]] = []
        self.got: list[tuple[float, events.Content]] = []
        self.bytes: dict[str, int] = {}
        self._count_bytes()
        self.net.at(HEAD_INTERVAL, self._publish_head)

    def _count_bytes(self) -> None:
        original = self.net.send

        def send(source: SocketAddress, to: SocketAddress, data: bytes) -> None:
            for name in (source[0], to[0]):
                self.bytes[name] = self.bytes.get(name, 0) + len(data)
            original(source, to, data)

        self.net.send = send  # type: ignore[method-assign]

    def _publish_head(self) -> None:
        self.signatures.publish_head()
        self.net.after(HEAD_INTERVAL, self._publish_head)

    def _hub(self, name: str) -> Hub:
        hub = self.hubs[name] = Hub(rng=random.Random(self.net.rng.getrandbits(64)))
        return hub

    def root(self, name: str, *, start: int = 0) -> None:
        self.senders[name] = self._hub(name).serve(STREAM, policy=PredicatePolicy(matches=is_wanted))
        self.senders[name].publish_hole(start)
        self.net.add((name, 1), self.hubs[name])

    def _signed_options(self) -> dict[str, Any]:
        return {"accepts": self.signatures.accepts, "authority": self.signatures} if self.signed else {}

    def router(self, name: str, parents: list[str]) -> None:
        policy = PredicatePolicy(matches=is_wanted)
        hub = self._hub(name)
        self.receivers[name], self.senders[name] = hub.relay(
            STREAM, policy=policy, query=QUERY, **self._signed_options()
        )
        self._join(name, parents)

    def client(self, name: str, parents: list[str]) -> None:
        self.receivers[name] = self._hub(name).subscribe(STREAM, query=QUERY, start=Start.NEW, **self._signed_options())
        self._join(name, parents)

    def _join(self, name: str, parents: list[str]) -> None:
        self.net.add((name, 1), self.hubs[name])
        for parent in parents:
            self.hubs[name].add_sender(STREAM, (parent, 1), now=self.net.now)
        self.net.pump((name, 1))

    def publish(self, name: str, an: int, *, leave_out: bool = False) -> None:
        if leave_out:
            self.senders[name].log.advance(an)
        else:
            self.senders[name].publish(payload_of(an), an=an)
        self.net.pump((name, 1))

    def lie(self, name: str, kind: str) -> None:
        """Every `LIE_INTERVAL`, to every child."""
        sender = self.senders[name]
        for link in sender.links.values():
            if link.child.floor is not None:
                link.outbox.extend(false_datagrams(kind, link, sender.log.head, self.net.now))
                sender._busy[link.id] = link
        self.net.pump((name, 1))
        self.net.after(LIE_INTERVAL, self.lie, name, kind)

    def _drain(self, address: SocketAddress) -> None:
        receiver = self.receivers.get(address[0])
        while receiver is not None and (event := receiver.next_event()) is not None:
            if address[0] == "C":
                self.got.append((self.net.now, event))

    def _on_event(self, address: SocketAddress, event: events.Event, now: float) -> None:
        self.events.append((address[0], now, event))
        if isinstance(event, events.OpeningReceived):
            self.hubs[address[0]].accept(event.stream, event.ticket, now=now)

    def outcome(self) -> Outcome:
        born = self.signatures.published
        wanted = {an for an in born if an % WANTED_EVERY == 0}
        found = Outcome(wanted=len(wanted), bytes=self.bytes.get("C", 0))
        got: dict[int, float] = {}
        gaps: list[events.Gap] = []
        for when, event in self.got:
            if isinstance(event, events.Packet | events.Omitted):
                found.late += isinstance(event, events.Omitted)
                found.wrong += event.an not in wanted or event.payload != payload_of(event.an)
                found.repeated += event.an in got
                if event.payload == payload_of(event.an):
                    got.setdefault(event.an, when)
            elif isinstance(event, events.Gap):
                gaps.append(event)
        position = self.receivers["C"].position or 0
        for an in wanted - got.keys():
            if an > position:
                found.stuck += 1
            elif any(gap.after < an <= gap.until for gap in gaps):
                found.gapped += 1
            else:
                found.silent += 1
        found.delays = [when - born[an] for an, when in got.items() if an in wanted]
        for _, _, verdict in self.events:
            if isinstance(verdict, events.Convicted):
                found.liars_convicted += verdict.address[0].startswith("L")
                found.honest_convicted += not verdict.address[0].startswith("L")
            elif isinstance(verdict, events.Disputed):
                found.disputed.add(verdict.address[0])
        return found


def run(
    kinds: tuple[str, ...],
    *,
    honest: tuple[str, ...] = ("H",),
    signed: bool = False,
    routers: bool = False,
    lag: float = 0.02,
    loss: float = 0.0,
    rate: float = 100.0,
    seconds: float = 6.0,
    pause: float = 0.0,
    seed: int = 1,
    prepare: Callable[[Mesh], None] | None = None,
) -> Outcome:
    """`lag`: how much later than the liars the honest parent (with no liar: the second one) has each packet."""
    mesh = Mesh(seed, signed=signed, conditions=Conditions(delay=0.01, jitter=0.002))
    liars = [f"L{number}" for number in range(len(kinds))]
    roots = [*liars, *honest]
    for name in honest:
        mesh.root(name)
    for name, kind in zip(liars, kinds, strict=True):
        mesh.root(name, start=FAR if kind == "start" else 0)
    if routers:
        mesh.router("R1", roots)
        mesh.router("R2", roots)
        mesh.client("C", ["R1", "R2"])
    else:
        mesh.client("C", roots)
    mesh.net.run_until(1.0)
    mesh.net.set_conditions(Conditions(delay=0.01, jitter=0.002, loss=loss, reorder=loss))
    rng = random.Random(seed)
    count, begin = int(rate * seconds), mesh.net.now
    left_out = {an for an in range(1, count + 1) if rng.random() < OMITTED_SHARE}

    def arrive(an: int) -> None:
        mesh.signatures.published[an] = mesh.net.now

    at = begin
    for an in range(1, count + 1):
        at += rng.expovariate(rate) + (pause if an == count // 2 else 0)
        mesh.net.at(at, arrive, an)
        for name, kind in zip(liars, kinds, strict=True):
            if kind not in ("mute", "start"):
                leave_out = kind == "omitall" or (kind == "omit" and an in left_out)
                mesh.net.at(at, lambda n=name, an=an, out=leave_out: mesh.publish(n, an, leave_out=out))
        for number, name in enumerate(honest):
            mesh.net.at(at + (lag if kinds or number else 0), mesh.publish, name, an)
    for name, kind in zip(liars, kinds, strict=True):
        mesh.net.at(begin + 1.0, mesh.lie, name, kind)
    if prepare is not None:
        prepare(mesh)
    mesh.net.run_until(at + 6.0, max_steps=10_000_000)
    return mesh.outcome()
