"""A root that comes back without its state counts from 1 again: its clients must not drop what it says in silence."""

from __future__ import annotations

import pytest

from dcp import Packet, Started
from peer.flow import NumbersRestarted, in_words
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import packet


@pytest.mark.parametrize("through_a_router", [False, True])
def test_a_root_restarted_without_its_state_is_followed_from_its_first_packet(through_a_router):
    """10 of 15 packets were dropped as old by clients that stood above the new numbers."""
    sim = PeerSimulation(9)
    root = sim.add_root("R")
    sim.run_until(0.5)
    if through_a_router:
        sim.add_router("I", parents=1, deliver=False)
        sim.run_until(1.5)
        sim.forget_records_except("I")
    client = sim.add_leaf("C", parents=1)
    sim.run_until(3.0)
    client.check = None  # which follows one numbering
    for _ in range(200):
        sim.publish(packet(sim.truth.last + 1))
    sim.run_until(4.0)
    told = []
    sim.listeners.append(
        lambda name, event: told.append((name, event)) if isinstance(event, NumbersRestarted) else None
    )
    sim.kill("R")
    sim.run_until(5.0)
    root.last_published = 0
    sim.restart("R")
    if through_a_router:
        sim.run_until(7.0)
    before = client.core.receiver.position
    taken = []
    original = client.core.next_content
    client.core.next_content = lambda: (item := original()) and (taken.append(item) or item)
    for number in range(1, 61):
        root.core.publish(b"\0" + packet(number), an=None)
        sim.network.pump(root.address)
        sim.run_until(sim.network.now + 1.0)
    assert before == 200
    names = {name for name, _ in told}
    assert names == ({"I", "C"} if through_a_router else {"C"})
    assert all(event.head < event.position for _, event in told)
    assert sum(isinstance(item, Started) for item in taken) == 1
    assert [item.an for item in taken if isinstance(item, Packet)] == list(range(1, 61))


def test_the_sentence_says_where_both_stand():
    assert "parents are at 5, this peer was at 200" in in_words(NumbersRestarted(200, 5))
