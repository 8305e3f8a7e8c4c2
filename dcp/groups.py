"""Multicast at the parent: children on one LAN with one query in one epoch get their live packets by one datagram.

Theory of operation. A child's link goes on as it is: it has its cursor, its window, its repairs, its holes, its
acknowledgments. Only the road of live packets changes: the first member whose cursor reaches a packet has it sent to
the group, and for the others it counts as sent (`carry`). A claim is true for everybody with the same query and epoch,
so it does not matter whose cursor made it; what the group loses is repaired on each member's own link. So one cursor is
enough for a new packet (`lead`): the others follow a few times per second, or when their child speaks, in fewer and
wider claims. Twenty-five members cost a parent little more than one.

A group is offered to eligible children once there are three. It beats a few times per second, and the members that hear
it say so (HEARD), again and again: a member whose word has not come for a while is served by its own link again. Live
packets take the group only while three members or more hear it, and not above 500 datagrams per second, which is what
members can verify.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dcp import control, wire
from dcp.config import Config
from dcp.group_messages import (
    CIPHER_KEY_BYTES,
    ENCRYPTED_BYTES,
    LEFT,
    MAX_NUMBER,
    Group,
    Heard,
    encode_group,
    encrypt,
    sign,
)
from dcp.lateral import Sibling, Siblings, encode_siblings, pair_key
from dcp.links.address import SocketAddress, is_connection, is_loopback, to_group
from dcp.links.downlink import Downlink
from dcp.links.fragments import FragmentQueue
from dcp.links.keep_alives import current_keep_alive

MIN_MEMBERS = 3
MAX_GROUPS = 16
MAX_MEMBERS = 1_024
MAX_DATAGRAMS_PER_SECOND = 500
LOOK_INTERVAL = 0.25
"""How often groups are formed and offered, and beat when nothing else goes out."""
FIRST_BEAT = 0.02
"""How soon after a packet: it shows the loss of the last one."""
LEASE = 1.5
"""How long a member's HEARD holds; it comes several times as often."""
OFFER_SECONDS = 3.0
"""A group that fewer than three have heard by then is given up."""
SIBLINGS_INTERVAL = 2.0
"""How often members hear who their siblings are; also when nothing has changed, since that may be lost."""
REST_SECONDS = 60.0
"""How long a child that did not hear a group, or left it, is not offered another one."""
MAX_WIDTH = 1 << 20
"""Wider claims go over the links: members that are 512 of them behind can still tell 32-bit ANs apart (rule S3)."""
_NUMBERS_KEPT = 4_096
"""For the datagrams of one large packet, which are numbered together."""
_PORTS = range(24_000, 32_000)


class Kind(NamedTuple):
    """What the members of a group have in common: every claim for one of them is true for all."""

    query: bytes
    epoch: int
    lan: str
    is_encrypted: bool = False
    """Their links are: then so is the group."""
    is_restricted: bool = False
    """What is withheld is not for them."""


@dataclass(slots=True)
class _Member:
    link: Downlink
    until: float = 0.0
    """Until when it counts as hearing the group."""
    since: int = 0
    """Packets after this AN went to the group while it was listening."""
    is_listening: bool = False


@dataclass(slots=True, eq=False)
class SendingGroup:
    """One group. It is the outlet of a framing, as a link is."""

    id: int
    address: SocketAddress
    kind: Kind
    private: Ed25519PrivateKey
    payload_room: int
    made_at: float
    members: dict[int, _Member] = field(default_factory=dict)
    fragments: FragmentQueue = field(default_factory=FragmentQueue)
    is_live: bool = False
    sent_until: int = 0
    number: int = 0
    beat_at: float = 0.0
    recent: deque[float] = field(default_factory=deque)
    walked_to: int = 0
    """Up to this packet of the log all members have followed."""
    secret: bytes = b""
    """For the keys of siblings."""
    cipher_key: bytes = b""
    cipher: AESGCM | None = None
    named_at: float = 0.0

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes:
        self.number += 1
        unsealed = wire.encode_bound(None, self.kind.epoch, flags, an, prev, self.id, body)
        if self.cipher is not None:
            unsealed = encrypt(unsealed, self.id, self.number, self.cipher)
        return sign(unsealed, self.number, self.private)

    def offer(self) -> bytes:
        host, port = self.address[:2]
        public = self.private.public_key().public_bytes_raw()
        return encode_group(Group(self.id, self.kind.epoch, public, port, host, self.cipher_key))


class Groups:
    """The groups of one sender."""

    def __init__(self, config: Config, rng: random.Random) -> None:
        self.counters: Counter[str] = Counter()
        self.outbox: deque[tuple[bytes, SocketAddress]] = deque()
        self._config = config
        self._rng = rng
        self._groups: dict[int, SendingGroup] = {}
        self._of: dict[int, SendingGroup] = {}  # link id -> its group
        self._rests: dict[int, float] = {}  # link id -> until when it is not asked
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def listening(self) -> int:
        """Children that get their live packets from a group now."""
        return sum(m.is_listening for g in self._groups.values() if g.is_live for m in g.members.values())

    def is_listening(self, link_id: int) -> bool:
        """Whether this child gets its live packets from a group now."""
        group = self._of.get(link_id)
        return group is not None and group.is_live and group.members[link_id].is_listening

    # --- what links tell ----------------------------------------------------------------------------------------------

    def carry(self, link: Downlink, claim: Any, framing: Any, now: float) -> bool:
        """A live claim of a member: whether the group has it, or gets it now. Otherwise it goes over the link."""
        group = self._of.get(link.id)
        if group is None or not group.is_live:
            return False
        member = group.members[link.id]
        first, last = claim.packets[0][0], claim.packets[-1][0]
        if not member.is_listening or first <= member.since or last - claim.prev > MAX_WIDTH:
            return False
        if last > group.sent_until:
            group.sent_until = last
            self._send(group, framing.datagram(group, claim, 0), now)
            while group.fragments.bytes:
                self._send(group, group.fragments.next(), now)
            group.beat_at = now + FIRST_BEAT
        return True

    def lead(self, now: float) -> set[int]:
        """There are new packets: send them to the live groups. The links that may sleep through it.

        A member whose window is closed does not hold up the others: the next one leads.
        """
        asleep: set[int] = set()
        for group in [group for group in self._groups.values() if group.is_live]:
            for member in list(group.members.values()):
                if not member.is_listening:
                    continue
                link, log = member.link, member.link.child.log
                link.walk(now)
                if link.child.cursor.position < log.head:
                    continue
                # What the group can't carry, such as a hole, goes to everybody at once.
                is_lagging = log.next_ordinal - group.walked_to > self._config.catch_up_lag // 4
                if group.is_live and not link.outbox and not is_lagging:
                    asleep.update(m.link.id for m in group.members.values() if m.is_listening and m.link.may_sleep)
                elif is_lagging:
                    group.walked_to = log.next_ordinal
                break
        return asleep

    def inserted(self, an: int) -> None:
        """A packet was put into the log behind what the group sent: members that are not there yet need it by link."""
        for group in self._groups.values():
            for member in group.members.values():
                if member.link.child.cursor.position < an <= group.sent_until:
                    member.since = max(member.since, an)

    def heard(self, link: Downlink, heard: Heard, now: float) -> None:
        group = self._of.get(link.id)
        if group is None or heard.id != group.id:
            return
        if heard.highest == LEFT:
            self.counters["left"] += 1
            self.leave(link, now)
            return
        member = group.members[link.id]
        member.until = now + LEASE
        if not member.is_listening:
            member.is_listening = True
            member.since = max(group.sent_until, link.child.log.head)
        self._decide(group, now)

    def leave(self, link: Downlink, now: float | None = None) -> None:
        """It has gone, wants another query, or does not hear: its own link brings everything again."""
        group = self._of.pop(link.id, None)
        if now is None:
            self._rests.pop(link.id, None)
        else:
            self._rests[link.id] = now + REST_SECONDS
        if group is not None:
            del group.members[link.id]
            link.group = None
            self._decide(group, now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, links: dict[int, Downlink], now: float) -> None:
        for group in list(self._groups.values()):
            if now >= group.beat_at and group.members:
                self._beat(group, now)
        if now < self._look_at:
            return
        self._look_at = now + LOOK_INTERVAL
        for group in list(self._groups.values()):
            for member in list(group.members.values()):
                if member.is_listening:
                    member.link.walk(now)
                    group.walked_to = member.link.child.log.next_ordinal
                if member.link.is_catching_up or (member.is_listening and now > member.until):
                    self.counters["silent"] += 1
                    self.leave(member.link, now)
                elif not member.is_listening and now - group.made_at < OFFER_SECONDS:
                    self._offer(group, member.link)
            if group.is_live and now - group.named_at > SIBLINGS_INTERVAL:
                self._name_siblings(group, now)
            if not group.is_live and now - group.made_at > OFFER_SECONDS:
                self._dissolve(group, now)
        self._rests = {link: until for link, until in self._rests.items() if until > now and link in links}
        self._form(links, now)

    def next_timeout(self, links: dict[int, Downlink]) -> float | None:
        if len(links) < MIN_MEMBERS and not self._groups:
            return None
        return min([group.beat_at for group in self._groups.values()], default=self._look_at)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _form(self, links: dict[int, Downlink], now: float) -> None:
        alike: dict[Kind, list[Downlink]] = {}
        for link in links.values():
            if link.takes_groups and link.id not in self._of and link.id not in self._rests and self._is_eligible(link):
                kind = self._kind_of(link)
                if kind.lan:
                    alike.setdefault(kind, []).append(link)
        for kind, found in alike.items():
            group = next((group for group in self._groups.values() if group.kind == kind), None)
            if group is None:
                if len(found) < MIN_MEMBERS or len(self._groups) >= MAX_GROUPS:
                    continue
                group = self._make(kind, found[0], now)
            for link in found[: MAX_MEMBERS - len(group.members)]:
                group.members[link.id] = _Member(link)
                self._of[link.id] = group
                link.group = self
                self._offer(group, link)
            group.made_at = now  # those that have just been asked have time to hear it

    def _kind_of(self, link: Downlink) -> Kind:
        child, lan = link.child, lan_of(link.address, self._config)
        return Kind(child.query, child.epoch, lan, link.is_encrypted, child.is_restricted)

    def _is_eligible(self, link: Downlink) -> bool:
        child = link.child
        is_settled = child.floor is not None and child.interest is not None and child.pending is None
        return is_settled and not link.is_catching_up and not is_connection(link.address)

    def _make(self, kind: Kind, link: Downlink, now: float) -> SendingGroup:
        group_id = self._rng.getrandbits(32) or 1
        is_v4 = isinstance(ip_address(link.address[0].partition("%")[0]), IPv4Address)
        number = self._rng.getrandbits(16)
        host = f"239.255.{number >> 8}.{number & 255}" if is_v4 else f"ff12::{number:x}:{group_id & 0xFFFF:x}"
        address = to_group(host, self._rng.choice(_PORTS), link.address[0])
        private = Ed25519PrivateKey.from_private_bytes(self._rng.randbytes(32))
        group = SendingGroup(group_id, address, kind, private, link.payload_room, now, beat_at=now)
        group.secret = self._rng.randbytes(32)
        if kind.is_encrypted:
            group.cipher_key = self._rng.randbytes(CIPHER_KEY_BYTES)
            group.cipher = AESGCM(group.cipher_key)
            group.payload_room -= ENCRYPTED_BYTES
        self._groups[group_id] = group
        self.counters["formed"] += 1
        return group

    def _offer(self, group: SendingGroup, link: Downlink) -> None:
        link.post(link.encode(wire.CONTROL, 0, 0, group.offer()))

    def _decide(self, group: SendingGroup, now: float | None) -> None:
        """Live packets take the group while three or more listen."""
        enough = sum(member.is_listening for member in group.members.values()) >= MIN_MEMBERS
        if enough and not group.is_live:
            group.is_live = True
            group.walked_to = max(member.link.child.log.next_ordinal for member in group.members.values())
            head = max(member.link.child.log.head for member in group.members.values())
            group.sent_until = head
            for member in group.members.values():
                member.since = head
        elif group.is_live and not enough:
            self._dissolve(group, now)
        elif not group.members:
            self._groups.pop(group.id, None)

    def _dissolve(self, group: SendingGroup, now: float | None) -> None:
        self._groups.pop(group.id, None)
        group.is_live = False
        self.counters["dissolved"] += 1
        for member in list(group.members.values()):
            self._of.pop(member.link.id, None)
            member.link.group = None
            if now is not None:
                self._rests[member.link.id] = now + REST_SECONDS
        group.members.clear()

    def _name_siblings(self, group: SendingGroup, now: float) -> None:
        """To each member its neighbours in a ring, two on each side, to mend losses with (`dcp.lateral`)."""
        group.named_at = now
        ring = [m.link for _, m in sorted(group.members.items()) if m.is_listening]
        for at, link in enumerate(ring):
            near = {ring[(at + step) % len(ring)].id: ring[(at + step) % len(ring)] for step in (1, -1, 2, -2)}
            near.pop(link.id, None)
            named = tuple(
                Sibling(other.address[0], other.address[1], pair_key(group.secret, link.id, other.id))
                for other in near.values()
                if "%" not in other.address[0] and not ip_address(other.address[0]).is_link_local
            )
            link.post(link.encode(wire.CONTROL, 0, 0, encode_siblings(Siblings(group.id, named))))

    def _beat(self, group: SendingGroup, now: float) -> None:
        """Where the group stands, as a claim of the member that is farthest: nothing between it and the head."""
        leader = max(group.members.values(), key=lambda m: (m.is_listening, m.link.child.cursor.position)).link
        keep_alive = current_keep_alive(leader.child, control.Times(0, 0, 0))
        body = control.encode_keep_alive(keep_alive)
        self._send(group, group.encode(wire.KEEP_ALIVE, keep_alive.highest, keep_alive.previous, body), now)
        group.beat_at = now + LOOK_INTERVAL

    def _send(self, group: SendingGroup, datagram: bytes, now: float) -> None:
        recent = group.recent
        recent.append(now)
        while recent[0] < now - 1.0:
            recent.popleft()
        self.outbox.append((datagram, group.address))
        if len(recent) > MAX_DATAGRAMS_PER_SECOND:
            self.counters["too fast"] += 1
            self._dissolve(group, now)
        elif group.number >= MAX_NUMBER - _NUMBERS_KEPT:
            self._dissolve(group, now)


def lan_of(address: SocketAddress, config: Config) -> str:
    """Children with the same answer may be on one LAN, which HEARD shows; empty: multicast is not tried."""
    if is_connection(address):
        return ""
    if is_loopback(address):
        return "loopback" if config.multicast_loopback else ""
    try:
        ip = ip_address(address[0].partition("%")[0])
    except ValueError:
        return ""
    if not (ip.is_private or ip.is_link_local):
        return ""
    return f"{ip.version}/{ip.packed[: 3 if ip.version == 4 else 8].hex()}"
