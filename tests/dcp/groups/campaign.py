"""Two roots and five clients on one LAN, in virtual time, with everything that can happen to multicast groups.

One seed is one run: loss, duplicates, reordering, hosts that no multicast reaches for a while, members that crash, come
back and change their query, parents that are left and taken again, connections instead of UDP. Each client is checked
event by event, as in `tests.dcp.campaign`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from dcp import events, groups
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.links.link import SocketAddress
from dcp.testing import Conditions, Network
from tests.dcp.campaign import ALL, CLASSES, CONFIG, STREAM, BrokenPromise, Client, Source, accepts, policy, token

ROOTS = ("192.168.7.1", "192.168.7.2")
CLIENTS = tuple(f"192.168.7.{number}" for number in range(11, 17))
# Logs and buffers that hold what a group brings within its lease: this is about groups, not about evictions.
GROUP_CONFIG = replace(CONFIG, max_log_packets=4_000, max_buffer_packets=1_000, max_ready_packets=4_000, dead_after=1.0)


class GroupCampaign:
    def __init__(self, seed: int, *, duration: float = 12.0) -> None:
        self.seed = seed
        self.duration = duration
        rng = self.rng = random.Random(seed)
        self.feed = Source(rng.choice([rng.randrange(1 << 34), (1 << 32) - rng.randrange(1, 200)]))
        self.stormy = Conditions(
            delay=0.002,
            jitter=0.001,
            loss=rng.choice([0.0, 0.02, 0.05, 0.15]),
            duplicate=rng.choice([0.0, 0.1]),
            reorder=rng.choice([0.0, 0.1]),
            reorder_delay=0.02,
            corrupt=rng.choice([0.0, 0.02]),
        )
        self.net = Network(rng.getrandbits(64), conditions=self.stormy, on_event=self._on_event)
        self.hubs: dict[str, Hub] = {}
        self.queries = {name: (ALL if rng.random() < 0.7 else rng.randrange(1, ALL + 1)) for name in CLIENTS}
        self.clients = {name: Client(name, self.feed, token(self.queries[name])) for name in CLIENTS}
        self.rate = rng.choice([20.0, 80.0])
        self.carried = 0
        """Looks at which live packets went to a group."""
        self.was_live = False

    def run(self) -> GroupCampaign:
        net, rng = self.net, self.rng
        for name in ROOTS:
            self._boot(name)
        for name in CLIENTS:
            net.at(rng.uniform(0.1, 0.5), self._boot, name)
        storm_ends = self.duration * 0.7
        net.at(0.05, self._publish, self.duration * 0.8)
        net.at(1.0, self._fault, storm_ends)
        net.at(storm_ends, self._calm_down)
        try:
            while net.now < self.duration + 3.0:
                net.run_until(net.now + 0.02, max_steps=3_000_000)
                self._drain()
            for client in self.clients.values():
                client.check_complete()
        except Exception as error:
            error.add_note(f"repeat with GroupCampaign({self.seed}).run()")
            raise
        return self

    def _boot(self, name: str) -> None:
        config = replace(
            GROUP_CONFIG,
            multicast=self.rng.random() < 0.9,
            transports=("udp", "tcp"),
            lateral_every=self.rng.choice((1, 4, 8, 16)),
            lateral_siblings=self.rng.randrange(5),
        )
        hub = self.hubs[name] = Hub(config, rng=random.Random(self.net.rng.getrandbits(64)))
        if name in ROOTS:
            hub.serve(STREAM, policy=policy()).publish_hole(self.feed.last)
        else:
            hub.subscribe(STREAM, query=token(self.queries[name]), start=Start.NEW, accepts=accepts)
        self.net.add((name, 1), hub)
        if name in CLIENTS:
            self._tend(name, hub)

    def _tend(self, name: str, hub: Hub) -> None:
        """Keep links to both roots."""
        if self.hubs.get(name) is not hub:
            return
        held = {link.dialled for link in hub.receivers[STREAM].links.values()}
        for root in ROOTS:
            if (root, 1) not in held:
                hub.add_sender(STREAM, (root, 1), now=self.net.now)
        self.net.pump((name, 1))
        self.net.after(0.1, self._tend, name, hub)

    def _on_event(self, address: SocketAddress, event: events.Event, now: float) -> None:
        if isinstance(event, events.OpeningReceived):
            self.hubs[address[0]].accept(STREAM, event.ticket, now=now)
        elif isinstance(event, events.Disputed | events.Convicted):
            raise BrokenPromise(f"{address[0]} ACCUSED {event.address[0]} at {now:.3f}: {event}")

    def _publish(self, until: float) -> None:
        net, rng = self.net, self.rng
        if net.now >= until:
            return
        net.after(rng.expovariate(self.rate), self._publish, until)
        an = self.feed.last + rng.choice([1, 1, 1, 3])
        kind = rng.randrange(CLASSES)
        payload = bytes((kind,)) + rng.randbytes(rng.choice([10, 300, 4_000])) + b"."
        self.feed.add(an, payload)
        for name in ROOTS:
            self.hubs[name].senders[STREAM].publish(payload, an=an)
            net.pump((name, 1))

    def _drain(self) -> None:
        for name, client in self.clients.items():
            if (hub := self.hubs.get(name)) is None:
                continue
            receiver = hub.receivers[STREAM]
            while (event := receiver.next_event()) is not None:
                client.take(event)
            if client.gaps:
                raise BrokenPromise(f"{name} GAP although the roots have everything")
            receiver.reopen_window(self.net.now)
            self.net.pump((name, 1))
        for name in ROOTS:
            sending = self.hubs[name].senders[STREAM].groups
            self.carried += sending is not None and sending.listening > 0
            if sending is not None and len(sending) > groups.MAX_GROUPS:
                raise BrokenPromise(f"{name} has {len(sending)} groups")

    def _calm_down(self) -> None:
        self.net.set_conditions(Conditions(delay=0.002))
        self.net.deaf.clear()
        self.net.heal()

    def _fault(self, storm_ends: float) -> None:
        net, rng = self.net, self.rng
        if net.now >= storm_ends:
            return
        net.after(0.05, self._fault, storm_ends)
        name = rng.choice(CLIENTS)
        hub = self.hubs[name]
        receiver = hub.receivers[STREAM]
        draw = rng.random()
        if draw < 0.02:
            net.deaf.add((name, 1))
        elif draw < 0.05:
            net.deaf.clear()
        elif draw < 0.06:
            self.clients[name].restarted(self.queries[name])
            self._boot(name)
        elif draw < 0.08 and receiver.position is not None:
            receiver.change_query(token(rng.choice([ALL, ALL, rng.randrange(1, ALL + 1)])), now=net.now)
            net.pump((name, 1))
        elif draw < 0.10 and receiver.links:
            receiver.remove_sender(rng.choice(list(receiver.links)))
            net.pump((name, 1))
        elif draw < 0.11:
            net.cut((name, 1), (rng.choice(ROOTS), 1))
        elif draw < 0.14:
            net.heal()
        elif draw < 0.15 and (tubes := net.tubes.open):
            net.tubes.reset(rng.choice(tubes))
        elif draw < 0.16:
            net.freeze((name, 1))
            net.after(rng.choice([0.2, 0.5]), net.thaw, (name, 1))
