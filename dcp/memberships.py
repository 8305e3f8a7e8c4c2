"""Multicast at the child: the groups that its parents offered, whether they are heard, and when to leave them.

A group's datagram counts as one of the parent that offered the group, once its signature is right. A child that hears
the group says so three times per second (HEARD), and leaves it after a second of silence, above 10 % loss, when it
wants another query, or when its link to the parent ends. Leaving costs nothing: the parent's own link brings
everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dcp import wire
from dcp.admission import HostBuckets
from dcp.config import Config
from dcp.errors import MalformedDatagram
from dcp.group_messages import (
    LEFT,
    TRAILER_BYTES,
    Group,
    Heard,
    checked,
    decrypt_untrusted,
    encode_heard,
    group_of_untrusted,
    number_of,
)
from dcp.lateral import Repairer, Siblings
from dcp.links.address import SocketAddress, to_group
from dcp.links.uplink import Uplink
from dcp.receiver import Receiver

MAX_MEMBERSHIPS = 16
HEARD_INTERVAL = 0.3
MAX_SILENCE = 1.0
JOIN_SECONDS = 3.0
"""How long a group may be silent after it was offered: switches take a moment to learn who listens."""
MAX_LOSS = 0.1
MEASURED = 64
"""Datagrams between two looks at the loss."""
# A signature takes about 150 us to check: what a parent may send to a group, and a little more.
MAX_CHECKS_PER_HOST = 600
MAX_CHECKS = 1_200


@dataclass(slots=True)
class Membership:
    receiver: Receiver
    link: Uplink
    group: Group
    key: Ed25519PublicKey
    joined_at: float
    heard_at: float | None = None
    highest: int = 0
    first: int = 0
    """Number of the first datagram since the loss was last looked at, and..."""
    got: int = 0
    """...how many came since."""
    say_at: float = 0.0
    repairer: Repairer | None = None
    seen: set[int] = field(default_factory=set)
    rebuilt: set[int] = field(default_factory=set)
    cipher: AESGCM | None = None

    @property
    def is_heard(self) -> bool:
        return self.heard_at is not None


class Memberships:
    def __init__(self, config: Config, post: Callable[[bytes, SocketAddress], object]) -> None:
        """`post` sends a datagram to a sibling."""
        self.counters: Counter[str] = Counter()
        self.revision = 0
        """Rises when `wanted` has changed: what owns the sockets looks only then."""
        self._config = config
        self._is_on = config.multicast
        self._post = post
        self._groups: dict[int, Membership] = {}
        self._checks = HostBuckets(MAX_CHECKS, MAX_CHECKS_PER_HOST)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def wanted(self) -> set[SocketAddress]:
        """The groups to listen to."""
        return {to_group(m.group.host, m.group.port, m.link.address[0]) for m in self._groups.values()}

    def of(self, link_id: int) -> Membership | None:
        """The group through which this parent is heard now."""
        return next((m for m in self._groups.values() if m.link.id == link_id and m.is_heard), None)

    # --- input --------------------------------------------------------------------------------------------------------

    def offered(self, receiver: Receiver, link: Uplink, group: Group, now: float) -> None:
        """By the parent, over the sealed link."""
        known = self._groups.get(group.id)
        if known is not None or not self._is_on:
            return
        if len(self._groups) >= MAX_MEMBERSHIPS or group.epoch != receiver.epoch or receiver.change.is_waiting:
            self.counters["declined"] += 1
            return
        for other in [m for m in self._groups.values() if m.link is link]:
            self._leave(other, "replaced")
        key = Ed25519PublicKey.from_public_bytes(group.key)
        repairer = Repairer(group.id, self._post, self._config)
        cipher = AESGCM(group.cipher_key) if group.cipher_key else None
        self._groups[group.id] = Membership(receiver, link, group, key, now, repairer=repairer, cipher=cipher)
        self.counters["joined"] += 1
        self.revision += 1

    def receive(self, data: bytes, address: SocketAddress, now: float) -> None:
        """A datagram that came from a group. Raises MalformedDatagram."""
        member = self._groups.get(group_of_untrusted(data))
        if member is None:
            raise MalformedDatagram("unknown group")
        if not self._checks.allows(now, address[0]):
            raise MalformedDatagram("group rate")
        self._take(member, data, now)

    def _take(self, member: Membership, data: bytes, now: float, *, was_rebuilt: bool = False) -> None:
        datagram = checked(data, member.key)
        if member.cipher is not None:
            datagram = decrypt_untrusted(datagram, number_of(data), member.cipher)
        flags, _ = wire.decode_header_untrusted(datagram)
        if flags & (wire.ACK | wire.NACK | wire.CLOSE | wire.ACK_REQUEST):
            raise MalformedDatagram("type", "not for a group")
        number = number_of(data)
        if was_rebuilt:
            if number in member.seen or number in member.rebuilt:
                return
            member.rebuilt.add(number)  # if it still comes, it was late and not lost
        elif not self._count(member, number, now):
            raise MalformedDatagram("repeated", "group datagram")
        if member.repairer is not None:
            member.repairer.keep(number, data, now, was_rebuilt=was_rebuilt)
        member.receiver.receive(member.link, flags, datagram, now)

    def is_of_sibling(self, group_id: int) -> bool:
        """Whether a bound packet with this link id may be a sibling's."""
        return group_id in self._groups

    def siblings_named(self, link: Uplink, siblings: Siblings) -> None:
        """By the parent, over the sealed link."""
        member = self._groups.get(siblings.group)
        if member is not None and member.link is link and member.repairer is not None:
            member.repairer.set_siblings(siblings.siblings)

    def receive_lateral(self, group_id: int, data: bytes, address: SocketAddress, now: float) -> None:
        """A datagram from a sibling. Raises MalformedDatagram."""
        member = self._groups[group_id]
        assert member.repairer is not None
        rebuilt = member.repairer.receive(data, address, now)
        if rebuilt is None:
            return
        sibling, number, datagram = rebuilt
        if not self._checks.allows(now, address[0]):
            raise MalformedDatagram("group rate")
        try:
            if len(datagram) < wire.BODY_AT + TRAILER_BYTES or number_of(datagram) != number:
                raise MalformedDatagram("number", "lateral")
            self._take(member, datagram, now, was_rebuilt=True)
        except MalformedDatagram:
            member.repairer.blame(sibling)
            raise
        self.counters["rebuilt"] += 1

    def _count(self, member: Membership, number: int, now: float) -> bool:
        """False for one that came before, or long ago: somebody may send what was said once again."""
        if number in member.seen or number + MEASURED <= member.highest:
            return False
        if member.heard_at is None:
            member.first, member.say_at = number, now
        if member.heard_at is not None and number > member.highest + 1 and member.repairer is not None:
            member.repairer.lost_something(now)
        member.seen.add(number)
        member.heard_at = now
        member.highest = max(member.highest, number)
        member.got += 1
        if len(member.seen) > 2 * MEASURED:
            member.seen = {n for n in member.seen if n + MEASURED > member.highest}
            member.rebuilt = {n for n in member.rebuilt if n + MEASURED > member.highest}
        if member.highest - member.first + 1 >= MEASURED:
            span = member.highest - member.first + 1
            lost, member.got, member.first = 1 - member.got / span, 0, member.highest + 1
            if lost > MAX_LOSS:
                self._leave(member, "loss")
        return True

    def _leave(self, member: Membership, why: str) -> None:
        if self._groups.pop(member.group.id, None) is None:
            return
        self.counters[why] += 1
        self.revision += 1
        if member.link.id in member.receiver.links:
            self._say(member, LEFT)

    def _say(self, member: Membership, highest: int) -> None:
        member.receiver.send_control(member.link, encode_heard(Heard(member.group.id, highest)))

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        for member in list(self._groups.values()):
            receiver = member.receiver
            if member.link.id not in receiver.links:
                self._leave(member, "link ended")
            elif receiver.change.is_waiting or receiver.epoch != member.group.epoch:
                self._leave(member, "query changed")
            elif member.heard_at is None:
                if now - member.joined_at > JOIN_SECONDS:
                    self._leave(member, "not heard")
            elif now - member.heard_at > MAX_SILENCE:
                self._leave(member, "silence")
            elif now >= member.say_at:
                member.say_at = now + HEARD_INTERVAL
                self._say(member, member.highest)
                if member.repairer is not None:
                    member.repairer.beat(now)

    def next_timeout(self) -> float | None:
        if not self._groups:
            return None  # asked after every datagram, and hardly anybody is in a group
        times = [
            member.joined_at + JOIN_SECONDS + 1e-3
            if member.heard_at is None
            else min(member.say_at, member.heard_at + MAX_SILENCE + 1e-3)
            for member in self._groups.values()
        ]
        return min(times)
