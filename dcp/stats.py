"""Frozen snapshots of counters. Machines count in plain attributes; `statistics()` copies them out."""

from __future__ import annotations

from dataclasses import dataclass, field

from dcp.links.link import Address


@dataclass(frozen=True, slots=True)
class UplinkStatistics:
    """One parent, as its child sees it."""

    link: int
    address: Address
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
    brought: int
    """Packets that came from it unasked, first or not, in order or not. Pieces of a large packet may be asked for."""
    expected: int
    """Packets that the receiver got, from anybody, since the first one from this parent."""
    behind: int
    """ANs between our position and the highest that it has reported; 0 when it is level or ahead."""

    @property
    def loss(self) -> float | None:
        """Share of the packets that it did not bring by itself: lost on its path, or squelched because it was late."""
        if not self.expected:
            return None
        return min(1.0, max(0.0, 1.0 - self.brought / self.expected))


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
    """Packets that no first copy brought: they came after a NACK."""
    nacks: int
    slow_nacks: int
    squelches: int
    resets: int
    beyond_reach: int
    """Claims, heads and holes too far ahead of the other parents to be believed. More than a few: one of them lies."""
    too_wide: int
    """Claims wider than 2^30, which no honest sender makes."""
    restarts: int
    """How often the stream's numbering has begun again below our position."""
    unsent: int
    """Acknowledgments and the like that found no room to wait for the socket; they are sent again."""
    reorder_window: float
    malformed: int
    links: tuple[UplinkStatistics, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class DownlinkStatistics:
    """One child, as its parent sees it."""

    link: int
    address: Address
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
