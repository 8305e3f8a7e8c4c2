"""Meshes for the tests of the whole peer, and a random story of faults for them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dcp import Config, Gap
from dcp.testing import Conditions
from peer.role import Role
from peer.testing.peersim import PeerSimulation, SimPeer
from xmlswitch import Query

QUERIES = ["/p/c=1", "/p/c>2", "/p[c=0 or c=4]", "/p/n > 500", "//c[.=3]"]


def packet(number: int) -> bytes:
    return b"<p><n>%d</n><c>%d</c></p>" % (number, number % 5)


def build(
    seed: int,
    *,
    roots: int = 2,
    routers: int = 4,
    leaves: int = 4,
    loss: float = 0.0,
    dynamic: bool = False,
    settled_at: float = 3.0,
    conditions: Conditions | None = None,
    parents: Sequence[int] = (2,),
    before: int = 0,
    dcp: Config | None = None,
    spacing: float = 0.05,
) -> PeerSimulation:
    """A mesh in which everybody has found parents, with no packet published yet.

    Routers and leaves take their n from `parents` in turn, and come `spacing` seconds after each other.
    """
    usual = Conditions(delay=0.005, jitter=0.003, loss=loss, duplicate=loss / 4)
    sim = PeerSimulation(seed, conditions=conditions or usual, before=before)
    for i in range(roots):
        sim.add_root(f"R{i}", dcp=dcp)
    for i in range(routers):
        options = {"deliver": False, "dynamic": dynamic or i % 2 == 0, "parents": parents[i % len(parents)], "dcp": dcp}
        sim.network.at(0.1 + spacing * i, lambda i=i, options=options: sim.add_router(f"I{i}", **options))
    for i in range(leaves):
        query = None if i == 0 else QUERIES[(i - 1) % len(QUERIES)]
        options = {"query": query, "parents": parents[i % len(parents)], "dcp": dcp}
        sim.network.at(1.0 + spacing * i, lambda i=i, options=options: sim.add_leaf(f"C{i}", **options))
    sim.run_until(settled_at)
    return sim


def of_role(sim: PeerSimulation, role: Role) -> list[SimPeer]:
    return [peer for peer in sim.peers.values() if peer.config.role is role and peer.alive]


def complete(sim: PeerSimulation) -> dict[str, int]:
    """Who alive lacks a packet that its query matches, and which; empty when all is well."""
    missing = {
        peer.name: peer.check.missing_at_end()
        for peer in sim.peers.values()
        if peer.alive and peer.check is not None and peer.takes
    }
    return {name: an for name, an in missing.items() if an is not None}


def gaps(sim: PeerSimulation) -> dict[str, list[Gap]]:
    return {peer.name: peer.check.gaps for peer in sim.peers.values() if peer.check is not None and peer.check.gaps}


def short(sim: PeerSimulation, *, most: int = 16) -> dict[str, int]:
    """Who alive has fewer sound parents than it wants (`most`: than can be had)."""
    return {
        peer.name: sound_parents(peer)
        for peer in sim.peers.values()
        if peer.alive
        and peer.config.role is not Role.ROOT
        and sound_parents(peer) < min(peer.config.mesh.parents_wanted, most)
    }


def sound_parents(peer: SimPeer) -> int:
    return len(peer.core.mesh.parents.sound())


class Havoc:
    """Kills, freezes, restarts and query changes, at random but from the seed alone."""

    def __init__(self, sim: PeerSimulation, *, until: float) -> None:
        self.sim = sim
        self.until = until
        self.rng = random.Random(sim.seed * 31 + 7)
        sim.network.after(self.rng.uniform(0.3, 1.0), self.strike)

    def strike(self) -> None:
        sim, rng = self.sim, self.rng
        if sim.network.now > self.until:
            return
        sim.network.after(rng.uniform(0.4, 1.5), self.strike)
        live = [p for p in sim.peers.values() if p.alive and not sim.network.is_frozen(p.address)]
        by_role = {role: [p for p in live if p.config.role is role] for role in Role}
        dice = rng.random()
        if dice < 0.4 and len(by_role[Role.ROUTER]) > 2:
            self._kill_and_restart(rng.choice(by_role[Role.ROUTER]).name, rng.uniform(0.5, 4.0))
        elif dice < 0.55 and len(by_role[Role.ROOT]) > 1:
            self._kill_and_restart(rng.choice(by_role[Role.ROOT]).name, rng.uniform(0.5, 3.0))
        elif dice < 0.8 and live:
            sim.freeze(rng.choice(live).name, rng.choice([0.2, 0.5, 1.2, 3.0]))
        elif by_role[Role.LEAF]:
            peer = rng.choice(by_role[Role.LEAF])
            peer.core.change_query(Query.parse(rng.choice(QUERIES)), now=sim.network.now)
            sim.network.pump(peer.address)

    def _kill_and_restart(self, name: str, after: float) -> None:
        self.sim.kill(name)
        self.sim.network.after(after, lambda: self.sim.restart(name))
