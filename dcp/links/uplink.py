"""One parent, seen from its child: how the opening stands, what it has told, and where it has a hole."""

from __future__ import annotations

from dcp.config import Config
from dcp.control import NO_COOKIE, Hole
from dcp.links.link import Address, Link
from dcp.stats import UplinkStatistics
from dcp.wire import encode_bound


class Uplink(Link):
    """State that is really data; the rules that use it are in `receiver` and `gaps`."""

    def __init__(
        self, link_id: int, address: Address, config: Config, nonce: bytes, hello: bytes, *, now: float
    ) -> None:
        super().__init__(link_id, address, config, now=now)
        self.nonce = nonce
        self.cookie = NO_COOKIE
        self.hello = hello
        self.epoch = 0
        """In which we speak to it."""
        self.request_at: float = now
        """When the opening is sent again."""
        self.requests = 0
        self.up = False
        self.heard_claim = False
        """It has sent something on the link: so it knows where we start."""
        self.confirm_at: float | None = None
        self.fed = True
        self.start: int | None = None
        """Where it proposed to begin."""
        self.highest: int | None = None
        """The highest position it has told of."""
        self.sent_until = 0
        """Up to here it has sent all that matches, by its keep-alives in our epoch: what we lack of it was lost."""
        self.progress_at = now
        """When `highest` last rose."""
        self.run: bytes | None = None
        """Which run of the stream it is fed from, if its owner has told ours."""
        self.begun = False
        """The stream has begun there: its head means something."""
        self.reach = -1
        """Up to here its word is believed without looking again, until `reach_until`; the rules are in `reach`."""
        self.reach_until = 0.0
        self.refused_head: int | None = None
        """The highest position it has told of that was not believed."""
        self.refused_head_at = -1e9
        self.refused_since: float | None = None
        """Since when it brings packets that are beyond its reach, the highest of them `refused_packet`."""
        self.refused_packet = 0
        self.head_rate = 0.0
        """ANs a second, as its head rises; measured from `head_rate_from` at `head_rate_at`."""
        self.head_rate_from: int | None = None
        self.head_rate_at = -1e9
        self.hole: tuple[int, int] | None = None
        self.hole_epoch = -1
        self.confirmed_epoch: int | None = None
        self.prepared_epoch: int | None = None
        self.prepared_since = 0
        self.query_told_at = -1e9
        """When it was last told of our query or epoch: the telling is repeated, but not at once."""
        self.squelch_at = 0.0
        self.old_in_a_row = 0
        self.first_copies = 0
        self.duplicates = 0
        self.brought = 0
        self.packets_before: int | None = None
        """Packets that the receiver had when the first copy came from here."""

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes:
        return encode_bound(self.seal_out, self.epoch, flags, an, prev, self.remote_id, body)

    @property
    def head(self) -> int:
        """The highest position that it has told of, believed or not."""
        return max(self.highest or 0, self.refused_head or 0)

    def tell_position(self, highest: int, now: float) -> None:
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

    def deadlines(self, config: Config, *, has_position: bool) -> list[float]:
        """When something is to be done about this link, if nothing happens before."""
        if not self.up:
            return [self.request_at, self.opened_at + config.open_timeout]
        times = [self.heard_at + config.dead_after]
        if self.reset_at is not None:
            times.append(self.reset_at)
        if self.confirm_at is not None and has_position:
            times.append(self.confirm_at)
        return times

    def count(self, packets: int, asked_for: int, had: int) -> None:
        """Packets came on this link, some of them in answer to a NACK, when the receiver had so many."""
        if self.packets_before is None:
            self.packets_before = had
        self.brought += packets - asked_for

    def statistics(self, position: int, packets: int, now: float) -> UplinkStatistics:
        return UplinkStatistics(
            link=self.id,
            address=self.address,
            up=self.up,
            fed=self.fed,
            round_trip=self.rtt.smoothed,
            heard_ago=now - self.heard_at,
            first_copies=self.first_copies,
            duplicates=self.duplicates,
            brought=self.brought,
            expected=packets - self.packets_before if self.packets_before is not None else 0,
            behind=max(0, position - (self.highest or 0)) if self.up else 0,
        )
