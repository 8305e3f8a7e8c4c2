"""One receiver, one to four roots that all have the whole stream, and networks from clean to awful.

History is long enough for everything to be had again, so there is nothing to excuse a gap: delivery is exact. Numbers
begin anywhere, often just below a wrap of 32 bits. Senders come and go, freeze, die and come back meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from dcp import events
from dcp.handshake import Start
from dcp.profile import PLAIN, Profile
from dcp.testing import Conditions
from tests.dcp.world import World

SETTLE = 120.0
"""At most so long after the last packet, on the same bad network: a burst can hold an opening off for many seconds."""


@dataclass(frozen=True)
class Storm:
    senders: int
    conditions: Conditions
    rate: float
    add_and_remove: bool
    freeze: bool
    kill: bool

    @classmethod
    def random(cls, rng: random.Random) -> Storm:
        return cls(
            senders=rng.randint(1, 4),
            conditions=Conditions(
                delay=rng.choice([0.001, 0.01, 0.05]),
                jitter=rng.choice([0, 0.002, 0.02]),
                loss=rng.choice([0, 0.01, 0.1, 0.3, 0.5]),
                burst_enter=rng.choice([0, 0, 0.02]),
                reorder=rng.choice([0, 0, 0.1]),
                reorder_delay=0.05,
                duplicate=rng.choice([0, 0, 0.1]),
                corrupt=rng.choice([0, 0, 0.02]),
            ),
            rate=rng.choice([20.0, 100.0, 400.0]),
            add_and_remove=rng.random() < 0.4,
            freeze=rng.random() < 0.3,
            kill=rng.random() < 0.3,
        )


class Diversity:
    def __init__(
        self, seed: int, storm: Storm | None = None, *, duration: float = 6.0, profile: Profile = PLAIN
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.storm = storm or Storm.random(self.rng)
        self.duration = duration
        self.profile = profile
        self.base = self.rng.choice([0, self.rng.randrange(1 << 40), (1 << 32) - 50, (1 << 33) - 200])
        self.sent: list[tuple[int, bytes]] = []
        self.world = World(self.rng.getrandbits(64), conditions=self.storm.conditions)
        self.roots = [f"root{i}" for i in range(self.storm.senders)]
        self.dead: set[str] = set()
        self.stormy = True

    def run(self) -> Diversity:
        try:
            self._run()
        except BaseException as error:
            error.add_note(f"seed {self.seed}: repeat with Diversity({self.seed}).run(); {self.storm}")
            raise
        return self

    def _run(self) -> None:
        world = self.world
        for name in self.roots:
            world.root(name, start=self.base)
        world.client("client", self.roots, start=Start.POSITION, position=self.base, profile=self.profile)
        world.net.after(0.05, self._publish)
        world.net.after(0.3, self._trouble)
        world.net.after(0.1, self._redial)
        world.run(self.duration)
        self.stormy = False
        for name in self.roots:
            world.net.thaw((name, 1))
        deadline = world.net.now + SETTLE
        while world.receivers["client"].position != self.sent[-1][0] and world.net.now < deadline:
            world.run(0.5)
        self.check()

    def check(self) -> None:
        world = self.world
        got = [event for event in world.got["client"] if not isinstance(event, events.Started)]
        assert [tuple(event) for event in got] == self.sent, self._difference(got)
        assert world.receivers["client"].position == self.sent[-1][0]
        assert world.receivers["client"].statistics(world.net.now).buffered == 0

    def _difference(self, got: list[events.Content]) -> str:
        for event, sent in zip(got, self.sent, strict=False):
            if tuple(event) != sent:
                return f"{event} instead of {sent[0]} of {self.sent[-1][0]}"
        return f"{len(got)} of {len(self.sent)} packets"

    def _publish(self) -> None:
        """The same packet to every root that lives; a frozen one has it when it thaws."""
        if not self.stormy:
            return
        rng = self.rng
        an = (self.sent[-1][0] if self.sent else self.base) + rng.choice([1, 1, 1, 3])
        payload = b"%d " % an + bytes(rng.randrange(300))
        self.sent.append((an, payload))
        for name in self.roots:
            if name not in self.dead:
                self.world.publish(name, payload, an=an)
        self.world.net.after(rng.expovariate(self.storm.rate), self._publish)

    def _trouble(self) -> None:
        if not self.stormy:
            return
        world, rng, storm = self.world, self.rng, self.storm
        world.net.after(0.2, self._trouble)
        living = [name for name in self.roots if name not in self.dead]
        if storm.kill and len(living) > 1 and rng.random() < 0.1:
            name = rng.choice(living)
            self.dead.add(name)
            world.net.crash((name, 1))
        elif storm.freeze and rng.random() < 0.15:
            name = rng.choice(living)
            world.net.freeze((name, 1))
            world.net.after(rng.choice([0.1, 0.5, 2.0]), lambda: world.net.thaw((name, 1)))
        elif storm.add_and_remove and rng.random() < 0.3:
            receiver = world.receivers["client"]
            links = list(receiver.links)
            if links and rng.random() < 0.5:
                receiver.remove_sender(rng.choice(links))
                world.net.pump(("client", 1))
            else:
                world.join("client", rng.choice(self.roots))

    def _redial(self) -> None:
        """Keep at least one link to a root that lives."""
        world = self.world
        world.net.after(0.5, self._redial)
        linked = {link.address[0] for link in world.receivers["client"].links.values()}
        living = [name for name in self.roots if name not in self.dead]
        if not linked & set(living):
            world.join("client", self.rng.choice(living))
