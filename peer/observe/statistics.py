"""What a peer counts, as frozen snapshots: for programs, the status file, the live line and metrics. Reading only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dcp.links.address import carrier_of
from dht.addresses import endpoint_text
from peer.role import Role
from peer.trust.audits import ANSWERS, FOUND, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dcp.carriers.pool import CarrierStatistics
    from dcp.stats import HubStatistics, ProtectionStatistics, ReceiverStatistics, SenderStatistics, UplinkStatistics
    from peer.core import PeerCore
    from peer.observe.relate import Relate
    from xmlswitch import SwitchStats


@dataclass(frozen=True, slots=True)
class ParentStatistics:
    """One parent, as this peer sees it."""

    peer: str
    """Its id, as `status` shows it."""
    address: str
    level: int
    sound: bool
    """Heard, fed from a root, not leaving: it counts towards n."""
    round_trip: float | None
    """Seconds; None while it is not measured."""
    loss: float | None
    """Share of the packets that it did not bring by itself: lost on its path, or late. None before the first packet."""
    copies: int
    """Packets that it brought, first or not."""
    first_copies: int
    """Packets of which its copy was the first."""
    brought: int
    """Packets that it brought unasked, in order or not, of..."""
    expected: int
    """...this many that arrived, from any parent, since its first one."""
    disputed: int = 0
    """How often what it said about the stream was contradicted."""
    omitted: int = 0
    """Packets that it had said were not there, and that another parent brought."""
    dispute: str | None = None
    """Why it was last disputed; None if it never was."""
    carrier: str = "udp"
    """What carries the link: udp, tcp or another transport's name; multicast while its group is heard."""
    protection: str | None = None
    """What it sends unasked to make up for loss: "1 per 4" repairs per datagrams, or "copy"; None: nothing."""
    encrypted: bool = False
    """Whether the link is encrypted; with a peer of an earlier version it is not."""


@dataclass(frozen=True, slots=True)
class ChildStatistics:
    """One child, as this peer sees it."""

    peer: str
    address: str
    round_trip: float
    packets: int
    bytes: int
    retransmitted: int
    lag: int
    """Packets in the log that were not sent to it yet, wanted or not."""
    cut_off: int = 0
    """Packets sent to it unmatched: its query would have taken too long on them. It filters them itself."""
    carrier: str = "udp"
    """What carries the link."""
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot. Counters count from the start of the peer."""

    role: str
    """root, router or leaf."""
    state: str
    """Of membership, by the names in docs/mesh.md."""
    level: int
    parents_sound: int
    parents_wanted: int
    parents: tuple[ParentStatistics, ...]
    children: tuple[ChildStatistics, ...]
    position: int | None
    """Everything up to this AN was taken in, or declared a gap. At a root, the last AN published."""
    packets: int
    """Packets received; at a root, published."""
    bytes: int
    """Of their payloads, as they are on the wire."""
    gaps: int
    duplicates: int
    nacks: int
    recovered: int
    """Packets that came only after they were asked for."""
    retransmitted: int
    """Packets sent again to children, those that have gone included."""
    waiting: int
    """Packets in order that the program has not taken yet."""
    buffered: int
    """Packets that wait for an earlier one."""
    unreadable: int
    """Packets whose envelope could not be opened: handed over as gaps."""
    hops: int
    """Links to the farthest root, by the farthest sound parent; 0 at a root."""
    resilience: int
    """How many parents count, all the way up: any of them but one may die. 255 at a root."""
    omitted: int = 0
    """Packets that came late, as `Omitted`: a parent had said that they were not there."""
    forged: int = 0
    """Copies of packets that no key of the stream has signed: dropped, and their senders left."""
    disputed: int = 0
    """How often a parent's word about the stream was contradicted, by those that have gone too."""
    starved: int = 0
    """How often parents reported packets and none brought any."""
    audits: int = 0
    """Random audits that ended: another peer was asked what it has of a stretch of a signed stream..."""
    audits_whole: int = 0
    """...and those whose answer proved that it was whole."""
    uncovered: int = 0
    """Packets that such audits found, and that all parents had left out."""
    profile: str | None = None
    """What the subscription asked for: reliable, latency, bandwidth or newest; None at a root."""
    protection: str = "plain"
    """What the fastest parent is asked to send beside the stream: plain, copy, or "1 per 4" repairs per datagrams."""
    protection_why: str = ""
    protection_seconds: float = 0.0
    """Since when it has been so."""
    protection_changes: int = 0
    loss: float = 0.0
    """Share of the packets that no parent brought by itself, smoothed."""
    rebuilt: int = 0
    """Packets that were lost by all parents and computed from repairs."""
    expired: int = 0
    """Gaps that were declared because a deadline was over."""
    latency: float | None = None
    """Mean from sending to handing over, in seconds; needs `root --stamp` and clocks that agree."""
    relate: float | None = None
    """Mean latency divided by the share of packets received, in seconds."""
    relate2: float | None = None
    """Mean latency times (percent lost + 1), in seconds."""

    @property
    def is_resilient(self) -> bool:
        """As many sound parents as were wanted."""
        return self.parents_sound >= self.parents_wanted


@dataclass(frozen=True, slots=True)
class Internals:
    """What the machines inside a peer count, for metrics and for a look under the hood. May change with any version."""

    receiver: ReceiverStatistics | None
    sender: SenderStatistics | None
    hub: HubStatistics
    dropped: Mapping[str, int]
    """Datagrams that changed nothing, by the reason."""
    switch: SwitchStats
    mesh: Mapping[str, int]
    """Counters of the mesh machine, by name."""
    capacity: int
    routed: int
    """Packets that were matched against the children's queries..."""
    route_seconds: float
    """...and the time this took."""
    unreadable: int
    """Packets whose envelope the switch could not open."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """What became of multicast groups, at this peer and at its parents."""
    carriers: CarrierStatistics | None = None
    """Connections that carry datagrams beside UDP; None where UDP is all there is."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """Of a dynamic router: queries that it asks its parents for, that others cover, and that were widened."""
    audits: Mapping[str, int] = field(default_factory=dict)
    """How random audits ended, and what they found (`peer.trust.audits`)."""
    visits: Mapping[str, int] = field(default_factory=dict)
    """Audits of others at this peer."""


def internals(
    core: PeerCore, *, dropped: Mapping[str, int], now: float, carriers: CarrierStatistics | None = None
) -> Internals:
    """What the core counts at this moment; `dropped` and `carriers` come from the driver below it."""
    hub = core.hub.statistics()
    return Internals(
        receiver=core.receiver.statistics(now) if core.receiver is not None else None,
        sender=core.sender.statistics(now) if core.sender is not None else None,
        hub=hub,
        dropped={**hub.dropped, **dropped},
        switch=core.policy.switch.stats(),
        mesh=dict(core.mesh.counters),
        capacity=core.mesh.config.capacity,
        routed=core.policy.routed,
        route_seconds=core.policy.route_seconds,
        unreadable=core.policy.unreadable,
        groups=_group_counters(core),
        carriers=carriers,
        asked=core.asked,
        audits=_audits(core),
        visits={"received": core.doors.visitors.received, "refused": core.doors.visitors.refused},
    )


def _audits(core: PeerCore) -> Counter[str]:
    return Counter() if core.audits is None else core.audits.counts.copy()


def snapshot(
    core: PeerCore, *, published: int = 0, published_bytes: int = 0, relate: Relate | None = None, now: float
) -> Statistics:
    """What the core counts at this moment; the shell's own counts come with it."""
    from dht import id_text

    receiver, sender = core.receiver, core.sender
    got = receiver.statistics(now) if receiver is not None else None
    sent = sender.statistics(now) if sender is not None else None
    links = {link.link: link for link in got.links} if got is not None else {}
    served = {link.link: link for link in sent.links} if sent is not None else {}
    is_root = core.config.role is Role.ROOT
    protection = got.protection if got is not None else None
    children = tuple(
        ChildStatistics(
            peer=id_text(child.peer_id),
            address=address_text(child.address),
            round_trip=link.round_trip,
            packets=link.packets,
            bytes=link.bytes,
            retransmitted=link.retransmitted,
            lag=link.lag,
            cut_off=core.cut_off(child.link),
            carrier="multicast" if _is_in_group(core, link.link) else carrier_of(link.address),
            encrypted=sender is not None and sender.links[link.link].is_encrypted,
        )
        for child in core.mesh.children.links.values()
        if (link := served.get(core.dcp_link(child.link) or 0)) is not None
    )
    log = sender.log if is_root and sender is not None else None
    audits = _audits(core)
    return Statistics(
        role=core.config.role.value,
        state=core.mesh.state.value,
        level=core.mesh.level,
        parents_sound=0 if is_root else len(core.mesh.parents.sound()),
        parents_wanted=0 if is_root else core.mesh.config.parents_wanted,
        parents=tuple(
            _parent(
                id_text(parent.peer_id),
                parent.address,
                parent.reported,
                parent.is_sound,
                parent.dispute,
                links.get(core.dcp_link(parent.link) or 0),
                _carrier(core, links.get(core.dcp_link(parent.link) or 0)),
                protection,
                encrypted=_is_encrypted(core, core.dcp_link(parent.link)),
            )
            for parent in core.mesh.parents.links.values()
        ),
        children=children,
        position=got.position if got is not None else log.head if log is not None else None,
        packets=got.packets if got is not None else published,
        bytes=got.bytes if got is not None else published_bytes,
        gaps=got.gaps if got is not None else 0,
        duplicates=got.duplicates if got is not None else 0,
        nacks=got.nacks if got is not None else 0,
        recovered=got.recovered if got is not None else 0,
        retransmitted=sent.retransmitted if sent is not None else 0,
        waiting=got.ready if got is not None else 0,
        buffered=got.buffered if got is not None else 0,
        unreadable=core.client.unreadable if core.client is not None else 0,
        hops=core.mesh.hops,
        resilience=core.mesh.resilience,
        omitted=got.omitted if got is not None else 0,
        forged=core.trust.forged if core.trust is not None else 0,
        disputed=core.mesh.counters["disputed"],
        starved=core.mesh.counters["starved"],
        audits=sum(audits[how] for how in ANSWERS),
        audits_whole=audits[WHOLE],
        uncovered=audits[FOUND],
        profile=core.config.profile.name if got is not None else None,
        protection=protection.choice if protection is not None else "plain",
        protection_why=protection.why if protection is not None else "",
        protection_seconds=round(protection.seconds, 3) if protection is not None else 0.0,
        protection_changes=protection.changes if protection is not None else 0,
        loss=protection.loss if protection is not None else 0.0,
        rebuilt=protection.rebuilt if protection is not None else 0,
        expired=got.expired if got is not None else 0,
        latency=relate.latency if relate is not None else None,
        relate=relate.relate if relate is not None else None,
        relate2=relate.relate2 if relate is not None else None,
    )


def _group_counters(core: PeerCore) -> dict[str, int]:
    groups = core.sender.groups if core.sender is not None else None
    sent = {f"group {event}": count for event, count in groups.counters.items()} if groups is not None else {}
    return sent | {f"membership {event}": count for event, count in core.hub.memberships.counters.items()}


def _is_in_group(core: PeerCore, link: int) -> bool:
    groups = core.sender.groups if core.sender is not None else None
    return groups is not None and groups.is_listening(link)


def _carrier(core: PeerCore, link: UplinkStatistics | None) -> str:
    if link is None:
        return "udp"
    return "multicast" if core.hub.memberships.of(link.link) is not None else carrier_of(link.address)


def _parent(
    peer: str,
    address: tuple[object, ...],
    level: int,
    sound: bool,
    dispute: str | None,
    link: UplinkStatistics | None,
    carrier: str,
    protection: ProtectionStatistics | None,
    *,
    encrypted: bool,
) -> ParentStatistics:
    protects = protection is not None and link is not None and link.link in protection.links
    return ParentStatistics(
        peer=peer,
        address=address_text(address),
        level=level,
        sound=sound,
        round_trip=link.round_trip if link is not None else None,
        loss=link.loss if link is not None else None,
        copies=link.first_copies + link.duplicates if link is not None else 0,
        first_copies=link.first_copies if link is not None else 0,
        brought=link.brought if link is not None else 0,
        expected=link.expected if link is not None else 0,
        disputed=link.disputed if link is not None else 0,
        omitted=link.omitted if link is not None else 0,
        dispute=dispute,
        carrier=carrier if link is not None else "udp",
        protection=protection.choice if protection is not None and protects else None,
        encrypted=encrypted,
    )


def _is_encrypted(core: PeerCore, number: int | None) -> bool:
    link = core.receiver.links.get(number or 0) if core.receiver is not None else None
    return link is not None and link.is_encrypted


def address_text(address: tuple[object, ...]) -> str:
    """HOST:PORT, with brackets around an IPv6 host."""
    return endpoint_text(address)
