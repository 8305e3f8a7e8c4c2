"""The datagrams: round trips, sizes, and that no bytes raise anything but MalformedMessage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dht.wire import (
    Contact,
    FindNode,
    FindValue,
    Found,
    MalformedMessage,
    Ping,
    Store,
    Stored,
    decode_answer_untrusted,
    decode_request_untrusted,
    encode_answer,
    encode_request,
)

MESSAGE_ID = bytes(range(20))
ids = st.binary(min_size=20, max_size=20)
senders = st.none() | ids
tokens = st.binary(min_size=8, max_size=8)
wires = st.lists(st.binary(max_size=300), max_size=4).map(tuple)
hosts = st.sampled_from(["192.0.2.1", "20.1.2.3", "2001:db8::1", "127.0.0.1"])
addresses = st.tuples(hosts, st.integers(1, 65535))
contacts = st.lists(st.builds(Contact, ids, addresses), max_size=8).map(tuple)
requests = st.one_of(
    st.builds(Ping, senders),
    st.builds(FindNode, senders, ids),
    st.builds(FindValue, senders, ids, ids),
    st.builds(Store, senders, ids, tokens, st.booleans(), wires),
)


@given(requests, st.sampled_from([0, 467]))
def test_requests_round_trip(request, padded_to):
    datagram = encode_request(MESSAGE_ID, request, padded_to=padded_to)
    assert decode_request_untrusted(datagram) == (MESSAGE_ID, request)
    assert datagram[0] == 0
    if padded_to and isinstance(request, FindNode | FindValue):
        assert len(datagram) == padded_to


@given(ids, addresses, tokens, contacts, wires, st.integers(0, 64), st.booleans())
def test_answers_round_trip(sender, observed, token, neighbours, records, total, full):
    for kind, answer in (
        (Ping, Found(sender, observed)),
        (FindNode, Found(sender, observed, token, neighbours)),
        (FindValue, Found(sender, observed, token, neighbours, total, full, records)),
        (Store, Stored(sender, b"\0\6", 2**64 - 1)),
    ):
        datagram = encode_answer(MESSAGE_ID, answer, kind=kind)
        assert datagram[0] == 1
        assert decode_answer_untrusted(datagram, kind=kind) == answer


@given(requests, st.data())
def test_every_prefix_and_any_changed_byte_raises_malformed_or_decodes(request, data):
    datagram = encode_request(MESSAGE_ID, request)
    cut = datagram[: data.draw(st.integers(0, len(datagram) - 1))]
    with pytest.raises(MalformedMessage):
        decode_request_untrusted(cut)
    changed = bytearray(datagram)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedMessage):
        decode_request_untrusted(bytes(changed))


@given(st.binary(max_size=200), st.sampled_from([Ping, FindNode, FindValue, Store]))
def test_any_bytes_are_malformed_at_worst(body, kind):
    for decode in (decode_request_untrusted, lambda data: decode_answer_untrusted(data, kind=kind)):
        with contextlib.suppress(MalformedMessage):
            decode(b"\x00" + MESSAGE_ID + body)


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",  # never used in msgpack
        b"\x92\xa4ping\x91\xc4\x05short",  # a node id of 5 bytes
        b"\x92\xa4ping\x92\xc4\x00\xc4\x00",  # an argument too many
        b"\x92\xa9__class__\x91\xc4\x00",  # not one of the four
        b"\x92\xa4stun\x91\xc4\x00",
        b"\x80",  # a map
        b"\xdd\xff\xff\xff\xff",  # four billion items, announced
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 500,  # deep
        b"\xd6\xff\x00\x00\x00\x00",  # an extension: a timestamp
    ],
)
def test_what_is_not_one_of_the_four_calls_is_refused(body):
    with pytest.raises(MalformedMessage):
        decode_request_untrusted(b"\x00" + MESSAGE_ID + body)


def test_a_contact_nobody_should_be_sent_to_is_left_out():
    good = Contact(bytes(20), ("192.0.2.1", 4700))
    bad = [Contact(bytes(20), address) for address in (("0.0.0.0", 1), ("224.0.0.1", 1), ("255.255.255.255", 9))]
    datagram = encode_answer(MESSAGE_ID, Found(bytes(20), None, bytes(8), (*bad, good)), kind=FindNode)
    assert decode_answer_untrusted(datagram, kind=FindNode).contacts == (good,)
