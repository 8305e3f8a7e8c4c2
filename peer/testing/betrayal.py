"""What peers that betray a signed stream achieve: whole peers in virtual time, one kind of betrayal each.

Below a root are liars and honest routers. Each leaf has an honest parent beside a liar, but for the kinds that collude:
there all its parents lie, the same lie, and an honest router is known to the directory only. Nothing forged may reach
a client, nobody honest may be convicted, and what was left out must come, if not by itself, when an audit finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dcp.testing import LateStreamCheck, StreamBroken
from peer.core import PeerCore, PeerEvent
from peer.mesh import events as meshevents
from peer.queries import token_of
from peer.testing import liars
from peer.testing.peersim import SimPeer
from peer.testing.signedsim import SignedSimulation

COLLUDING = "colluding"
KINDS: dict[str, Callable[[], liars.Lie]] = {
    **{f"forging: {how}": partial(liars.Forges, how) for how in ("altered", "path")},
    "replaying": partial(liars.Forges, "replayed"),
    "downgrading: stripped": partial(liars.Forges, "stripped"),
    "downgrading: made up": partial(liars.Forges, "downgraded"),
    "omitting": partial(liars.Omits, 0.2),
    "delaying": liars.Delays,
    COLLUDING: liars.Hides,
    "colluding, corrected when shown": partial(liars.Hides, repents=True),
}
LEAVES = 3
RATE = 30.0
SECONDS = 14.0
SETTLE = 6.0
QUERY = "/p[@n mod 10 = 0 or @n mod 3 = 0]"


@dataclass
class Outcome:
    kind: str
    packets: int = 0
    forged_delivered: int = 0
    innocent_blamed: int = 0
    liars_blamed: int = 0
    """Convicted, by how many leaves, or disputed where they corrected themselves."""
    silent: int = 0
    """Packets that a leaf should have got after it had found out its parents, or with an honest one, and did not."""
    late: int = 0
    gaps: int = 0


class _Check(LateStreamCheck):
    """Counts what is forged instead of raising."""

    forged = 0

    def take(self, event: Any) -> None:
        try:
            super().take(event)
        except StreamBroken:
            self.forged += 1


class Betrayal(SignedSimulation):
    def __init__(self, seed: int, kind: str) -> None:
        super().__init__(seed)
        self.outcome = Outcome(kind)
        self._hidden: set[str] = set()
        self._lies = KINDS[kind]
        self._found_at: dict[str, int] = {}
        self._seen: set[tuple[str, str]] = set()

    def run(self) -> Outcome:
        collude = self.outcome.kind.startswith(COLLUDING)
        self.add_root("root", capacity=16)
        self.run_until(0.5)
        for name in ("liar0", "liar1", "honest0", "honest1"):
            make = partial(liars.LyingCore, lie=self._lies()) if name.startswith("liar") else PeerCore
            self._name_only("root")
            router = self.add_router(name, parents=1, capacity=6, make=make, audit_share=0.0)
            if not router.is_honest:
                self.network.after(liars.TICK, self._tick, router)
            self.run_until(self.network.now + 0.5)
        self._name_only("liar0", "liar1" if collude else "honest0")
        leaves = [self.add_leaf(f"leaf{n}", query=QUERY, parents=2, audit_share=0.5) for n in range(LEAVES)]
        self.run_until(self.network.now + 1.0)
        self._hidden = {"root"}
        for leaf in leaves:
            self._answer(leaf, leaf.core, meshevents.CandidatesWanted(leaf.core.mesh.level, False, 8))
        end = self.network.now + SECONDS
        self.feed(rate=RATE, until=end, make=lambda an: b'<p n="%d">flight</p>' % an)
        self.run_until(end + SETTLE)
        for leaf in leaves:
            self._judge(leaf, collude=collude)
        return self.outcome

    def _judge(self, leaf: SimPeer, *, collude: bool) -> None:
        found, check = self.outcome, leaf.check
        assert isinstance(check, _Check)
        found.packets += check.packets
        found.forged_delivered += check.forged
        found.late += check.late
        found.gaps += len(check.gaps)
        since = self._found_at.get(leaf.name, self.truth.last) if collude else 0
        found.silent += sum(an > since for an in check.owed)

    def _new_check(self, peer: SimPeer) -> LateStreamCheck:
        return _Check(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def _name_only(self, *names: str) -> None:
        """In the answers of the directory."""
        self._hidden = set(self.peers) - set(names)

    def _answer(self, peer: SimPeer, core: PeerCore, wanted: meshevents.CandidatesWanted) -> None:
        known = self._records
        self._records = {key: record for key, record in known.items() if self.name_of(key) not in self._hidden}
        super()._answer(peer, core, wanted)
        self._records = known

    def _tick(self, peer: SimPeer) -> None:
        assert isinstance(peer.core, liars.LyingCore)
        peer.core.tick(now=self.network.now)
        self.network.pump(peer.address)
        self.network.after(liars.TICK, self._tick, peer)

    def _on_event(self, address: Any, event: PeerEvent, now: float) -> None:
        name = self._by_address[address].name
        if isinstance(event, meshevents.Disputed):
            blamed = self.peers[self.name_of(event.peer_id)]
            if not blamed.is_honest:
                self._seen.add((name, blamed.name))
                self.outcome.liars_blamed = len(self._seen)
            elif event.reason.startswith("convicted"):
                self.outcome.innocent_blamed += 1
        if isinstance(event, meshevents.Uncovered):
            # Once it has others in their place, which takes a few seconds for each, nothing more is left out.
            self._found_at.setdefault(name, self.truth.last + int(RATE * 10))
        super()._on_event(address, event, now)
        self.accusations.clear()


def run_betrayal(kind: str, seed: int) -> Outcome:
    return Betrayal(seed, kind).run()
