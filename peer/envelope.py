"""The envelope in which a packet's content travels: opened here and nowhere else, normally once per packet.

A root packs, and hops pass the bytes on untouched. A router with a client of its own looks inside twice: when a packet
arrives, to match it against the children's queries, and when the client takes it. So such a router remembers the
content, and whether the client's query matched it, until the client takes the packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcp.compression import PLAIN, Compressor
from peer.trust.batches import SIGNED, inner_at_untrusted
from peer.trust.withholding import unmarked_untrusted

if TYPE_CHECKING:
    from peer.standing import StandingQuery
    from peer.trust.withholding import Withholding

MAX_REMEMBERED_BYTES = 8 << 20
"""Of contents that the client has not taken yet. Beyond it the oldest are forgotten, and opened again when taken."""


@dataclass(slots=True)
class Opened:
    content: bytes
    query: StandingQuery | None = None
    """The client's query that was in force when the packet came, if it was asked..."""
    matches: bool = False
    """...and what it said."""


class Envelope:
    """Invariant: what is remembered has at most `MAX_REMEMBERED_BYTES`."""

    def __init__(
        self,
        compressor: Compressor | None = None,
        *,
        remembers: bool = False,
        withholding: Withholding | None = None,
    ) -> None:
        """`withholding`: which packets a root marks as withheld; None: none."""
        self._compressor = compressor or Compressor()
        self._withholding = withholding
        self.remembers = remembers
        self._known: dict[bytes, Opened] = {}
        self._bytes = 0
        self.opened = 0
        """Envelopes opened, or tried to open."""

    def pack(self, content: bytes) -> bytes:
        packed = self._compressor.pack(content)
        return packed if self._withholding is None else self._withholding.mark(content, packed)

    def open_untrusted(self, payload: bytes) -> Opened:
        """What is in the envelope, remembered until `take_untrusted`; PayloadRefused when it can't be opened."""
        known = self._known.get(payload)
        if known is None:
            known = self._open(payload)
            if self.remembers:
                self._remember(payload, known)
        return known

    def content_untrusted(self, payload: bytes) -> bytes:
        """Only the content of `open_untrusted`: for the check whether a parent's copy is good."""
        return self.open_untrusted(payload).content

    def look_untrusted(self, payload: bytes) -> bytes:
        """The content, without remembering it: for packets that the client may have taken long ago."""
        known = self._known.get(payload) if self._known else None
        if known is not None:
            return known.content
        return self._unpack_untrusted(payload)

    def take_untrusted(self, payload: bytes) -> Opened:
        """The same for the last time: the client takes the packet."""
        known = self._known.pop(payload, None)
        if known is None:
            return self._open(payload)
        self._bytes -= len(payload) + len(known.content)
        return known

    def _open(self, payload: bytes) -> Opened:
        return Opened(self._unpack_untrusted(payload))

    def _unpack_untrusted(self, payload: bytes) -> bytes:
        """Whether a signature is right was asked when the packet came (`peer.trust`)."""
        self.opened += 1
        inner = payload
        if payload and payload[0] == SIGNED:
            at = inner_at_untrusted(payload)
            if payload[at] == PLAIN:
                return payload[at + 1 :]  # the rule, without copying it twice
            inner = payload[at:]
        return self._compressor.unpack_untrusted(unmarked_untrusted(inner))

    def _remember(self, payload: bytes, opened: Opened) -> None:
        self._known[payload] = opened
        self._bytes += len(payload) + len(opened.content)
        while self._bytes > MAX_REMEMBERED_BYTES:
            oldest = next(iter(self._known))
            self._bytes -= len(oldest) + len(self._known.pop(oldest).content)

    @property
    def remembered_bytes(self) -> int:
        return self._bytes
