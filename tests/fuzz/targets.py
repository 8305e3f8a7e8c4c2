"""One function per decoder: any bytes go in; it returns, or raises when the code under test broke its word.

The word of a decoder `decode_*_untrusted` is: its own error and no other, within its limits, and what it accepts it can
write again. Each function is deterministic, so that an input that fails once fails always.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from asdi.origin import split_origin_untrusted, with_origin
from dcp import control, group_messages, handshake, lateral, protection, query_parts, wire
from dcp.carriers.frames import MAX_FRAME_BYTES, Unframer, frame
from dcp.compression import Compressor
from dcp.config import Config
from dcp.errors import MalformedDatagram, PayloadRefused
from dcp.hub import Hub
from dcp.links.address import to_group
from dcp.links.decoding import MAX_ROWS, Decoder
from dcp.links.uplink import Uplink
from dht import Identity, RecordRejected
from dht import wire as dht_wire
from dht.record import _DOMAIN, RECORD_FORMAT, RecordVerifier
from dht.shell.beacon import decode_beacon_untrusted
from peer.feeds.framing import make_splitter
from peer.feeds.options import FRAMINGS
from peer.mesh import encoding, messages
from peer.queries import XPathPolicy
from tests.xmlswitch.differential import scenario
from xmlswitch import (
    RECORD,
    Interest,
    MalformedDocument,
    MalformedQuery,
    MemberLimits,
    Query,
    QueryError,
    Switch,
    covers,
    decode_members_untrusted,
    disjoin,
    encode_members,
)

STRANGER = ("192.0.2.1", 9)
PACKET = b"<flight><id>AAL1</id><flightleg><altitude>310</altitude><lon>-71.5</lon></flightleg></flight>"
_IDENTITY = Identity.generate()


def fuzz_wire(data: bytes) -> None:
    """A whole hub: nothing that a stranger sends raises, or makes it answer with more bytes than it was sent."""
    hub = Hub(Config(), rng=random.Random(1), identity=_IDENTITY)
    hub.serve("s")
    hub.subscribe("t")
    hub.receive_datagram(data, STRANGER, now=1.0)
    if len(data) > wire.HEADER.size:  # the same, with the checksum right
        hub.receive_datagram(wire.encode_open(data[0], data[1:]), STRANGER, now=1.0)
    hub.handle_timeout(now=2.0)
    answered = sum(len(answer) for answer, _ in hub.datagrams_to_send(now=2.0))
    assert answered <= 2 * len(data) + 64


def fuzz_frames(data: bytes) -> None:
    """Datagrams in a byte stream: the same ones however it is cut, and no more kept than one frame."""

    def cut_at(*places: int) -> tuple[list[bytes], bool]:
        unframer, found, at = Unframer(), [], 0
        for place in (*places, len(data)):
            try:
                found += unframer.feed(data[at : max(at, place)])
            except MalformedDatagram:
                return found, True
            at = max(at, place)
        return found, False

    whole, is_bad = cut_at()
    pieces, is_bad_in_pieces = cut_at(*range(0, len(data), 1 + len(data) // 7))
    assert is_bad == is_bad_in_pieces
    if not is_bad:  # a stream that turns bad is given up, with whatever came in the same read
        assert whole == pieces
    assert all(0 < len(datagram) <= MAX_FRAME_BYTES for datagram in whole)
    assert data.startswith(frame(whole))


def fuzz_groups(data: bytes) -> None:
    """What a parent says about a group, what a child answers, and what anybody sends to one."""
    with suppress(MalformedDatagram):
        group = group_messages.decode_group_untrusted(data)
        assert group_messages.decode_group_untrusted(group_messages.encode_group(group)) == group
    with suppress(MalformedDatagram):
        heard = group_messages.decode_heard_untrusted(data)
        assert group_messages.decode_heard_untrusted(group_messages.encode_heard(heard)) == heard
    with suppress(MalformedDatagram):
        siblings = lateral.decode_siblings_untrusted(data)
        assert lateral.decode_siblings_untrusted(lateral.encode_siblings(siblings)) == siblings
    with suppress(MalformedDatagram):
        repair = lateral.decode_lateral_untrusted(data)
        assert lateral.decode_lateral_untrusted(lateral.encode_lateral(repair)) == repair
    hub = Hub(Config(multicast=True), rng=random.Random(1))
    assert not hub.receive_datagram(data, to_group("192.0.2.1", 9, ""), now=1.0)
    assert not hub.datagrams_to_send(now=1.0)


_CONTROL: list[Callable[[bytes], object]] = [
    control.decode_acknowledgment_untrusted,
    control.decode_nack_untrusted,
    control.decode_keep_alive_untrusted,
    control.decode_control_untrusted,
    control.decode_close_untrusted,
    lambda body: control.decode_bundle_untrusted(body, 0, 5),
    *(lambda body, kind=kind: handshake.decode_opening_untrusted(kind, body) for kind in range(9)),
]


def fuzz_control(data: bytes) -> None:
    if data:
        with suppress(MalformedDatagram):
            _CONTROL[data[0] % len(_CONTROL)](data[1:])


def fuzz_repair(data: bytes) -> None:
    """Repairs as decoded from the wire, and whatever they say given to a decoder: bounded, and no wrong length."""
    with suppress(MalformedDatagram):
        protection.encode_protect(protection.decode_protect_untrusted(data))
    parent = Uplink(1, STRANGER, Config(), bytes(16), b"", now=0.0).parent
    decoder = Decoder()
    at, prev = 0, 0
    while at + 3 < len(data):
        kind, size = data[at] & 1, 2 + data[at + 1] % 64
        chunk = data[at + 2 : at + 2 + size]
        at += 2 + size
        if kind:
            claims = decoder.hear([(1 + number, chunk) for number in chunk[:2]])
        else:
            # Whatever its steps add up to is what its header says.
            steps = chunk[4 : 4 + (chunk[3] if len(chunk) > 3 else 0)]
            with suppress(MalformedDatagram):
                repair = protection.decode_repair_untrusted(b"\x0a" + chunk, 0, prev, prev + sum(steps))
                claims = decoder.hear_repair(parent, 0, prev, repair, 0)
                assert all(claim.until == claim.packets[-1][0] for claim in claims)
            claims = []
        assert len(decoder) <= MAX_ROWS
        for claim in claims:
            assert len(claim.packets[-1][1]) < 1 << 16
        prev += size & 3


_MESSAGES: list[tuple[Callable[[bytes], object], Callable[..., bytes]]] = [
    (encoding.decode_join_untrusted, encoding.encode_join),
    (encoding.decode_accept_untrusted, encoding.encode_accept),
    (encoding.decode_refuse_untrusted, encoding.encode_refuse),
    (encoding.decode_link_message_untrusted, encoding.encode_link_message),
    (encoding.decode_request_untrusted, encoding.encode_request),
    (encoding.decode_answer_untrusted, encoding.encode_answer),
]


def fuzz_messages(data: bytes) -> None:
    if not data:
        return
    decode, encode = _MESSAGES[data[0] % len(_MESSAGES)]
    try:
        message = decode(data[1:])
    except messages.MalformedMessage:
        return
    assert decode(encode(message)) == message


def fuzz_record(data: bytes) -> None:
    """A record that its sender signed: only its own key is needed for that, so the signature keeps nobody out."""
    payload = bytes([RECORD_FORMAT]) + _IDENTITY.public_key + data
    with suppress(RecordRejected):
        RecordVerifier().verify(payload + _IDENTITY.sign(_DOMAIN + payload), now=1.0)
    with suppress(RecordRejected):
        RecordVerifier().verify(data, now=1.0)


def fuzz_dht(data: bytes) -> None:
    with suppress(dht_wire.MalformedMessage):
        dht_wire.decode_request_untrusted(data)
    for kind in (dht_wire.Ping, dht_wire.FindNode, dht_wire.FindValue, dht_wire.Store):
        with suppress(dht_wire.MalformedMessage):
            dht_wire.decode_answer_untrusted(data, kind=kind)
    decode_beacon_untrusted(data)


def fuzz_framing(data: bytes) -> None:
    """How the bytes are cut into chunks never matters, and no packet is larger than it may be."""
    if len(data) < 2:
        return
    kind, step, rest = FRAMINGS[data[0] % len(FRAMINGS)], data[1] % 16 + 1, data[2:]
    whole, parts = make_splitter(kind, max_document=64), make_splitter(kind, max_document=64)
    one = whole.feed(rest) + whole.finish()
    other = [packet for at in range(0, len(rest), step) for packet in parts.feed(rest[at : at + step])]
    other += parts.finish()
    assert one == other
    assert whole.errors == parts.errors
    assert all(len(packet) <= 64 for packet in one)


def fuzz_query(data: bytes) -> None:
    """A query off the wire is refused, or compiles, is matched, merged and written again without an error."""
    try:
        query = Query.decode_untrusted(data)
    except (QueryError, MalformedQuery):
        return
    _use(query)


def fuzz_query_text(data: bytes) -> None:
    """The same for text, which the fuzzer finds far more often."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    fuzz_query(_encoded(text))
    with suppress(MalformedQuery, QueryError):
        query = RECORD.decode_untrusted(data)
        assert RECORD.covers(query, query)
        assert RECORD.decode_untrusted(RECORD.encode(query)) == query
        with suppress(MalformedDocument):
            RECORD.matches(b'{"a": 5, "b": {"c": "x"}}', query)


def _encoded(text: str) -> bytes:
    import msgpack

    return bytes(msgpack.packb([1, "1.0", text, {}]))


def _use(query: Query) -> None:
    assert Query.decode_untrusted(query.encode()) == query
    switch: Switch[Query] = Switch()
    switch.add_link("child")
    switch.subscribe("child", query)
    assert bool(switch.match(PACKET)) == query.passes(PACKET)
    assert covers(disjoin([query, Query.parse("/a/b")]), query) in (True, False)
    policy = XPathPolicy()
    assert policy.check(query.encode()) is None


def fuzz_members(data: bytes) -> None:
    """A set of members off the wire is refused, or comes back as it was and can be asked for."""
    try:
        queries = decode_members_untrusted(data, max_members=64, max_bytes=2_048)
    except (QueryError, MalformedQuery):
        return
    again = decode_members_untrusted(encode_members(queries), max_members=64, max_bytes=1 << 20)
    assert sorted(query.encode() for query in again) == sorted(query.encode() for query in queries)
    interest = Interest(MemberLimits(max_members=2))
    for query in queries:
        interest.add(query)
    if any(query.passes(PACKET) for query in queries):
        assert any(member.passes(PACKET) for member in interest.members)


def fuzz_query_parts(data: bytes) -> None:
    """Parts of a long query, what is answered, and what a part says."""
    with suppress(MalformedDatagram):
        part = query_parts.decode_part_untrusted(data)
        assert query_parts.encode_part(part)[1:] == data[1:]
    with suppress(MalformedDatagram):
        assert query_parts.encode_have(query_parts.decode_have_untrusted(data))[1:] == data[1:]
    policy = XPathPolicy()
    read = policy.read_part(data)
    if read is not None:
        query = policy.joined(None, [read])
        assert query is None or policy.check(query) is None


def fuzz_switch(data: bytes) -> None:
    """The bytes are a seed: links, members, churn and documents over the whole grammar, compared with lxml."""
    scenario(data, steps=3)


def fuzz_envelope(data: bytes) -> None:
    with suppress(PayloadRefused):
        assert len(Compressor().unpack_untrusted(data, limit=4_096)) <= 4_096


def fuzz_origin(data: bytes) -> None:
    payload, time, line = split_origin_untrusted(data)
    if line is None:
        assert (payload, time) == (data, None)
    else:
        assert time is not None
        assert split_origin_untrusted(with_origin(payload, time, line)) == (payload, time, line)


TARGETS: dict[str, Callable[[bytes], None]] = {
    name.removeprefix("fuzz_"): function for name, function in list(globals().items()) if name.startswith("fuzz_")
}
