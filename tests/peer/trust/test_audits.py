"""Random audits: what all parents leave out together is found at another peer, delivered, and held against them."""

from __future__ import annotations

import random
from functools import partial

import pytest

from dcp import Reason
from dcp.events import OpeningReceived
from dcp.testing import LateStreamCheck
from peer.core import PeerCore
from peer.mesh import events as meshevents
from peer.mesh.encoding import encode_visit
from peer.queries import token_of
from peer.testing.liars import Hides, LyingCore
from peer.testing.signedsim import OWNER, SignedSimulation
from peer.trust.audits import FOUND, NOBODY, PARTIAL, WHOLE, is_whole
from peer.trust.batches import BatchSigner
from peer.trust.visitors import MAX_SECONDS, MAX_VISITORS, Visitors

QUERY = "/p[@n mod 10 = 0 or @n mod 3 = 0]"


class AuditedSimulation(SignedSimulation):
    """The directory does not name those in `hidden`."""

    def __init__(self, seed, **options):
        super().__init__(seed, **options)
        self.hidden = set()
        self.uncovered = []
        self.accused = {}

    def _new_check(self, peer):
        return LateStreamCheck(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def _answer(self, peer, core, wanted):
        known = self._records
        self._records = {key: record for key, record in known.items() if self.name_of(key) not in self.hidden}
        super()._answer(peer, core, wanted)
        self._records = known

    def hide_all_but(self, *names):
        self.hidden = set(self.peers) - set(names)

    def _on_event(self, address, event, now):
        peer = self._by_address[address]
        if isinstance(event, meshevents.Uncovered):
            self.uncovered.append((peer.name, event))
        if isinstance(event, meshevents.Disputed):
            self.accused.setdefault(self.name_of(event.peer_id), event.reason)
        super()._on_event(address, event, now)
        if not all(p.is_honest for p in self.peers.values()):
            self.accusations.clear()


def mesh_of(*, liars, parents=1, honest=2, seconds=20.0, seed=1, share=0.5, router=False, repents=False):
    """A leaf whose parents are liars, or a router below a liar. It hears of the honest routers later, and never of the
    root, below which all these are."""
    sim = AuditedSimulation(seed)
    sim.add_root("root", capacity=16)
    sim.run_until(0.5)
    lying = [f"liar{number}" for number in range(liars)]
    others = [f"honest{number}" for number in range(honest)]
    for name in (*lying, *others):
        lie = partial(LyingCore, lie=Hides(5, repents=repents))
        sim.hide_all_but("root")
        sim.add_router(name, make=lie if name in lying else PeerCore, parents=1, capacity=6, audit_share=0.0)
        sim.run_until(sim.network.now + 0.5)
    above = lying or ["honest0"]
    if router:
        sim.hide_all_but(*above)
        sim.add_router("router", parents=1, audit_share=0.0)
        sim.run_until(sim.network.now + 0.5)
        above = ["router"]
    sim.hide_all_but(*above)
    leaf = sim.add_leaf("leaf", query=QUERY, parents=parents, audit_share=share)
    sim.run_until(sim.network.now + 1.0)
    assert parents_of(sim, leaf) <= set(above)
    sim.hidden = {"root", "router"}
    wanted = meshevents.CandidatesWanted(below_level=leaf.core.mesh.level, for_repair=False, count=8)
    sim._answer(leaf, leaf.core, wanted)
    sim.feed(rate=20, until=sim.network.now + seconds - 5, make=lambda an: b'<p n="%d">flight</p>' % an)
    sim.run_until(sim.network.now + seconds)
    return sim, leaf


def parents_of(sim, one):
    return {sim.name_of(parent.peer_id) for parent in one.core.mesh.parents.links.values()}


@pytest.mark.parametrize("parents", [1, 2])
def test_parents_that_leave_out_the_same_packets_are_found_convicted_and_replaced(parents):
    sim, leaf = mesh_of(liars=parents, parents=parents)
    assert sim.accused == {f"liar{number}": "convicted: omitted" for number in range(parents)}
    [(name, event)] = sim.uncovered
    assert name == "leaf"
    assert leaf.core.audits.counts[FOUND] == event.packets > 0
    assert leaf.check.late >= event.packets, "whoever replaced them may bring more of it"
    assert not parents_of(sim, leaf) & set(sim.accused)
    assert max(leaf.check.owed, default=0) < sim.truth.last - 20, "whoever replaced them brings everything"
    assert leaf.core.receiver.statistics(sim.network.now).gaps == 0


def test_without_audits_the_same_lie_is_never_noticed():
    sim, leaf = mesh_of(liars=2, parents=2, share=0.0)
    assert sim.accused == {}
    assert leaf.core.audits is None
    wanted = {an for an in range(1, sim.truth.last - 5) if an % 10 == 0 or an % 15 == 0}
    assert leaf.check.owed >= wanted


def test_a_witness_that_lies_too_proves_nothing_and_nobody_is_blamed():
    sim, leaf = mesh_of(liars=3, parents=2, honest=0)
    assert sim.accused == {}
    assert leaf.core.audits.counts[FOUND] == 0
    assert leaf.core.audits.counts[PARTIAL] > leaf.core.audits.counts[WHOLE]


def test_honest_parents_are_found_to_be_honest_and_it_costs_no_more_than_its_share():
    bytes_in = {}
    for share in (0.0, 0.2):
        sim, leaf = mesh_of(liars=0, honest=3, seconds=25.0, share=share)
        assert sim.accused == {}
        assert not sim.uncovered
        assert not leaf.check.owed
        bytes_in[share] = leaf.core.hub.statistics().bytes_in
        audits = leaf.core.audits
    assert audits.counts[WHOLE] >= 3
    assert set(audits.counts) <= {WHOLE, NOBODY}
    everything = sum(len(sim.truth.payload(an)) + 140 for an in range(1, sim.truth.last + 1))
    assert bytes_in[0.2] - bytes_in[0.0] < 0.3 * everything


def test_a_router_that_was_misled_by_its_only_parent_corrects_itself_and_is_not_convicted():
    sim, leaf = mesh_of(liars=1, router=True)
    router = sim.peers["router"]
    assert leaf.core.audits.counts[FOUND] > 0
    assert router.core.doors.contradictions.taken > 0
    assert router.check.late == router.core.doors.contradictions.taken, "its own client got them too"
    assert not leaf.core.mesh.counters["convicted_omitted"]


def test_a_liar_that_corrects_itself_when_it_is_shown_a_packet_is_left_for_others():
    sim, leaf = mesh_of(liars=1, repents=True)
    assert leaf.core.audits.counts[FOUND] > 0
    assert not leaf.core.mesh.counters["convicted_omitted"]
    assert sim.accused == {"liar0": "omitted"}
    assert parents_of(sim, leaf) <= {"honest0", "honest1"}


# --- whether an answer is whole ---------------------------------------------------------------------------------------


def signed(numbers, *, most):
    """Packets with these numbers, in batches of random sizes."""
    rng = random.Random(most)
    signer = BatchSigner("s", OWNER.public_key, sign=OWNER.sign, salt=lambda: rng.randbytes(8))
    packets, left, start = [], list(numbers), numbers[0] - 1
    while left:
        size = rng.randint(1, most)
        batch, left = left[:size], left[size:]
        packets += zip(batch, signer.seal([(an, b"%d" % an) for an in batch], start=start, time=0), strict=True)
        start = batch[-1]
    return packets


@pytest.mark.parametrize("most", [1, 3, 20])
@pytest.mark.parametrize("step", [1, 7])
def test_an_answer_is_whole_only_if_no_packet_is_missing(most, step):
    packets = signed(range(1_000, 1_000 + 60 * step, step), most=most)
    start, end = packets[20][0], packets[40][0]
    assert is_whole(start, end, packets)
    assert is_whole(start - 1, end, packets)
    for missing in range(21, 41):
        assert not is_whole(start, end, [p for n, p in enumerate(packets) if n != missing])
    assert not is_whole(start, end, packets[:40])
    assert not is_whole(start, end, [])


# --- those who are looked at ------------------------------------------------------------------------------------------


def opening(**changes):
    given = {"stream": "sim", "ticket": 1, "address": ("192.0.2.1", 1), "query": b"", "hello": encode_visit()}
    return OpeningReceived(**given | {"public_key": b"k" * 32} | changes)


class FakeHub:
    """Accepts everybody."""

    def __init__(self):
        self.refused, self.numbers = [], iter(range(1, 100))
        self.senders = {"sim": self}
        self.upstream_query, self.log, self.links, self.closed = b"", self, {}, []
        self.started = True

    def refuse(self, stream, ticket, reason):
        self.refused.append(reason)

    def accept(self, stream, ticket, *, now, is_restricted):
        number = next(self.numbers)
        self.links[number] = is_restricted
        return number

    def close(self, number, reason):
        self.closed.append(number)
        del self.links[number]


@pytest.fixture
def hub():
    return FakeHub()


@pytest.fixture
def visitors(hub):
    return Visitors("sim", hub)


def test_visitors_are_few_and_leave_soon(hub, visitors):
    for _ in range(MAX_VISITORS + 1):
        assert visitors.receives(opening(), 0.0, is_restricted=True)
    assert len(visitors) == MAX_VISITORS
    assert hub.refused == [Reason.FULL]
    assert all(hub.links.values()), "what is withheld stays withheld"
    del hub.links[1]
    visitors.look(1.0)
    assert len(visitors) == MAX_VISITORS - 1
    visitors.look(MAX_SECONDS)
    assert not len(visitors)
    assert hub.closed == [2]
    let_in = sum(visitors.receives(opening(), MAX_SECONDS) and not hub.links.clear() for _ in range(50))
    assert let_in
    assert visitors.received <= MAX_VISITORS + 6


@pytest.mark.parametrize("changes", [{"public_key": b""}, {"query": b"/p"}])
def test_who_proves_no_key_or_wants_a_part_only_is_no_visitor(hub, visitors, changes):
    assert visitors.receives(opening(**changes), 0.0)
    assert hub.refused == [Reason.FULL]


def test_a_peer_that_has_not_everything_lets_nobody_in(hub, visitors):
    hub.upstream_query = b"/p"
    assert visitors.receives(opening(), 0.0)
    assert hub.refused == [Reason.FULL]


def test_a_join_is_no_visit(hub, visitors):
    assert not visitors.receives(opening(hello=b"\1\1join"), 0.0)
    assert hub.refused == []
