"""The link to one parent: how its opening stands, and when something is to be done about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dcp.config import Config
from dcp.handshake import NO_COOKIE, OpenRequest
from dcp.links.link import Link, SocketAddress
from dcp.parent import Parent

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


class Uplink(Link):
    def __init__(
        self, link_id: int, address: SocketAddress, config: Config, nonce: bytes, hello: bytes, *, now: float
    ) -> None:
        super().__init__(link_id, address, config, now=now)
        self.parent = Parent(self, now=now)
        self.nonce = nonce
        self.dialled = address
        """The parent, as our owner named it: `address` may be a connection to it."""
        self.asked: tuple[SocketAddress, ...] = (address,)
        """Where the opening was sent to: the same peer, over one carrier or several. The first answer decides."""
        self.cookie = NO_COOKIE
        self.key: X25519PrivateKey | None = None
        """Ours for this link, once the parent has said that it can encrypt; forgotten when the link is open."""
        self.request: OpenRequest | None = None
        """What was last asked, with our keys."""
        self.is_expected: Callable[[bytes], bool] | None = None
        """Whether a parent with this Ed25519 key is the one that was asked for."""
        self.credentials = b""
        """What the parent showed us."""
        self.hello = hello
        self.epoch = 0
        """In which we last spoke to it."""
        self.request_at: float = now
        """When the opening is sent again."""
        self.requests = 0
        self.confirm_at: float | None = None
        """When we say again where we start, unless it has sent something by then."""

    @property
    def up(self) -> bool:
        return self.parent.up

    def forget_way(self) -> None:
        """The connection over which the opening was answered has ended: ask again, over any."""
        self.address = self.dialled
        self.cookie = NO_COOKIE
        self.key = None
        self.requests = 0

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes:
        return self.encode_in(self.epoch, flags, an, prev, body)

    def deadlines(self, config: Config, *, has_position: bool) -> list[float]:
        """When something is to be done about this link, if nothing happens before."""
        if not self.parent.up:
            return [self.request_at, self.opened_at + config.open_timeout]
        times = [self.heard_at + config.dead_after]
        if self.reset_at is not None:
            times.append(self.reset_at)
        if self.confirm_at is not None and has_position:
            times.append(self.confirm_at)
        return times
