"""The mesh's messages as bytes.

`dcp` carries these bodies without knowing them: the hello and reply of an opening, the messages of an open link, the
request and answer of an inquiry. Every body begins with a version and a type (append only); numbers are big-endian;
lists carry a count that is checked before anything is allocated. Each `decode_*_untrusted` raises `MalformedMessage`
and nothing else.

    version u8, type u8, then:
    JOIN     flags u8 (1 repair, 2 has children, 4 optional, 8 trade, 16 urgent), level u32, wanted u8, parents u8,
             resilience u8, run u64, number u32, peer id
    ACCEPT   level u32, hops u8, resilience u8, feed
    REFUSE   count u8, count x (peer)
    BEAT     flags u8 (1 leaving), level u32, hops u8, resilience u8, feed                (parent to child)
    REPORT   flags u8 (1 leaving), level u32, hops u8, resilience u8, parents u8, children u16, free u16,
             free for repair u16                                                          (child to parent)
    PROBE    number u32                                                                   (child to parent)
    ECHO     number u32                                                                   (parent to child)
    CHILDREN count u16, query bytes                                                       (inquiry)
    PARENTS  nothing                                                                      (inquiry)
    STATUS   nothing                                                                      (inquiry)
    WANTS    nothing                                                                      (inquiry)
    ABOUT    nothing                                                                      (inquiry)
    PEERS    count u8, count x (peer)                                                     (answer)
    STATE    flags u8 (1 rooted), level u32, hops u8, resilience u8, held u8, wanted u8, children u16, capacity u16,
             peer id                                                                      (answer)
    WANTED   flags u8 (1 known), count u16, query bytes                                    (answer)
    SELF     count u8, count x (tag u8, length u8, bytes): 1 stream, 2 name, 3 version, 4 packets per second x 1,000
             (u64), 5 loss x 1,000,000 (u64), 6 disputes, 7 protection, 8 sources of a combined stream, with
             spaces between them; other tags are passed over                              (answer)
    VISIT    nothing: instead of JOIN, from a peer that looks into the log for a moment     (`peer.trust.visitors`)
    feed     run u64, beat u64, age u16 (milliseconds)
    peer     peer id, level u32, address
    peer id  length u8 (1 to 32), bytes
    address  family u8 (4 or 6), 4 or 16 bytes, port u16
"""

from __future__ import annotations

import struct
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

from peer.mesh.config import MAX_NAME_BYTES
from peer.mesh.hostport import HostPort
from peer.mesh.messages import (
    MAX_PEERS_IN_ANSWER,
    MAX_QUERY_BYTES,
    MAX_REFERRALS,
    VERSION,
    About,
    AboutRequest,
    Accept,
    Answer,
    Beat,
    ChildrenRequest,
    Echo,
    InquiryRequest,
    Join,
    LinkMessage,
    MalformedMessage,
    OtherVersionMessage,
    ParentsRequest,
    PeerAt,
    PeerId,
    Peers,
    Probe,
    Refuse,
    Report,
    RootProof,
    State,
    StatusRequest,
    Wanted,
    WantsRequest,
)

MAX_PEER_ID_BYTES = 32
MAX_VERSION = 15
"""A first byte beyond is no version of this protocol, but something else."""
MAX_SOURCES_BYTES = 255
"""Names of the sources of a combined stream, with spaces between them."""
MAX_BODY_BYTES = 1_200
"""No body is longer: it must fit one datagram beside dcp's own header on any path (IPv6 promises 1,280 bytes)."""


class MessageType(IntEnum):
    """Append only: the numbers are the protocol."""

    JOIN = 0x01
    ACCEPT = 0x02
    REFUSE = 0x03
    BEAT = 0x04
    REPORT = 0x05
    PROBE = 0x06
    ECHO = 0x07
    CHILDREN = 0x08
    PARENTS = 0x09
    STATUS = 0x0A
    PEERS = 0x0B
    STATE = 0x0C
    WANTS = 0x0D
    WANTED = 0x0E
    ABOUT = 0x0F
    SELF = 0x10
    VISIT = 0x11


_HEAD = struct.Struct(">BB")
_JOIN = struct.Struct(">BBBIBBBQI")
_ACCEPT = struct.Struct(">BBIBBQQH")
_BEAT = struct.Struct(">BBBIBBQQH")
_REPORT = struct.Struct(">BBBIBBBHHH")
_NUMBER = struct.Struct(">BBI")
_COUNT = struct.Struct(">BBB")
_QUERY = struct.Struct(">BBH")
_STATE = struct.Struct(">BBBIBBBBHH")
_WANTED = struct.Struct(">BBBH")
_LEVEL = struct.Struct(">I")
_PORT = struct.Struct(">H")
_MEASURE = struct.Struct(">Q")

MAX_DISPUTES_BYTES = 255
MAX_PROTECTION_BYTES = 32
_STREAM, _NAME, _VERSION, _RATE, _LOSS, _DISPUTES, _PROTECTION, _SOURCES, _TREE_DEGREE = range(1, 10)

_REPAIR, _HAS_CHILDREN, _OPTIONAL, _TRADE, _URGENT = 0x01, 0x02, 0x04, 0x08, 0x10
_LEAVING = 0x01
_ROOTED = 0x01
_ADDRESS_BYTES = {4: 4, 6: 16}


# Encoding. Values are our own, so a bad one is our bug and struct says so.


def encode_join(join: Join) -> bytes:
    flags = (_REPAIR if join.is_repair else 0) | (_HAS_CHILDREN if join.has_children else 0)
    flags |= (_OPTIONAL if join.is_optional else 0) | (_TRADE if join.is_trade else 0)
    flags |= _URGENT if join.is_urgent else 0
    return _JOIN.pack(
        VERSION, MessageType.JOIN, flags, join.level, join.wanted, join.parents, join.resilience, join.run, join.number
    ) + _encode_peer_id(join.peer_id)


def encode_visit() -> bytes:
    return _HEAD.pack(VERSION, MessageType.VISIT)


def encode_accept(accept: Accept) -> bytes:
    feed = accept.feed
    return _ACCEPT.pack(
        VERSION, MessageType.ACCEPT, accept.level, accept.hops, accept.resilience, feed.run, feed.beat, feed.age_ms
    )


def encode_refuse(refuse: Refuse) -> bytes:
    return _encode_peers(MessageType.REFUSE, refuse.referrals, MAX_REFERRALS)


def encode_link_message(message: LinkMessage) -> bytes:
    match message:
        case Beat(level, hops, resilience, is_leaving, feed):
            flags = _LEAVING if is_leaving else 0
            return _BEAT.pack(
                VERSION, MessageType.BEAT, flags, level, hops, resilience, feed.run, feed.beat, feed.age_ms
            )
        case Report(level, hops, resilience, is_leaving, parents, children, free, free_for_repair):
            flags = _LEAVING if is_leaving else 0
            return _REPORT.pack(
                VERSION, MessageType.REPORT, flags, level, hops, resilience, parents, children, free, free_for_repair
            )
        case Probe(number):
            return _NUMBER.pack(VERSION, MessageType.PROBE, number)
        case Echo(number):
            return _NUMBER.pack(VERSION, MessageType.ECHO, number)


def encode_request(request: InquiryRequest) -> bytes:
    match request:
        case ChildrenRequest(query):
            if len(query) > MAX_QUERY_BYTES:
                raise ValueError(f"a query in an inquiry has at most {MAX_QUERY_BYTES} bytes, not {len(query)}")
            return _QUERY.pack(VERSION, MessageType.CHILDREN, len(query)) + query
        case ParentsRequest():
            return _HEAD.pack(VERSION, MessageType.PARENTS)
        case StatusRequest():
            return _HEAD.pack(VERSION, MessageType.STATUS)
        case WantsRequest():
            return _HEAD.pack(VERSION, MessageType.WANTS)
        case AboutRequest():
            return _HEAD.pack(VERSION, MessageType.ABOUT)


def encode_answer(answer: Answer) -> bytes:
    match answer:
        case Peers(peers):
            return _encode_peers(MessageType.PEERS, peers, MAX_PEERS_IN_ANSWER)
        case Wanted(query):
            known = query if query is not None and len(query) <= MAX_QUERY_BYTES else None
            return _WANTED.pack(VERSION, MessageType.WANTED, known is not None, len(known or b"")) + (known or b"")
        case About():
            return _encode_about(answer)
        case State():
            return _STATE.pack(
                VERSION,
                MessageType.STATE,
                _ROOTED if answer.is_rooted else 0,
                answer.level,
                answer.hops,
                answer.resilience,
                answer.parents_held,
                answer.parents_wanted,
                answer.children,
                answer.capacity,
            ) + _encode_peer_id(answer.peer_id)


def _encode_about(about: About) -> bytes:
    values = {_STREAM: about.stream.encode(), _NAME: about.name.encode(), _VERSION: about.version.encode()}
    if about.packets_per_second is not None:
        values[_RATE] = _MEASURE.pack(round(about.packets_per_second * 1e3))
    if about.loss is not None:
        values[_LOSS] = _MEASURE.pack(round(about.loss * 1e6))
    if about.disputes:
        values[_DISPUTES] = about.disputes.encode()[:MAX_DISPUTES_BYTES]
    if about.protection:
        values[_PROTECTION] = about.protection.encode()[:MAX_PROTECTION_BYTES]
    if about.sources:
        values[_SOURCES] = " ".join(about.sources).encode()[:MAX_SOURCES_BYTES]
    if about.tree_degree is not None:
        values[_TREE_DEGREE] = bytes((about.tree_degree,))
    return _COUNT.pack(VERSION, MessageType.SELF, len(values)) + b"".join(
        bytes((tag, len(value))) + value for tag, value in values.items()
    )


def _encode_peers(kind: MessageType, peers: tuple[PeerAt, ...], limit: int) -> bytes:
    if len(peers) > limit:
        raise ValueError(f"at most {limit} peers fit a {kind.name}, not {len(peers)}")
    entries = (_encode_peer_id(p.peer_id) + _LEVEL.pack(p.level) + _encode_address(p.address) for p in peers)
    return _COUNT.pack(VERSION, kind, len(peers)) + b"".join(entries)


def _encode_peer_id(peer_id: PeerId) -> bytes:
    if not 1 <= len(peer_id) <= MAX_PEER_ID_BYTES:
        raise ValueError(f"a peer id has 1 to {MAX_PEER_ID_BYTES} bytes, not {len(peer_id)}")
    return bytes((len(peer_id),)) + peer_id


def _encode_address(address: HostPort) -> bytes:
    host = ip_address(address[0])
    return bytes((host.version,)) + host.packed + _PORT.pack(address[1])


# Decoding. Every byte may be hostile.


def decode_join_untrusted(body: bytes) -> Join:
    _expect(body, MessageType.JOIN)
    _, _, flags, level, wanted, parents, resilience, run, number = _unpack(_JOIN, body)
    peer_id, end = _decode_peer_id(body, _JOIN.size)
    _expect_end(body, end)
    return Join(
        peer_id,
        run,
        number,
        level,
        wanted,
        parents,
        resilience,
        bool(flags & _REPAIR),
        bool(flags & _HAS_CHILDREN),
        bool(flags & _OPTIONAL),
        bool(flags & _TRADE),
        bool(flags & _URGENT),
    )


def decode_accept_untrusted(body: bytes) -> Accept:
    _expect(body, MessageType.ACCEPT)
    _, _, level, hops, resilience, run, beat, age_ms = _unpack(_ACCEPT, body)
    _expect_end(body, _ACCEPT.size)
    return Accept(level, hops, resilience, RootProof(run, beat, age_ms))


def decode_refuse_untrusted(body: bytes) -> Refuse:
    return Refuse(_decode_peers(body, MessageType.REFUSE, MAX_REFERRALS))


def decode_link_message_untrusted(body: bytes) -> LinkMessage:
    if len(body) == _BEAT.size and body[0] == VERSION and body[1] == MessageType.BEAT:  # ten a second a link: first
        _, _, flags, level, hops, resilience, run, beat, age_ms = _BEAT.unpack(body)
        return Beat(level, hops, resilience, bool(flags & _LEAVING), RootProof(run, beat, age_ms))
    kind = _kind(body)
    if kind == MessageType.REPORT:
        _, _, flags, level, hops, resilience, parents, children, free, repair = _unpack(_REPORT, body)
        _expect_end(body, _REPORT.size)
        return Report(level, hops, resilience, bool(flags & _LEAVING), parents, children, free, repair)
    if kind in (MessageType.PROBE, MessageType.ECHO):
        _, _, number = _unpack(_NUMBER, body)
        _expect_end(body, _NUMBER.size)
        return Probe(number) if kind == MessageType.PROBE else Echo(number)
    raise MalformedMessage(f"type 0x{kind:02x} with {len(body)} bytes is not a message of a link")


_EMPTY_REQUESTS: dict[int, type[ParentsRequest] | type[StatusRequest] | type[WantsRequest] | type[AboutRequest]] = {
    MessageType.ABOUT: AboutRequest,
    MessageType.PARENTS: ParentsRequest,
    MessageType.STATUS: StatusRequest,
    MessageType.WANTS: WantsRequest,
}


def decode_request_untrusted(body: bytes) -> InquiryRequest:
    kind = _kind(body)
    if kind == MessageType.CHILDREN:
        _, _, size = _unpack(_QUERY, body)
        if size > MAX_QUERY_BYTES:
            raise MalformedMessage(f"a query of {size} bytes, at most {MAX_QUERY_BYTES} are read")
        _expect_end(body, _QUERY.size + size)
        return ChildrenRequest(body[_QUERY.size :])
    if kind in _EMPTY_REQUESTS:
        _expect_end(body, _HEAD.size)
        return _EMPTY_REQUESTS[kind]()
    raise MalformedMessage(f"type 0x{kind:02x} is not an inquiry")


def decode_answer_untrusted(body: bytes) -> Answer:
    kind = _kind(body)
    if kind == MessageType.PEERS:
        return Peers(_decode_peers(body, MessageType.PEERS, MAX_PEERS_IN_ANSWER))
    if kind == MessageType.STATE:
        _, _, flags, level, hops, resilience, held, wanted, children, capacity = _unpack(_STATE, body)
        peer_id, end = _decode_peer_id(body, _STATE.size)
        _expect_end(body, end)
        return State(peer_id, level, hops, resilience, bool(flags & _ROOTED), held, wanted, children, capacity)
    if kind == MessageType.WANTED:
        _, _, known, size = _unpack(_WANTED, body)
        if size > MAX_QUERY_BYTES:
            raise MalformedMessage(f"a query of {size} bytes, at most {MAX_QUERY_BYTES} are read")
        _expect_end(body, _WANTED.size + size)
        return Wanted(body[_WANTED.size :] if known else None)
    if kind == MessageType.SELF:
        return _decode_about(body)
    raise MalformedMessage(f"type 0x{kind:02x} is not an answer")


def _decode_about(body: bytes) -> About:
    _, _, count = _unpack(_COUNT, body)
    at = _COUNT.size
    values: dict[int, bytes] = {}
    for _ in range(count):
        if at + 2 > len(body) or at + 2 + body[at + 1] > len(body):
            raise MalformedMessage(f"a value ends at byte {len(body)}")
        values[body[at]] = body[at + 2 : at + 2 + body[at + 1]]
        at += 2 + body[at + 1]
    _expect_end(body, at)
    rate, loss = _decode_measure(values.get(_RATE)), _decode_measure(values.get(_LOSS))
    return About(
        _decode_text(values.get(_STREAM, b""), 255),
        _decode_text(values.get(_NAME, b""), MAX_NAME_BYTES),
        _decode_text(values.get(_VERSION, b""), MAX_NAME_BYTES),
        rate / 1e3 if rate is not None else None,
        min(loss / 1e6, 1.0) if loss is not None else None,
        _decode_text(values.get(_DISPUTES, b""), MAX_DISPUTES_BYTES),
        _decode_text(values.get(_PROTECTION, b""), MAX_PROTECTION_BYTES),
        tuple(_decode_text(values.get(_SOURCES, b""), MAX_SOURCES_BYTES).split()),
        next(iter(values.get(_TREE_DEGREE, b"")), None),
    )


def _decode_text(value: bytes, most: int) -> str:
    """Text for a person's terminal: only letters that can be printed."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("a value is not UTF-8") from None
    if len(value) > most or not text.isprintable():
        raise MalformedMessage(f"a text of {len(value)} bytes, at most {most} that can be printed are read")
    return text


def _decode_measure(value: bytes | None) -> int | None:
    if value is None:
        return None
    if len(value) != _MEASURE.size:
        raise MalformedMessage(f"a number of {len(value)} bytes where {_MEASURE.size} were expected")
    (number,) = _MEASURE.unpack(value)
    return int(number)


def _kind(body: bytes) -> int:
    if len(body) > MAX_BODY_BYTES:
        raise MalformedMessage(f"{len(body)} bytes, at most {MAX_BODY_BYTES} are read")
    if len(body) < _HEAD.size:
        raise MalformedMessage(f"{len(body)} bytes are too few for a version and a type")
    if body[0] != VERSION:
        kind = OtherVersionMessage if 1 <= body[0] <= MAX_VERSION else MalformedMessage
        raise kind(f"version {body[0]}, this peer speaks {VERSION}")
    return body[1]


def _expect(body: bytes, kind: MessageType) -> None:
    found = _kind(body)
    if found != kind:
        raise MalformedMessage(f"type 0x{found:02x} where {kind.name} was expected")


def _expect_end(body: bytes, end: int) -> None:
    if len(body) != end:
        raise MalformedMessage(f"{len(body)} bytes where {end} were expected")


def _unpack(form: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) < form.size:
        raise MalformedMessage(f"{len(body)} bytes where at least {form.size} were expected")
    return form.unpack_from(body)


def _decode_peer_id(body: bytes, start: int) -> tuple[PeerId, int]:
    size = body[start] if start < len(body) else 0
    end = start + 1 + size
    if not 1 <= size <= MAX_PEER_ID_BYTES or end > len(body):
        raise MalformedMessage(f"a peer id of {size} bytes at {start} in {len(body)}")
    return PeerId(body[start + 1 : end]), end


def _decode_peers(body: bytes, kind: MessageType, limit: int) -> tuple[PeerAt, ...]:
    _expect(body, kind)
    _, _, count = _unpack(_COUNT, body)
    if count > limit:
        raise MalformedMessage(f"{count} peers, at most {limit} are read")
    at = _COUNT.size
    peers = []
    for _ in range(count):
        peer_id, at = _decode_peer_id(body, at)
        if at + _LEVEL.size + 1 > len(body):
            raise MalformedMessage(f"a peer ends at byte {len(body)}")
        (level,) = _LEVEL.unpack_from(body, at)
        address, at = _decode_address(body, at + _LEVEL.size)
        peers.append(PeerAt(peer_id, address, level))
    _expect_end(body, at)
    return tuple(peers)


def _decode_address(body: bytes, start: int) -> tuple[HostPort, int]:
    size = _ADDRESS_BYTES.get(body[start])
    if size is None:
        raise MalformedMessage(f"address family {body[start]}")
    end = start + 1 + size + _PORT.size
    if end > len(body):
        raise MalformedMessage(f"an address ends at byte {len(body)}")
    packed = body[start + 1 : start + 1 + size]
    host = str(IPv4Address(packed) if size == 4 else IPv6Address(packed))
    (port,) = _PORT.unpack_from(body, start + 1 + size)
    if port == 0:
        raise MalformedMessage("port 0")
    return (host, port), end
