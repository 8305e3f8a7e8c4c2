"""Random audits: what all parents leave out together is found at another peer, delivered, and held against them."""

from __future__ import annotations

from functools import partial

import pytest

from dcp.testing import LateStreamCheck
from peer.core import PeerCore
from peer.mesh import events as meshevents
from peer.queries import token_of
from peer.testing.liars import Hides, LyingCore
from tests.peer.trust.granted_world import GrantedSimulation

HIDES = partial(LyingCore, lie=Hides(5))


class AuditedSimulation(GrantedSimulation):
    """Audits often, so that runs are short."""

    def __init__(self, seed, **options):
        super().__init__(seed, **options)
        self.uncovered = []
        self.accused = {}

    def name_of(self, peer_id):
        return self._by_id[peer_id].name

    def _new_check(self, peer):
        return LateStreamCheck(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def _on_event(self, address, event, now):
        peer = self._by_address[address]
        if isinstance(event, meshevents.Uncovered):
            self.uncovered.append((peer.name, event))
        if isinstance(event, meshevents.Disputed):
            self.accused.setdefault(self.name_of(event.peer_id), event.reason)
        super()._on_event(address, event, now)
        if not all(p.is_honest for p in self.peers.values()):
            self.accusations.clear()


def mesh_of(*, liars, parents, honest=2, query="/p[@n mod 5 = 0]", seconds=40.0, seed=1, share=0.2):
    """A leaf whose parents, as the directory has it, are the liars; it hears of the honest routers only later."""
    sim = AuditedSimulation(seed)
    sim.add_root("root", capacity=16)
    sim.run_until(0.5)
    hidden = [f"liar{number}" for number in range(liars)]
    for number in range(liars + honest):
        is_liar = number < liars
        name = hidden[number] if is_liar else f"honest{number - liars}"
        sim.add_router(name, make=HIDES if is_liar else PeerCore, parents=1, capacity=6)
        sim.run_until(sim.network.now + 1.0)
        sim.forget_records_except("root")
    sim.run_until(sim.network.now + 10.0)
    sim.forget_records_except(*hidden)
    leaf = sim.add_leaf("leaf", query=query, parents=parents, audit_share=share)
    sim.run_until(sim.network.now + 1.0)
    assert all(sim.name_of(p.peer_id) in hidden for p in leaf.core.mesh.parents.links.values())
    sim.feed(rate=45, until=sim.network.now + seconds - 8, make=lambda an: b'<p n="%d">flight</p>' % an)
    sim.run_until(sim.network.now + seconds)
    return sim, leaf


@pytest.mark.parametrize("parents", [1, 2])
def test_parents_that_leave_out_the_same_packets_are_found_convicted_and_replaced(parents):
    sim, leaf = mesh_of(liars=parents, parents=parents)
    print(leaf.core.audits.counts, sim.accused, sim.uncovered, [sim.name_of(p.peer_id) for p in leaf.core.mesh.parents.links.values()])
    print(leaf.core.mesh.counters, leaf.check.owed)
    assert 0
