"""Over which carriers a peer is asked: the first one, and the next ones beside it when no answer comes.

UDP is the best carrier for a live stream, and some networks drop it. Nothing says so: datagrams just go unanswered. So
the first question goes by the first carrier, and after `PATIENCE` without an answer the same question goes by the next
one too, and the first answer wins. What worked for a peer is where it is asked next time. Once a peer has answered over
a connection and not over UDP, UDP may be blocked here: other peers are then asked over all carriers at once, until UDP
brings an answer again.

Only questions that we ask ourselves come here (openings, inquiries, requests of the directory). Replies go back the way
the question came: otherwise a stranger with a forged address could make us dial others.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from dcp.links.address import UDP, SocketAddress, carrier_of, is_connection, over

# Three requests of an opening go unanswered in this time. Shorter: connections on lossy paths that UDP would have
# managed. Longer: a join over a network that drops UDP takes longer, and the mesh waits 0.8 s for one.
PATIENCE = 0.4
# Peers that are remembered: more than a peer ever asks within a candidate's lifetime.
MAX_PEERS = 4_096


@dataclass(slots=True)
class _Peer:
    works: str | None = None
    """The carrier that last brought an answer."""
    asked_at: float | None = None
    """When it was first asked since its last answer."""


class Ways:
    def __init__(self, carriers: tuple[str, ...] = (UDP,)) -> None:
        if not carriers or len(set(carriers)) != len(carriers):
            raise ValueError(f"transports must be different names, at least one, got {carriers!r}")
        self.carriers = carriers
        self.udp_seems_blocked = False
        self._peers: OrderedDict[tuple[str, int], _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def ask(self, address: SocketAddress, now: float, *, is_stranger: bool = False) -> tuple[SocketAddress, ...]:
        """We are about to ask this peer something: the addresses to send the question to.

        `is_stranger`: only others say that it exists, and it is one of many. It is dialled only where UDP seems
        blocked.
        """
        carriers = self.carriers
        if is_connection(address) or carriers == (UDP,):
            return (address,)
        peer = self._peer(address)
        if peer.asked_at is None:
            peer.asked_at = now
        first = peer.works or carriers[0]
        if is_stranger and first == UDP and not self.udp_seems_blocked:
            return (address,)
        patience_spent = now - peer.asked_at >= PATIENCE
        if patience_spent or (self.udp_seems_blocked and peer.works is None):
            return tuple(over(carrier, address) for carrier in carriers)
        return (over(first, address),)

    def answered(self, address: SocketAddress, now: float) -> None:
        """A peer that we asked has answered, over the carrier that the address names."""
        if self.carriers == (UDP,):
            return
        peer = self._peer(address)
        carrier = carrier_of(address)
        if carrier == UDP:
            self.udp_seems_blocked = False
        elif UDP in self.carriers and peer.works is None:
            self.udp_seems_blocked = True
        peer.works, peer.asked_at = carrier, None

    def next_at(self, address: SocketAddress, now: float) -> float | None:
        """When a question that is still open should be asked again, because there is a further way to ask it."""
        peer = self._peers.get(address[:2])
        if peer is None or peer.asked_at is None or len(self.carriers) == 1:
            return None
        at = peer.asked_at + PATIENCE
        return at if at > now else None

    def _peer(self, address: SocketAddress) -> _Peer:
        key = address[:2]
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = _Peer()
            if len(self._peers) > MAX_PEERS:
                self._peers.popitem(last=False)
        else:
            self._peers.move_to_end(key)
        return peer
