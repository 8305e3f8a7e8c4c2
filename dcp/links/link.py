"""What both ends of a link have in common: ids, keys, the other's clock, the round trip, and when it was last heard."""

from __future__ import annotations

from dcp.config import Config
from dcp.control import MAX_HOLD, TICK, Times
from dcp.links.address import SocketAddress, is_loopback
from dcp.links.keying import Ciphers
from dcp.links.rtt import RoundTrip
from dcp.links.secrecy import MORE_THAN_SEALED, IncomingCipher, OutgoingCipher
from dcp.wire import Seal, encode_bound

# Most files that name a link name addresses too: they come from here.
__all__ = ["Link", "SocketAddress", "clock_of", "is_loopback"]


class Link:
    """One direction of the mesh between two peers: a parent's and a child's end each hold one of these."""

    __slots__ = (
        "_their_clock",
        "_their_clock_at",
        "address",
        "cipher_in",
        "cipher_out",
        "heard_at",
        "id",
        "max_datagram",
        "opened_at",
        "public_key",
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
        self.cipher_in: IncomingCipher | None = None
        self.cipher_out: OutgoingCipher | None = None
        """In place of the seals, on an encrypted link."""
        self.public_key = b""
        """The other end's Ed25519 key, on an encrypted link."""
        self.rtt = RoundTrip(config.initial_rtt)
        self.opened_at = now
        self.heard_at = now
        self.reset_at: float | None = None
        """Somebody said that the other end does not know this link: unless it is heard by then, it is closed."""
        self.max_datagram = config.loopback_datagram_bytes if is_loopback(address) else config.datagram_bytes
        self._their_clock = 0
        self._their_clock_at = 0.0

    def encrypt(self, ciphers: Ciphers, public_key: bytes) -> None:
        """Every datagram is encrypted from now on, and others are not taken."""
        self.cipher_in, self.cipher_out = ciphers
        self.public_key = public_key
        self.max_datagram -= MORE_THAN_SEALED  # what reckons with the header and the seal stays right

    @property
    def is_encrypted(self) -> bool:
        return self.cipher_out is not None

    def encode_in(self, epoch: int, flags: int, an: int, prev: int, body: bytes) -> bytes:
        if self.cipher_out is not None:
            return self.cipher_out.encode(epoch, flags, an, prev, self.remote_id, body)
        return encode_bound(self.seal_out, epoch, flags, an, prev, self.remote_id, body)

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
