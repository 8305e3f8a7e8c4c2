"""What the bodies of packets with the OPEN flag say, and their bytes: opening a link, and questions outside any link.

As in `control`: decoding raises `MalformedDatagram` and nothing else, checks lengths before it allocates, and bounds
every list. `docs/dcp.md` has the same with golden bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from dcp.control import MAX_QUERY_BYTES, check_positions
from dcp.errors import MalformedDatagram


class OpenType(IntEnum):
    """First body byte of a packet with the OPEN flag. Append only: the numbers are the protocol."""

    REQUEST = 0x01
    CHALLENGE = 0x02
    ACCEPT = 0x03
    REFUSE = 0x04
    RESET = 0x05
    INQUIRE = 0x06
    ANSWER = 0x07
    KEYED_REQUEST = 0x08
    KEYED_ACCEPT = 0x09


class Start(IntEnum):
    """Where a child wants to begin."""

    NEW = 0
    OLDEST = 1
    POSITION = 2


MAX_STREAM_BYTES: Final = 128
MAX_HELLO_BYTES: Final = 4_096
COOKIE_BYTES: Final = 16
NONCE_BYTES: Final = 16
NO_COOKIE: Final = bytes(COOKIE_BYTES)

# mode u8, child's link id u32, nonce 16, cookie 16, epoch u32, start u8, position u64, room u32, clock u32,
# stream length u8, query length u16, hello length u16; stream, query, hello follow
_REQUEST = struct.Struct("!BI16s16sIBQIIBHH")
_CHALLENGE = struct.Struct("!16s16s")  # nonce, cookie
# nonce 16, parent's link id u32, parent's nonce 16, epoch u32, start u64, head u64, echo u32, status u8; reply follows
_ACCEPT = struct.Struct("!16sI16sIQQIB")
_REFUSE = struct.Struct("!16sB")  # nonce, reason; body follows
_RESET = struct.Struct("!I")  # the link id that was not known
_INQUIRE = struct.Struct("!16s16s")  # nonce, cookie; body follows
_ANSWER = struct.Struct("!16s")  # nonce; body follows
# ciphers u8, X25519 key 32, Ed25519 key 32, signature 64; a request or an accept follows
_SHARE = struct.Struct("!B32s32s64s")

MODE_STREAM: Final = 0x01
MODE_UNSEALED: Final = 0x02
MODE_GROUPS: Final = 0x04  # the child takes GROUP; a parent that does not know this bit ignores it
MODE_ENCRYPTS: Final = 0x08  # the child can encrypt; likewise


ACCEPT_RESERVED: Final = 0x01  # as in the keep-alive
ACCEPT_STARTED: Final = 0x02
ACCEPT_PROTECTS: Final = 0x04  # the parent takes PROTECT; a child that sends one knows REPAIR


class KeyShare(NamedTuple):
    """What one end contributes to the keys of an encrypted link (`links.keying`)."""

    suites: int
    """The ciphers that a child offers, or the one that the parent has chosen."""
    ephemeral: bytes
    identity: bytes
    signature: bytes


class OpenRequest(NamedTuple):
    """A child asks for a link. Nothing is kept of it until `cookie` is one that we gave to that address."""

    mode: int
    link: int
    nonce: bytes
    cookie: bytes
    epoch: int
    start: int
    position: int
    room: int
    clock: int
    stream: bytes
    query: bytes
    hello: bytes
    share: KeyShare | None = None


class Challenge(NamedTuple):
    nonce: bytes
    cookie: bytes
    suites: int = 0
    """The ciphers that the parent has, for a child that can encrypt. Earlier versions ignore it."""


class Accept(NamedTuple):
    """The parent's answer: its link id (the nonce of the link), and where it proposes to start."""

    nonce: bytes
    link: int
    parent_nonce: bytes
    epoch: int
    start: int
    head: int
    echo: int
    status: int
    """ACCEPT_RESERVED; ACCEPT_STARTED: without it the stream has not begun here, and `start` means nothing;
    ACCEPT_PROTECTS."""
    reply: bytes
    share: KeyShare | None = None


class Refuse(NamedTuple):
    nonce: bytes
    reason: int
    body: bytes


class Reset(NamedTuple):
    link: int


class Inquire(NamedTuple):
    nonce: bytes
    cookie: bytes
    body: bytes


class Answer(NamedTuple):
    nonce: bytes
    body: bytes


Opening = OpenRequest | Challenge | Accept | Refuse | Reset | Inquire | Answer


def check_stream(stream: str) -> None:
    """ValueError for a name that no request can carry."""
    if not 1 <= len(stream.encode()) <= MAX_STREAM_BYTES:
        raise ValueError(f"a stream's name must have 1 to {MAX_STREAM_BYTES} bytes, got {stream!r}")


def encode_opening(message: Opening) -> tuple[OpenType, bytes]:
    """The type and the body of a packet with the OPEN flag."""
    match message:
        case OpenRequest():
            body = _REQUEST.pack(*message[:9], len(message.stream), len(message.query), len(message.hello))
            body += message.stream + message.query + message.hello
            if message.share is None:
                return OpenType.REQUEST, body
            return OpenType.KEYED_REQUEST, _SHARE.pack(*message.share) + body
        case Challenge():
            suites = bytes((message.suites,)) if message.suites else b""
            return OpenType.CHALLENGE, _CHALLENGE.pack(*message[:2]) + suites
        case Accept():
            body = _ACCEPT.pack(*message[:8]) + message.reply
            if message.share is None:
                return OpenType.ACCEPT, body
            return OpenType.KEYED_ACCEPT, _SHARE.pack(*message.share) + body
        case Refuse():
            return OpenType.REFUSE, _REFUSE.pack(*message[:2]) + message.body
        case Reset():
            return OpenType.RESET, _RESET.pack(*message)
        case Inquire():
            return OpenType.INQUIRE, _INQUIRE.pack(*message[:2]) + message.body
        case Answer():
            return OpenType.ANSWER, _ANSWER.pack(message.nonce) + message.body


def decode_opening_untrusted(kind: int, body: bytes) -> Opening:
    if kind in _KEYED:
        if len(body) < _SHARE.size:
            raise MalformedDatagram("short", f"open {kind}")
        message = decode_opening_untrusted(_KEYED[kind], body[_SHARE.size :])
        assert isinstance(message, OpenRequest | Accept)
        return message._replace(share=KeyShare._make(_SHARE.unpack_from(body)))
    layout = _OPENING.get(kind)
    if layout is None:
        raise MalformedDatagram("type", f"open {kind}")
    if len(body) < layout.size:
        raise MalformedDatagram("short", f"open {kind}")
    fields = layout.unpack_from(body)
    rest = body[layout.size :]
    if kind == OpenType.REQUEST:
        return _decode_request(fields, rest)
    if kind == OpenType.CHALLENGE:
        return Challenge._make((*fields, rest[0] if rest else 0))
    if kind == OpenType.ACCEPT:
        accept = Accept._make((*fields, rest, None))
        check_positions(accept.start, accept.head)
        return accept
    if kind == OpenType.REFUSE:
        return Refuse._make((*fields, rest))
    if kind == OpenType.RESET:
        return Reset._make(fields)
    if kind == OpenType.INQUIRE:
        return Inquire._make((*fields, rest))
    return Answer._make((*fields, rest))


def _decode_request(fields: tuple[int | bytes, ...], rest: bytes) -> OpenRequest:
    *head, stream_bytes, query_bytes, hello_bytes = fields
    assert isinstance(stream_bytes, int)
    assert isinstance(query_bytes, int)
    assert isinstance(hello_bytes, int)
    if stream_bytes > MAX_STREAM_BYTES or query_bytes > MAX_QUERY_BYTES or hello_bytes > MAX_HELLO_BYTES:
        raise MalformedDatagram("limit", "request")
    if len(rest) != stream_bytes + query_bytes + hello_bytes:
        raise MalformedDatagram("length", "request")
    if head[5] not in (Start.NEW, Start.OLDEST, Start.POSITION):
        raise MalformedDatagram("start", f"{head[5]!r}")
    stream, rest = rest[:stream_bytes], rest[stream_bytes:]
    request = OpenRequest._make((*head, stream, rest[:query_bytes], rest[query_bytes:], None))
    check_positions(request.position)
    return request


_KEYED: dict[int, int] = {OpenType.KEYED_REQUEST: OpenType.REQUEST, OpenType.KEYED_ACCEPT: OpenType.ACCEPT}

_OPENING: dict[int, struct.Struct] = {
    OpenType.REQUEST: _REQUEST,
    OpenType.CHALLENGE: _CHALLENGE,
    OpenType.ACCEPT: _ACCEPT,
    OpenType.REFUSE: _REFUSE,
    OpenType.RESET: _RESET,
    OpenType.INQUIRE: _INQUIRE,
    OpenType.ANSWER: _ANSWER,
}
