"""How often a packet is opened and parsed on its way to a program, and what a router remembers in between."""

from __future__ import annotations

from collections import Counter

import pytest

from dcp import Gap, Packet, PayloadRefused
from dcp.compression import Compressor
from peer import envelope as envelopes
from peer.envelope import Envelope
from peer.queries import OWN
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import packet
from xmlswitch import Query, Switch

PACKETS = 100


@pytest.fixture
def parsed(monkeypatch):
    """Packets that each switch looked into."""
    counted: Counter[int] = Counter()
    match_mask = Switch.match_mask

    def counting(self, content):
        counted[id(self)] += self._narrow != 0  # else the packet is not parsed
        return match_mask(self, content)

    monkeypatch.setattr(Switch, "match_mask", counting)
    return counted


def router_with_a_client(query, child_query="/p/c = 2"):
    sim = PeerSimulation(5)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_router("I", parents=1, query=query)
    sim.run_until(2.0)
    sim.add_leaf("C", parents=1, query=child_query)
    sim.forget_records_except("I")
    sim.run_until(5.0)
    assert len(sim.peers["I"].core.mesh.children) == 1
    return sim, sim.peers["I"].core


def publish(sim):
    for _ in range(PACKETS):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(sim.network.now + 2.0)


def test_a_router_with_a_client_of_its_own_opens_and_parses_a_packet_once(parsed):
    """It was opened three times (routing, the client's match, hand-over) and parsed twice."""
    sim, core = router_with_a_client("/p/c = 1")
    publish(sim)
    check = sim.peers["I"].check
    assert check.packets == PACKETS // 5
    assert core.policy.envelope.opened == PACKETS
    assert parsed[id(core.policy.switch)] + parsed[id(core.client._switch)] == PACKETS
    assert core.policy.envelope.remembered_bytes == 0, "everything was taken"


def test_a_leaf_opens_and_parses_a_packet_once(parsed):
    sim, _ = router_with_a_client(None)
    publish(sim)
    core = sim.peers["C"].core
    assert sim.peers["C"].check.packets == PACKETS // 5
    assert core.policy.envelope.opened == parsed[id(core.client._switch)] == PACKETS // 5, "its parent sends no others"


def test_what_was_matched_under_an_older_query_is_matched_again(parsed):
    sim, core = router_with_a_client("/p/c = 1")
    sim.peers["I"].takes = False
    publish(sim)
    core.change_query(Query.parse("/p[c = 1 and n > 0]"), now=sim.network.now)
    sim.peers["I"].takes = True
    publish(sim)
    assert sim.peers["I"].check.packets == 2 * PACKETS // 5
    assert list(core.policy.switch._links[OWN].queries) == [core.client.query]


def test_a_query_of_a_later_version_is_parsed_by_the_client(parsed):
    sim, core = router_with_a_client("every $c in /p/c satisfies $c = 1")
    seen = []
    sim.peers["I"].check.take = seen.append  # the simulation's own check knows XPath 1.0 only
    publish(sim)
    assert sum(isinstance(item, Packet) for item in seen) == PACKETS // 5
    assert core.policy.envelope.opened == PACKETS
    assert parsed[id(core.client._switch)] == PACKETS
    assert OWN not in core.policy.switch.links


def test_what_a_program_does_not_take_is_forgotten_and_opened_again(monkeypatch):
    monkeypatch.setattr(envelopes, "MAX_REMEMBERED_BYTES", 1_000)
    packed = [Compressor().pack(b"%03d" % number * 30) for number in range(50)]
    envelope = Envelope(remembers=True)
    for payload in packed:
        envelope.open_untrusted(payload)
        assert envelope.remembered_bytes <= 1_000
    assert [envelope.take_untrusted(payload).content for payload in packed] == [payload[1:] for payload in packed]
    assert 50 < envelope.opened < 100
    assert envelope.remembered_bytes == 0


def test_a_broken_envelope_is_a_gap_and_counted():
    sim, core = router_with_a_client("/p/c = 1")
    with pytest.raises(PayloadRefused):
        Envelope().open_untrusted(b"\xff")
    for payload in (b"\x00" + packet(1), b"\xffbroken", b"\x00" + packet(6)):
        sim.peers["R"].core.publish(payload)
    sim.network.pump(sim.peers["R"].address)
    seen = []
    sim.peers["I"].check.take = seen.append
    sim.run_until(sim.network.now + 1.0)
    assert [type(item) for item in seen[-3:]] == [Packet, Gap, Packet]
    assert core.client.unreadable == 1
