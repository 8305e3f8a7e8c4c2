"""What packet bodies say survives the wire, and every limit is checked before anything is made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import control, handshake
from dcp.control import (
    Acknowledgment,
    Fetch,
    Fragment,
    Hole,
    Index,
    IndexRequest,
    KeepAlive,
    Message,
    Nack,
    Prepare,
    Prepared,
    Times,
)
from dcp.errors import MalformedDatagram
from dcp.handshake import Accept, Answer, Challenge, Inquire, OpenRequest, Refuse, Reset
from dcp.serial import MAX_POSITION

u8 = st.integers(0, 0xFF)
u32 = st.integers(0, 0xFFFFFFFF)
position = st.integers(0, MAX_POSITION)
below_last = st.integers(0, MAX_POSITION - 1)
sixteen = st.binary(min_size=16, max_size=16)
text = st.binary(max_size=100)
times = st.builds(Times, u32, u32, st.integers(0, 0xFFFF))
acks = st.builds(Acknowledgment, times, u32, position, u32)
ranges = st.builds(lambda start, length: (start, start + length), position, st.integers(1, 0xFFFFFFFF))
pieces = st.builds(lambda start, length: (start, start + length), st.integers(0, 1 << 20), st.integers(1, 1 << 20))
nacks = st.builds(Nack, acks, position, st.lists(ranges, max_size=64), st.lists(pieces, max_size=64))
early = st.integers(0, 1 << 62)
near = st.integers(1, 0xFFFFFFFF)
indexes = st.builds(
    lambda epoch, start, ans, more: Index(epoch, start, max(ans, default=start) + more, sorted(ans)),
    u32, st.just(1 << 40), st.sets(st.integers((1 << 40) + 1, 1 << 62), max_size=60), st.integers(1, 1 << 20),
)  # fmt: skip
shares = st.none() | st.builds(
    handshake.KeyShare, u8, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32),
    st.binary(min_size=64, max_size=64),
)  # fmt: skip
openings = st.one_of(
    st.builds(
        OpenRequest, u8, u32, sixteen, sixteen, u32, st.sampled_from(handshake.Start), position, u32, u32,
        st.binary(max_size=128), text, text, shares,
    ),
    st.builds(Challenge, sixteen, sixteen, u8),
    st.builds(Accept, sixteen, u32, sixteen, u32, position, position, u32, u8, text, shares),
    st.builds(Refuse, sixteen, u8, text),
    st.builds(Reset, u32),
    st.builds(Inquire, sixteen, sixteen, text),
    st.builds(Answer, sixteen, text),
)  # fmt: skip


@given(acks)
def test_acknowledgment(ack):
    assert control.decode_acknowledgment_untrusted(control.encode_acknowledgment(ack)) == ack


@given(nacks)
def test_nack(nack):
    assert control.decode_nack_untrusted(control.encode_nack(nack)) == nack


@given(times, u32, st.booleans(), position, position, st.none() | position)
def test_keep_alive(times, epoch, claim, a, b, settled):
    keep_alive = KeepAlive(times, epoch, claim, min(a, b), max(a, b), settled=settled)
    body = control.encode_keep_alive(keep_alive)
    assert control.decode_keep_alive_untrusted(body) == keep_alive
    status_at = 14
    assert body[status_at] & 1  # reserved: always sent, never looked at
    without = body[:status_at] + bytes((body[status_at] & ~1,)) + body[status_at + 1 :]
    assert control.decode_keep_alive_untrusted(without) == keep_alive


@given(position, st.lists(st.tuples(st.integers(1, 0xFFFFFFFF), st.binary(max_size=50)), min_size=1, max_size=20))
def test_bundle(prev, steps):
    packets, an = [], prev
    for step, payload in steps:
        an += step
        packets.append((an, payload))
    assert control.decode_bundle_untrusted(control.encode_bundle(prev, packets), 1, prev) == packets


@given(
    st.one_of(
        st.builds(lambda e, a, b: Hole(e, min(a, b), max(a, b) + 1), u32, below_last, below_last),
        st.builds(
            lambda o, d, more: Fragment(o, o + len(d) + more, d), st.integers(0, 1000), st.binary(min_size=1), u8
        ),
        st.builds(Prepare, u32, text),
        st.builds(Prepared, u32, position),
        st.builds(Message, text),
        st.builds(
            IndexRequest, u32, st.lists(st.builds(lambda a, n: (a, a + n), early, near), min_size=1, max_size=32)
        ),
        indexes,
        st.builds(Fetch, u32, st.lists(st.integers(1, MAX_POSITION), min_size=1, max_size=32).map(tuple)),
    )
)
def test_control(message):
    match message:
        case Hole():
            body = control.encode_hole(message)
        case Fragment():
            body = control.encode_fragment(*message)
        case Prepare():
            body = control.encode_prepare(message)
        case Prepared():
            body = control.encode_prepared(message)
        case IndexRequest():
            body = control.encode_index_request(message)
        case Index():
            body = control.encode_index(message)
        case Fetch():
            body = control.encode_fetch(message)
        case _:
            body = control.encode_message(message.data)
    assert control.decode_control_untrusted(body) == message


@given(openings)
def test_opening(message):
    kind, body = handshake.encode_opening(message)
    assert handshake.decode_opening_untrusted(kind, body) == message


@given(u8, text)
def test_close(reason, body):
    assert control.decode_close_untrusted(control.encode_close(reason, body)) == (reason, body)


def test_more_ranges_than_fit_are_left_for_the_next_nack():
    ack = Acknowledgment(Times(1, 0, 0), 0, 0, 1)
    nack = Nack(ack, 10_000, [(i, i + 1) for i in range(0, 400, 2)], [(i, i + 1) for i in range(0, 400, 2)])
    decoded = control.decode_nack_untrusted(control.encode_nack(nack))
    assert len(decoded.missing) == control.MAX_RANGES
    assert len(decoded.pieces) == control.MAX_FRAGMENT_RANGES


BEYOND = MAX_POSITION + 1
ACK_BEYOND = Acknowledgment(Times(1, 0, 0), 0, BEYOND, 1)
NINES = b"9" * 16
REFUSED = {
    "an acknowledgment beyond the last position": lambda: control.decode_acknowledgment_untrusted(
        control.encode_acknowledgment(ACK_BEYOND)
    ),
    "a nack whose highest lies beyond the last position": lambda: control.decode_nack_untrusted(
        control.encode_nack(Nack(Acknowledgment(Times(1, 0, 0), 0, 0, 1), BEYOND, [], []))
    ),
    "a nack with too many ranges": lambda: control.decode_nack_untrusted(
        control.encode_nack(Nack(Acknowledgment(Times(1, 0, 0), 0, 0, 1), 5, [], []))[:-2] + b"\x41\x00" + bytes(2000)
    ),
    "a nack with an empty range": lambda: control.decode_nack_untrusted(
        control.encode_nack(Nack(Acknowledgment(Times(1, 0, 0), 0, 0, 1), 5, [(3, 3)], []))
    ),
    "a keep-alive that ends before it begins": lambda: control.decode_keep_alive_untrusted(
        control.encode_keep_alive(KeepAlive(Times(1, 0, 0), 0, True, 9, 8))
    ),
    "a keep-alive beyond the last position": lambda: control.decode_keep_alive_untrusted(
        control.encode_keep_alive(KeepAlive(Times(1, 0, 0), 0, True, 9, BEYOND))
    ),
    "an empty hole": lambda: control.decode_control_untrusted(control.encode_hole(Hole(0, 5, 5))),
    "a hole beyond the last position": lambda: control.decode_control_untrusted(
        control.encode_hole(Hole(0, 5, BEYOND))
    ),
    "a fragment that ends beyond its packet": lambda: control.decode_control_untrusted(
        control.encode_fragment(5, 8, b"four")
    ),
    "a fragment of nothing": lambda: control.decode_control_untrusted(control.encode_fragment(0, 8, b"")),
    "a fragment of too large a packet": lambda: control.decode_control_untrusted(
        control.encode_fragment(0, control.MAX_PACKET_BYTES + 1, b"x")
    ),
    "a query that is too long": lambda: control.decode_control_untrusted(
        control.encode_prepare(Prepare(1, bytes(control.MAX_QUERY_BYTES + 1)))
    ),
    "a prepared position beyond the last": lambda: control.decode_control_untrusted(
        control.encode_prepared(Prepared(1, BEYOND))
    ),
    "a keep-alive whose settled position is cut off": lambda: control.decode_keep_alive_untrusted(
        control.encode_keep_alive(KeepAlive(Times(1, 0, 0), 0, True, 8, 9, settled=5))[:-1]
    ),
    "a settled position beyond the last": lambda: control.decode_keep_alive_untrusted(
        control.encode_keep_alive(KeepAlive(Times(1, 0, 0), 0, True, 8, 9, settled=BEYOND))
    ),
    "an index request for nothing": lambda: control.decode_control_untrusted(
        control.encode_index_request(IndexRequest(1, []))
    ),
    "an index request for an empty range": lambda: control.decode_control_untrusted(
        control.encode_index_request(IndexRequest(1, [(5, 5)]))
    ),
    "an index request for too many ranges": lambda: control.decode_control_untrusted(
        control.encode_index_request(IndexRequest(1, [(5, 6)])) + bytes(11 * 12) + b"\1" * (32 * 12)
    ),
    "an index request beyond the last position": lambda: control.decode_control_untrusted(
        control.encode_index_request(IndexRequest(1, [(MAX_POSITION, BEYOND)]))
    ),
    "an index of an empty stretch": lambda: control.decode_control_untrusted(control.encode_index(Index(1, 5, 5, []))),
    "an index with a number beyond its end": lambda: control.decode_control_untrusted(
        control.encode_index(Index(1, 5, 8, [9]))
    ),
    "an index with a number twice": lambda: control.decode_control_untrusted(
        control.encode_index(Index(1, 5, 8, [7, 7]))
    ),
    "an index with too many numbers": lambda: control.decode_control_untrusted(
        control.encode_index(Index(1, 0, 9_000, range(1, control.MAX_INDEX_ANS + 2)))
    ),
    "an index cut off in a number": lambda: control.decode_control_untrusted(
        control.encode_index(Index(1, 5, 8_000, [7_000]))[:-1]
    ),
    "an index with a step of 64 bits": lambda: control.decode_control_untrusted(
        control.encode_index(Index(1, 5, 8, [])) + b"\xff" * 10 + b"\x01"
    ),
    "a fetch of nothing": lambda: control.decode_control_untrusted(control.encode_fetch(Fetch(1, []))),
    "a fetch of position 0": lambda: control.decode_control_untrusted(control.encode_fetch(Fetch(1, [0]))),
    "a fetch of too many": lambda: control.decode_control_untrusted(
        control.encode_fetch(Fetch(1, [1] * 32)) + bytes(7) + b"\1"
    ),
    "a fetch beyond the last position": lambda: control.decode_control_untrusted(
        control.encode_fetch(Fetch(1, [BEYOND]))
    ),
    "an unknown control type": lambda: control.decode_control_untrusted(b"\x7f" + bytes(40)),
    "an empty control": lambda: control.decode_control_untrusted(b""),
    "an empty bundle": lambda: control.decode_bundle_untrusted(b"\x01", 1, 0),
    "a bundle with a step of nothing": lambda: control.decode_bundle_untrusted(b"\x01" + bytes(6), 1, 0),
    "a bundle cut off in an entry": lambda: control.decode_bundle_untrusted(b"\x01\0\0\0\x01\0\x05abc", 1, 0),
    "an empty close": lambda: control.decode_close_untrusted(b""),
    "an unknown opening": lambda: handshake.decode_opening_untrusted(0x7F, bytes(100)),
    "an accept that starts beyond the last position": lambda: handshake.decode_opening_untrusted(
        *handshake.encode_opening(Accept(NINES, 1, NINES, 0, BEYOND, 5, 0, 1, b""))
    ),
    "a request from beyond the last position": lambda: handshake.decode_opening_untrusted(
        *handshake.encode_opening(OpenRequest(0, 1, NINES, NINES, 0, 2, BEYOND, 1, 1, b"s", b"", b""))
    ),
    "a request with an unknown start": lambda: handshake.decode_opening_untrusted(
        *handshake.encode_opening(OpenRequest(0, 1, NINES, NINES, 0, 3, 5, 1, 1, b"s", b"", b""))
    ),
    "a request with bytes left over": lambda: handshake.decode_opening_untrusted(
        0x01, handshake.encode_opening(OpenRequest(0, 1, NINES, NINES, 0, 0, 5, 1, 1, b"s", b"", b""))[1] + b"x"
    ),
    "a request with too long a hello": lambda: handshake.decode_opening_untrusted(
        *handshake.encode_opening(OpenRequest(0, 1, NINES, NINES, 0, 0, 5, 1, 1, b"s", b"", bytes(5000)))
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(MalformedDatagram):
        REFUSED[what]()


def test_reasons_have_names_for_people():
    assert control.reason_name(control.Reason.STREAM_UNKNOWN) == "stream unknown"
    assert control.reason_name(77) == "reason 77"
