"""One machine under any order of inputs, true and false: it never raises, stays bounded, keeps its invariants."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.candidates import CandidateRecord
from peer.mesh.config import MeshConfig
from peer.mesh.events import AcceptLink, CloseLink, Inquire, JoinTicket, OpenLink, RefuseLink, SendMessage
from peer.mesh.machine import Mesh
from peer.mesh.membership import Membership

names = st.integers(0, 11).map(lambda i: m.PeerId(b"peer%02d" % i))
levels = st.sampled_from([0, 0, 100, 700, 1_500, 3_000, 6_000, m.MAX_LEVEL, m.UNPLACED])
feeds = st.builds(m.RootProof, st.integers(1, 3), st.integers(0, 1_000), st.sampled_from([0, 0, 0, 100, 5_000, 65_535]))
small = st.integers(0, 255)


class AnyOrder(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        is_root=st.sampled_from([False, False, False, True]),
        wanted=st.integers(1, 3),
        capacity=st.sampled_from([0, 2, 3, 4]),
        family=st.booleans(),
    )
    def start(self, seed, is_root, wanted, capacity, family):
        self.config = MeshConfig(parents_wanted=wanted, capacity=capacity, max_candidates=8, max_joins_per_second=1e6)
        self.mesh = Mesh(m.PeerId(b"me"), self.config, rng=Random(seed))
        self.now = 10.0
        self.ever: set = set()
        self.ending: set = set()  # what this very input ended: the same input may show that we slept, before
        self.opening: set = set()
        self.held: set = set()
        self.inquiries: set = set()
        self.requests = 0
        self.beats = 1_000
        if is_root:
            self.mesh.start_root(now=self.now)
        else:
            self.mesh.start(now=self.now)
        self.drain()
        if family:  # begin in the middle of things: parents above, children below
            for index in range(wanted):
                self.finds_a_parent(m.PeerId(b"root%02d" % index), 0, 0, 0)
            self.somebody_joins(m.PeerId(b"first"), m.UNPLACED, False, 1, 1)

    def drain(self):
        for effect in self.mesh.take_effects():
            if isinstance(effect, OpenLink):
                assert effect.link not in self.ever
                self.ever.add(effect.link)
                self.opening.add(effect.link)
            elif isinstance(effect, AcceptLink):
                assert effect.link not in self.ever
                self.ever.add(effect.link)
                self.held.add(effect.link)
            elif isinstance(effect, CloseLink):
                assert effect.link in self.opening | self.held | self.ending, "closed twice, or never opened"
                self.opening.discard(effect.link)
                self.held.discard(effect.link)
            elif isinstance(effect, SendMessage):
                assert set(effect.links) <= self.held | self.ending, "words on a link that is gone"
                encoding.decode_link_message_untrusted(effect.body)
            elif isinstance(effect, RefuseLink):
                if effect.body:
                    encoding.decode_refuse_untrusted(effect.body)
            elif isinstance(effect, Inquire):
                self.inquiries.add(effect.inquiry)
        while self.mesh.next_event() is not None:
            pass
        self.ending.clear()

    def pick(self, data, among):
        return data.draw(st.sampled_from(sorted(among)))

    @rule(
        seconds=st.sampled_from([0.0, 0.0, 0.05, 0.05, 0.1, 0.1, 0.3, 0.3, 0.9, 3.0, 20.0]),
        fires=st.sampled_from([True, True, True, False]),
    )
    def time_passes(self, seconds, fires):
        """Timers at their moments, or, without them, a sleep."""
        end = self.now + seconds
        for _ in range(2_000):
            due = self.mesh.next_timeout()
            if not fires or due is None or due > end:
                break
            self.now = max(self.now, due)
            self.mesh.handle_timeout(now=self.now)
            self.drain()
        else:
            raise AssertionError("timers without end")
        self.now = end

    @rule(found=st.lists(st.tuples(names, levels, small, st.integers(0, 3)), max_size=4))
    def directory_answers(self, found):
        records = [
            CandidateRecord(name, (f"10.0.0.{name[-1]}", 4_000), level, hops, 0.5, free, free, 2)
            for name, level, hops, free in found
        ]
        self.mesh.add_candidates(records, now=self.now)
        self.drain()

    @rule(name=names, level=levels, answer=levels, age=st.sampled_from([0, 0, 0, 65_535]))
    def finds_a_parent(self, name, level, answer, age):
        """A candidate is found, asked, and accepts, perhaps at another level than its record said."""
        before = set(self.opening)
        self.directory_answers([(name, level, 1, 2)])
        if (due := self.mesh.next_timeout()) is not None and due <= self.now:
            self.mesh.handle_timeout(now=self.now)
            self.drain()
        self.beats += 1
        reply = encoding.encode_accept(m.Accept(answer, 1, 2, m.RootProof(1, self.beats, age)))
        for link in sorted(self.opening - before):
            if link in self.opening:
                self.opening.discard(link)
                self.held.add(link)
                self.ending.add(link)
                self.mesh.link_opened(link, reply, now=self.now)
                self.drain()

    @rule()
    def all_parents_beat(self):
        self.beats += 1
        for link, parent in list(self.mesh.parents.links.items()):
            beat = m.Beat(parent.reported, parent.hops, parent.resilience, False, m.RootProof(1, self.beats, 0))
            self.mesh.receive_message(link, encoding.encode_link_message(beat), now=self.now)
            self.drain()

    @rule(name=names, level=levels, flags=st.booleans(), number=st.integers(1, 4), parents=st.integers(0, 3))
    def somebody_joins(self, name, level, flags, number, parents):
        self.requests += 1
        hello = m.Join(name, 1, number, level, 2, parents, 1, flags, flags)
        self.mesh.receive_join(
            JoinTicket(self.requests), (f"10.0.0.{name[-1]}", 4_000), encoding.encode_join(hello), now=self.now
        )
        self.drain()

    @precondition(lambda self: self.opening)
    @rule(data=st.data(), level=levels, hops=small, resilience=small, feed=feeds)
    def accepted(self, data, level, hops, resilience, feed):
        link = self.pick(data, self.opening)
        self.opening.discard(link)
        self.held.add(link)
        self.ending.add(link)
        self.mesh.link_opened(link, encoding.encode_accept(m.Accept(level, hops, resilience, feed)), now=self.now)
        self.drain()

    @precondition(lambda self: self.opening)
    @rule(data=st.data(), reason=small, body=st.binary(max_size=40))
    def refused(self, data, reason, body):
        link = self.pick(data, self.opening)
        self.opening.discard(link)
        self.ending.add(link)
        self.mesh.link_refused(link, reason, body, now=self.now)
        self.drain()

    @precondition(lambda self: self.opening)
    @rule(data=st.data())
    def tired(self, data):
        link = self.pick(data, self.opening)
        self.opening.discard(link)
        self.ending.add(link)
        self.mesh.open_timed_out(link, now=self.now)
        self.drain()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), reason=small, resets=st.booleans())
    def ended(self, data, reason, resets):
        link = self.pick(data, self.held)
        self.held.discard(link)
        self.ending.add(link)
        if resets:
            self.mesh.link_reset(link, now=self.now)
        else:
            self.mesh.link_closed(link, reason, now=self.now)
        self.drain()

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        message=st.one_of(
            st.builds(m.Beat, levels, small, small, st.booleans(), feeds),
            st.builds(m.Report, levels, small, small, st.booleans(), small, small, small, small),
            st.builds(m.Probe, small),
            st.builds(m.Echo, st.integers(0, 4)),
        ),
    )
    def word(self, data, message):
        self.mesh.receive_message(self.pick(data, self.held), encoding.encode_link_message(message), now=self.now)
        self.drain()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), body=st.binary(max_size=40))
    def nonsense(self, data, body):
        self.mesh.receive_message(self.pick(data, self.held), body, now=self.now)
        self.drain()

    @rule(body=st.one_of(st.binary(max_size=8), st.sampled_from([b"\x01\x09", b"\x01\x0a", b"\x01\x08\x00\x00"])))
    def asked(self, body):
        answer = self.mesh.answer_inquiry(body, ("10.6.6.6", 6_000), now=self.now)
        if answer is not None:
            encoding.decode_answer_untrusted(answer)
        self.drain()  # any input may show that we slept, and end what was being opened

    @precondition(lambda self: self.mesh.state not in (Membership.LEAVING, Membership.LEFT))
    @rule(really=st.integers(0, 63))
    def leave(self, really):
        if really == 0:
            self.mesh.leave(now=self.now)
            self.drain()

    @invariant()
    def holds(self):
        mesh = self.mesh
        assert set(mesh.parents.links) | set(mesh.children.links) == self.held
        assert set(mesh.pending) == self.opening
        assert not set(mesh.parents.links) & set(mesh.children.links)
        assert len(mesh.children) <= self.config.capacity
        assert len(mesh.candidates) <= 8
        for parent in mesh.parents.links.values():
            assert mesh.level > parent.reported
        if mesh.state is Membership.JOINING:
            assert not mesh.parents
            assert not mesh.children
            assert mesh.level == m.UNPLACED
        if mesh.children or mesh.parents:
            assert mesh.level <= m.MAX_LEVEL
        if mesh.state is Membership.ORPHANED:
            assert not mesh.parents
            assert mesh.children
        if mesh.state is Membership.STEADY:
            assert len(mesh.parents.sound()) >= self.config.parents_wanted


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=120, stateful_step_count=40)
