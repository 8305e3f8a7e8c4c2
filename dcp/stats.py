"""Frozen snapshots of counters. Machines count in plain attributes; `statistics()` copies them out."""

from __future__ import annotations

from dataclasses import dataclass, field

from dcp.links.link import SocketAddress


@dataclass(frozen=True, slots=True)
class UplinkStatistics:
    """One parent, as its child sees it."""

    link: int
    address: SocketAddress
    up: bool
    """Accepted, and data may flow."""
    round_trip: float
    heard_ago: float
    first_copies: int
    """Packets of which this parent's copy came first."""
    duplicates: int
    """Packets that another parent had brought already."""
    refused: int
    """Copies that our owner did not accept (`accepts`): damaged, or forged."""
    disputed: int
    """Stretches that it described differently from another parent (`Disputed`)."""
    omitted: int
    """Packets that it had claimed were not there, and that came from another parent."""
    brought: int
    """Packets that came from it unasked, first or not, in order or not. Pieces of a large packet may be asked for."""
    expected: int
    """Packets that the receiver got, from anybody, since the first one from this parent."""
    behind: int
    """ANs between our position and the highest that it has reported; 0 when it is level or ahead."""
    lateness: float | None = None
    """Seconds by which its copies come after the first ones, smoothed; None: no copy was watched yet."""

    @property
    def loss(self) -> float | None:
        """Share of the packets that it did not bring by itself: lost on its path, or squelched because it was late."""
        if not self.expected:
            return None
        return min(1.0, max(0.0, 1.0 - self.brought / self.expected))


@dataclass(frozen=True, slots=True)
class ProtectionStatistics:
    """What parents send a receiver unasked, and why (`dcp.steer`)."""

    choice: str
    """plain, copy, or "1 per 4": repairs per datagrams."""
    why: str
    seconds: float
    """Since when."""
    changes: int
    loss: float
    """Share of the packets that no first copy brings, smoothed."""
    run: float
    """Mean length of a run of losses on one link."""
    wants_parent: bool
    """Losses come in bursts: another parent would help."""
    links: frozenset[int]
    """The parents that were asked for repairs."""
    rebuilt: int
    """Packets that were computed from repairs."""
    unneeded: int
    """Repairs that came and were not needed."""
    unfit: int
    """Repairs that did not fit the packets that came: damaged, forged, or of roots that do not send the same bytes."""
    unasked: int
    """Repairs that nobody had asked for."""


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    position: int | None
    """Everything up to here was handed over, or declared a gap. None: not started."""
    epoch: int
    packets: int
    bytes: int
    duplicates: int
    refused: int
    """Copies that the owner did not accept (`accepts`); the packets came from another parent, or became gaps."""
    buffered: int
    """Claims that wait for what comes before them."""
    ready: int
    """Packets in order that the application has not taken yet."""
    overrun: int
    """Packets dropped because the application did not take them; they are asked for again."""
    buffer_dropped: int
    """Claims dropped because the reorder buffer was full, the farthest first."""
    gaps: int
    recovered: int
    """Packets that no first copy brought: they came after a NACK, or were computed from repairs."""
    expired: int
    """Stretches that were given up because their deadline was over; they are among the gaps."""
    skipped: int
    """Packets that the application did not take in time, and got as gaps (profile newest)."""
    nacks: int
    slow_nacks: int
    squelches: int
    resets: int
    beyond_reach: int
    """Claims, heads and holes too far ahead of the other parents to be believed. More than a few: one of them lies."""
    too_wide: int
    """Claims wider than 2^30, which no honest sender makes."""
    omitted: int
    """Packets handed over late, as `Omitted`: a parent had claimed that they were not there."""
    starved: int
    """How often heads advanced while no parent's claims did (`Starved`)."""
    index_requests: int
    """Requests to parents for the ANs of stretches that we passed and they had not spoken about."""
    fetched: int
    """Packets that such an index listed, that we lacked, and that were asked for by their AN."""
    unchecked: int
    """ANs that were forgotten, for lack of room, before all parents had spoken about them."""
    restarts: int
    """How often the stream's numbering has begun again below our position."""
    unsent: int
    """Acknowledgments and the like that found no room to wait for the socket; they are sent again."""
    reorder_window: float
    malformed: int
    links: tuple[UplinkStatistics, ...] = field(default=())
    protection: ProtectionStatistics | None = None
    """None for a plain subscription, which asks for none."""


@dataclass(frozen=True, slots=True)
class DownlinkStatistics:
    """One child, as its parent sees it."""

    link: int
    address: SocketAddress
    confirmed: bool
    acknowledged: int
    lag: int
    """Packets in the log beyond what was sent to it, wanted or not."""
    round_trip: float
    heard_ago: float
    window: int
    in_flight: int
    packets: int
    bytes: int
    retransmitted: int
    nacks: int
    protection: int
    """Repairs go out unasked after every so many datagrams; 1: a copy of each; 0: none."""
    protection_repairs: int
    protection_bytes: int
    protection_held_back: int
    """Repairs that were not sent: over the budget, or while the window was full."""


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    low: int
    head: int
    log_packets: int
    log_bytes: int
    evicted: int
    packets: int
    """Packets sent, over all children that ever were; so are the next three."""
    bytes: int
    retransmitted: int
    nacks: int
    refused: int
    """Openings refused, by us or by our owner."""
    disconnected_silent: int
    disconnected_behind: int
    stale_nacks: int
    """NACKs below what the child had confirmed already (rule S4)."""
    repairs_refused: int
    """Requests for repair beyond a child's budget, or while too much is queued for it."""
    query_changes_refused: int
    """Query changes of children that came faster than an honest child's can."""
    indexes_refused: int
    """Requests for indexes and for packets by their AN beyond what a child may ask for."""
    corrections_dropped: int
    """Late packets that a child past them never acknowledged, or that were too many to keep."""
    openings_dropped: int
    """Openings that found no room to wait for the owner's answer."""
    unrouted: int
    """Packets for which the query policy failed unexpectedly; they went to every child."""
    history_slices: int
    """Turns in which children's history was looked through; more: many joins from the oldest packet."""
    malformed: int
    links: tuple[DownlinkStatistics, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class HubStatistics:
    datagrams_in: int
    datagrams_out: int
    bytes_in: int
    bytes_out: int
    dropped: dict[str, int]
    """Datagrams that changed nothing, by reason. An endpoint adds those of its socket: `foreign` (of another protocol),
    `truncated` and `send error`."""
