"""Meshes in which every tenth peer is hostile, in virtual time, exactly repeatable from a seed.

python -c "from peer.testing.hostile import run_hostile; print(run_hostile(4711))"

The promises are checked for the honest peers. A lie can cost a peer packets only while all its ways to a root lead
through liars. So a peer is *covered* while it holds a link, which the other end holds too, to a root or to an honest
peer that is covered; and whatever was published while it was covered must reach it, in time (promises 1 and 2). Levels
fall along every link between honest peers (promise 3), and nothing in an honest peer outgrows its limit (promise 5).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dcp import Packet, Start
from dcp.testing import Conditions, LateStreamCheck, StreamCheck
from peer.core import PeerCore
from peer.items import Content
from peer.queries import token_of
from peer.role import Role
from peer.testing import liars
from peer.testing.peersim import PeerSimulation, PromiseBroken, SimPeer

ABOUT_THE_STREAM = ("claims", "claims far", "holes", "starts", "omitter", "omits all", "black hole", "silent hole")
ABOUT_ITSELF = ("levels", "loads", "freshness", "clocks", "sybils")
AS_A_CHILD = ("query bomber", "join stormer")
KINDS = (*ABOUT_THE_STREAM, *ABOUT_ITSELF, *AS_A_CHILD)
ROOTS = 3
PARENTS = 3
RATE = 10.0
BEGIN, END, SETTLE = 6.0, 14.0, 6.0
"""Packets of the checked part are published from BEGIN to END, when everybody has had time to join."""
COVER_BEFORE, COVER_AFTER = 3.0, 5.0
"""A packet counts for a peer that was covered from so long before it was published until so long after."""
MAX_DELAY = 3.0
"""Seconds within which a covered peer has a packet in order; one that comes as `Omitted` may take until the end."""
QUERIES = (None, "/p/n mod 2 = 0", "/p/c > 2", "/p/n mod 3 = 1 and /p/c < 4")


@dataclass
class Outcome:
    """What a run shows of the honest peers."""

    seed: int
    kinds: tuple[str, ...]
    honest: int = 0
    exposed: int = 0
    """Honest peers that had a liar as a parent at some time."""
    packets: int = 0
    late: int = 0
    excused: int = 0
    """Packets missed by peers that were not covered."""
    worst_delay: float = 0.0
    broken: list[str] = field(default_factory=list)


class HostileMesh(PeerSimulation):
    def __init__(self, seed: int, *, peers: int, kinds: Sequence[str]) -> None:
        super().__init__(seed, conditions=Conditions(delay=0.005, jitter=0.01, loss=0.01))
        self.kinds = tuple(kinds)
        self._published: dict[int, float] = {}
        self._arrived: dict[str, dict[int, float]] = defaultdict(dict)
        self._exposed: set[str] = set()
        self._uncovered: dict[str, list[float]] = defaultdict(list)
        """When a peer was found without cover; looked at every 0.1 s."""
        for number in range(ROOTS):
            self.add_root(f"root{number}", capacity=max(4, peers // 6))
        # Liars come early: then they are near the roots, and many honest peers have one as a parent.
        for number, kind in enumerate(self.kinds):
            self.network.at(0.5 + self.rng.random(), self._add_liar, number, kind)
        honest = peers - len(self.kinds)
        for number in range(honest):
            self.network.at(0.8 + 2.5 * number / honest, self._add_honest, number)
        self.network.at(0.6, self._look_for_cover)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _add_honest(self, number: int) -> None:
        query = self.rng.choice(QUERIES)
        start = Start.OLDEST if self.rng.random() < 0.3 else Start.NEW
        if self.rng.random() < 0.7:
            self.add_router(f"honest{number}", query=query, parents=PARENTS, start=start)
        else:
            self.add_leaf(f"honest{number}", query=query, parents=PARENTS, start=start)

    def _add_liar(self, number: int, kind: str) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        if kind == "sybils":
            for more in range(4):
                self._start_liar(f"sybil{number}.{more}", liars.Sybil(), host=f"10.99.{number}.1")
            return
        makers: dict[str, Callable[[], liars.Lie]] = {
            "claims": liars.Claims,
            "claims far": partial(liars.Claims, beyond=liars.FAR >> 1),
            "holes": liars.Holes,
            "starts": liars.Starts,
            "omitter": liars.Omits,
            "omits all": partial(liars.Omits, share=1.0),
            "black hole": liars.BlackHole,
            "silent hole": partial(liars.BlackHole, claims=False),
            "levels": partial(liars.Levels, rng),
            "loads": liars.Loads,
            "freshness": partial(liars.Freshness, rng),
            "clocks": liars.Clocks,
            "query bomber": partial(liars.QueryBomber, rng),
            "join stormer": partial(liars.JoinStormer, rng, self._targets),
        }
        options: dict[str, Any] = {}
        if kind == "clocks":
            options = {"rate": rng.choice([0.3, 1.0, 3.0]), "offset": rng.uniform(0, 1e6)}
        name = f"{kind.replace(' ', '-')}{number}"
        self._start_liar(name, makers[kind](), role=Role.LEAF if kind == "query bomber" else Role.ROUTER, **options)

    def _start_liar(
        self, name: str, lie: liars.Lie, *, role: Role = Role.ROUTER, host: str | None = None, **clock: float
    ) -> None:
        make: Callable[..., PeerCore] = partial(liars.LyingCore, lie=lie, **clock)
        capacity = 1 if isinstance(lie, liars.Loads) else 6
        deliver = role is Role.LEAF
        peer = self._add(
            name, role, None, parents=2, capacity=capacity, deliver=deliver, make=make, host=host, dynamic=False
        )
        self.network.after(liars.TICK, self._tick, peer)

    def _tick(self, peer: SimPeer) -> None:
        core = peer.core
        assert isinstance(core, liars.LyingCore)
        core.tick(now=self.network.now)
        self.network.pump(peer.address)
        self.network.after(liars.TICK, self._tick, peer)

    def _targets(self) -> list[Any]:
        return [peer.address for peer in self.peers.values() if peer.is_honest]

    def honest(self) -> list[SimPeer]:
        """Those that have a client."""
        return [peer for peer in self.peers.values() if peer.check is not None]

    # --- what is checked ----------------------------------------------------------------------------------------------

    def _new_check(self, peer: SimPeer) -> StreamCheck:
        return LateStreamCheck(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def publish(self, payload: bytes, **options: Any) -> int:
        an = super().publish(payload, **options)
        self._published[an] = self.network.now
        return an

    def _took(self, peer: SimPeer, item: Content) -> None:
        if isinstance(item, Packet):
            self._arrived[peer.name][item.an] = self.network.now

    def _look_for_cover(self) -> None:
        """Whom a chain of honest peers connects with a root."""
        above: dict[str, set[str]] = defaultdict(set)
        for child, link, _, is_held in self.uplinks():
            parent = self._by_id.get(child.core.mesh.parents.links[link].peer_id)
            if not is_held or parent is None:
                continue
            if parent.is_honest:
                above[parent.name].add(child.name)
            elif child.check is not None:
                self._exposed.add(child.name)
        covered = [peer.name for peer in self.peers.values() if peer.config.role is Role.ROOT]
        seen = set(covered)
        while covered:
            fresh = above[covered.pop()] - seen
            seen |= fresh
            covered += sorted(fresh)
        for peer in self.honest():
            if peer.name not in seen:
                self._uncovered[peer.name].append(self.network.now)
        self.network.after(0.1, self._look_for_cover)

    def _is_covered(self, name: str, an: int) -> bool:
        at = self._published[an]
        return not any(at - COVER_BEFORE <= when <= at + COVER_AFTER for when in self._uncovered[name])

    def outcome(self) -> Outcome:
        """Judge the run: promises 1 and 2, packet by packet."""
        found = Outcome(self.seed, self.kinds, exposed=len(self._exposed))
        checked = [an for an, at in self._published.items() if BEGIN <= at <= END]
        for peer in self.honest():
            check = peer.check
            assert isinstance(check, LateStreamCheck)
            found.honest += 1
            found.late += check.late
            found.packets += check.packets
            arrived = self._arrived[peer.name]
            for an in checked:
                if not self.truth.wants(check.query, an):
                    continue
                delay = arrived.get(an, self._published[an]) - self._published[an]
                what = self._what_went_wrong(check, an, an in arrived, delay)
                if what is None:
                    found.worst_delay = max(found.worst_delay, delay)
                elif self._is_covered(peer.name, an):
                    found.broken.append(f"{peer.name}: packet {an} {what}")
                else:
                    found.excused += 1
        return found

    def _what_went_wrong(self, check: LateStreamCheck, an: int, has_come: bool, delay: float) -> str | None:
        if has_come:
            return f"came after {delay:.1f} s" if delay > MAX_DELAY else None
        if an in check.owed:
            return "was skipped in silence"
        if any(gap.after < an <= gap.until for gap in check.gaps):
            return "is in a gap, although an honest parent had it"
        if check.position is None or (check.position < an and not check.has_come_late(an)):
            return "never came"
        return None  # it came as omitted


def make_packet(an: int) -> bytes:
    return b"<p><n>%d</n><c>%d</c></p>" % (an, an * 7919 % 5)


def run_hostile(seed: int, *, peers: int | None = None, kinds: Sequence[str] | None = None) -> Outcome:
    """One mesh, from its first peer to its last packet; raises PromiseBroken with the story of the seed.

    By default every twentieth seed has 100 peers and the others 30, a tenth of them hostile, of kinds that the seed
    draws.
    """
    peers = peers or (100 if seed % 20 == 0 else 30)
    if kinds is None:
        kinds = random.Random(f"kinds {seed}").sample(KINDS, max(1, peers // 10))
    mesh = HostileMesh(seed, peers=peers, kinds=kinds)
    mesh.feed(rate=RATE, until=END + 1.0, make=make_packet)
    mesh.run_until(END + SETTLE)
    found = mesh.outcome()
    if found.broken:
        more = f" and {len(found.broken) - 1} more" if len(found.broken) > 1 else ""
        raise PromiseBroken(
            f"seed {seed}, {peers} peers, liars: {', '.join(kinds)}: {found.broken[0]}{more}\n"
            f"run it again: run_hostile({seed}, peers={peers}, kinds={tuple(kinds)!r})"
        )
    return found
