"""Whole peers in virtual time, with everything of a signed stream: encrypted links, signatures, grants, beats."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from dcp.links.link import SocketAddress
from dht.identity import Identity
from peer.core import PeerCore, PeerEvent
from peer.coreconfig import CoreConfig
from peer.envelope import Envelope
from peer.items import Content
from peer.mesh import events as meshevents
from peer.mesh.messages import PeerId
from peer.mesh.placement.moves import Placement
from peer.queries import XPathPolicy
from peer.role import Role
from peer.testing.peersim import STREAM, PeerSimulation, SimPeer
from peer.trust.batches import BatchSigner
from peer.trust.check import Trust
from peer.trust.counting import Missing
from peer.trust.gate import Gate
from peer.trust.grants import ROUTE, SUBSCRIBE, WITHHELD, JoinGrant
from peer.trust.withholding import Withholding
from xmlswitch import Query

OWNER = Identity.from_seed(b"owner".ljust(32, b"\0"))
BEGIN = 1_000_000.0


def identity_of(name: str) -> Identity:
    return Identity.from_seed(name.encode().ljust(32, b"\0"))


class SignedSimulation(PeerSimulation):
    """`granted`: peers with a grant for withheld packets, with the seconds for which it is valid."""

    def __init__(
        self, seed: int, *, withhold: str | None = None, granted: Mapping[str, float] | None = None, **options: Any
    ) -> None:
        super().__init__(seed, **options)
        self.withhold = withhold
        self.granted = dict(granted or {})
        self.incomplete: list[tuple[str, Missing]] = []

    def wall(self) -> float:
        return BEGIN + self.network.now

    def name_of(self, peer_id: PeerId) -> str:
        return self._by_id[peer_id].name

    def grant_of(self, name: str, roles: int) -> JoinGrant:
        until = int(BEGIN + self.granted[name])
        peer_id = identity_of(name).peer_id
        return JoinGrant.issue(OWNER, stream=STREAM, peer_id=peer_id, roles=roles, expires_at=until)

    def _new_core(
        self, name: str, config: CoreConfig, placement: Placement | None, make: Callable[..., PeerCore] = PeerCore
    ) -> PeerCore:
        is_root = config.role is Role.ROOT
        key = OWNER if is_root else identity_of(name)
        random_bytes = random.Random(name)
        trust = Trust(STREAM)
        trust.add_key(OWNER.public_key, expires_at=None)
        signer = withholding = own = None
        if is_root:
            signer = BatchSigner(STREAM, key.public_key, sign=key.sign, salt=lambda: random_bytes.randbytes(8))
            if self.withhold is not None:
                withholding = Withholding([Query.parse(self.withhold)], lambda: random_bytes.randbytes(16))
        elif name in self.granted:
            own = self.grant_of(name, SUBSCRIBE | ROUTE | WITHHELD)
        gate = Gate(
            STREAM,
            wall=self.wall,
            own=own,
            owner=OWNER.peer_id,
            is_root=is_root,
            withholds=is_root and self.withhold is not None,
        )
        remembers = config.role is Role.ROUTER and config.deliver
        core = make(
            config,
            PeerId(bytes(key.peer_id)),
            rng=random.Random(self.rng.getrandbits(64)),
            placement=placement,
            policy=XPathPolicy(Envelope(remembers=remembers, withholding=withholding)),
            trust=None if is_root else trust,
            signer=signer,
            wall=self.wall,
            identity=key,
            gate=gate,
        )
        core.doors.counting.is_everything = config.query is None
        core.doors.learn_keys(trust, (key.public_key, None) if is_root else None)
        return core

    def _arrive(self, peer: SimPeer, an: int, envelope: bytes) -> None:
        """The root packs by itself: only it knows what to withhold."""
        super()._arrive(peer, an, peer.core.policy.envelope.pack(envelope[1:]))

    def _took(self, peer: SimPeer, item: Content) -> None:
        peer.core.doors.counting.note(item)
        missing = peer.core.doors.counting.judge(peer.core.receiver, self.network.now)
        if missing is not None:
            self.incomplete.append((peer.name, missing))

    def _on_event(self, address: SocketAddress, event: PeerEvent, now: float) -> None:
        if isinstance(event, meshevents.Disputed):
            self.accusations.append(f"{now:.3f} {self._by_address[address].name}: {event}")
        super()._on_event(address, event, now)
