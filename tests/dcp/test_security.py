"""Who merely knows addresses can do nothing; who is unknown costs nothing and gets back no more bytes than it sent."""

from __future__ import annotations

import random

import pytest

from dcp import events, handshake, wire
from dcp.config import Config
from dcp.control import Reason
from dcp.handshake import Start
from dcp.hub import MAX_RESETS_PER_SECOND, Hub
from dcp.testing import Conditions
from tests.dcp import packets
from tests.dcp.test_wire import mutate, snapshot
from tests.dcp.world import STREAM, Wire, World

STRANGER = ("mallory", 9)


def request(hub_link: int = 77, *, cookie: bytes = handshake.NO_COOKIE, **changes: object) -> handshake.OpenRequest:
    plain = handshake.OpenRequest(
        mode=0,
        link=hub_link,
        nonce=b"n" * 16,
        cookie=cookie,
        epoch=0,
        start=Start.NEW,
        position=0,
        room=100,
        clock=1,
        stream=STREAM.encode(),
        query=b"",
        hello=b"",
    )
    return plain._replace(**changes)


def encoded(message: handshake.Opening) -> bytes:
    return wire.encode_open(*handshake.encode_opening(message))


def answers(hub: Hub, now: float = 0.0) -> list[bytes]:
    return [data for data, _ in hub.datagrams_to_send(now=now)]


def busy_root() -> World:
    world = World(1)
    world.root("root")
    world.publish("root", b"x" * 1000)
    return world.run(0.1)


# --- before the echo --------------------------------------------------------------------------------------------------


def test_a_request_costs_no_state_until_its_cookie_comes_back():
    world = busy_root()
    hub, sender = world.hubs["root"], world.senders["root"]
    for number in range(1_000):
        hub.receive_datagram(
            encoded(request(nonce=number.to_bytes(16))), (f"10.0.{number % 250}.1", 5), now=world.net.now
        )
    assert (len(sender._answering.tickets), len(sender.children), len(hub._events)) == (0, 0, 0)
    assert len(hub._downlinks) == 0
    challenges = answers(hub)
    assert {wire.decode_open_untrusted(data)[0] for data in challenges} == {handshake.OpenType.CHALLENGE}


def test_a_cookie_opens_only_from_the_address_it_was_sent_to():
    world = busy_root()
    hub = world.hubs["root"]
    hub.receive_datagram(encoded(request()), ("victim", 5), now=world.net.now)
    (challenge,) = answers(hub)
    cookie = handshake.decode_opening_untrusted(*wire.decode_open_untrusted(challenge)).cookie
    hub.receive_datagram(encoded(request(cookie=cookie)), STRANGER, now=world.net.now)
    assert hub.next_event() is None
    hub.receive_datagram(encoded(request(cookie=cookie)), ("victim", 5), now=world.net.now)
    assert isinstance(hub.next_event(), events.OpeningReceived)


def test_no_unauthenticated_input_brings_more_bytes_than_it_had():
    """Every packet type, whole, cut and mutated, from a stranger: measured over all of them, and one by one."""
    world = busy_root()
    world.relay("relay", ["root"])
    world.run(0.5)
    rng = random.Random(3)
    inputs = [sample.data for sample in packets.samples()]
    inputs += [encoded(request()), encoded(handshake.Inquire(b"n" * 16, handshake.NO_COOKIE, b""))]
    inputs += [mutate(rng.choice(inputs), rng) for _ in range(3_000)]
    for name in ("root", "relay"):
        hub = world.hubs[name]
        bytes_in = bytes_out = 0
        now = world.net.now
        for data in inputs:
            now += 0.02  # slowly, so that the limit on resets hides nothing
            hub.receive_datagram(data, STRANGER, now=now)
            out = [reply for reply, to in hub.datagrams_to_send(now=now) if to == STRANGER]
            assert len(out) <= 1
            assert sum(map(len, out)) <= len(data), data.hex()
            bytes_in += len(data)
            bytes_out += sum(map(len, out))
            while hub.next_event() is not None:
                pass
        assert 0 < bytes_out <= bytes_in


def test_resets_are_few():
    world = busy_root()
    hub = world.hubs["root"]
    for _ in range(1_000):
        hub.receive_datagram(packets.sealed("data"), STRANGER, now=5.0)
    assert len(answers(hub)) == MAX_RESETS_PER_SECOND
    assert hub.statistics().dropped["unknown link"] == 1_000


def test_openings_are_few_even_with_good_cookies():
    world = busy_root()
    hub = world.hubs["root"]
    hub.receive_datagram(encoded(request()), STRANGER, now=5.0)
    (challenge,) = answers(hub)
    cookie = handshake.decode_opening_untrusted(*wire.decode_open_untrusted(challenge)).cookie
    for number in range(2_000):
        hub.receive_datagram(encoded(request(nonce=number.to_bytes(16), cookie=cookie)), STRANGER, now=5.0)
    assert len(world.senders["root"]._answering.tickets) <= world.config.max_openings_per_host
    assert hub.statistics().dropped["opening rate"] == 2_000 - world.config.max_openings_per_host
    # One host's crowd shuts nobody else out.
    hub.receive_datagram(encoded(request(nonce=b"o" * 16)), ("other", 5), now=5.0)
    (challenge,) = answers(hub)
    cookie = handshake.decode_opening_untrusted(*wire.decode_open_untrusted(challenge)).cookie
    before = len(world.senders["root"]._answering.tickets)
    hub.receive_datagram(encoded(request(nonce=b"o" * 16, cookie=cookie)), ("other", 5), now=5.0)
    assert len(world.senders["root"]._answering.tickets) == before + 1


def test_a_child_that_never_confirms_is_forgotten_and_got_no_data():
    world = busy_root()
    wire_tap = Wire(world)
    hub, sender = world.hubs["root"], world.senders["root"]
    hub.receive_datagram(encoded(request()), STRANGER, now=world.net.now)
    (challenge,) = answers(hub)
    cookie = handshake.decode_opening_untrusted(*wire.decode_open_untrusted(challenge)).cookie
    hub.receive_datagram(encoded(request(cookie=cookie)), STRANGER, now=world.net.now)
    world.net.pump(("root", 1))
    assert len(sender.children) == 1
    world.publish("root", b"y" * 1000)
    world.run(world.config.confirm_timeout + 0.5)
    assert len(sender.children) == 0
    assert wire_tap.packets_sent("root", "mallory") == []


# --- from a right address, without the key ----------------------------------------------------------------------------


@pytest.mark.parametrize("seal", ["none", "zero", "another session", "other direction"])
def test_forged_packets_from_a_right_address_change_nothing(seal):
    world = World(2)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    world.publish("root", b"one")
    world.run(0.5)
    uplink = next(iter(world.receivers["client"].links.values()))
    downlink = next(iter(world.senders["root"].links.values()))
    before = snapshot(world)
    right = {"client": downlink.seal_out, "root": uplink.seal_out}
    for target, source, link, bodies in (
        ("client", "root", uplink, packets.BODIES),
        ("root", "client", downlink, packets.CHILD_BODIES),
    ):
        wrong = {
            "none": None,
            "zero": wire.Seal(bytes(32)),
            "another session": packets.TO_CHILD,
            "other direction": right["root" if target == "client" else "client"],
        }[seal]
        for name, (flags, an, prev, body) in bodies.items():
            for more in (0, wire.ACK_REQUEST):
                data = wire.encode_bound(wrong, 0, flags | more, an, prev, link.id, body)
                world.hubs[target].receive_datagram(data, (source, 1), now=world.net.now + 0.01)
                assert world.hubs[target].statistics().dropped["seal"], name
    assert snapshot(world) == before
    assert all(hub.datagrams_to_send(now=world.net.now) == [] for hub in world.hubs.values())


def test_a_sealed_packet_from_another_address_changes_nothing():
    world = World(2)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    (link,) = world.senders["root"].links.values()
    before = snapshot(world)
    world.hubs["client"].receive_datagram(link.encode(0, 1, 0, b"replayed"), STRANGER, now=world.net.now)
    assert snapshot(world) == before
    assert world.hubs["client"].statistics().dropped["address"] == 1


def test_a_forged_reset_only_makes_the_link_ask():
    world = World(3)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    uplink = next(iter(world.receivers["client"].links.values()))
    downlink = next(iter(world.senders["root"].links.values()))
    for target, source, link in (("client", "root", uplink), ("root", "client", downlink)):
        for guess in (link.remote_id, link.id, 5):
            data = encoded(handshake.Reset(guess))
            world.hubs[target].receive_datagram(data, (source, 1), now=world.net.now)
            world.hubs[target].receive_datagram(data, STRANGER, now=world.net.now)
        world.net.pump((target, 1))
    world.run(3.0)
    world.publish("root", b"still here")
    world.run(0.5)
    assert world.packets("client") == [(1, b"still here")]
    assert world.told("client", events.LinkLost) == world.told("root", events.ChildLost) == []


def test_a_flood_of_resets_is_looked_at_only_so_often():
    """Found by reading: each was compared with every link there is."""
    world = World(3)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    hub = world.hubs["root"]
    for number in range(1_000):
        hub.receive_datagram(encoded(handshake.Reset(number)), STRANGER, now=world.net.now)
    dropped = hub.statistics().dropped
    assert dropped["reset rate"] == 1_000 - MAX_RESETS_PER_SECOND
    assert dropped["unknown reset"] == MAX_RESETS_PER_SECOND


# --- former lives -----------------------------------------------------------------------------------------------------


def test_delayed_data_of_an_earlier_session_of_the_same_addresses_is_never_taken():
    """The client restarts and dials the same root from the same address; then all of its old life arrives once more."""
    for seed in range(5):
        world = World(seed)
        tap = Wire(world)
        world.root("root")
        world.client("client", ["root"])
        world.run(0.3)
        for i in range(20):
            world.publish("root", b"old %d" % i)
        world.run(0.5)
        old = [(source, to, data) for _, source, to, data in tap.seen]
        world.root("root", start=0)  # both restart: the same numbers mean other packets now
        world.got.clear()
        world.client("client", ["root"])
        world.run(0.3)
        for i in range(3):
            world.publish("root", b"new %d" % i)
        rng = random.Random(seed)
        rng.shuffle(old)
        for source, to, data in old:
            world.hubs[to].receive_datagram(data, (source, 1), now=world.net.now)
            world.net.pump((to, 1))
        world.run(2.0)
        for i in range(3, 25):
            world.publish("root", b"new %d" % i)
        world.run(2.0)
        assert world.packets("client") == [(i + 1, b"new %d" % i) for i in range(25)], f"seed {seed}"


def test_replayed_handshakes_make_no_second_link():
    world = World(4)
    tap = Wire(world)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    for _, source, to, data in list(tap.seen):
        if data[1] & wire.OPEN:
            world.hubs[to].receive_datagram(data, (source, 1), now=world.net.now)
            world.net.pump((to, 1))
    world.run(1.0)
    assert len(world.senders["root"].children) == 1
    assert len(world.receivers["client"].links) == 1


def test_a_restarted_parent_says_reset_and_the_child_notices_soon():
    world = World(5)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    world.root("root", start=10)
    world.run(2.0)
    (lost,) = world.told("client", events.LinkLost)
    assert lost.reason == Reason.RESET


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "child", "works"), [(True, True, True), (False, False, True), (True, False, False), (False, True, True)]
)
def test_who_wants_seals_gets_them(parent, child, works):
    world = World(6, conditions=Conditions())
    world.root("root", config=Config(sealed=parent))
    world.client("client", ["root"], config=Config(sealed=child))
    world.run(0.5)
    world.publish("root", b"hello")
    world.run(0.5)
    assert (world.packets("client") == [(1, b"hello")]) == works
    assert [e.reason for e in world.told("client", events.LinkRefused)] == ([] if works else [Reason.MODE_MISMATCH])


def test_unknown_streams_and_full_senders_are_refused_with_a_reason():
    world = World(7, config=Config(max_links=1))
    world.root("root")
    world.client("first", ["root"])
    world.run(0.5)
    world.client("second", ["root"])
    other = world.hub("lost")
    other.subscribe("no such stream")
    world.net.add(("lost", 1), other)
    other.add_sender("no such stream", ("root", 1), now=world.net.now)
    world.net.pump(("lost", 1))
    world.run(0.5)
    assert [e.reason for e in world.told("second", events.LinkRefused)] == [Reason.FULL]
    assert [e.reason for e in world.told("lost", events.LinkRefused)] == [Reason.STREAM_UNKNOWN]


def test_an_owner_that_never_answers_is_bounded():
    world = World(8)
    world.accepting = False
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    assert len(world.senders["root"]._answering.tickets) == 1
    world.run(world.config.open_timeout + 1.0)
    assert len(world.senders["root"]._answering.tickets) == 0
    assert [e.reason for e in world.told("client", events.LinkRefused)] == [Reason.TIMED_OUT]


def test_an_opening_answered_after_its_stream_was_removed_is_not_an_error():
    """Found by reading: a KeyError, in the shell's event loop, when a stream is closed while somebody joins."""
    world = World(9)
    world.accepting = False
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    (opening,) = world.told("root", events.OpeningReceived)
    hub = world.hubs["root"]
    hub.remove_stream(STREAM)
    assert hub.accept(STREAM, opening.ticket, now=world.net.now) is None
    hub.refuse(STREAM, opening.ticket, Reason.FULL)
