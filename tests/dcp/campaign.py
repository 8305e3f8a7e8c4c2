"""Random meshes of two roots, three routers and two clients, in virtual time, under everything that can go wrong.

One seed is one run: loss, reordering, duplication, corruption, freezes, crashes, restarts with empty state, roots that
start late or restart, holes in the feed, parents and queries that change, history that is evicted, ANs that wrap. Every
event of a client is checked against the feed as it happens: nothing skipped in silence, nothing repeated, nothing that
was not asked for; and at the end, when the faults have stopped, everybody must have got to the end.
"""

from __future__ import annotations

import random
from typing import Any

from dcp import events
from dcp.config import Config
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.links.link import SocketAddress
from dcp.queries import EVERYTHING, PredicatePolicy
from dcp.receiver import Receiver
from dcp.testing import Conditions, LateStreamCheck, Network, StreamBroken, StreamCheck, Truth
from tests.dcp.faults import Faults

CLASSES = 4
ALL = (1 << CLASSES) - 1
STREAM = "campaign"
SETTLE = 3.0
"""At most this long after the end. With a parent that is behind for good each hole costs `behind_patience`, and again
at each router above: seed 1187 has four of them in a row."""

CONFIG = Config(
    max_log_packets=16,
    max_buffer_packets=12,
    max_segments=8,
    max_ready_packets=64,
    dead_after=0.6,
    open_timeout=0.6,
    confirm_timeout=0.5,
    join_patience=0.4,
    behind_patience=0.3,
    answer_patience=0.6,
    mute_after=0.3,
    reach_patience=1.5,
    abandon_after=3.0,
    prepare_patience=0.2,
    epoch_lifetime=0.3,
    oldest_window=0.1,
    keep_alive_interval=0.05,
    ack_interval=0.07,
    slow_nack_interval=0.1,
    initial_rtt=0.03,
    audit_interval=0.05,
    dispute_after=0.4,
    unsettled_after=1.5,
    starved_after=0.5,
)


class BrokenPromise(StreamBroken):
    """What a client was handed is not the stream, or somebody honest was accused."""


def token(mask: int) -> bytes:
    return EVERYTHING if mask == ALL else bytes((mask,))


def mask_of(query: bytes) -> int:
    return ALL if query == EVERYTHING else query[0]


DAMAGE = b"!"
"""What follows the class of a packet in a damaged copy."""


def accepts(an: int, payload: bytes) -> bool:
    return not payload.endswith(DAMAGE)


def policy() -> PredicatePolicy:
    return PredicatePolicy(
        matches=lambda query, payload: bool(mask_of(query) >> payload[0] & 1),
        covers=lambda outer, inner: not mask_of(inner) & ~mask_of(outer),
    )


class Source(Truth):
    """Every packet that the source ever had; the first byte of its payload is its class."""

    def __init__(self, base: int) -> None:
        super().__init__(lambda query, payload: bool(mask_of(query) >> payload[0] & 1), before=base)
        self.base = base

    def kind_of(self, an: int) -> int | None:
        payload = self.payload(an)
        return None if payload is None else payload[0]


class _Completeness:
    """What a campaign asks of a check at the end."""

    def restarted(self: Any, query: int) -> None:
        self.position = None
        self.query = token(query)

    @property
    def is_complete(self: Any) -> bool:
        return self.position is not None and self.missing_at_end() is None

    def check_complete(self: Any) -> None:
        if self.position is None:
            raise BrokenPromise(f"{self.name} never started")
        if (an := self.missing_at_end()) is not None:
            raise BrokenPromise(f"{self.name} stalled at {self.position}: lacks {an}")


class Client(_Completeness, StreamCheck):
    """Nobody lies."""


class WaryClient(_Completeness, LateStreamCheck):
    """Parents may lie: what was passed over has to come as `Omitted`."""

    supplied: set[int] | None = None
    """What an honest root had at some time, and so can be had; None: everything."""

    @property
    def silent(self) -> set[int]:
        """Passed over, although somebody honest has it. A root that is late may still get the others."""
        return self.owed if self.supplied is None else self.owed & self.supplied

    @property
    def is_complete(self) -> bool:
        return super().is_complete and not self.silent

    def check_complete(self) -> None:
        super().check_complete()
        if self.silent:
            raise BrokenPromise(f"{self.name} skipped {sorted(self.silent)[:5]} in silence, {len(self.silent)} in all")


class Node:
    """A peer with a very simple mesh: it keeps two fed parents out of a list of candidates."""

    useful = 2

    def __init__(self, campaign: Campaign, name: str, kind: str, candidates: list[str], dynamic: bool) -> None:
        self.campaign = campaign
        self.name = name
        self.kind = kind
        self.candidates = candidates
        self.dynamic = dynamic
        self.address: SocketAddress = (name, 1)
        self.dead = False
        self.query = ALL
        self.start = Start.NEW
        self.last_published: int | None = None
        self.hub: Hub
        self.receiver: Receiver | None = None
        self.narrow_at = 0.0

    def new_hub(self, rng: random.Random) -> Hub:
        return Hub(CONFIG, rng=rng)

    def boot(self) -> None:
        rng = random.Random(self.campaign.net.rng.getrandbits(64))
        self.hub = self.new_hub(rng)
        self.receiver = None
        if self.kind == "root":
            sender = self.hub.serve(STREAM, policy=policy())
            if self.last_published is not None:
                sender.publish_hole(self.last_published)  # rule S5: all up to it is a hole now
        elif self.kind == "router":
            query = rng.choice([1, 3]) if self.dynamic else ALL
            self.receiver, _ = self.hub.relay(STREAM, policy=policy(), query=token(query), accepts=accepts)
        else:
            self.receiver = self.hub.subscribe(STREAM, query=token(self.query), start=self.start, accepts=accepts)
        self.campaign.net.add(self.address, self.hub)
        if self.receiver is not None:
            self.campaign.net.after(0.01, self.tend, self.hub)

    @property
    def is_fed(self) -> bool:
        """Whether a root's packets reach it, over links that are up."""
        if self.receiver is None:
            return self.kind == "root" and not self.dead
        nodes = self.campaign.nodes
        return not self.dead and any(link.up and nodes[link.address[0]].is_fed for link in self.receiver.links.values())

    def tend(self, hub: Hub) -> None:
        """Every now and then: enough fed parents? And a dynamic router: does our query fit the children's?"""
        net = self.campaign.net
        if hub is not self.hub or self.dead:
            return
        net.after(0.03, self.tend, hub)
        if net.is_frozen(self.address) or self.receiver is None:
            return
        links = self.receiver.links.values()
        nodes = self.campaign.nodes
        useful = sum(1 for link in links if not link.up or nodes[link.address[0]].is_fed)
        if useful < self.useful and len(links) < self.useful + 2 and net.rng.random() < 0.5:
            taken = {link.address for link in links}
            free = [name for name in self.candidates if (name, 1) not in taken]
            if free:
                self.add_parent(net.rng.choice(free))
        if self.dynamic:
            self.fit_query()
        net.pump(self.address)

    def fit_query(self) -> None:
        assert self.receiver is not None
        wanted = 0
        for query in self.hub.senders[STREAM].wanted_queries():
            wanted |= mask_of(query)
        now = self.campaign.net.now
        target = mask_of(self.receiver.change.target)
        if wanted & ~target:
            self.receiver.change_query(token(wanted | target), now=now)
            self.narrow_at = now + 0.25
        elif wanted and wanted != target and now > self.narrow_at:
            self.receiver.change_query(token(wanted), now=now)
            self.narrow_at = now + 0.25

    def add_parent(self, name: str) -> None:
        self.hub.add_sender(STREAM, (name, 1), now=self.campaign.net.now)

    def handle(self, event: events.Event, now: float) -> None:
        self.campaign.check_accusation(self, event)
        if isinstance(event, events.OpeningReceived):
            self.hub.accept(STREAM, event.ticket, now=now)
        elif isinstance(event, events.WiderQueryWanted) and self.dynamic:
            self.fit_query()


class Campaign:
    node_class: type[Node] = Node
    client_class: type[Client] | type[WaryClient] = Client
    out_of_order = 0.3
    """The share of packets that reach a root late: those that come after a later one are lost to it."""

    def __init__(self, seed: int, *, faults: Faults | None = None, duration: float = 6.0, damaged: float = 0.0) -> None:
        """`damaged`: the share of packets of which one of the two roots has a bad copy."""
        self.seed = seed
        self.damaged = damaged
        self._damage = random.Random(seed)
        rng = self.rng = random.Random(seed)
        self.faults = faults or Faults.random(rng)
        self.duration = duration
        # Anywhere, and often just below a wrap of 32 bits.
        base = rng.choice([rng.randrange(1 << 34), (rng.randrange(4) << 32) + (1 << 32) - rng.randrange(1, 200)])
        self.feed = Source(base)
        f = self.faults
        self.stormy = Conditions(
            delay=0.005,
            jitter=0.002,
            loss=f.loss,
            duplicate=f.duplicate,
            reorder=f.reorder,
            reorder_delay=0.12 if f.big_delay else 0.03,
            corrupt=f.corrupt,
        )
        self.net = Network(rng.getrandbits(64), conditions=self.stormy, on_event=self._on_event)
        self.nodes: dict[str, Node] = {}
        for name, kind, candidates in (
            ("R1", "root", []),
            ("R2", "root", []),
            ("A", "router", ["R1", "R2"]),
            ("B", "router", ["R1", "R2"] if rng.random() < 0.75 else ["R1"]),
            ("C", "router", ["A", "B", "R1"] if rng.random() < 0.5 else ["A", "B"]),
            ("X", "client", ["A", "B", "C"]),
            ("Y", "client", ["C", "A"] if rng.random() < 0.5 else ["B", "C"]),
        ):
            self.nodes[name] = self.node_class(self, name, kind, candidates, kind == "router" and rng.random() < 0.6)
        self.clients: dict[str, Client | WaryClient] = {}
        for name in "XY":
            node = self.nodes[name]
            node.query = rng.randrange(1, ALL + 1)
            node.start = rng.choice([Start.NEW, Start.OLDEST])
            self.clients[name] = self.client_class(name, self.feed, token(node.query))
        self.root_lag = {"R1": 0.0, "R2": rng.choice([0, 0.02, 0.08, 0.25])}
        self.root_start = {"R1": 0.0, "R2": rng.choice([0, 0, 0.3, 1.0])}
        self.rate = rng.choice([30.0, 80.0])
        self.calm = False
        self.idle_until = 0.0

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Campaign:
        net, rng = self.net, self.rng
        for name, node in self.nodes.items():
            when = self.root_start.get(name, 0.0)
            if node.kind == "client":
                when = rng.choice([0.03, 0.1, 0.6, 1.2])
            net.at(when, node.boot)
        storm_ends = self.duration * 0.6
        feed_ends = self.duration * 0.72
        net.at(0.0, lambda: self._publish(feed_ends))
        net.at(0.15, lambda: self._fault(storm_ends))
        net.at(storm_ends, self._calm_down)
        try:
            end = 0.0
            while end < self.duration or (end < self.duration + SETTLE and not self._is_complete()):
                end += 0.01
                net.run_until(end, max_steps=3_000_000)
                self._drain_clients()
            for client in self.clients.values():
                client.check_complete()
        except Exception as error:
            error.add_note(f"seed {self.seed}: repeat with {self.repeat}; faults {self.faults}")
            raise
        return self

    @property
    def repeat(self) -> str:
        return f"Campaign({self.seed}, damaged={self.damaged}).run()"

    def _is_complete(self) -> bool:
        return all(client.is_complete for client in self.clients.values())

    def _drain_clients(self) -> None:
        for name, client in self.clients.items():
            node = self.nodes[name]
            receiver = node.receiver
            if receiver is None or self.net.is_frozen(node.address):
                continue
            while (event := receiver.next_event()) is not None:
                client.take(event)
            receiver.reopen_window(self.net.now)
            self._check_bounds(node)
            self.net.pump(node.address)

    def _check_bounds(self, node: Node) -> None:
        assert node.receiver is not None
        assert node.receiver.statistics(self.net.now).buffered <= CONFIG.max_buffer_packets

    def _on_event(self, address: SocketAddress, event: events.Event, now: float) -> None:
        self.nodes[address[0]].handle(event, now)

    def check_accusation(self, node: Node, event: events.Event) -> None:
        """Nobody lies here, so nobody is accused."""
        if isinstance(event, events.Disputed | events.Convicted):
            raise BrokenPromise(f"{node.name} ACCUSED {event.address[0]} at {self.net.now:.3f}: {event}")

    # --- the feed -----------------------------------------------------------------------------------------------------

    def _publish(self, feed_ends: float) -> None:
        net, rng = self.net, self.rng
        if net.now >= feed_ends:
            return
        net.after(rng.expovariate(self.rate), lambda: self._publish(feed_ends))
        if self.faults.idle and rng.random() < 0.02:
            self.idle_until = net.now + rng.uniform(0.1, 0.5)
        if net.now < self.idle_until:
            return
        previous = self.feed.last
        an = previous + rng.choice([1, 1, 1, 2, 5])
        kind = rng.randrange(CLASSES) if rng.random() < 0.6 else 0
        self.feed.add(an, bytes((kind,)))
        for name in self.root_start:
            lag = self.root_lag[name] + (rng.uniform(0, 0.03) if rng.random() < self.out_of_order else 0)
            net.after(lag, self._arrive, name, an, kind, previous)

    def _arrive(self, name: str, an: int, kind: int, previous: int) -> None:
        """A packet reaches a root, unless its feed loses it or it comes out of order."""
        node, net = self.nodes[name], self.net
        if node.dead or net.now < self.root_start[name] or net.is_frozen(node.address):
            return
        if self.faults.feed_holes and not self.calm and self.rng.random() < 0.05:
            return
        sender = node.hub.senders[STREAM]
        if sender.log.started and an <= sender.log.head:
            return
        contiguous = sender.log.head == previous
        if not sender.log.started:
            sender.publish_hole(an - 1)
            contiguous = True
        payload = bytes((kind,))
        if self._damage.random() < self.damaged and (an % 2 == 0) == (name == "R1"):
            payload += DAMAGE
        sender.publish(payload, an=an, contiguous=contiguous)
        node.last_published = an
        net.pump(node.address)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        self.calm = True
        self.net.set_conditions(Conditions(delay=0.005))
        for node in self.nodes.values():
            self.net.thaw(node.address)

    def _fault(self, storm_ends: float) -> None:
        net, rng, f = self.net, self.rng, self.faults
        if net.now >= storm_ends:
            return
        net.after(0.01, lambda: self._fault(storm_ends))
        alive = [n for n in self.nodes.values() if not n.dead and hasattr(n, "hub") and not net.is_frozen(n.address)]
        inner = [n for n in alive if n.kind != "client"]
        clients = [n for n in alive if n.kind == "client"]
        if f.die and rng.random() < 0.006 and not any(n.dead for n in self.nodes.values()) and inner:
            node = rng.choice(inner)
            if node.kind != "root" or self.root_start["R2"] < net.now:
                node.dead = True
                net.crash(node.address)
                return
        if f.freeze and rng.random() < 0.012 and sum(net.is_frozen(n.address) for n in self.nodes.values()) < 2:
            node = rng.choice(alive)
            net.freeze(node.address)
            net.after(rng.choice([0.08, 0.2, 0.45, 1.0, 1.5]), lambda: net.thaw(node.address))
            return
        if f.restart and rng.random() < 0.01 and inner:
            rng.choice(inner).boot()
        if f.client_restart and rng.random() < 0.006 and clients:
            node = rng.choice(clients)
            node.query = rng.randrange(1, ALL + 1)
            node.start = rng.choice([Start.NEW, Start.OLDEST])
            self.clients[node.name].restarted(node.query)
            node.boot()
        if f.topology and rng.random() < 0.04:
            node = rng.choice(alive)
            if node.receiver is not None:
                links = list(node.receiver.links)
                if links and rng.random() < 0.5:
                    node.receiver.remove_sender(rng.choice(links))
                elif len(links) < 3:
                    node.add_parent(rng.choice(node.candidates))
                net.pump(node.address)
        if f.queries and rng.random() < 0.05 and clients:
            node = rng.choice(clients)
            if node.receiver is not None:
                node.receiver.change_query(token(rng.randrange(1, ALL + 1)), now=net.now)
                net.pump(node.address)
