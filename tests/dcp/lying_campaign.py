"""The campaign's mesh with liars in it: roots that lie to routers and clients alike, beside two honest roots.

Loss, reordering, duplication, corruption, pauses and changes of queries, as in `campaign`. Liars begin when the mesh
stands. Every other seed is signed: authentic copies, the signed head and proof of a packet are given from outside.

Nobody dies or leaves, so every honest peer has an honest parent all the time. In a *wide* run one honest peer may die,
peers freeze, clients among them, links come and go, and routers ask for no more than their children want: a client may
hear nobody but liars for a while, and must learn the truth when an honest parent is back. Packets that no honest root
ever had, because all of them were frozen, are nobody's to bring.
"""

from __future__ import annotations

import random
from dataclasses import replace

from bench._lying import FAR, LIARS, false_datagrams
from dcp import events
from dcp.authority import Authority
from dcp.hub import Hub
from tests.dcp.campaign import CONFIG, STREAM, BrokenPromise, Campaign, Node, WaryClient, mask_of, policy, token
from tests.dcp.faults import Faults

# What was left out can be had as long as an honest parent's log has it: longer than it takes to find out.
LONG_LOGS = replace(CONFIG, max_log_packets=512, max_segments=64)
LIES_BEGIN = 1.0
LIE_EVERY = 0.05
HEAD_EVERY = 0.15


class Signatures:
    """What signatures will give (`dcp.authority`)."""

    def __init__(self, campaign: LyingCampaign) -> None:
        self._feed = campaign.feed
        self._head = campaign.feed.base

    def publish_head(self) -> None:
        self._head = self._feed.last

    def head(self) -> int:
        return self._head

    def proves(self, an: int, query: bytes) -> bool:
        kind = self._feed.kind_of(an)
        return kind is not None and bool(mask_of(query) >> kind & 1)

    def condemns(self, an: int) -> bool:
        return True

    def accepts(self, an: int, payload: bytes) -> bool:
        return payload == self._feed.payload(an)


class LyingNode(Node):
    """An honest peer that keeps links to all its candidates, at most six."""

    campaign: LyingCampaign
    useful = 6

    def new_hub(self, rng: random.Random) -> Hub:
        return Hub(LONG_LOGS, rng=rng)

    def add_parent(self, name: str) -> None:
        """Whoever hears only a liar when it starts has nothing to compare it with: an honest parent comes first."""
        starts = self.receiver is not None and self.receiver.position is None
        honest = [each for each in self.candidates if each not in self.campaign.kind_of]
        if self.campaign.wide and starts and not any(link.up for link in self.receiver.links.values()):
            name = self.campaign.net.rng.choice(honest)
        super().add_parent(name)

    def handle(self, event: events.Event, now: float) -> None:
        super().handle(event, now)
        if isinstance(event, events.Contradicted) and self.receiver is not None:
            parent = self.receiver.links.get(event.link)
            if parent is not None:
                self.campaign.net.after(0.01, self.campaign.show, parent.address[0], event.an)

    def boot(self) -> None:
        signed = self.campaign.signed_options()
        if self.kind == "root" or not signed:
            super().boot()
            return
        rng = random.Random(self.campaign.net.rng.getrandbits(64))
        self.hub = self.new_hub(rng)
        if self.kind == "router":
            query = rng.choice([1, 3]) if self.dynamic else 15
            self.receiver, _ = self.hub.relay(STREAM, policy=policy(), query=token(query), **signed)
        else:
            self.receiver = self.hub.subscribe(STREAM, query=token(self.query), start=self.start, **signed)
        self.campaign.net.add(self.address, self.hub)
        self.campaign.net.after(0.01, self.tend, self.hub)


class LyingCampaign(Campaign):
    node_class = LyingNode
    client_class = WaryClient
    out_of_order = 0.0  # what both honest roots lost nobody can bring, and a liar says that it never was

    def __init__(self, seed: int, *, wide: bool = False) -> None:
        rng = random.Random(seed ^ 0x11A5)
        self.wide = wide
        kinds = sorted(LIARS)
        self.liar = kinds[seed % len(kinds)]
        self.signed = bool(seed // len(kinds) % 2) or self.liar == "forge"
        faults = replace(
            Faults.random(rng),
            loss=rng.choice([0, 0.02, 0.1]),
            die=False,
            freeze=False,
            restart=False,
            topology=False,
            feed_holes=False,
            client_restart=False,
        )
        super().__init__(seed, faults=faults)
        self.root_start["R2"] = 0.0
        self.signatures = Signatures(self)
        self.kind_of: dict[str, str] = {}
        for number, kind in enumerate(LIARS[self.liar]):
            name = f"L{number}"
            self.kind_of[name] = kind
            self.nodes[name] = self.node_class(self, name, "root", [], dynamic=False)
            self.root_lag[name] = 0.0
            self.root_start[name] = 0.0
        lag = rng.choice([0.0, 0.02, 0.08, 0.25])
        self.root_lag.update(R1=lag, R2=lag)
        for node in self.nodes.values():
            node.dynamic = False  # a router whose query does not cover a child's can't say anything about it
            if node.kind != "root":
                node.candidates = [
                    *dict.fromkeys([*node.candidates, "R2" if node.kind == "router" else "A", *self.kind_of])
                ]
        if wide:
            self._widen(random.Random(seed ^ 0x77))
        self._supplied: set[int] = set()
        for client in self.clients.values():
            assert isinstance(client, WaryClient)
            client.supplied = self._supplied
        self.convicted: set[str] = set()
        self.disputed: set[str] = set()
        for name, kind in self.kind_of.items():
            self.net.at(LIES_BEGIN, self._lie, name, kind)
        self.net.at(HEAD_EVERY, self._publish_head)

    def _widen(self, rng: random.Random) -> None:
        die, freeze, topology, dynamic = (rng.random() < 0.4 for _ in range(4))
        self.faults = replace(self.faults, die=die, freeze=freeze, topology=topology)
        for node in self.nodes.values():
            if dynamic and node.kind != "root":
                # What a router did not ask for it can't say anything about: the roots can.
                node.candidates = [*dict.fromkeys([*node.candidates, "R1", "R2"])]
                node.dynamic = node.kind == "router" and rng.random() < 0.6

    def signed_options(self) -> dict[str, object]:
        if not self.signed:
            return {}
        authority: Authority = self.signatures
        return {"accepts": self.signatures.accepts, "authority": authority}

    @property
    def repeat(self) -> str:
        return f"LyingCampaign({self.seed}{', wide=True' if self.wide else ''}).run()"

    def _publish_head(self) -> None:
        self.signatures.publish_head()
        self.net.after(HEAD_EVERY, self._publish_head)

    def check_accusation(self, node: Node, event: events.Event) -> None:
        """Without signatures both sides of a contradiction are disputed; convicted is nobody but a liar."""
        if isinstance(event, events.Convicted):
            self.convicted.add(event.address[0])
            if event.address[0] not in self.kind_of or not self.signed:
                raise BrokenPromise(f"{node.name} CONVICTED {event.address[0]} at {self.net.now:.3f}: {event}")
        elif isinstance(event, events.Disputed):
            self.disputed.add(event.address[0])

    def show(self, name: str, an: int) -> None:
        """A router is shown a packet that it has passed, as `peer.trust.contradictions` does, and corrects itself.

        Only a liar may have had that packet, and shown it to one peer alone.
        """
        node = self.nodes[name]
        receiver, payload, now = node.receiver, self.feed.payload(an), self.net.now
        if name in self.kind_of or node.dead or self.net.is_frozen(node.address) or receiver is None or payload is None:
            return
        sender, position = node.hub.senders.get(STREAM), receiver.position
        if sender is None or position is None or not self.signatures.proves(an, receiver.query):
            return
        if receiver.audit.lacks(an, position):
            receiver.take_found([(an, payload)], now)
        elif sender.log.covered_at(an, receiver.query) and sender.insert_late(an, payload, now):
            receiver.handover.put_late(an, payload, in_order=False)
        self.net.pump(node.address)

    # --- the liars' part ----------------------------------------------------------------------------------------------

    def _arrive(self, name: str, an: int, kind: int, previous: int) -> None:
        lie = self.kind_of.get(name) if self.net.now >= LIES_BEGIN else None
        sender = self.nodes[name].hub.senders[STREAM]
        if self.kind_of.get(name) == "start" and not sender.log.started and self.net.now > 0.3:
            sender.publish_hole(FAR)
        if lie == "mute" or self.kind_of.get(name) == "start" or (sender.log.started and sender.log.head >= an):
            return
        left_out = lie == "omitall" or (lie == "omit" and an % 7 == 0)
        if left_out and sender.log.started:
            sender.log.advance(an)
            self.net.pump(self.nodes[name].address)
            return
        super()._arrive(name, an, kind, previous)
        if name not in self.kind_of and sender.log.head == an:
            self._supplied.add(an)

    def _lie(self, name: str, kind: str) -> None:
        sender = self.nodes[name].hub.senders[STREAM]
        for link in sender.links.values():
            if link.child.floor is not None:
                link.outbox.extend(false_datagrams(kind, link, sender.log.head, self.net.now))
                sender._busy[link.id] = link
        self.net.pump(self.nodes[name].address)
        self.net.after(LIE_EVERY, self._lie, name, kind)
