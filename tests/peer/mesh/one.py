"""One machine on the bench: its neighbours are played by the test, message by message."""

from __future__ import annotations

from random import Random

from peer.mesh import encoding
from peer.mesh import messages as m
from peer.mesh.candidates import CandidateRecord
from peer.mesh.config import MeshConfig
from peer.mesh.events import AcceptLink, CloseLink, JoinTicket, OpenLink, RefuseLink, SendMessage
from peer.mesh.machine import Mesh


def named(name: str) -> m.PeerId:
    return m.PeerId(name.encode())


def record(name: str, *, level: int = 0, **changes) -> CandidateRecord:
    host = f"10.0.{sum(name.encode()) % 200}.{len(name)}"
    values = {"hops": 0, "load": 0.1, "free": 2, "free_for_repair": 3, "resilience": 255, "is_root": level == 0}
    return CandidateRecord(named(name), (host, 4_000), level, **(values | changes))


class One:
    """A started machine, its clock, and every effect and event so far."""

    def __init__(self, config: MeshConfig | None = None, *, seed: int = 1, is_root: bool = False, **options) -> None:
        self.now = 100.0
        self.mesh = Mesh(named("one"), config or MeshConfig(), rng=Random(seed), **options)
        self.effects: list = []
        self.events: list = []
        self.requests = 0
        self.beats = 0
        if is_root:
            self.mesh.start_root(now=self.now)
        else:
            self.mesh.start(now=self.now)
        self.drain()

    def drain(self) -> list:
        effects = self.mesh.take_effects()
        self.effects += effects
        while (event := self.mesh.next_event()) is not None:
            self.events.append(event)
        return effects

    def run(self, seconds: float, *, beating: bool = True) -> list:
        """Let time pass, firing every timer at its moment; parents beat unless reported otherwise."""
        end = self.now + seconds
        seen: list = []
        beat_at = self.now
        while True:
            due = min(self.mesh.next_timeout() or end, beat_at if beating else end)
            if due >= end:
                break
            self.now = max(self.now, due)
            if beating and self.now >= beat_at:
                beat_at = self.now + 0.1
                seen += self.beat_all()
            if (self.mesh.next_timeout() or end) <= self.now:
                self.mesh.handle_timeout(now=self.now)
                seen += self.drain()
        self.now = end
        return seen

    def beat_all(self, **changes) -> list:
        self.beats += 1
        seen: list = []
        for parent in list(self.mesh.parents.links.values()):
            seen += self.beat(
                parent.link, level=parent.reported, hops=parent.hops, resilience=parent.resilience, **changes
            )
        return seen

    def beat(self, link, *, level=0, hops=0, resilience=255, is_leaving=False, fed=True) -> list:
        feed = m.RootProof(7, self.beats, 0) if fed else m.UNFED
        beat = m.Beat(level, hops, resilience, is_leaving, feed)
        self.mesh.receive_message(link, encoding.encode_link_message(beat), now=self.now)
        return self.drain()

    def offer(self, *records: CandidateRecord) -> list[OpenLink]:
        """Candidates from the directory; returns the joins that follow at once."""
        self.mesh.add_candidates(records, now=self.now)
        self.mesh.handle_timeout(now=self.now)
        return [e for e in self.drain() if isinstance(e, OpenLink)]

    def accept(self, opening: OpenLink, *, level=0, hops=0, resilience=255, fed=True) -> list:
        self.beats += 1
        reply = m.Accept(level, hops, resilience, m.RootProof(7, self.beats, 0) if fed else m.UNFED)
        self.mesh.link_opened(opening.link, encoding.encode_accept(reply), now=self.now)
        return self.drain()

    def place(self, *names: str, level: int = 0) -> None:
        """Get these parents."""
        for opening in self.offer(*(record(name, level=level) for name in names)):
            self.accept(opening, level=level)
        assert {p.peer_id for p in self.mesh.parents.links.values()} >= {named(n) for n in names}

    def ask(
        self,
        name: str,
        *,
        level=m.UNPLACED,
        has_children=False,
        parents=0,
        run=1,
        number=1,
        host="10.7.7.7",
        port=5_000,
        query=b"",
    ):
        """A join comes in; returns AcceptLink or RefuseLink."""
        self.requests += 1
        hello = m.Join(named(name), run, number, level, 2, parents, parents, is_repair=False, has_children=has_children)
        self.mesh.receive_join(
            JoinTicket(self.requests), (host, port), encoding.encode_join(hello), now=self.now, query=query
        )
        answers = [e for e in self.drain() if isinstance(e, AcceptLink | RefuseLink)]
        assert len(answers) == 1
        return answers[0]

    def report(self, link, *, level=5_000, parents=2, children=0, free=1, free_for_repair=1, is_leaving=False) -> list:
        report = m.Report(level, 2, 2, is_leaving, parents, children, free, free_for_repair)
        self.mesh.receive_message(link, encoding.encode_link_message(report), now=self.now)
        return self.drain()

    def opened(self, effects=None) -> list[OpenLink]:
        return [e for e in (self.effects if effects is None else effects) if isinstance(e, OpenLink)]

    def closed(self, effects=None) -> dict:
        among = self.effects if effects is None else effects
        return {e.link: e.reason for e in among if isinstance(e, CloseLink)}

    def sent(self, kind, effects) -> list:
        bodies = [encoding.decode_link_message_untrusted(e.body) for e in effects if isinstance(e, SendMessage)]
        return [b for b in bodies if isinstance(b, kind)]


def events(one: One, kind: type) -> list:
    """Those of this kind so far."""
    return [e for e in one.events if isinstance(e, kind)]
