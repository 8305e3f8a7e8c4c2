"""The senders of one receiver together: opening links to them, leaving and losing them, and what goes out to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from dcp import control, events, handshake, wire
from dcp.config import Config
from dcp.links.link import SocketAddress
from dcp.links.uplink import Uplink
from dcp.outbox import Outbox
from dcp.parent import Parent

MAX_OUTBOX = 1024
# Acknowledgments are small, but a query that is being prepared is up to 60 KB, to every sender.
MAX_OUTBOX_BYTES = 1 << 20


class Uplinks:
    def __init__(
        self,
        stream: str,
        config: Config,
        rng: random.Random,
        *,
        new_link_id: Callable[[], int],
        forget_link: Callable[[int], None],
        emit: Callable[[events.Event], None],
    ) -> None:
        self.by_id: dict[int, Uplink] = {}
        self.parents: dict[int, Parent] = {}
        """The same links, as the stream sees them."""
        self._by_nonce: dict[bytes, Uplink] = {}
        self._stream = stream
        self._config = config
        self._rng = rng
        self._new_link_id = new_link_id
        self._forget_link = forget_link
        self._emit = emit
        self._outbox = Outbox(MAX_OUTBOX, MAX_OUTBOX_BYTES)

    # --- coming and going ---------------------------------------------------------------------------------------------

    def add(self, address: SocketAddress, hello: bytes, now: float) -> Uplink:
        nonce = self._rng.randbytes(handshake.NONCE_BYTES)
        link = Uplink(self._new_link_id(), address, self._config, nonce, hello, now=now)
        self.by_id[link.id] = link
        self.parents[link.id] = link.parent
        self._by_nonce[link.nonce] = link
        return link

    def opened_with(self, nonce: bytes, address: SocketAddress) -> Uplink | None:
        """The link whose opening this answers, if it is one of ours and comes from where it went."""
        link = self._by_nonce.get(nonce)
        return link if link is not None and address in link.asked else None

    def leave(self, link: Uplink, reason: int, body: bytes = b"") -> None:
        """Say goodbye, twice for the loss of one."""
        if link.parent.up:
            goodbye = link.encode(wire.CLOSE, 0, 0, control.encode_close(reason, body))
            for _ in range(2):
                self._post(goodbye, link.address)
        self._drop(link)

    def give_up(self, link: Uplink, reason: int) -> None:
        """Leave a sender that was up, of our own, and tell the application."""
        self.leave(link, reason)
        self._emit(events.LinkLost(self._stream, link.id, link.dialled, reason, b""))

    def lose(self, link: Uplink, reason: int, body: bytes = b"") -> None:
        """It has left us, or never took us."""
        self._drop(link)
        kind = events.LinkLost if link.parent.up else events.LinkRefused
        self._emit(kind(self._stream, link.id, link.dialled, reason, body))

    def _drop(self, link: Uplink) -> None:
        if self.by_id.pop(link.id, None) is not None:
            del self.parents[link.id]
            del self._by_nonce[link.nonce]
            self._forget_link(link.id)

    def up(self) -> Iterator[Uplink]:
        return (link for link in self.by_id.values() if link.parent.up)

    def fastest_rtt(self) -> float:
        return min((link.rtt.smoothed for link in self.up()), default=self._config.initial_rtt)

    # --- output -------------------------------------------------------------------------------------------------------

    def send(self, link: Uplink, flags: int, an: int, prev: int, body: bytes) -> bool:
        """False when too much waits to go out: nothing here needs to arrive, all of it is said again."""
        return self._post(link.encode(flags, an, prev, body), link.address)

    def _post(self, datagram: bytes, address: SocketAddress) -> bool:
        return self._outbox.add(datagram, address)

    @property
    def unsent(self) -> int:
        """Datagrams that found no room to wait in."""
        return self._outbox.dropped

    def next_datagrams(self, most: int) -> list[tuple[bytes, SocketAddress]]:
        return self._outbox.take(most)
