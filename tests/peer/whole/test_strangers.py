"""What a stranger can say to a whole peer: each of these once ended or froze a process."""

from __future__ import annotations

import random
import time

import msgpack
import pytest

from dcp import Config, events
from dcp.guard import faults, strictness
from dht import Identity
from dht.record import QuerySummary
from peer.core import PeerCore
from peer.coreconfig import CoreConfig
from peer.directory import candidate_of
from peer.errors import QueryNotCarried
from peer.flow import Disconnected, FlowConfig, QueryNarrowed
from peer.mesh.encoding import encode_request
from peer.mesh.messages import ChildrenRequest as Children
from peer.mesh.messages import PeerId
from peer.queries import MAX_REMEMBERED_BYTES, XPathPolicy, token_of
from peer.role import Role
from peer.testing.peersim import PeerSimulation
from tests.dht.build import record_of
from tests.peer.whole.simulated import complete, gaps, packet
from xmlswitch import Query

FREEZES = "round(5, -999999999) = 0 or exists(1 to 2)"
"""Elementpath evaluates constants while it parses, and this one in C, without end."""
ASKER = ("10.9.9.9", 4000)


@pytest.fixture
def sim():
    sim = PeerSimulation(5)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_leaf("C", query="/p/c>2", parents=1)
    sim.run_until(3.0)
    return sim


@pytest.mark.parametrize(
    "query",
    [
        b"\xff garbage",
        msgpack.packb([1, "1.0", "/p/c[", {}]),
        msgpack.packb([1, "3.1", FREEZES, {}]),
    ],
)
def test_children_of_garbage_is_answered_with_nobody(sim, query):
    root = sim.peers["R"].core.mesh
    answer = root.answer_inquiry(encode_request(Children(query)), ASKER, now=sim.network.now)
    assert answer == root.answer_inquiry(
        encode_request(Children(token_of(Query.parse("/q")))), ASKER, now=sim.network.now
    )


def test_a_stranger_that_asks_for_children_without_end_is_not_answered_for_long(sim):
    root = sim.peers["R"].core.mesh
    asked = [encode_request(Children(token_of(Query.parse(f"/p/c>{i}")))) for i in range(100)]
    answers = [root.answer_inquiry(question, ASKER, now=sim.network.now) for question in asked]
    assert answers[-1] is None
    assert root.counters["inquiries_refused"] == answers.count(None) >= 80
    other = root.answer_inquiry(asked[0], ("10.8.8.8", 1), now=sim.network.now)
    assert other is not None, "others are answered"


@pytest.mark.parametrize("reason", [0x20, 0x3F, 0x00, 0xFF])
def test_a_refusal_with_an_unknown_reason_is_counted(sim, reason):
    """7 of 8 joining clients exited at reason 0x20: it is none of dcp's, and below the mesh's."""
    seeker = sim.add_leaf("seeker", parents=1)
    sim.run_until(3.2)
    heard_reasons = []
    seeker.core.mesh.link_refused = lambda link, why, body, *, now: heard_reasons.append(why)
    core = seeker.core
    link = next(iter(core._up.values()))
    core._refused(link, reason, b"", sim.network.now)
    assert len(heard_reasons) == 1


def test_an_event_that_cannot_be_dealt_with_closes_its_link_and_nothing_else(sim):
    root = sim.peers["R"]
    sim.add_leaf("other", parents=1)
    sim.run_until(4.0)
    child = sim.peers["C"]

    def broken(link, body, *, now):
        raise RuntimeError("a bug that a stranger found")

    honest = root.core.mesh.receive_message
    faults.clear()
    with strictness(False):
        root.core.mesh.receive_message = broken
        number = next(
            n for n, link in root.core._down.items() if root.core.mesh.children.links[link].address == child.address
        )
        root.core.hub._emit(events.MessageReceived("sim", number, b"anything"))
        root.core._settle(sim.network.now)
        root.core.mesh.receive_message = honest
        assert faults == {"link event": 1}
        assert number not in root.core._down
    faults.clear()
    sim.feed(rate=50, until=6.0, make=packet)
    sim.run_until(9.0)
    assert complete(sim) == {}, "the one that was let go came back, the other never noticed"
    assert gaps(sim) == {}


def test_in_development_an_unexpected_error_still_ends_the_program(sim):
    root = sim.peers["R"].core
    root.mesh.receive_message = None
    number = next(iter(root._down))
    root.hub._emit(events.MessageReceived("sim", number, b"anything"))
    with pytest.raises(TypeError):
        root._settle(sim.network.now)


@pytest.mark.parametrize("text", [FREEZES, "/p/c = '\x01'"])
def test_the_query_of_a_record_is_never_evaluated(text):
    """One record froze every peer that looked for parents: router, leaf and newcomer."""
    began = time.process_time()
    candidate = candidate_of(record_of(Identity.generate(), query=QuerySummary.of(text)))
    assert candidate.query == token_of(Query.parse("false()"))
    assert time.process_time() - began < 1.0


def test_decoded_queries_are_bounded_in_bytes():
    policy = XPathPolicy()
    for i in range(300):
        assert policy.check(msgpack.packb([1, "1.0", f"/p/c = {i} or /p/d = '{'x' * 3_500}'", {}])) is None
    assert 0 < len(policy._decoded) < 100, "as many as there were, 1 MB of text, on d256d84"
    assert policy._decoded.bytes <= MAX_REMEMBERED_BYTES


def test_rejoin_asks_for_the_whole_query_again():
    """A client that had stepped down to a fallback kept it for good after it was disconnected."""
    sim = PeerSimulation(7)
    small = Config(max_ready_packets=64)
    sim.add_root("R", dcp=small)
    sim.run_until(0.5)
    quick = FlowConfig(patience=1.0, give_up_after=3.0)
    slow = sim.add_leaf("slow", parents=1, dcp=small, fallbacks=(Query.parse("/p/c=1"),), flow=quick)
    sim.run_until(2.0)
    told = []
    sim.listeners.append(lambda name, event: told.append(type(event)) if name == "slow" else None)
    slow.takes = False
    sim.feed(rate=100, until=12.0, make=packet)
    sim.run_until(10.0)
    assert QueryNarrowed in told
    assert Disconnected in told
    slow.takes = True
    sim.run_until(10.5)
    slow.core.rejoin(now=sim.network.now)
    sim.network.pump(slow.address)
    sim.run_until(15.0)
    assert slow.core.client.query is None, "everything, as it had asked for"
    assert complete(sim) == {}


def test_only_what_xpath_1_says_can_be_carried():
    with pytest.raises(QueryNotCarried, match=r"must be XPath 1\.0"):
        PeerCore(
            CoreConfig(stream="s", role=Role.ROUTER, carry=Query.parse("exists(/p)")),
            PeerId(b"me"),
            rng=random.Random(1),
        )


EXPENSIVE = "//*[. = //*] and //y[. > 398]"


def test_a_query_that_would_take_too_long_passes_and_is_counted_and_the_client_filters_it():
    """Its parent sends too much, and the child sees only what it wants."""
    sim = PeerSimulation(11)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_leaf("C", query=EXPENSIVE, parents=1)
    sim.add_leaf("D", query="/p/c>2", parents=1)
    sim.run_until(3.0)
    large = b"<p><n>%d</n>" + b"".join(b"<x><y>%d</y></x>" % n for n in range(400)) + b"<c>%d</c></p>"
    for number in range(1, 6):
        sim.publish(large % (number, number % 5))
    sim.run_until(5.0)
    root = sim.peers["R"].core
    child = {c.address: link for link, c in root.mesh.children.links.items()}[sim.peers["C"].address]
    other = {c.address: link for link, c in root.mesh.children.links.items()}[sim.peers["D"].address]
    assert root.cut_off(child) == 5
    assert root.cut_off(other) == 0
    assert sim.peers["C"].core.client.not_matching == 5 - sim.peers["C"].check.packets
    assert complete(sim) == {}
    assert gaps(sim) == {}
