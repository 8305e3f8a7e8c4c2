"""What a stream is made of, and so what its ANs count: packets or bytes. Chosen once, when the stream is opened.

Everything that differs between the two about the *stream* is here; how each is put into datagrams is `links.framing`.
"""

from __future__ import annotations

from typing import Final, Protocol

from dcp.claims import Packets
from dcp.handshake import MODE_STREAM
from dcp.queries import EVERYTHING


class StreamKind(Protocol):
    """One of `PACKETS` and `BYTES`."""

    @property
    def mode(self) -> int:
        """Its bit in the `mode` of a request: both ends of a link must agree."""

    @property
    def is_dense(self) -> bool:
        """Every AN belongs to a payload, so each payload begins where the one before it ended."""

    @property
    def reach_slack(self) -> int:
        """How many ANs honest parents may differ by in a slow stream (rule L2)."""

    @property
    def fixed_step(self) -> int | None:
        """By how much every payload raises the AN; None: `step` says."""

    def step(self, payload: bytes) -> int:
        """By how much a payload raises the AN. ValueError if the stream can't carry it."""

    def check_query(self, query: bytes) -> None:
        """ValueError if this kind of stream can't be queried so."""

    def unseen(self, packets: Packets, position: int) -> Packets:
        """`packets`, all of which end beyond `position`, without what lies at or before it."""


class _PacketStream:
    mode = 0
    is_dense = False
    fixed_step = 1
    # A burst, or the steps of a numbering that is not dense.
    reach_slack = 1_024

    def step(self, payload: bytes) -> int:
        return 1

    def check_query(self, query: bytes) -> None:
        pass

    def unseen(self, packets: Packets, position: int) -> Packets:
        return packets


class _ByteStream:
    mode = MODE_STREAM
    is_dense = True
    fixed_step = None
    reach_slack = 1 << 20

    def step(self, payload: bytes) -> int:
        if not payload:
            raise ValueError("a byte stream has no empty packets")
        return len(payload)

    def check_query(self, query: bytes) -> None:
        if query != EVERYTHING:
            raise ValueError("a byte stream has no query")

    def unseen(self, packets: Packets, position: int) -> Packets:
        """Senders may cut at different places: drop the bytes that we have."""
        an, payload = packets[0]
        have = position - (an - len(payload))
        return [(an, payload[have:]), *packets[1:]] if have > 0 else packets


PACKETS: Final[StreamKind] = _PacketStream()
BYTES: Final[StreamKind] = _ByteStream()


def kind_of(*, stream_mode: bool) -> StreamKind:
    return BYTES if stream_mode else PACKETS
