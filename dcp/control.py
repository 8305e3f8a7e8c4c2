"""What the bodies of packets on a link say, and their bytes: encode and decode stand side by side.

Packets that come before there is a link are in `handshake`.

Decoding raises `MalformedDatagram` and nothing else, checks lengths before it allocates, and bounds every list. The
layout of each body is the comment above its Struct; `docs/dcp.md` has the same with golden bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import chain
from operator import sub
from typing import Final, NamedTuple

from dcp.errors import MalformedDatagram
from dcp.serial import MAX_POSITION


class ControlType(IntEnum):
    """First body byte of a packet with the CONTROL flag. Append only: the numbers are the protocol."""

    BUNDLE = 0x01
    HOLE = 0x02
    FRAGMENT = 0x03
    PREPARE = 0x04
    PREPARED = 0x05
    MESSAGE = 0x06
    INDEX_REQUEST = 0x07
    INDEX = 0x08
    FETCH = 0x09
    REPAIR = 0x0A  # this and the next: `protection`
    PROTECT = 0x0B
    GROUP = 0x0C  # this and the next: `group_messages`
    HEARD = 0x0D
    SIBLINGS = 0x0E  # this and the next: `lateral`
    LATERAL = 0x0F
    PART = 0x10  # this and the next: `query_parts`
    HAVE = 0x11


class Reason(IntEnum):
    """Why a link was refused or closed. Numbers from 64 on belong to the user of dcp. Append only."""

    NORMAL = 0x00
    STREAM_UNKNOWN = 0x01
    MODE_MISMATCH = 0x02
    FULL = 0x03
    SILENT = 0x04
    BEHIND = 0x05
    RESET = 0x06
    SHUTTING_DOWN = 0x07
    RENEW = 0x08
    TIMED_OUT = 0x09
    REPLACED = 0x0A
    VERSION = 0x0B  # found by this end: the other speaks no version that we do (`versions`)
    ENCRYPTION = 0x0C  # one end requires encryption, or both can encrypt and the opening came without keys
    OTHER_PEER = 0x0D  # found by this end: the parent has another key than the peer that was asked for
    DENIED = 0x0E  # the user of dcp does not want this peer, and the body says why


MAX_QUERY_BYTES: Final = 60_000
MAX_RANGES: Final = 64
MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_PACKET_BYTES: Final = MAX_PAYLOAD_BYTES + 1  # with the byte of its envelope
MAX_FRAGMENT_RANGES: Final = 64

Range = tuple[int, int]


def check_positions(*positions: int) -> None:
    """A position beyond the last one would overflow later, far from where it came in."""
    if max(positions) > MAX_POSITION:
        raise MalformedDatagram("position", f"{max(positions)}")


# --- times, in every acknowledgment, NACK and keep-alive -------------------------------------------------------------
# Sender's clock in units of 0.1 ms (wraps), the other side's clock as last heard (0: nothing yet), how long that was
# held before this packet went out. Round trip = now - echo - hold, whichever packet it came with.
TICK: Final = 1e-4
MAX_HOLD: Final = 0xFFFF


class Times(NamedTuple):
    clock: int
    echo: int
    hold: int


# --- acknowledgment and NACK ----------------------------------------------------------------------------------------
# clock u32, echo u32, hold u16, epoch u32, position u64, room u32 (packets the receiver can still take)
_ACK = struct.Struct("!IIHIQI")
# highest u64 (nothing is known beyond it), ranges u8, fragment ranges u8
_NACK = struct.Struct("!QBB")
_RANGE = struct.Struct("!QI")  # from u64, length u32: (from, from + length] is missing
_PIECE = struct.Struct("!II")  # from u32, until u32: bytes of the packet after the position


NO_POSITION: Final = (1 << 64) - 1
"""Acknowledged by a child that does not know yet where the stream begins: a sign of life, and nothing else."""


class Acknowledgment(NamedTuple):
    times: Times
    epoch: int
    position: int
    room: int


class Nack(NamedTuple):
    """`missing` lies between the position and `highest`; of what follows `highest` the child knows nothing.

    `pieces` are the byte ranges still missing of a packet that came in fragments, the AN of which is the end of the
    first missing range.
    """

    ack: Acknowledgment
    highest: int
    missing: Sequence[Range]
    pieces: Sequence[Range]


def encode_acknowledgment(ack: Acknowledgment) -> bytes:
    return _ACK.pack(*ack.times, ack.epoch, ack.position, ack.room)


def decode_acknowledgment_untrusted(body: bytes) -> Acknowledgment:
    if len(body) < _ACK.size:
        raise MalformedDatagram("short", "acknowledgment")
    clock, echo, hold, epoch, position, room = _ACK.unpack_from(body)
    if position != NO_POSITION:
        check_positions(position)
    return Acknowledgment(Times(clock, echo, hold), epoch, position, room)


def encode_nack(nack: Nack) -> bytes:
    missing = list(nack.missing)[:MAX_RANGES]
    pieces = list(nack.pieces)[:MAX_FRAGMENT_RANGES]
    parts = [encode_acknowledgment(nack.ack), _NACK.pack(nack.highest, len(missing), len(pieces))]
    parts += [_RANGE.pack(start, min(end - start, 0xFFFFFFFF)) for start, end in missing]
    parts += [_PIECE.pack(start, end) for start, end in pieces]
    return b"".join(parts)


def decode_nack_untrusted(body: bytes) -> Nack:
    ack = decode_acknowledgment_untrusted(body)
    at = _ACK.size
    if len(body) < at + _NACK.size:
        raise MalformedDatagram("short", "NACK")
    highest, ranges, pieces = _NACK.unpack_from(body, at)
    check_positions(highest)
    at += _NACK.size
    if ranges > MAX_RANGES or pieces > MAX_FRAGMENT_RANGES:
        raise MalformedDatagram("limit", "NACK with too many ranges")
    if len(body) < at + ranges * _RANGE.size + pieces * _PIECE.size:
        raise MalformedDatagram("short", "NACK ranges")
    missing = []
    for i in range(ranges):
        start, length = _RANGE.unpack_from(body, at + i * _RANGE.size)
        missing.append((start, start + length))
    at += ranges * _RANGE.size
    wanted = [_PIECE.unpack_from(body, at + i * _PIECE.size) for i in range(pieces)]
    if any(start >= end for start, end in missing) or any(start >= end for start, end in wanted):
        raise MalformedDatagram("range", "NACK with an empty range")
    return Nack(ack, highest, missing, wanted)


# --- keep-alive -----------------------------------------------------------------------------------------------------
# clock u32, echo u32, hold u16, epoch u32, status u8, previous u64, highest u64; settled u64 if the status says so
_KEEP_ALIVE = struct.Struct("!IIHIBQQ")
_SETTLED = struct.Struct("!Q")
_RESERVED = 0x01  # always sent, never looked at: it once said that a root's packets reach the sender
_CLAIM = 0x02
_START = 0x04
_HAS_SETTLED = 0x08


class KeepAlive(NamedTuple):
    """A claim: nothing matches in (previous, highest]. Without `claim`, only where the sender stands.

    With `start`, `previous` is where it proposes to begin: for a child that was there before the stream's first packet.
    `settled` is how far the sender's own parents agree (a root: its head); None: it is of an earlier version, which
    knows neither this nor the index.
    """

    times: Times
    epoch: int
    claim: bool
    previous: int
    highest: int
    start: bool = False
    settled: int | None = None


def encode_keep_alive(k: KeepAlive) -> bytes:
    status = _RESERVED | (_CLAIM if k.claim else 0) | (_START if k.start else 0)
    if k.settled is None:
        return _KEEP_ALIVE.pack(*k.times, k.epoch, status, k.previous, k.highest)
    body = _KEEP_ALIVE.pack(*k.times, k.epoch, status | _HAS_SETTLED, k.previous, k.highest)
    return body + _SETTLED.pack(k.settled)


def decode_keep_alive_untrusted(body: bytes) -> KeepAlive:
    if len(body) < _KEEP_ALIVE.size:
        raise MalformedDatagram("short", "keep-alive")
    clock, echo, hold, epoch, status, previous, highest = _KEEP_ALIVE.unpack_from(body)
    check_positions(highest)
    if previous > highest:
        raise MalformedDatagram("range", "keep-alive")
    claim, start = bool(status & _CLAIM), bool(status & _START)
    settled = None
    if status & _HAS_SETTLED:
        if len(body) < _KEEP_ALIVE.size + _SETTLED.size:
            raise MalformedDatagram("short", "keep-alive")
        (settled,) = _SETTLED.unpack_from(body, _KEEP_ALIVE.size)
        check_positions(settled)
    return KeepAlive(Times(clock, echo, hold), epoch, claim, previous, highest, start, settled)


# --- bundle: several packets that were waiting anyway, as one claim ---------------------------------------------------
# for each packet: step u32 (AN less the one before it, the first less the header's previous AN), length u16, payload
ENTRY: Final = struct.Struct("!IH")
_TYPE_BUNDLE = bytes((ControlType.BUNDLE,))


def encode_bundle(prev: int, packets: Sequence[tuple[int, bytes]]) -> bytes:
    ans, payloads = zip(*packets, strict=True)
    steps = map(sub, ans, chain((prev,), ans))
    parts: list[bytes] = [b""] * (2 * len(packets) + 1)
    parts[0] = _TYPE_BUNDLE
    parts[1::2] = map(ENTRY.pack, steps, map(len, payloads))
    parts[2::2] = payloads
    return b"".join(parts)


def decode_bundle_untrusted(data: bytes, at: int, prev: int) -> list[tuple[int, bytes]]:
    """The packets of a bundle whose entries begin at `at`; `prev` is the header's previous AN, 64 bits."""
    packets: list[tuple[int, bytes]] = []
    unpack = ENTRY.unpack_from
    size = len(data)
    add = packets.append
    try:
        while at < size:
            step, length = unpack(data, at)
            if not step:
                raise MalformedDatagram("bundle", "two packets with one AN")
            prev += step
            at += 6
            add((prev, data[at : at + length]))
            at += length
    except struct.error:
        raise MalformedDatagram("short", "bundle entry") from None
    if at > size or not packets:
        raise MalformedDatagram("bundle", "cut off, or empty")
    return packets


# --- hole, fragment, prepare, prepared, message -----------------------------------------------------------------------
_HOLE = struct.Struct("!BIQQ")  # type, epoch u32, from u64, until u64
_FRAGMENT = struct.Struct("!BII")  # type, offset u32, total u32; bytes follow
_PREPARE = struct.Struct("!BI")  # type, epoch u32; query follows
_PREPARED = struct.Struct("!BIQ")  # type, epoch u32, where its coverage begins u64
FRAGMENT_OVERHEAD: Final = _FRAGMENT.size


class Hole(NamedTuple):
    """ "I will never supply (start, end] of this query"."""

    epoch: int
    start: int
    end: int


class Fragment(NamedTuple):
    offset: int
    total: int
    data: bytes


class Prepare(NamedTuple):
    epoch: int
    query: bytes


class Prepared(NamedTuple):
    epoch: int
    since: int


class Message(NamedTuple):
    """Opaque, unreliable, for the owners of the two ends."""

    data: bytes


def encode_hole(hole: Hole) -> bytes:
    return _HOLE.pack(ControlType.HOLE, *hole)


def encode_fragment(offset: int, total: int, data: bytes) -> bytes:
    return _FRAGMENT.pack(ControlType.FRAGMENT, offset, total) + data


def encode_prepare(prepare: Prepare) -> bytes:
    return _PREPARE.pack(ControlType.PREPARE, prepare.epoch) + prepare.query


def encode_prepared(prepared: Prepared) -> bytes:
    return _PREPARED.pack(ControlType.PREPARED, *prepared)


def encode_message(data: bytes) -> bytes:
    return bytes((ControlType.MESSAGE,)) + data


# --- index request, index, fetch: what a parent has of a stretch that the child has passed ----------------------------
_PAST = struct.Struct("!BI")  # type, epoch u32; an index request: ranges follow; a fetch: ANs, u64 each
# type, epoch u32, from u64, until u64; then each AN as its distance from the one before it (the first: from `from`), in
# groups of 7 bits, the lowest first, 0x80 set in all but the last
_INDEX = struct.Struct("!BIQQ")
INDEX_OVERHEAD: Final = _INDEX.size
MAX_INDEX_RANGES: Final = 32
MAX_INDEX_ANS: Final = 4_096
MAX_FETCHES: Final = 32


class IndexRequest(NamedTuple):
    """ "Which ANs of these stretches match my query?" """

    epoch: int
    ranges: Sequence[Range]


class Index(NamedTuple):
    """ "In (start, until] exactly these match." The packets themselves are not sent."""

    epoch: int
    start: int
    until: int
    ans: Sequence[int]


class Fetch(NamedTuple):
    """ "Send these packets", however far the child is past them."""

    epoch: int
    ans: Sequence[int]


def encode_index_request(request: IndexRequest) -> bytes:
    ranges = [_RANGE.pack(start, min(end - start, 0xFFFFFFFF)) for start, end in request.ranges[:MAX_INDEX_RANGES]]
    return _PAST.pack(ControlType.INDEX_REQUEST, request.epoch) + b"".join(ranges)


def encode_index(index: Index) -> bytes:
    body = bytearray(_INDEX.pack(ControlType.INDEX, index.epoch, index.start, index.until))
    for step in map(sub, index.ans, chain((index.start,), index.ans)):
        while step > 0x7F:
            body.append(step & 0x7F | 0x80)
            step >>= 7
        body.append(step)
    return bytes(body)


def encode_fetch(fetch: Fetch) -> bytes:
    ans = fetch.ans[:MAX_FETCHES]
    return _PAST.pack(ControlType.FETCH, fetch.epoch) + struct.pack(f"!{len(ans)}Q", *ans)


def _decode_index_request_untrusted(body: bytes) -> IndexRequest:
    rest = len(body) - _PAST.size
    if rest < _RANGE.size or rest % _RANGE.size:
        raise MalformedDatagram("short", "index request")
    if rest > MAX_INDEX_RANGES * _RANGE.size:
        raise MalformedDatagram("limit", "index request")
    _, epoch = _PAST.unpack_from(body)
    ranges = []
    for start, length in _RANGE.iter_unpack(body[_PAST.size :]):
        check_positions(start + length)
        if not length:
            raise MalformedDatagram("range", "index request")
        ranges.append((start, start + length))
    return IndexRequest(epoch, ranges)


def _decode_index_untrusted(body: bytes) -> Index:
    if len(body) < _INDEX.size:
        raise MalformedDatagram("short", "index")
    _, epoch, start, until = _INDEX.unpack_from(body)
    check_positions(until)
    if start >= until:
        raise MalformedDatagram("range", "index")
    ans: list[int] = []
    at, step, shift = start, 0, 0
    for byte in body[_INDEX.size :]:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift > 56:
                raise MalformedDatagram("index", "a step that is too wide")
            continue
        at += step
        if not step or at > until or len(ans) == MAX_INDEX_ANS:
            raise MalformedDatagram("index", "an AN out of its place, or too many")
        ans.append(at)
        step = shift = 0
    if shift:
        raise MalformedDatagram("short", "index")
    return Index(epoch, start, until, ans)


def _decode_fetch_untrusted(body: bytes) -> Fetch:
    rest = len(body) - _PAST.size
    if rest < 8 or rest % 8:
        raise MalformedDatagram("short", "fetch")
    if rest > MAX_FETCHES * 8:
        raise MalformedDatagram("limit", "fetch")
    _, epoch = _PAST.unpack_from(body)
    ans = struct.unpack_from(f"!{rest // 8}Q", body, _PAST.size)
    check_positions(*ans)
    if not all(ans):
        raise MalformedDatagram("range", "fetch")
    return Fetch(epoch, ans)


_ABOUT_THE_PAST: Final[dict[int, Callable[[bytes], IndexRequest | Index | Fetch]]] = {
    ControlType.INDEX_REQUEST: _decode_index_request_untrusted,
    ControlType.INDEX: _decode_index_untrusted,
    ControlType.FETCH: _decode_fetch_untrusted,
}

Control = Hole | Fragment | Prepare | Prepared | Message | IndexRequest | Index | Fetch


def decode_control_untrusted(body: bytes) -> Control:
    """Every control body but the bundle, which has its own decoder on the hot path."""
    if not body:
        raise MalformedDatagram("short", "control")
    kind = body[0]
    if kind == ControlType.MESSAGE:
        return Message(body[1:])
    if kind in _ABOUT_THE_PAST:
        return _ABOUT_THE_PAST[kind](body)
    layout = {
        ControlType.HOLE: _HOLE,
        ControlType.FRAGMENT: _FRAGMENT,
        ControlType.PREPARE: _PREPARE,
        ControlType.PREPARED: _PREPARED,
    }.get(ControlType(kind) if kind in _CONTROL_TYPES else ControlType.BUNDLE)
    if layout is None:
        raise MalformedDatagram("type", f"control {kind}")
    if len(body) < layout.size:
        raise MalformedDatagram("short", f"control {kind}")
    _, *fields = layout.unpack_from(body)
    rest = body[layout.size :]
    if kind == ControlType.HOLE:
        hole = Hole(*fields)
        check_positions(hole.end)
        if hole.start >= hole.end:
            raise MalformedDatagram("range", "hole")
        return hole
    if kind == ControlType.FRAGMENT:
        offset, total = fields
        if not rest or offset + len(rest) > total or total > MAX_PACKET_BYTES:
            raise MalformedDatagram("fragment", f"{offset}+{len(rest)} of {total}")
        return Fragment(offset, total, rest)
    if kind == ControlType.PREPARE:
        if len(rest) > MAX_QUERY_BYTES:
            raise MalformedDatagram("limit", "query")
        return Prepare(fields[0], rest)
    prepared = Prepared(*fields)
    check_positions(prepared.since)
    return prepared


_CONTROL_TYPES = frozenset(int(kind) for kind in ControlType)


def encode_close(reason: int, body: bytes) -> bytes:
    return bytes((reason & 0xFF,)) + body


def decode_close_untrusted(body: bytes) -> tuple[int, bytes]:
    if not body:
        raise MalformedDatagram("short", "close")
    return body[0], body[1:]


def reason_name(reason: int) -> str:
    """For messages to people: the name, or the number for a reason of dcp's user."""
    return Reason(reason).name.lower().replace("_", " ") if reason in set(Reason) else f"reason {reason}"
