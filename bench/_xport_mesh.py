"""Meshes of n parents at work, in slots of five seconds of virtual time: who decides, under churn, and for which goal.

`POLICIES`: `today` is the re-placement by hops that skymesh does without a goal; `serial` and `concurrent` are the
root's periods; `local` is every peer for itself, with locks. What peers know of others is at most a slot old. A move is
one instant here: races are the matter of `peer.testing`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from bench._xport_paper import BANDWIDTH, SUPERFLUOUS, means, optimize
from bench._xport_world import LATENCY, World, anneal
from peer.mesh.lock import LOCK_SECONDS
from peer.optimizer.benefits import weights
from peer.optimizer.blending import LEAST_ODDS, blend
from peer.optimizer.costs import MAX_HOPS, UNFED
from peer.optimizer.layout import UNREACHED, Layout, Move
from peer.optimizer.locks import LockTable
from peer.optimizer.proposing import Hysteresis, Offer, Proposed, Slot, Way, best_move
from peer.optimizer.transformations import BUILT_IN

POLICIES = ("today", "serial", "concurrent", "local")
SLOT = 5.0
PERIOD = 30.0
SLOTS_PER_PERIOD = round(PERIOD / SLOT)
RESERVE = 1
"""Slots of each peer that are kept for repairs."""
STRANGERS = 3
FLAP = 150.0
"""Seconds: a peer that comes back to a parent that it left so recently has flapped."""
Rows = list[dict[str, Any]]


@dataclass(slots=True)
class Tally:
    moves: int = 0
    exchanges: int = 0
    flaps: int = 0
    messages: int = 0
    refused_by_level: int = 0
    repairs: int = 0
    tries: list[int] = field(default_factory=list)
    """Of each repair: how often it asked until it had its parents."""
    short: int = 0
    given_back: int = 0


class MeshAtWork:
    def __init__(self, peers: int, seed: int, policy: str, *, churn: float = 0.0, wanted: int = 2) -> None:
        self.world = World(peers, seed, roots=3, fanout=6, root_fanout=12, noise=0.15)
        self.layout = self.world.grown(wanted, seed, choices=3, reserve=RESERVE)
        self.policy, self.churn = policy, churn
        self.rng = random.Random(seed + 1)
        self.rules = Hysteresis()
        self.locks = LockTable()
        self.tally = Tally()
        self.now = 0.0
        self.slots = 0
        self.trace: list[float] = []
        self._moved_at: dict[int, float] = {}
        self._left_at: dict[tuple[int, int], float] = {}

    # What beats and reports say

    def refresh(self) -> None:
        layout = self.layout
        order = layout.order()
        self.path = self.paths(order)
        ways = {(p, x): self.way(x, p) for x in layout.peers for p in layout.parents[x]}
        self.weight = weights(layout.parents, order, ways, roots=layout.roots)
        self.hops, self.height = layout.hops(order), layout.heights(order)
        self.deepest = max(hops for hops in self.hops if hops < UNREACHED)

    def paths(self, order: list[int] | None = None, odds: float = LEAST_ODDS) -> list[float]:
        layout, latency = self.layout, self.world.latency
        path = [0.0] * layout.size
        for peer in order or layout.order():
            above = layout.parents[peer]
            if above:
                path[peer] = blend([path[p] + latency(p, peer) for p in above], odds)
            elif not layout.is_root(peer):
                path[peer] = UNFED
        return path

    def way(self, peer: int, parent: int) -> float:
        return self.path[parent] + self.world.latency(parent, peer)

    def is_fed(self, peer: int) -> bool:
        return self.layout.is_root(peer) or bool(self.layout.parents[peer])

    def has_room(self, peer: int, *, for_repair: bool = False) -> bool:
        kept = 0 if for_repair else RESERVE
        return len(self.layout.children[peer]) < self.layout.capacity[peer] - kept

    def is_settled(self, peer: int) -> bool:
        return self._moved_at.get(peer, -1e9) <= self.now - self.rules.dwell

    # Proposals

    def propose(self, peer: int) -> Proposed[int] | None:
        layout = self.layout
        if not self.is_settled(peer):
            return None
        near = {g for p in layout.parents[peer] for g in layout.parents[p]}
        near |= {self.rng.randrange(layout.size) for _ in range(STRANGERS)}
        near -= {peer, *layout.parents[peer], *layout.children[peer]}
        self.tally.messages += 2 * len(near)  # a probe and its answer
        ways = [Way(p, self.way(peer, p), self.hops[p]) for p in layout.parents[peer]]
        offers = [self._offer(peer, q, ways) for q in sorted(near) if self.is_fed(q)]
        return best_move(ways, offers, weight=self.weight[peer], height=self.height[peer], rules=self.rules)

    def _offer(self, peer: int, new: int, ways: list[Way[int]]) -> Offer[int]:
        way = Way(new, self.way(peer, new), self.hops[new])
        if self.has_room(new):
            return Offer(way, True, {})
        slots = {old.peer: self._slots(peer, new, old.peer) for old in ways}
        self.tally.messages += 2 + 2 * max(map(len, slots.values()), default=0)
        return Offer(way, False, slots)

    def _slots(self, peer: int, new: int, old: int) -> list[Slot[int]]:
        """The least important children of `new` that could go to `old`."""
        layout, found = self.layout, []
        able = [k for k in layout.children[new] if k not in (old, peer) and old not in layout.parents[k]
                and self.is_settled(k)]  # fmt: skip
        for child in sorted(able, key=lambda k: (self.weight[k], k)):
            rest = [p for p in layout.parents[child] if p != new]
            hops = 1 + max(self.hops[p] for p in (*rest, old))
            if hops > self.hops[child] and hops + self.height[child] > MAX_HOPS:
                continue
            after = blend([self.way(child, p) for p in (*rest, old)])
            found.append(Slot(child, self.weight[child], after - blend([self.way(child, p) for p in (*rest, new)])))
            if len(found) == STRANGERS:
                break
        return found

    # Moves

    def execute(self, peer: int, proposed: Proposed[int]) -> bool:
        layout, tally = self.layout, self.tally
        moves = [Move(peer, proposed.old, proposed.new)]
        if proposed.gives_way is not None:
            moves.append(Move(proposed.gives_way, proposed.new, proposed.old))
            if len(layout.children[proposed.new]) >= layout.capacity[proposed.new]:
                return False  # make before break borrows a slot kept for repairs, and a repair has it
        if not all(move.old in layout.parents[move.peer] for move in moves):
            return False
        touched = {y for move in moves for y in move if y is not None}
        if not self.locks.grant(touched, peer, self.now):
            return False
        saved = layout.apply(moves)
        if saved is None:
            tally.refused_by_level += 1
            return False
        # The answer to a join carries the hops of the new parent as they are now.
        is_deep = max(h for h in layout.hops() if h < UNREACHED) > max(MAX_HOPS, self.deepest)
        limit = layout.capacity[proposed.new] - (RESERVE if len(moves) == 1 else 0)
        if is_deep or not layout.has_room(moves) or len(layout.children[proposed.new]) > limit:
            layout.undo(saved)
            return False
        tally.messages += 5 * len(moves)
        tally.moves += 1
        tally.exchanges += len(moves) == 2
        for move in moves:
            self._note(move)
        return True

    def _note(self, move: Move) -> None:
        assert move.old is not None
        self.tally.flaps += self._left_at.get((move.peer, move.new), -1e9) > self.now - FLAP
        self._left_at[move.peer, move.old] = self._moved_at[move.peer] = self.now

    # Time

    def step(self) -> None:
        layout = self.layout
        self.slots += 1
        self.now += SLOT
        assert SLOT > LOCK_SECONDS
        if self.churn:
            self._die([peer for peer in layout.peers if self.rng.random() < self.churn * SLOT / 60])
        self.refresh()
        if self.policy == "today":
            for peer in layout.peers:
                if self.rng.random() < 1 / 12 and layout.parents[peer]:
                    self._replace(peer)
        elif self.policy == "local":
            self._give_back()
            for peer in self.rng.sample(layout.peers, len(layout.peers)):
                if self.rng.random() < 1 / SLOTS_PER_PERIOD and layout.parents[peer]:
                    best = self.propose(peer)
                    if best is not None:
                        self.execute(peer, best)
        elif self.slots % SLOTS_PER_PERIOD == 0:
            self._coordinate()
        self.trace.append(self.cost())

    def run(self, periods: int) -> MeshAtWork:
        for _ in range(periods * SLOTS_PER_PERIOD):
            self.step()
        return self

    def cost(self) -> float:
        path = self.paths()
        return mean(path[peer] for peer in self.layout.peers)

    def _coordinate(self) -> None:
        """Each peer passes the best proposal of its subtree up; the root chooses independent ones."""
        found = [(peer, best) for peer in self.layout.peers if self.layout.parents[peer]
                 and (best := self.propose(peer)) is not None]  # fmt: skip
        self.tally.messages += len(self.layout.peers)
        for peer, proposed in sorted(found, key=lambda f: -f[1].gain):
            if self.execute(peer, proposed):
                self.tally.messages += 2 * self.hops[peer]
                if self.policy == "serial":
                    return

    def _replace(self, peer: int) -> None:
        """Today: the best of three with room that is a hop nearer; the farthest parent goes."""
        layout = self.layout
        worst = max(layout.parents[peer], key=lambda p: self.hops[p])
        able = [q for q in self.rng.sample(range(layout.size), min(24, layout.size))
                if self.hops[q] < self.hops[worst] and self.has_room(q) and q not in layout.parents[peer]
                and q not in layout.children[peer] and q != peer and self.is_fed(q)]  # fmt: skip
        few = self.rng.sample(able, min(3, len(able)))
        if few:
            self.tally.messages += 5
            load = {q: len(layout.children[q]) / layout.capacity[q] for q in few}
            new = min(few, key=lambda q: self.hops[q] + load[q] + self.world.latency(q, peer) * 20)
            if layout.levels[new] < layout.levels[peer] or not layout.children[peer]:
                self.tally.moves += layout.apply([Move(peer, worst, new)]) is not None

    def _give_back(self) -> None:
        """A slot kept for repairs that a repair took is emptied again: the least important child goes elsewhere."""
        layout = self.layout
        for peer in range(layout.size):
            full = layout.children[peer] and len(layout.children[peer]) >= layout.capacity[peer]
            if not full or self.rng.random() >= 1 / SLOTS_PER_PERIOD:
                continue
            child = min(layout.children[peer], key=lambda k: (self.weight[k], k))
            rest = [p for p in layout.parents[child] if p != peer]
            able = [q for q in sorted({self.rng.randrange(layout.size) for _ in range(8)}) if self.has_room(q)
                    and q != child and q not in layout.parents[child] and q not in layout.children[child]
                    and self.is_fed(q)
                    and 1 + max(self.hops[p] for p in (*rest, q)) + self.height[child] <= MAX_HOPS]  # fmt: skip
            self.tally.messages += 2 + 2 * len(able)
            costs = {q: blend([self.way(child, p) for p in (*rest, q)]) for q in able}
            best = min(able, key=costs.__getitem__, default=None)
            if best is not None and costs[best] < 1.5 * blend([self.way(child, p) for p in layout.parents[child]]):
                self.tally.given_back += layout.apply([Move(child, peer, best)]) is not None

    def _die(self, dead: list[int]) -> None:
        layout = self.layout
        hurt: set[int] = set()
        for peer in dead:
            hurt |= set(layout.remove(peer))
            self.world.replace(peer)
            self._moved_at.pop(peer, None)
        hops = layout.hops()
        for peer in [*sorted(hurt - set(dead)), *dead]:
            self.tally.repairs += 1
            tries = 0
            for _ in range(40):
                if len(layout.parents[peer]) >= layout.wanted:
                    break
                tries += 1
                busy = bool(layout.children[peer])
                few = [q for q in (self.rng.randrange(layout.size) for _ in range(8 if busy else 3))
                       if q != peer and q not in layout.parents[peer] and q not in layout.children[peer]
                       and self.has_room(q, for_repair=busy) and self.is_fed(q)
                       and (layout.levels[q] < layout.levels[peer] or not busy)]  # fmt: skip
                if few:
                    load = {q: len(layout.children[q]) / layout.capacity[q] for q in few}
                    layout.apply([Move(peer, None, min(few, key=lambda q: hops[q] + load[q]))])
            hops[peer] = 1 + max((hops[p] for p in layout.parents[peer]), default=98)
            self.tally.tries.append(tries)
            self.tally.short += len(layout.parents[peer]) < layout.wanted


def cut_off(layout: Layout, share: float = 0.3, runs: int = 40) -> float:
    """When this share dies at once: how many of the living have no path to a root."""
    found = []
    for seed in range(runs):
        rng = random.Random(seed)
        dead = {peer for peer in layout.peers if rng.random() < share}
        fed = set(range(layout.roots))
        for peer in layout.order():
            if peer not in dead and any(p in fed for p in layout.parents[peer]):
                fed.add(peer)
        alive = [peer for peer in layout.peers if peer not in dead]
        found.append(sum(peer not in fed for peer in alive) / len(alive))
    return mean(found)


def mesh(sizes: tuple[int, ...], periods: int = 30) -> Rows:
    """n = 2, three roots of 12 slots, peers of 6."""
    found: Rows = []
    for size in sizes:
        today = 0.0
        for policy in POLICIES:
            if policy == "serial" and size > 300:
                continue  # one move per period is hopeless here, and takes as long as the others
            work = MeshAtWork(size, 1, policy).run(periods)
            row = _described(work, size, policy)
            today = today or row["cost_ms"]
            found.append(row | {"cost_to_today": row["cost_ms"] / today, "curve": [1e3 * v for v in work.trace]})
    return found


def _described(work: MeshAtWork, size: int, policy: str) -> dict[str, Any]:
    hops, tally = work.layout.hops()[work.layout.roots :], work.tally
    return {
        "peers": size,
        "policy": policy,
        "cost_ms": 1e3 * work.trace[-1],
        "first_copy_ms": 1e3 * mean(work.paths(odds=0.0)[work.layout.roots :]),
        "hops_median": median(hops),
        "hops_max": max(hops),
        "moves": tally.moves,
        "exchanges": tally.exchanges,
        "flaps_per_move": tally.flaps / max(1, tally.moves),
        "messages_per_peer_period": tally.messages / size / (work.slots / SLOTS_PER_PERIOD),
        "refused_by_level": tally.refused_by_level,
        "level_violations": work.layout.violations(),
        "cut_off_by_30_percent": cut_off(work.layout),
    }


def churn(size: int = 300, periods: int = 40, seeds: int = 3) -> Rows:
    """10 % of the peers are replaced per minute; costs over the second half. Tries stand for the time of a repair.

    The tail of the repairs is a few dozen events per run, so all seeds count together.
    """
    found: Rows = []
    today = 0.0
    for policy in ("today", "concurrent", "local"):
        works = [MeshAtWork(size, seed, policy, churn=0.10).run(periods) for seed in range(1, seeds + 1)]
        cost = 1e3 * mean(mean(work.trace[len(work.trace) // 2 :]) for work in works)
        tries = sorted(tries for work in works for tries in work.tally.tries)
        today = today or cost
        found.append(
            {
                "peers": size,
                "policy": policy,
                "cost_ms": cost,
                "cost_to_today": cost / today,
                "hops_max": max(max(work.layout.hops()) for work in works),
                "moves": sum(work.tally.moves for work in works),
                "given_back": sum(work.tally.given_back for work in works),
                "repairs": len(tries),
                "short": sum(work.tally.short for work in works),
                "tries_mean": mean(tries),
                "tries_p99": tries[len(tries) * 99 // 100],
                "level_violations": sum(work.layout.violations() for work in works),
            }
        )
    return found


def goals(seeds: int = 2, steps: int = 1_500) -> Rows:
    """n = 2, two roots, 40 peers, fan-out 6: the root decides, exact benefits, all kinds and the exchange."""
    found: Rows = []
    for name, goal in (
        ("latency", LATENCY),
        ("superfluous", SUPERFLUOUS),
        ("outgoing", "minimize sum(incoming * parents)"),
        ("bandwidth", BANDWIDTH),
    ):
        rows = []
        for seed in range(seeds):
            world = World(40, seed, roots=2, fanout=6)
            layout = world.grown(2, seed, choices=3, reserve=1)
            evaluator = world.evaluator(goal)
            history = optimize(layout, evaluator, BUILT_IN, 100)
            start, end, took = abs(history[0][1]), abs(history[-1][1]), float(len(history) - 1)
            wrong, deepest = float(layout.violations()), float(max(layout.hops()))
            best = abs(min(history[-1][1], anneal(layout, evaluator, steps, hot=0.02)))
            rows.append((start, end, best, took, wrong, deepest))
        start, end, best, took, wrong, deepest = means(rows)
        found.append({"goal": name, "start": start, "end": end, "annealed": best, "end_to_start": end / start,
                      "transformations": took, "level_violations": wrong, "hops_max": deepest})  # fmt: skip
    return found
