"""What both ends of a link have in common: ids, keys, the other's clock, the round trip, and when it was last heard."""

from __future__ import annotations

from dcp.config import Config
from dcp.control import MAX_HOLD, TICK, Times
from dcp.links.address import SocketAddress, is_loopback
from dcp.links.rtt import RoundTrip
from dcp.wire import Seal

# Most files that name a link name addresses too: they come from here.
__all__ = ["Link", "SocketAddress", "clock_of", "is_loopback"]


class Link:
    """One direction of the mesh between two peers: a parent's and a child's end each hold one of these."""

    __slots__ = (
        "_their_clock",
        "_their_clock_at",
        "address",
        "heard_at",
        "id",
        "max_datagram",
        "opened_at",
        "remote_id",
        "reset_at",
        "rtt",
        "seal_in",
        "seal_out",
    )

    def __init__(self, link_id: int, address: SocketAddress, config: Config, *, now: float) -> None:
        self.id = link_id
        """Ours: datagrams that come to us carry it."""
        self.remote_id = 0
        """Theirs: datagrams that we send carry it."""
        self.address = address
        self.seal_in: Seal | None = None
        self.seal_out: Seal | None = None
        self.rtt = RoundTrip(config.initial_rtt)
        self.opened_at = now
        self.heard_at = now
        self.reset_at: float | None = None
        """Somebody said that the other end does not know this link: unless it is heard by then, it is closed."""
        self.max_datagram = config.loopback_datagram_bytes if is_loopback(address) else config.datagram_bytes
        self._their_clock = 0
        self._their_clock_at = 0.0

    def times(self, now: float) -> Times:
        hold = 0
        if self._their_clock:
            hold = min(int((now - self._their_clock_at) / TICK), MAX_HOLD)
        return Times(clock_of(now), self._their_clock, hold)

    def hear_times(self, times: Times, now: float) -> None:
        """Learn the round trip from the echo of our clock. A hold at its limit says nothing."""
        if times.clock:
            self._their_clock = times.clock
            self._their_clock_at = now
        if times.echo and times.hold < MAX_HOLD:
            elapsed = (clock_of(now) - times.echo) & 0xFFFFFFFF
            if elapsed < 1 << 20:  # 100 s: anything longer is a clock of a former life
                self.rtt.sample(max(0.0, (elapsed - times.hold) * TICK))


def clock_of(now: float) -> int:
    """Our clock as it goes on the wire; never 0, which says "nothing heard yet"."""
    return (int(now / TICK) & 0xFFFFFFFF) or 1
