"""Encrypted datagrams: what is readable, what is taken twice, and how keys follow each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcp import wire
from dcp.errors import MalformedDatagram
from dcp.links import secrecy
from dcp.links.keying import ciphers_of_request_untrusted
from dcp.links.secrecy import AES_128_GCM, CHACHA20_POLY1305, REPLAY_WINDOW, IncomingCipher, OutgoingCipher
from tests.dcp import packets

SECRET = bytes(range(32))
LINK = 0x0A0B0C0D
SUITES = (AES_128_GCM, CHACHA20_POLY1305)


def pair(suite: int = AES_128_GCM) -> tuple[OutgoingCipher, IncomingCipher]:
    return OutgoingCipher(suite, SECRET), IncomingCipher(suite, SECRET)


def say(sender: OutgoingCipher, body: bytes = b"<flight/>") -> bytes:
    return sender.encode(3, wire.ACK_REQUEST, 7, 5, LINK, body)


@pytest.mark.parametrize("suite", SUITES)
def test_what_was_opened_is_the_packet_without_a_seal(suite):
    sender, receiver = pair(suite)
    for body in (b"", b"<flight/>", bytes(60_000)):
        opened = receiver.open_untrusted(say(sender, body))
        assert opened == wire.encode_bound(None, 3, wire.ACK_REQUEST, 7, 5, LINK, body)


def test_only_the_routing_byte_the_link_and_the_counter_are_readable():
    sender, _ = pair()
    first, second = say(sender), say(sender)
    assert first[:9] == b"\xf0" + LINK.to_bytes(4, "big") + bytes(4)
    assert second[:9] == b"\xf0" + LINK.to_bytes(4, "big") + b"\0\0\0\1"
    assert len(first) == len(b"<flight/>") + secrecy.OVERHEAD
    assert sum(a == b for a, b in zip(first[9:], second[9:], strict=True)) < 10
    assert b"flight" not in first


def test_a_datagram_is_taken_once():
    sender, receiver = pair()
    said = [say(sender) for _ in range(5)]
    for number in (0, 3, 1, 4, 2):
        receiver.open_untrusted(said[number])
    for data in said:
        with pytest.raises(MalformedDatagram, match="replayed"):
            receiver.open_untrusted(data)


def test_a_datagram_older_than_the_window_is_taken_for_a_replay():
    sender, receiver = pair()
    said = [say(sender) for _ in range(REPLAY_WINDOW + 2)]
    receiver.open_untrusted(said[-1])
    receiver.open_untrusted(said[2])
    with pytest.raises(MalformedDatagram, match="replayed"):
        receiver.open_untrusted(said[1])


def test_every_prefix_and_every_changed_byte_is_refused_and_changes_nothing():
    sender, receiver = pair()
    data = say(sender)
    for length in range(len(data)):
        with pytest.raises(MalformedDatagram):
            receiver.open_untrusted(data[:length])
    for at in range(1, len(data)):  # byte 0 decides who reads it at all
        for bit in range(8):
            with pytest.raises(MalformedDatagram):
                receiver.open_untrusted(data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :])
    receiver.open_untrusted(data)


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_any_bytes_are_refused(data):
    with pytest.raises(MalformedDatagram):
        pair()[1].open_untrusted(data)


def test_another_direction_or_link_does_not_open_it():
    sender, _ = pair()
    with pytest.raises(MalformedDatagram, match="seal"):
        IncomingCipher(AES_128_GCM, bytes(32)).open_untrusted(say(sender))
    with pytest.raises(MalformedDatagram, match="seal"):
        IncomingCipher(CHACHA20_POLY1305, SECRET).open_untrusted(say(sender))


def test_keys_change_on_the_way_and_late_datagrams_are_still_read(monkeypatch):
    monkeypatch.setattr(secrecy, "UPDATE_EVERY", 8)
    sender, receiver = pair()
    said = [say(sender, b"%d" % n) for n in range(64)]
    for number in (0, 1, 9, 7, 8, 17, 15, 30):  # across updates, out of order, with one update skipped
        assert receiver.open_untrusted(said[number])[wire.BODY_AT :] == b"%d" % number
    with pytest.raises(MalformedDatagram, match="replayed"):
        receiver.open_untrusted(said[10])  # its keys are gone: nobody can read it any longer
    with pytest.raises(MalformedDatagram, match="seal"):
        receiver.open_untrusted(said[63][:-1] + b"\0")
    receiver.open_untrusted(said[31])


def test_counters_far_ahead_cost_nothing(monkeypatch):
    """Each update takes a hash: a forged counter must not make us compute thousands."""
    sender, receiver = pair()
    data = say(sender)
    made = []
    real = secrecy._Generation.next
    monkeypatch.setattr(secrecy._Generation, "next", lambda self: made.append(1) or real(self))
    with pytest.raises(MalformedDatagram, match="seal"):
        receiver.open_untrusted(data[:5] + (1 << 30).to_bytes(4, "big") + data[9:])
    assert len(made) <= secrecy.MAX_UPDATES_AT_ONCE
    receiver.open_untrusted(data)


def test_the_counter_goes_on_beyond_32_bits():
    sender, receiver = pair()
    start = (1 << 32) - 2
    sender._counter = start
    number = start // secrecy.UPDATE_EVERY
    for end in (sender._generation, receiver._current):
        end.number = number
    receiver._highest = start - 1
    for _ in range(4):
        if sender._counter == 1 << 32:  # an update falls there
            receiver._current.number = number
        receiver.open_untrusted(say(sender))
    assert receiver._highest == start + 3


def test_the_specification_shows_an_encrypted_packet():
    """The first packet to the child, after the keyed request and accept that are shown there."""
    _, outgoing = ciphers_of_request_untrusted(packets.KEYED_REQUEST, packets.KEYED_ACCEPT, packets.PARENT_KEY)
    flags, an, prev, body = packets.BODIES["data"]
    data = outgoing.encode(3, flags, an, prev, packets.CHILD_LINK, body).hex()
    assert data == ("f00c0c0c0c0000000057edb7723b2ffea195e4f385f7901cecd879716c9cf762a95634d8ad066cd296c21de0")
    text = (Path(__file__).resolve().parents[2] / "docs" / "dcp.md").read_text()
    assert data in "".join(text.split())
    incoming, _ = packets.CHILD_KEYING.ciphers_of_accept_untrusted(
        packets.KEYED_REQUEST, packets.KEYED_ACCEPT, packets.CHILD_KEY
    )
    assert incoming.open_untrusted(bytes.fromhex(data))[wire.BODY_AT :] == body
