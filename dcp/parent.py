"""One parent, as the stream sees it: what it has said about the stream, and what we have made of that.

This is where a parent's record is kept; the rules that read it are in `reach`, `gaps`, `runs`, `starting`, `epochs` and
`audit`, which also keeps what it said, stretch by stretch.
How datagrams cross the link is `links.uplink`.
"""

from __future__ import annotations

from dcp.admission import Bucket
from dcp.control import Hole
from dcp.links.link import Link
from dcp.stats import UplinkStatistics


class QueryParts:
    """How far a parent has come with a query that is sent in parts (`query_parts`)."""

    __slots__ = ("epoch", "from_nothing", "have", "unanswered")

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.have = 0
        self.unanswered = 0
        self.from_nothing = False
        """It does not know the query that we would give the difference from."""


class Parent:
    def __init__(self, link: Link, *, now: float) -> None:
        self.link = link
        """On which it is heard: when it was last heard, and how far away it is."""
        self.up = False
        """It has accepted us."""
        self.heard_claim = False
        """It has sent something on the link: so it knows where we start."""
        self.start: int | None = None
        """Where it proposed to begin."""
        self.highest: int | None = None
        """The highest position that it has reported."""
        self.sent_until = 0
        """Up to here it has sent all that matches, by its keep-alives in our epoch: what we lack of it was lost."""
        self.progress_at = now
        """When `highest` last rose."""
        self.run: bytes | None = None
        """The run of the stream that it is fed from, if our owner knows it."""
        self.begun = False
        """The stream has begun there: its head means something."""
        self.settled: int | None = None
        """How far its own parents agree, by its word (rule L7). None: it has not said, or is of an earlier version."""
        self.settled_before = 0
        """The same, when contradictions were last looked at (`verdicts`)."""
        self.is_convicted = False
        """It was caught lying in a signed stream: its packets count, its emptiness does not (rule L10)."""
        self.leapt_at: float | None = None
        """Since when it claims what lies beyond the signed head."""
        self.hole: tuple[int, int] | None = None
        self.hole_epoch = -1

        # Query changes (`epochs`).
        self.confirmed_epoch: int | None = None
        self.prepared_epoch: int | None = None
        self.prepared_since = 0
        self.query_sent_at = -1e9
        """When it was last sent our query or epoch: that is repeated, but not at once."""
        self.query_parts = QueryParts()

        # How far it is believed (`reach`).
        self.reach = -1
        """Up to here it is believed without looking again, until `reach_until`."""
        self.reach_until = 0.0
        self.refused_head: int | None = None
        """The highest position that it has reported and that was not believed."""
        self.refused_head_at = -1e9
        self.refused_since: float | None = None
        """Since when it brings packets that are beyond its reach, the highest of them `refused_packet`."""
        self.refused_packet = 0
        self.head_rate = 0.0
        """ANs per second, as its head rises; measured from `head_rate_from` at `head_rate_at`."""
        self.head_rate_from: int | None = None
        self.head_rate_at = -1e9

        # Its share of the packets.
        self.squelch_at = 0.0
        self.old_in_a_row = 0
        self.first_copies = 0
        self.duplicates = 0
        self.refused = 0
        """Copies of packets from here that our owner did not accept."""
        self.credit: Bucket | None = None
        """What checking its copies may still cost, once one was refused (`acceptance`)."""
        self.disputed = 0
        self.omitted = 0
        self.lateness: float | None = None
        """Seconds by which its copies come after the first ones, smoothed."""
        self.brought = 0
        self.packets_before: int | None = None
        """Packets that the receiver had when the first copy came from here."""

    @property
    def head(self) -> int:
        """The highest position that it has reported, believed or not."""
        return max(self.highest or 0, self.refused_head or 0)

    def report_head(self, highest: int, now: float) -> None:
        if self.highest is None or highest > self.highest:
            self.highest = highest
            self.progress_at = now
            if highest:
                self.begun = True

    def add_hole(self, hole: Hole, position: int) -> None:
        """Keep the hole that contains our position, merged with its neighbours."""
        known = self.hole
        applies = hole.start <= position < hole.end
        if (
            known is not None
            and known[0] <= position < known[1]
            and self.hole_epoch == hole.epoch
            and not (applies and hole.end < known[1])
        ):
            if hole.start <= known[1]:
                self.hole = (min(known[0], hole.start), max(known[1], hole.end))
        else:
            self.hole = (hole.start, hole.end)
            self.hole_epoch = hole.epoch

    def hole_at(self, position: int, epoch: int) -> int | None:
        """The end of its hole at `position`, if it has one there."""
        if self.hole is not None and self.hole_epoch == epoch and self.hole[0] <= position < self.hole[1]:
            return self.hole[1]
        return None

    def came_late(self, seconds: float) -> None:
        """A copy from here came so long after the first one."""
        self.lateness = seconds if self.lateness is None else self.lateness + (seconds - self.lateness) / 8

    def count(self, packets: int, asked_for: int, had: int) -> None:
        """Packets came from here, `asked_for` of them in answer to a NACK, when the receiver had `had` packets."""
        if self.packets_before is None:
            self.packets_before = had
        self.brought += packets - asked_for

    def statistics(self, position: int, packets: int, now: float) -> UplinkStatistics:
        link = self.link
        return UplinkStatistics(
            link=link.id,
            address=link.address,
            up=self.up,
            round_trip=link.rtt.smoothed,
            heard_ago=now - link.heard_at,
            first_copies=self.first_copies,
            duplicates=self.duplicates,
            refused=self.refused,
            disputed=self.disputed,
            omitted=self.omitted,
            brought=self.brought,
            expected=packets - self.packets_before if self.packets_before is not None else 0,
            behind=max(0, position - (self.highest or 0)) if self.up else 0,
            lateness=self.lateness,
        )
