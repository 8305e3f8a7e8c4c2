"""How claims are put into datagrams and read back: packets alone, in bundles or in fragments, or a run of bytes.

One object for each kind of stream, without state. A parent asks it for the next claim that fits a datagram and for the
datagram; a child gives it the body and gets the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dcp import control, wire
from dcp.claims import Packets
from dcp.control import Range
from dcp.cursor import BytesClaim, Cursor, DataClaim, LogClaim, Paused
from dcp.errors import MalformedDatagram
from dcp.kinds import BYTES, PACKETS, StreamKind
from dcp.links.fragments import FragmentQueue
from dcp.links.repairs import merged
from dcp.log import Interest, Log


class Outlet(Protocol):
    """What a framing needs of the link that it writes for."""

    payload_room: int
    fragments: FragmentQueue

    def encode(self, flags: int, an: int, prev: int, body: bytes) -> bytes: ...


class Framing(Protocol):
    # --- at the parent

    def next_claim(
        self, cursor: Cursor, log: Log, interest: Interest, *, limit: int, room: int, max_packets: int
    ) -> LogClaim | Paused | None:
        """What follows the cursor, as much as one datagram holds."""

    def extent(self, claim: DataClaim | BytesClaim) -> tuple[int, int, int]:
        """Where a claim ends, its bytes of payload, and its packets."""

    def number_to_echo(self, claim: DataClaim | BytesClaim) -> int:
        """The AN in the header of its last datagram, which an acknowledgment that it asks for will name."""

    def datagram(self, link: Outlet, claim: DataClaim | BytesClaim, flags: int) -> bytes:
        """The claim; further fragments, if there are any, wait in the link."""

    def repeat_pieces(self, link: Outlet, claim: LogClaim | Paused | None, an: int, pieces: Sequence[Range]) -> bool:
        """Queue only these bytes of the packet `an`, if it is a large one and `claim` is about it alone."""

    # --- at the child

    def read_data(self, flags: int, prev: int, an: int, payload: bytes) -> tuple[int, Packets]:
        """Where the claim of a data packet ends, and its packets."""

    def read_bundle(self, data: bytes, prev: int, an: int) -> Packets: ...

    def check_fragment(self) -> None:
        """MalformedDatagram where there can't be one."""

    def check_empty(self, prev: int, until: int) -> None:
        """MalformedDatagram where a parent can't say that nothing matches in (prev, until]."""


class PacketFraming:
    def next_claim(
        self, cursor: Cursor, log: Log, interest: Interest, *, limit: int, room: int, max_packets: int
    ) -> LogClaim | Paused | None:
        return cursor.next_claim(log, interest, limit=limit, room=room, max_packets=max_packets)

    # Claims are Any below: only packets come here, and checking that for every datagram costs a percent.

    def extent(self, claim: Any) -> tuple[int, int, int]:
        packets: Packets = claim.packets
        return packets[-1][0], sum([len(payload) for _, payload in packets]), len(packets)

    def number_to_echo(self, claim: Any) -> int:
        packets: Packets = claim.packets
        return packets[-1][0]

    def datagram(self, link: Outlet, claim: Any, flags: int) -> bytes:
        prev: int = claim.prev
        packets: Packets = claim.packets
        an, payload = packets[-1]
        if len(packets) > 1:
            return link.encode(flags | wire.CONTROL, an, prev, control.encode_bundle(prev, packets))
        if len(payload) <= link.payload_room:
            return link.encode(flags, an, prev, payload)
        self._queue_fragments(link, claim, 0, len(payload), flags)
        return link.fragments.next()

    def _queue_fragments(self, link: Outlet, claim: DataClaim, first: int, until: int, flags: int = 0) -> None:
        """Bytes `first` to `until` of a large packet, in pieces."""
        an, payload = claim.packets[0]
        step = link.payload_room - control.FRAGMENT_OVERHEAD
        offset = first
        while offset < until:
            piece = payload[offset : min(offset + step, until)]
            last = offset + step >= until
            body = control.encode_fragment(offset, len(payload), piece)
            # Only the last one asks: an acknowledgment of a half packet can't say anything.
            link.fragments.add(link.encode(wire.CONTROL | (flags if last else 0), an, claim.prev, body))
            offset += step

    def repeat_pieces(self, link: Outlet, claim: LogClaim | Paused | None, an: int, pieces: Sequence[Range]) -> bool:
        if not isinstance(claim, DataClaim) or claim.packets[0][0] != an:
            return False
        size = len(claim.packets[0][1])
        if size <= link.payload_room:
            return False
        for first, until in merged(pieces):
            self._queue_fragments(link, claim, first, min(until, size))
        return True

    def read_data(self, flags: int, prev: int, an: int, payload: bytes) -> tuple[int, Packets]:
        if flags & wire.STREAM:
            raise MalformedDatagram("mode", "bytes on a packet stream")
        return an, [(an, payload)]

    def read_bundle(self, data: bytes, prev: int, an: int) -> Packets:
        packets = control.decode_bundle_untrusted(data, wire.BODY_AT + 1, prev)
        if packets[-1][0] != an:
            raise MalformedDatagram("bundle", "ends elsewhere than its header says")
        return packets

    def check_fragment(self) -> None:
        pass

    def check_empty(self, prev: int, until: int) -> None:
        pass


class ByteFraming:
    """As in the paper: AN is the number of the first byte, previous AN that of the last byte before it."""

    def next_claim(
        self, cursor: Cursor, log: Log, interest: Interest, *, limit: int, room: int, max_packets: int
    ) -> LogClaim | Paused | None:
        return cursor.next_bytes(log, limit=limit, room=room)

    def extent(self, claim: DataClaim | BytesClaim) -> tuple[int, int, int]:
        assert isinstance(claim, BytesClaim)
        return claim.start + len(claim.data), len(claim.data), 1

    def number_to_echo(self, claim: DataClaim | BytesClaim) -> int:
        assert isinstance(claim, BytesClaim)
        return claim.start + 1

    def datagram(self, link: Outlet, claim: DataClaim | BytesClaim, flags: int) -> bytes:
        assert isinstance(claim, BytesClaim)
        return link.encode(flags | wire.STREAM, claim.start + 1, claim.start, claim.data)

    def repeat_pieces(self, link: Outlet, claim: LogClaim | Paused | None, an: int, pieces: Sequence[Range]) -> bool:
        return False

    def read_data(self, flags: int, prev: int, an: int, payload: bytes) -> tuple[int, Packets]:
        if not flags & wire.STREAM:
            raise MalformedDatagram("mode", "a packet on a byte stream")
        if not payload or an != prev + 1:
            raise MalformedDatagram("stream", "a chunk begins right after the one before it")
        until = prev + len(payload)
        return until, [(until, payload)]

    def read_bundle(self, data: bytes, prev: int, an: int) -> Packets:
        raise MalformedDatagram("mode", "a byte stream has no bundles")

    def check_fragment(self) -> None:
        raise MalformedDatagram("mode", "a byte stream has no fragments")

    def check_empty(self, prev: int, until: int) -> None:
        if until > prev:
            raise MalformedDatagram("mode", "nothing is pruned from a byte stream")


_FRAMINGS: dict[StreamKind, Framing] = {PACKETS: PacketFraming(), BYTES: ByteFraming()}


def framing_of(kind: StreamKind) -> Framing:
    return _FRAMINGS[kind]
