"""Withheld packets: nobody without the grant receives one by any road, and their stream is whole without them."""

from __future__ import annotations

import os

import pytest

from dcp import EVERYTHING, PayloadRefused, Start
from dcp.compression import Compressor
from dcp.log import Log
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from peer.envelope import Envelope
from peer.errors import PeerError
from peer.options import PeerOptions
from peer.packing import withholding_for
from peer.queries import token_of
from peer.role import Role
from peer.testing.signedsim import OWNER, SignedSimulation, identity_of
from peer.trust.batches import BatchSigner
from peer.trust.check import Trust
from peer.trust.withholding import Withholding, is_withheld_untrusted, unmarked_untrusted
from xmlswitch import Query

LISTED = Query.parse("/p[. mod 5 = 0]")
PUBLIC = "/p[not(. mod 5 = 0)]"


def packet(an):
    return b"<p>%d</p>" % an


def withholding():
    return Withholding([LISTED], lambda: os.urandom(16))


# --- the mark ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "zlib"])
def test_the_mark_is_inside_what_is_signed_and_opens_to_the_content(kind):
    root = Envelope(Compressor(kind), withholding=withholding())
    content = b"<p>5</p>" + b" " * 200
    signer = BatchSigner("asdi", OWNER.public_key, sign=OWNER.sign, salt=lambda: bytes(8))
    listed, public = signer.seal([(1, root.pack(content)), (2, root.pack(b"<p>6</p>"))], start=0, time=1)
    assert is_withheld_untrusted(listed)
    assert not is_withheld_untrusted(public)
    assert Envelope(Compressor(kind)).look_untrusted(listed) == content


def test_what_can_t_be_looked_at_is_withheld():
    assert is_withheld_untrusted(withholding().mark(b"not XML", b"\0not XML"))


def test_two_packets_with_the_same_content_do_not_look_alike():
    """Whoever sees a hash in the path of another packet must not find out by guessing what was hashed."""
    mark = withholding()
    assert mark.mark(b"<p>5</p>", b"\0<p>5</p>") != mark.mark(b"<p>5</p>", b"\0<p>5</p>")


@pytest.mark.parametrize("length", range(1, 18))
def test_a_mark_that_is_cut_off_is_refused(length):
    marked = withholding().mark(b"<p>5</p>", b"\0<p>5</p>")
    with pytest.raises(PayloadRefused):
        unmarked_untrusted(marked[:length])


def test_a_parent_that_hands_over_a_withheld_packet_to_whom_it_is_not_for_is_to_blame():
    """Taken, it would convict the parents that rightly left it out."""
    root = Envelope(withholding=withholding())
    signer = BatchSigner("asdi", OWNER.public_key, sign=OWNER.sign, salt=lambda: bytes(8))
    [listed] = signer.seal([(1, root.pack(b"<p>5</p>"))], start=0, time=1)
    trust = Trust("asdi")
    trust.add_key(OWNER.public_key, expires_at=None)
    trust.use(Envelope(), lambda query, payload: True)
    assert trust.refused([(1, listed)]) == [1]
    assert trust.condemns(1)
    assert not trust.proves(1, EVERYTHING)
    trust.takes_withheld = True
    assert not trust.refused([(1, listed)])


@pytest.mark.parametrize("options", [{}, {"unsigned": True}])
def test_a_root_withholds_only_what_it_signs(options):
    options = PeerOptions(stream="asdi", role=Role.ROOT, withhold=["/p"], **options)
    with pytest.raises(PeerError, match="--withhold needs signed packets"):
        withholding_for(options, None)


# --- the log ----------------------------------------------------------------------------------------------------------


def make_log(**limits):
    policy = PredicatePolicy(lambda query, payload: payload.startswith(query))
    log = Log(policy, **{"max_packets": 100, "max_bytes": 1 << 20, "max_segments": 16, **limits})
    log.withholds = lambda payload: payload.endswith(b"!")
    log.start(0)
    return log


def listed(log, interest):
    return log.index(interest, log.low, log.head, most=100, scan=100)[0]


@pytest.mark.parametrize("query", [EVERYTHING, b"a"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_log_lists_what_is_withheld_to_nobody_restricted(query, is_late):
    log = make_log()
    interests = [] if is_late else [log.open_interest(query, is_restricted=r) for r in (True, False)]
    for an, payload in enumerate((b"a1", b"a2!", b"a3"), start=1):
        log.append(an, payload)
    log.append_many([4, 6], [b"a4!", b"a6"])
    log.insert(5, b"a5!")
    interests = interests or [log.open_interest(query, is_restricted=r) for r in (True, False)]
    assert listed(log, interests[0]) == [1, 3, 6]
    assert listed(log, interests[1]) == [1, 2, 3, 4, 5, 6]


def test_a_packet_that_nobody_can_judge_is_withheld(monkeypatch):
    monkeypatch.delenv("SKYMESH_STRICT", raising=False)
    monkeypatch.setattr("dcp.log.fault", lambda *_: None)
    log = make_log()
    log.withholds = lambda payload: payload[100] == 0
    log.append(1, b"short")
    assert listed(log, log.open_interest(EVERYTHING, is_restricted=True)) == []


def test_what_was_evicted_is_forgotten():
    log = make_log(max_packets=8)
    for an in range(1, 1_000):
        log.append(an, b"a!")
    assert len(log._withheld) <= 8


# --- whole peers ------------------------------------------------------------------------------------------------------


def seen(simulation, name):
    return simulation.peers[name].check


class Checked(SignedSimulation):
    """Clients without the grant are checked as if they had asked for what is not withheld."""

    def _new_check(self, peer):
        check = super()._new_check(peer)
        if peer.name not in self.granted and check.query == EVERYTHING:
            check.query = token_of(Query.parse(PUBLIC))
        return check


def world(seed, granted, *, loss=0.0, **options):
    simulation = Checked(
        seed, withhold="/p[. mod 5 = 0]", granted=granted, conditions=Conditions(delay=0.005, loss=loss), **options
    )
    simulation.add_root("root", capacity=3)
    for router in ("granted router", "open router"):
        simulation.add_router(router, parents=1)
    return simulation


@pytest.mark.parametrize(
    ("seed", "loss"), [(2, 0.05), *(pytest.param(seed, 0.1, marks=pytest.mark.soak) for seed in range(3, 23))]
)
def test_clients_with_and_without_the_grant_each_get_their_whole_stream(seed, loss):
    simulation = world(seed, {"granted router": 9_000, "granted leaf": 9_000}, loss=loss)
    simulation.run_until(2.0)
    simulation.add_leaf("granted leaf", parents=2)
    simulation.add_leaf("open leaf", parents=2)
    simulation.add_leaf("narrow leaf", parents=2, query="/p[not(. mod 5 = 0) and . mod 2 = 0]")
    simulation.run_until(4.0)
    simulation.feed(rate=50, until=10.0, make=packet)
    simulation.run_until(11.0)
    simulation.add_leaf("late leaf", parents=2, start=Start.OLDEST)
    simulation.run_until(14.0)
    for name in ("granted leaf", "open leaf", "narrow leaf", "late leaf"):
        assert seen(simulation, name).missing_at_end() is None, name
        assert not seen(simulation, name).gaps
    assert seen(simulation, "granted leaf").packets > seen(simulation, "open leaf").packets > 200
    assert not simulation.incomplete
    above = {parent.peer_id for parent in simulation.peers["granted leaf"].core.mesh.parents.links.values()}
    assert bytes(identity_of("open router").peer_id) not in above


def test_a_grant_that_ends_costs_only_the_withheld_packets():
    simulation = world(5, {"granted router": 70.0, "granted leaf": 70.0})
    simulation.add_leaf("granted leaf", parents=1)
    simulation.run_until(3.0)
    assert simulation.peers["granted router"].core.doors.gate.has_withheld
    simulation.feed(rate=20, until=18.0, make=packet)
    simulation.run_until(9.0)
    had = seen(simulation, "granted leaf").packets
    assert had > 90
    for name in ("granted leaf", "granted router"):  # a minute before the end, for clocks that differ
        simulation.peers[name].check = None
    simulation.run_until(20.0)
    for name in ("granted leaf", "granted router"):
        peer = simulation.peers[name]
        assert not peer.core.doors.gate.has_withheld
        assert peer.core.receiver.position == simulation.truth.last
    assert not simulation.incomplete
    assert seen(simulation, "open router").missing_at_end() is None


def test_the_check_fails_when_a_hop_does_not_keep_to_it(monkeypatch):
    monkeypatch.setattr("peer.trust.gate.Gate.restricts", lambda self, shown: False)
    simulation = world(6, {})
    simulation.run_until(2.0)
    simulation.feed(rate=20, until=5.0, make=packet)
    with pytest.raises(AssertionError, match=r"accusation without a liar: .*'convicted: forged'"):
        simulation.run_until(6.0)


def test_a_client_of_the_whole_stream_counts_without_what_is_withheld(monkeypatch):
    """The signed counts name both: otherwise every such client would report packets as missing."""
    monkeypatch.setattr("peer.trust.counting.PATIENCE", 0.5)
    simulation = world(7, {})
    simulation.add_leaf("open leaf", parents=1)
    simulation.run_until(2.0)
    simulation.feed(rate=50, until=10.0, make=packet)
    simulation.run_until(12.0)
    assert simulation.peers["open leaf"].core.doors.counting.checked > 200
    assert not simulation.incomplete


def test_multicast_groups_do_not_mix_those_with_and_without_the_grant():
    from dcp.groups import Kind

    assert Kind(EVERYTHING, 0, "lan", True, True) != Kind(EVERYTHING, 0, "lan", True, False)
