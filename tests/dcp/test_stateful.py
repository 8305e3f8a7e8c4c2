"""Hypothesis drives two roots, a router and a client step by step, against a model that is only a list of packets.

Every datagram is in the test's hands: delivered, dropped, doubled, held back, spoilt. Promise 1 is checked with every
event that the client is handed, promise 5 after every step; and at the end, when the network is kind again, the client
must get to the end of the stream.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dcp import events
from dcp.handshake import Start
from dcp.hub import MAX_EVENTS, Hub
from dcp.links import decoding, downlink, mending, past, protecting, retransmission, tickets, uplinks
from dcp.profile import profile_of
from dcp.protection import MAX_MEMBERS
from dcp.steer import Choice
from tests.dcp.campaign import ALL, CLASSES, CONFIG, STREAM, Client, Source, mask_of, policy, token
from tests.dcp.protected_campaign import ProfiledHub

ROOTS = ("R1", "R2")
PARENTS = {"A": ("R1", "R2"), "X": ("A", "R1", "R2")}
MAX_PENDING = 300
indexes = st.integers(0, MAX_PENDING)


class Mesh(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.rng = random.Random(7)
        self.feed = Source(base=(1 << 32) - 20)
        self.hubs: dict[str, Hub] = {}
        self.frozen: set[str] = set()
        self.held: list[tuple[str, str, bytes]] = []
        self.pending: list[tuple[str, str, bytes]] = []
        self.last: dict[str, int] = {}
        self.start = Start.NEW
        self.client = Client("X", self.feed, token(ALL))
        for name in ("R1", "R2", "A", "X"):
            self.boot(name)

    # --- the mesh -----------------------------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        """Start, or restart with empty state. A root keeps its last number, and no more."""
        hub = self.hubs[name] = self.new_hub(name, random.Random(self.rng.getrandbits(64)))
        self.frozen.discard(name)
        if name in ROOTS:
            root = hub.serve(STREAM, policy=policy())
            if name in self.last:
                root.publish_hole(self.last[name])
        elif name == "A":
            hub.relay(STREAM, policy=policy(), query=token(0b0011))
        else:
            hub.subscribe(STREAM, query=self.client.query, start=self.start)
            self.client.restarted(mask_of(self.client.query))
        for parent in PARENTS.get(name, ())[:2]:
            hub.add_sender(STREAM, (parent, 1), now=self.now)
        self.pump()

    def new_hub(self, name: str, rng: random.Random) -> Hub:
        return Hub(CONFIG, rng=rng)

    def pump(self) -> None:
        for name, hub in self.hubs.items():
            if name in self.frozen:
                continue
            busy = True
            while busy:
                batch = hub.datagrams_to_send(now=self.now)
                self.pending += [(name, to[0], data) for data, to in batch]
                busy = bool(batch)
                while (event := hub.next_event()) is not None:
                    busy = True
                    self.handle(name, hub, event)
        del self.pending[:-MAX_PENDING]
        if "X" in self.hubs and "X" not in self.frozen:
            receiver = self.hubs["X"].receivers[STREAM]
            while (content := receiver.next_event()) is not None:
                self.client.take(content)
            receiver.reopen_window(self.now)

    def handle(self, name: str, hub: Hub, event: events.Event) -> None:
        if isinstance(event, events.OpeningReceived):
            hub.accept(STREAM, event.ticket, now=self.now)
        elif isinstance(event, events.WiderQueryWanted) and name == "A":
            relay = hub.receivers[STREAM]
            relay.change_query(token(mask_of(relay.change.target) | mask_of(event.query)), now=self.now)

    def give(self, item: tuple[str, str, bytes]) -> None:
        source, to, data = item
        if to in self.frozen:
            if len(self.held) < MAX_PENDING:
                self.held.append(item)
            return
        self.hubs[to].receive_datagram(data, (source, 1), now=self.now)
        self.pump()

    def put(self, kind: int, step: int, reaches: tuple[str, ...]) -> None:
        """The feed's next packet; a root that it does not reach has a hole when the next one comes."""
        previous = self.feed.last
        an = previous + step
        self.feed.add(an, bytes((kind,)))
        for name in reaches:
            if name in self.frozen:
                continue
            root = self.hubs[name].senders[STREAM]
            if not root.log.started:
                root.publish_hole(an - 1)
            root.publish(bytes((kind,)), an=an, contiguous=root.log.head in (previous, an - 1))
            self.last[name] = an
        self.pump()

    # --- rules: the network -------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 40))
    def deliver(self, count):
        batch, self.pending = self.pending[:count], self.pending[count:]
        for item in batch:
            self.give(item)

    @precondition(lambda self: self.pending)
    @rule(at=indexes)
    def deliver_out_of_order(self, at):
        self.give(self.pending.pop(at % len(self.pending)))

    @precondition(lambda self: self.pending)
    @rule(at=indexes, count=st.integers(1, 10))
    def drop(self, at, count):
        at %= len(self.pending)
        del self.pending[at : at + count]

    @precondition(lambda self: self.pending)
    @rule(at=indexes)
    def duplicate(self, at):
        self.pending.append(self.pending[at % len(self.pending)])

    @precondition(lambda self: self.pending)
    @rule(at=indexes, where=st.integers(0, 2_000), bit=st.integers(0, 7))
    def corrupt(self, at, where, bit):
        source, to, data = self.pending[at % len(self.pending)]
        spoilt = bytearray(data)
        spoilt[where % len(data)] ^= 1 << bit
        self.pending[at % len(self.pending)] = (source, to, bytes(spoilt))

    @rule(seconds=st.sampled_from([0.001, 0.005, 0.02, 0.07, 0.2, 0.7, 3.0]))
    def advance_time(self, seconds):
        self.now += seconds
        for name, hub in self.hubs.items():
            if name not in self.frozen:
                due = hub.next_timeout(now=self.now)
                assert hub.next_timeout(now=self.now + 5e-4) == due, f"{name} has a timer that reading moves"
                hub.handle_timeout(now=self.now)
                at = hub.next_timeout(now=self.now)
                assert at is None or at > self.now, f"{name} has a timer in the past"
        self.pump()

    # --- rules: the peers ---------------------------------------------------------------------------------------------

    @rule(
        kind=st.integers(0, CLASSES - 1),
        step=st.sampled_from([1, 1, 2, 5]),
        reaches=st.sampled_from([ROOTS, ROOTS, ROOTS, ("R1",), ("R2",), ()]),
    )
    def publish(self, kind, step, reaches):
        self.put(kind, step, reaches)

    @rule(kinds=st.lists(st.integers(0, CLASSES - 1), min_size=10, max_size=40))
    def publish_until_history_is_evicted(self, kinds):
        for kind in kinds:
            self.put(kind, 1, ROOTS)

    @rule(child=st.sampled_from(["A", "X"]), which=st.integers(0, 2))
    def add_sender(self, child, which):
        if child not in self.frozen and len(self.hubs[child].receivers[STREAM].links) < 4:
            parent = PARENTS[child][which % len(PARENTS[child])]
            self.hubs[child].add_sender(STREAM, (parent, 1), now=self.now)
            self.pump()

    @rule(child=st.sampled_from(["A", "X"]), which=st.integers(0, 3))
    def remove_sender(self, child, which):
        links = list(self.hubs[child].receivers[STREAM].links)
        if links and child not in self.frozen:
            self.hubs[child].receivers[STREAM].remove_sender(links[which % len(links)])
            self.pump()

    @precondition(lambda self: len(self.frozen) < 2)
    @rule(name=st.sampled_from(["R1", "R2", "A", "X"]))
    def freeze(self, name):
        self.frozen.add(name)

    @precondition(lambda self: self.frozen)
    @rule(timers_first=st.booleans())
    def thaw(self, timers_first):
        name = min(self.frozen)
        self.frozen.remove(name)
        if timers_first:
            self.hubs[name].handle_timeout(now=self.now)
        held = [item for item in self.held if item[1] == name]
        self.held = [item for item in self.held if item[1] != name]
        for item in held:
            self.give(item)
        self.pump()

    @rule(name=st.sampled_from(["R1", "R2", "A"]))
    def restart(self, name):
        self.boot(name)

    @rule(start=st.sampled_from([Start.NEW, Start.OLDEST]), query=st.integers(1, ALL))
    def restart_the_client(self, start, query):
        self.start = start
        self.client.query = token(query)
        self.boot("X")

    @rule(query=st.integers(1, ALL))
    def change_query(self, query):
        if "X" not in self.frozen:
            self.hubs["X"].receivers[STREAM].change_query(token(query), now=self.now)
            self.pump()

    # --- promises -----------------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_bounded(self):
        for hub in self.hubs.values():
            assert len(hub._events) <= MAX_EVENTS
            assert len(hub._outbox) <= 4_096
            for child in hub.receivers.values():
                state = child.statistics(self.now)
                assert state.buffered <= CONFIG.max_buffer_packets
                assert state.ready <= CONFIG.max_ready_packets + 64
                assert len(child._assembler) <= CONFIG.max_partial_packets
                assert len(child._uplinks._outbox) <= uplinks.MAX_OUTBOX
                assert set(hub._uplinks) == set(child.links)
                assert len(child._uplinks._by_nonce) == len(child.links)
            for parent in hub.senders.values():
                assert len(parent.log) <= CONFIG.max_log_packets
                assert len(parent.log._segments) <= CONFIG.max_segments
                assert len(parent._answering.tickets) <= tickets.MAX_TICKETS
                assert set(hub._downlinks) == set(parent.children)
                assert set(parent._busy) <= set(parent.links) == set(parent.children)
                assert len(parent._answering.by_nonce) == len(parent._answering) == len(parent.links)
                for link in parent.links.values():
                    assert len(link.outbox) <= downlink.MAX_OUTBOX
                    assert len(link.repairs.queue) <= retransmission.MAX_REPAIRS
                    assert len(link.repairs._marks) <= retransmission.MAX_MARKS
                    assert len(link.past.waiting) <= past.MAX_FETCHES_WAITING
                    assert len(link.past._corrections) <= past.MAX_CORRECTIONS
                used = sum(
                    (k.interest is not None and k.interest.slot is not None)
                    + sum(
                        wish is not None and wish.interest is not None and wish.interest.slot is not None
                        for wish in (*k.unheard, k.pending)
                    )
                    + sum(previous.interest.slot is not None for previous in k.previous)
                    for k in parent.children.values()
                )
                assert len(parent.log._slots) == used, "a slot was never given back"

    def teardown(self):
        """The network is kind again: the client gets to the end."""
        while self.frozen:
            self.thaw(timers_first=True)
        for _ in range(4):
            self.put(0, 1, ROOTS)
        end = self.now + 9.0
        while self.now < end:
            for child, parents in PARENTS.items():
                links = self.hubs[child].receivers[STREAM].links.values()
                if len(links) < len(parents):
                    for parent in parents:
                        self.hubs[child].add_sender(STREAM, (parent, 1), now=self.now)
            self.advance_time(0.02)
            self.deliver(MAX_PENDING)
            if self.now > end - 5.0 and self.now < end - 4.9:
                self.put(0, 1, ROOTS)
        self.client.check_complete()


class ProtectedMesh(Mesh):
    """The same with profiles, and protections that change with any step."""

    profile = profile_of("latency")

    def new_hub(self, name: str, rng: random.Random) -> Hub:
        hub = ProfiledHub(CONFIG, rng=rng)
        hub.profile = self.profile if name == "X" else profile_of("reliable")
        return hub

    @rule(profile=st.sampled_from([profile_of("newest"), profile_of(deadline=0.05), profile_of("latency")]))
    def restart_the_client_with_another_profile(self, profile):
        self.profile = profile
        self.boot("X")

    @rule(name=st.sampled_from(["A", "X"]), every=st.sampled_from([0, 1, 2, 4]), span=st.sampled_from([1, 4]))
    def protect(self, name, every, span):
        steering = self.hubs[name].receivers[STREAM].mending.steering
        steering.choice, steering.why = Choice(every, 1, span), "fixed"
        steering._fixed = steering.choice

    @invariant()
    def protection_is_bounded(self):
        for hub in self.hubs.values():
            for child in hub.receivers.values():
                for decoder in child.mending._decoders.values():
                    assert len(decoder) <= decoding.MAX_ROWS
                    assert len(decoder._known) <= decoding.MAX_KNOWN
                assert len(child.mending._rebuilt) <= mending.MAX_REBUILT
            for parent in hub.senders.values():
                for link in parent.links.values():
                    if link.protection is not None:
                        assert link.protection._packets <= MAX_MEMBERS
                        assert len(link.protection._copies) <= protecting.MAX_COPIES_WAITING


TestProtectedMesh = ProtectedMesh.TestCase
TestProtectedMesh.settings = settings(max_examples=20, stateful_step_count=60, deadline=None)

TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)
