"""Groups of encrypted links: members read them, others on the LAN don't."""

from __future__ import annotations

import pytest

from dcp import group_messages, groups
from dcp.config import Config
from dcp.errors import MalformedDatagram
from dcp.group_messages import Group
from dcp.links.address import is_group
from tests.dcp.groups.test_groups import Lan


def test_a_group_of_encrypted_links_shows_no_plaintext():
    world = Lan(encrypts=True)
    seen: list[bytes] = []
    original = world.net.send

    def send(source, to, data):
        if is_group(to):
            seen.append(data)
        original(source, to, data)

    world.net.send = send  # type: ignore[method-assign]
    world.publish(3.0)
    world.run(1.0)
    world.check()
    assert len(seen) > 50
    assert not any(b"%d %d " % (number, number) in data for data in seen for number in range(1, world.number + 1))


def test_children_with_and_without_encryption_are_in_different_groups():
    world = Lan(children=0, encrypts=True)
    for name in ("192.168.7.2", "192.168.7.3", "192.168.7.4"):
        world.client(name, ["192.168.7.1"])
    for name in ("192.168.7.5", "192.168.7.6", "192.168.7.7"):
        world.client(name, ["192.168.7.1"], config=Config(multicast=True, encryption="off"))
    world.names = [f"192.168.7.{number}" for number in range(2, 8)]
    world.publish(3.0)
    world.run(1.0)
    world.check()
    made = world.sender.groups
    assert made is not None
    assert sorted(group.kind.is_encrypted for group in made._groups.values()) == [False, True]


def test_a_group_ends_before_a_number_is_used_twice():
    world = Lan(encrypts=True)
    world.publish(2.0)
    made = world.sender.groups
    assert made is not None
    (group,) = made._groups.values()
    group.number = group_messages.MAX_NUMBER - groups._NUMBERS_KEPT
    world.publish(0.1)
    assert group.id not in made._groups


def test_the_offer_with_a_key_is_read_and_every_prefix_is_refused():
    for host in ("239.255.1.2", "ff12::7"):
        offer = Group(7, 3, bytes(range(32)), 24_001, host, bytes(range(16)))
        body = group_messages.encode_group(offer)
        assert group_messages.decode_group_untrusted(body) == offer
        for length in range(len(body)):
            try:
                assert group_messages.decode_group_untrusted(body[:length]) != offer
            except MalformedDatagram:
                continue
    with pytest.raises(MalformedDatagram):
        group_messages.decode_group_untrusted(body + b"\0")
