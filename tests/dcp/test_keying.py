"""Openings with keys: both ends prove who they are, and whoever sits between them gets nothing but a refused link."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dcp import events, handshake, wire
from dcp.config import Config
from dcp.control import Reason
from dcp.handshake import Accept, Challenge, KeyShare, OpenRequest
from dcp.links import keying
from dcp.links.keying import Keying
from dcp.links.secrecy import is_encrypted
from dcp.testing import Conditions
from dht.identity import Identity
from tests.dcp import packets
from tests.dcp.world import STREAM, Wire, World

REQUIRE = Config(encryption="require")
OFF = Config(encryption="off")
SECRET = b"<flight>DAL1</flight>"

Change = Callable[[handshake.Opening, str], handshake.Opening | None]


def identity(name: str) -> Identity:
    return Identity.from_seed(name.encode().ljust(32, b"\0"))


def opened(data: bytes) -> handshake.Opening | None:
    if is_encrypted(data) or not data[1] & wire.OPEN:
        return None
    return handshake.decode_opening_untrusted(*wire.decode_open_untrusted(data))


def between(world: World, change: Change) -> None:
    """A man in the middle: `change` gets each opening and the name of its sender; None drops it."""
    original = world.net.send

    def send(source, to, data):
        message = opened(data)
        if message is not None:
            changed = change(message, source[0])
            if changed is None:
                return
            data = wire.encode_open(*handshake.encode_opening(changed))
        original(source, to, data)

    world.net.send = send  # type: ignore[method-assign]


def linked(world: World, *, root: Config | None = None, client: Config | None = None) -> World:
    world.root("root", config=root)
    world.client("client", ["root"], config=client)
    world.run(0.5)
    for _ in range(20):
        world.publish("root", SECRET)
        world.run(0.05)
    return world


def is_link_encrypted(world: World) -> bool:
    (up,) = world.receivers["client"].links.values()
    (down,) = world.senders["root"].links.values()
    assert up.is_encrypted == down.is_encrypted
    return bool(up.is_encrypted)


def test_links_of_peers_with_keys_are_encrypted_and_each_end_knows_the_other():
    world = World(1, encrypts=True)
    seen = Wire(world)
    linked(world)
    assert len(world.packets("client")) == 20
    assert is_link_encrypted(world)
    assert world.told("root", events.OpeningReceived)[0].public_key == identity("client").public_key
    assert world.told("client", events.LinkOpened)[0].public_key == identity("root").public_key
    bound = [data for _, _, _, data in seen.seen if opened(data) is None]
    assert bound
    assert all(is_encrypted(data) for data in bound)
    assert not any(SECRET in data or b"flight" in data for _, _, _, data in seen.seen)


def test_a_router_s_links_are_encrypted_both_ways():
    world = World(2, encrypts=True)
    world.root("root")
    world.relay("router", ["root"])
    world.run(0.5)
    world.client("client", ["router"])
    world.run(0.5)
    for _ in range(20):
        world.publish("root", SECRET)
        world.run(0.05)
    assert len(world.packets("client")) == 20


def test_large_packets_and_losses_are_carried_too():
    world = World(3, encrypts=True, conditions=Conditions(loss=0.1))
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    payloads = [bytes((n,)) * 40_000 for n in range(10)]
    for payload in payloads:
        world.publish("root", payload)
        world.run(0.2)
    world.run(3)
    assert [payload for _, payload in world.packets("client")] == payloads


@pytest.mark.parametrize("old", ["root", "client"])
def test_old_and_new_peers_are_linked_during_an_upgrade(old):
    world = World(4, encrypts=True)
    hub = world.hub

    def hub_of(name, config=None):
        world.encrypts = name != old
        return hub(name, config)

    world.hub = hub_of  # type: ignore[method-assign]
    linked(world)
    assert len(world.packets("client")) == 20
    assert not is_link_encrypted(world)


@pytest.mark.parametrize(("root", "client"), [(REQUIRE, OFF), (OFF, REQUIRE)])
def test_who_requires_encryption_gets_it_or_no_link(root, client):
    world = linked(World(5, encrypts=True), root=root, client=client)
    assert world.packets("client") == []
    (refused,) = world.told("client", events.LinkRefused)
    assert refused.reason == Reason.ENCRYPTION
    assert b"encrypt" in refused.body


def test_cleartext_at_one_end_is_a_sealed_link():
    assert not is_link_encrypted(linked(World(5, encrypts=True), root=OFF))


def test_an_encrypted_link_takes_no_packet_in_the_clear():
    world = linked(World(6, encrypts=True))
    hub, (up,) = world.hubs["client"], world.receivers["client"].links.values()
    forged = wire.encode_bound(None, 0, 0, 22, 21, up.id, b"<forged/>")
    assert not hub.receive_datagram(forged, world.address("root"), now=world.net.now)
    assert hub.statistics().dropped["cleartext"] == 1


def test_replayed_and_redirected_datagrams_change_nothing():
    world = World(7, encrypts=True)
    seen = Wire(world)
    linked(world)
    hub = world.hubs["client"]
    said = [data for _, source, _, data in seen.seen if source == "root" and is_encrypted(data)]
    before = world.receivers["client"].statistics(world.net.now)
    for data in said:
        assert not hub.receive_datagram(data, world.address("root"), now=world.net.now)
        assert not hub.receive_datagram(data, world.address("elsewhere"), now=world.net.now)
    after = world.receivers["client"].statistics(world.net.now)
    assert (after.packets, after.duplicates) == (before.packets, before.duplicates)
    assert hub.statistics().dropped["replayed"] == len(said)


# --- a man in the middle ----------------------------------------------------------------------------------------------


def strip_challenge(message: handshake.Opening, source: str) -> handshake.Opening:
    return message._replace(suites=0) if isinstance(message, Challenge) else message


def strip_mode(message: handshake.Opening, source: str) -> handshake.Opening:
    if isinstance(message, OpenRequest) and message.share is None:
        return message._replace(mode=message.mode & ~handshake.MODE_ENCRYPTS)
    return message


def strip_keys(message: handshake.Opening, source: str) -> handshake.Opening:
    return message._replace(share=None) if isinstance(message, OpenRequest | Accept) else message


def weaken(message: handshake.Opening, source: str) -> handshake.Opening:
    if isinstance(message, OpenRequest) and message.share is not None:
        return message._replace(share=message.share._replace(suites=2))
    return message


def move_start(message: handshake.Opening, source: str) -> handshake.Opening:
    return message._replace(start=message.start + 7) if isinstance(message, Accept) else message


def other_hello(message: handshake.Opening, source: str) -> handshake.Opening:
    return message._replace(hello=b"mallory") if isinstance(message, OpenRequest) and message.share else message


class Mallory:
    """Puts its own keys in the place of both ends', and signs what it says with its own identity."""

    def __init__(self) -> None:
        self.keying = Keying(identity("mallory"), "prefer", random.Random(1))
        self.key = self.keying.new_key()

    def __call__(self, message: handshake.Opening, source: str) -> handshake.Opening:
        if isinstance(message, OpenRequest) and message.share is not None:
            return self.keying.keyed(message._replace(share=None), self.key)
        if isinstance(message, Accept) and message.share is not None:
            return message._replace(
                share=KeyShare(
                    message.share.suites,
                    self.key.public_key().public_bytes_raw(),
                    identity("mallory").public_key,
                    bytes(64),
                )
            )
        return message


@pytest.mark.parametrize(
    "change",
    [strip_challenge, strip_keys, weaken, move_start, other_hello, Mallory()],
    ids=lambda c: getattr(c, "__name__", "mallory"),
)
def test_whoever_changes_an_opening_gets_a_refused_link(change):
    world = World(8, encrypts=True)
    between(world, change)
    linked(world)
    world.run(6)
    assert world.packets("client") == []
    assert len(world.told("client", events.LinkRefused)) == 1
    assert world.told("client", events.LinkOpened) == []


def test_stripping_all_signs_of_encryption_fails_where_it_is_required():
    """Nothing tells a stripped opening from an old peer's: `require`, or an earlier link, does."""

    def strip(message, source):
        return strip_challenge(strip_mode(message, source), source)

    for root, client in ((REQUIRE, None), (None, REQUIRE)):
        world = World(9, encrypts=True)
        between(world, strip)
        linked(world, root=root, client=client)
        assert world.packets("client") == []
        assert world.told("client", events.LinkRefused)[0].reason == Reason.ENCRYPTION


def test_a_parent_that_could_encrypt_once_is_not_believed_to_have_forgotten_it():
    world = linked(World(10, encrypts=True))
    (link,) = world.receivers["client"].links
    world.receivers["client"].remove_sender(link)
    between(world, lambda message, source: strip_challenge(strip_mode(message, source), source))
    world.join("client", "root")
    world.run(1)
    assert world.told("client", events.LinkRefused)[0].reason == Reason.ENCRYPTION


def test_a_man_in_the_middle_with_his_own_keys_is_not_the_peer_that_was_asked_for():
    """He may be a peer himself, and sign everything rightly: the child knows from the directory whom it asks."""
    world = World(11, encrypts=True)
    world.root("root")
    world.client("client")
    expected = identity("somebody else").public_key
    hub = world.hubs["client"]
    hub.add_sender(STREAM, world.address("root"), now=world.net.now, is_expected=lambda key: key == expected)
    world.net.pump(world.address("client"))
    world.run(1)
    (refused,) = world.told("client", events.LinkRefused)
    assert (refused.reason, refused.body) == (Reason.OTHER_PEER, identity("root").public_key)


def test_a_recorded_opening_opens_nothing_a_second_time():
    world = World(12, encrypts=True)
    seen = Wire(world)
    linked(world)
    requests = [data for _, source, _, data in seen.seen if source == "client" and opened(data) is not None]
    root = world.senders["root"]
    links = set(root.links)
    for data in requests:
        world.hubs["root"].receive_datagram(data, world.address("client"), now=world.net.now)
    world.run(0.5)
    assert set(root.links) == links
    (link,) = links
    root.close(link, Reason.NORMAL)
    world.run(0.5)
    for data in requests:  # a new link, of which the replayer has no key: the child answers "unknown", and it goes
        world.hubs["root"].receive_datagram(data, world.address("client"), now=world.net.now)
    world.net.pump(world.address("root"))
    world.run(6)
    assert all(link.child.floor is None for link in root.links.values()) or not root.links


def test_no_state_and_no_signature_before_the_cookie(monkeypatch):
    world = World(13, encrypts=True)
    world.root("root")
    checks = []
    monkeypatch.setattr("dcp.links.answering.check_request_untrusted", lambda request: checks.append(1))
    request = OpenRequest(8, 5, bytes(16), bytes(16), 0, 0, 0, 100, 1, STREAM.encode(), b"", b"")
    request = Keying(identity("x"), "prefer", random.Random(1)).keyed(request, Mallory().key)
    data = wire.encode_open(*handshake.encode_opening(request))
    hub = world.hubs["root"]
    hub.receive_datagram(data, ("x", 1), now=0.0)
    ((answer, _),) = hub.datagrams_to_send(now=0.0)
    assert isinstance(opened(answer), Challenge)
    assert len(answer) <= len(data)
    assert checks == []


def test_every_prefix_and_changed_byte_of_a_keyed_request_is_refused():
    maker = Keying(identity("child"), "prefer", random.Random(1))
    request = OpenRequest(8, 5, bytes(16), bytes(16), 0, 0, 0, 100, 1, b"asdi", b"//a", b"hi")
    signed = maker.keyed(request, maker.new_key())
    keying.check_request_untrusted(signed)
    kind, body = handshake.encode_opening(signed)

    def takes(changed: bytes) -> bool:
        try:
            message = handshake.decode_opening_untrusted(kind, changed)
            assert isinstance(message, OpenRequest)
            keying.check_request_untrusted(message)
        except keying.MalformedDatagram:
            return False
        return True

    assert takes(body)
    assert not any(takes(body[:length]) for length in range(len(body)))
    assert not any(takes(body[:at] + bytes((body[at] ^ 0x10,)) + body[at + 1 :]) for at in range(len(body)))


def test_every_prefix_and_changed_byte_of_a_keyed_accept_is_refused():
    """Also by what is signed beside the accept itself: a change of the other's request is one of the binding."""
    kind, body = handshake.encode_opening(packets.KEYED_ACCEPT)

    def takes(changed: bytes, request: OpenRequest = packets.KEYED_REQUEST) -> bool:
        try:
            message = handshake.decode_opening_untrusted(kind, changed)
            assert isinstance(message, Accept)
            packets.CHILD_KEYING.ciphers_of_accept_untrusted(request, message, packets.CHILD_KEY)
        except keying.MalformedDatagram:
            return False
        return True

    assert takes(body)
    assert not any(takes(body[:length]) for length in range(len(body)))
    assert not any(takes(body[:at] + bytes((body[at] ^ 0x10,)) + body[at + 1 :]) for at in range(len(body)))
    for change in ({"mode": 0}, {"link": 1}, {"nonce": bytes(16)}, {"stream": b"asdj"}):
        assert not takes(body, packets.KEYED_REQUEST._replace(**change))


def test_a_key_of_low_order_makes_no_link():
    """With such a key the secret would be all zero, whatever the other end chose."""
    world = World(14, encrypts=True)
    maker = Keying(identity("client"), "prefer", random.Random(1))

    class Zero:
        def public_key(self):
            return self

        def public_bytes_raw(self):
            return bytes(32)

    between(
        world,
        lambda m, s: maker.keyed(m._replace(share=None), Zero()) if isinstance(m, OpenRequest) and m.share else m,  # type: ignore[arg-type]
    )
    linked(world)
    assert world.senders["root"].links == {}


def test_a_short_encrypted_datagram_brings_no_answer():
    """One byte once brought a reset of 17: a forged source address would have made us a small amplifier."""
    hub = World(15, encrypts=True).hub("x")
    for length in range(1, 60):
        hub.receive_datagram(b"\xf0" + bytes(length - 1), ("192.0.2.1", 9), now=float(length))
        assert sum(len(answer) for answer, _ in hub.datagrams_to_send(now=float(length))) <= length
