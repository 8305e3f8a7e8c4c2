"""Every setting, with its unit, its reason, and what raising it costs.

`Config()` learns its timers; `Config.paper()` is the fixed-timer mode with the paper's values, kept for comparison.
All times are seconds, all sizes bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dcp.wire import DEFAULT_DATAGRAM_BYTES, LOOPBACK_DATAGRAM_BYTES

MAX_LATERAL_EVERY = 16
MAX_LATERAL_SIBLINGS = 4


@dataclass(frozen=True, slots=True)
class Config:
    """One object for senders and receivers alike."""

    adaptive: bool = True
    """Timers learn from the link (section 6.6 of the paper). False: the fixed values below are used as they stand."""

    # --- loss detection at the receiver
    reorder_window: float = 0.005
    """How long to wait after a later packet before the NACK. The paper's 5 ms; the learned window starts here."""
    min_reorder_window: float = 0.001
    """A learned window is never shorter. Lower: NACKs for packets that were only reordered by the host's scheduler."""
    slow_nack_interval: float = 0.3
    """Send a NACK when nothing at all came for this long. The paper's retransmission took about 300 ms."""
    initial_rtt: float = 0.1
    """Round trip assumed before the first measurement."""
    min_rto: float = 0.01
    """No repeat of a request sooner: below the timer resolution of a busy host one only repeats what is on its way."""
    max_rto: float = 2.0
    """No repeat later. Higher: a long outage takes longer to notice as ended."""
    nack_backoff: float = 1.5
    """Factor between NACKs for one position. At 50 % loss each way a doubling would triple the recovery time."""

    # --- keep-alives and acknowledgments
    keep_alive_interval: float = 0.3
    """Longest silence of a sender towards a child. Higher: dead links are noticed later."""
    min_keep_alive_interval: float = 0.01
    """The first keep-alive after a packet, which is what finds the loss of a tail, comes no sooner."""
    ack_interval: float = 0.3
    """A receiver acknowledges unasked at least this often, which keeps the sender's window and liveness fresh."""
    ack_every_packets: int = 256
    """A sender asks for an acknowledgment after at most this many packets (and a quarter of the window)."""

    # --- giving up
    dead_after: float = 5.0
    """A link silent for this long is closed. The mesh above notices sooner and adds a spare; this is the backstop."""
    behind_after: float = 5.0
    """A child that stays in the older half of the log for this long, without gaining, is disconnected."""
    open_timeout: float = 5.0
    """How long to wait for an answer to an opening."""
    confirm_timeout: float = 3.0
    """How long an accepted child may take to confirm."""
    oldest_window: float = 0.2
    """Starting at the oldest: how long to wait for further proposals after the first; then the smallest is taken."""
    join_patience: float = 3.0
    """How long a gap waits for a sender that is still joining: it might have the packets."""
    behind_patience: float = 2.0
    """How long a gap waits for a sender that is behind and does not advance; one that advances is always waited for."""
    answer_patience: float = 4.0
    """How long a gap waits for a sender that claims more but sends nothing useful."""
    mute_after: float = 2.0
    """A parent whose head stays below a packet for this long no longer limits what the others may claim."""
    reach_patience: float = 10.0
    """Packets far ahead of all other parents are believed when those have stood still for this long."""
    audit_interval: float = 0.3
    """How often parents are asked about what we passed and they have not spoken about (rule L6). Lower: more bytes."""
    dispute_after: float = 1.0
    """How long a parent may take to correct what it said and called settled, before that is held against it."""
    unsettled_after: float = 10.0
    """A contradiction is held against a parent that does not settle for this long."""
    starved_after: float = 2.0
    """When heads advance, and no parent's claims do for this long, the owner gets `Starved`."""
    stranded_after: float = 15.0
    """When all parents advance below our position for this long, and are far from it, the owner gets `Stranded`."""
    abandon_after: float = 15.0
    """When no parent announces a hole and nothing comes for this long, the missing stretch is given up anyway."""
    prepare_patience: float = 2.0
    """A query change goes on without senders that have not prepared within this time."""
    epoch_lifetime: float = 30.0
    """The 4 epoch bits on the wire are not used again within a datagram's lifetime."""

    # --- bounds
    max_buffer_packets: int = 8_192
    max_buffer_bytes: int = 16 << 20
    max_ready_packets: int = 16_384
    """Packets in order that the application has not taken yet; then the receiver closes its window."""
    max_ready_bytes: int = 64 << 20
    """The same in bytes: packets may be as large as a mebibyte."""
    max_log_packets: int = 65_536
    max_log_bytes: int = 64 << 20
    max_segments: int = 256
    max_links: int = 4_096
    max_partial_packets: int = 16
    """Large packets being put together from fragments at once."""
    max_query_bytes: int = 60_000
    max_openings_per_second: int = 400
    """Openings and inquiries handled per second, from proved addresses; the others wait for a retry."""
    max_openings_per_host: int = 100
    """The same for one host, so that a host that keeps opening links leaves room for others."""
    max_queries_per_second: int = 100
    """Openings with a query, which has to be parsed, per stream and second; a long one counts for several
    (`admission.query_cost`). Further ones wait for a retry."""
    max_queries_per_host: int = 25
    """The same for one host: one that joins, leaves and joins again makes us parse each time."""

    # --- pace
    initial_window: int = 256 << 10
    min_window: int = 32 << 10
    """Bytes in flight that loss can't push a link below: a live stream is slow, and must not be slowed further."""
    max_window: int = 4 << 20
    catch_up_lag: int = 512
    """A child more packets behind than this is catching up: its sending is paced, and it comes after live links."""
    min_catch_up_rate: float = 64_000.0
    """Bytes of history per second that a child gets at least."""

    # --- protection
    max_protection: float = 1.0
    """Bytes that repairs sent unasked may add, as a share of a child's stream, whatever it asks for. 0: never any."""

    fixed_protection: tuple[int, int, int] | None = None
    """(datagrams, repairs, span) asked of every parent at all times, without the controller: for measurements."""
    joint_decoding: bool = True
    """One decoder for all parents. False: one for each, for measurements."""

    # --- packets
    transports: tuple[str, ...] = ("udp",)
    """Carriers by which peers are asked for links: the next one when no answer comes (`links.ways`). What runs the
    machine must have a carrier of each name (`dcp.carriers`)."""
    multicast: bool = False
    """Children of one parent with one query on one LAN may be sent to by IP multicast (`dcp.groups`)."""
    multicast_loopback: bool = False
    """The same for children on this host. Off: there a signature costs more than it saves."""
    lateral_every: int = 4
    """Inside a group: datagrams received for each repair to siblings (the r of Ricochet). Lower: more bytes, less
    waiting. Peers of earlier versions take repairs over at most four."""
    lateral_siblings: int = 3
    """Siblings that get each repair (the c of Ricochet); 0: no repairs."""
    datagram_bytes: int = DEFAULT_DATAGRAM_BYTES
    loopback_datagram_bytes: int = LOOPBACK_DATAGRAM_BYTES
    sealed: bool = True
    """Keyed checksum on every packet. Both ends must have switched it off for a link to go without."""
    encryption: str = "prefer"
    """Of a hub with an identity (`links.keying`). prefer: links are encrypted with peers that can. require: there are
    no others. off: none is, for measurements."""

    def __post_init__(self) -> None:
        for name in ("reorder_window", "keep_alive_interval", "ack_interval", "audit_interval", "min_rto", "max_rto"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
        if not 512 <= self.datagram_bytes <= 65_507 or not 512 <= self.loopback_datagram_bytes <= 65_507:
            raise ValueError("datagram_bytes and loopback_datagram_bytes must be in 512..65507")
        if not 1 <= self.lateral_every <= MAX_LATERAL_EVERY or not 0 <= self.lateral_siblings <= MAX_LATERAL_SIBLINGS:
            raise ValueError(
                f"lateral_every must be in 1..{MAX_LATERAL_EVERY}, lateral_siblings in 0..{MAX_LATERAL_SIBLINGS}"
            )
        if self.max_log_packets < 2 or self.max_buffer_packets < 1:
            raise ValueError("max_log_packets must be 2 or more, max_buffer_packets 1 or more")

    @classmethod
    def paper(cls) -> Config:
        """Fixed timers with the values of section 5.1.3: NACK 5 ms after a later packet, 300 ms when nothing comes."""
        return cls(adaptive=False)
