"""Peers of different protocol versions: each learns what the other speaks, and nobody else can say it for them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dcp import control, events, handshake, versions, wire
from dcp.hub import Hub
from tests.dcp.world import STREAM

THEM = ("192.0.2.7", 4_000)
NEXT = wire.VERSION + 1


def dialing() -> tuple[Hub, bytes]:
    """A client that asks THEM for a link, and the body of its request."""
    hub = Hub(rng=random.Random(1))
    hub.subscribe(STREAM)
    hub.add_sender(STREAM, THEM, now=0.0)
    [(request, address)] = hub.datagrams_to_send(now=0.0)
    assert address == THEM
    return hub, wire.decode_open_untrusted(request)[1]


def drained(hub: Hub) -> list[events.Event]:
    return list(iter(hub.next_event, None))


def test_a_request_to_a_later_version_is_refused_with_its_versions():
    hub, request = dialing()
    assert hub.receive_datagram(versions.encode_versions(request, version=NEXT), THEM, now=0.1)
    [refused] = drained(hub)
    assert isinstance(refused, events.LinkRefused)
    assert (refused.reason, refused.body) == (control.Reason.VERSION, bytes((NEXT, NEXT)))
    assert not hub.links_held


def test_only_the_peer_that_was_asked_can_refuse():
    hub, request = dialing()
    hub.receive_datagram(versions.encode_versions(bytes(37), version=NEXT), THEM, now=0.1)
    hub.receive_datagram(versions.encode_versions(request, version=NEXT), ("192.0.2.8", 4_000), now=0.1)
    assert drained(hub) == []
    assert hub.links_held == 1


def test_an_opening_of_a_later_version_is_answered_with_ours_and_no_more_bytes():
    hub = Hub(rng=random.Random(1))
    question = wire.encode_open(handshake.OpenType.REQUEST, bytes(range(80)), version=NEXT)
    assert hub.receive_datagram(question, THEM, now=0.0)
    [(answer, address)] = hub.datagrams_to_send(now=0.0)
    assert address == THEM
    assert len(answer) <= len(question)
    assert answer.hex() == "1008" + answer[2:4].hex() + "0000000000000000" + "7f" + "0101" + bytes(range(37)).hex()
    assert hub.statistics().dropped == {"version": 1}
    assert not hub.receive_datagram(wire.encode_open(1, b"short", version=NEXT)[:12], THEM, now=0.0)
    hub.receive_datagram(wire.encode_open(1, b"", version=NEXT), THEM, now=0.0)  # too short to be answered
    assert hub.datagrams_to_send(now=0.0) == []


def test_answers_to_other_versions_are_few_and_never_answered():
    hub = Hub(rng=random.Random(1))
    for _ in range(1_000):
        hub.receive_datagram(wire.encode_open(1, bytes(80), version=NEXT), THEM, now=0.0)
    assert sum(len(hub.datagrams_to_send(now=0.0)) for _ in range(10)) <= 100
    hub = Hub(rng=random.Random(1))
    hub.receive_datagram(versions.encode_versions(bytes(37), version=NEXT), THEM, now=0.0)
    assert hub.datagrams_to_send(now=0.0) == []


@given(st.integers(2, 15), st.binary(max_size=80))
def test_any_bytes_of_another_version_change_nothing(version, rest):
    hub, _ = dialing()
    hub.receive_datagram(bytes((version << 4,)) + rest, THEM, now=0.1)
    hub.receive_datagram(wire.encode_open(versions.TYPE, rest, version=version), THEM, now=0.1)
    assert drained(hub) == []
    assert hub.links_held == 1
