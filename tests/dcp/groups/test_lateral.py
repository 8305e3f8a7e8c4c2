"""Siblings that mend each other's losses, and siblings that lie."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dcp import lateral, wire
from dcp.config import Config
from dcp.errors import MalformedDatagram
from dcp.lateral import Lateral, Repairer, Sibling, Siblings
from dcp.links.address import is_group
from dcp.testing import Conditions
from tests.dcp.groups.test_groups import CONFIG, LAN, ROOT, Lan

KEY = bytes(range(16))
ONE, OTHER = Sibling("192.0.2.1", 4_000, KEY), Sibling("192.0.2.2", 4_000, KEY)
GOLDEN = {
    "siblings": "0e000000070104c00002010fa0000102030405060708090a0b0c0d0e0f",
    "beat": "0f0100",
    "repair": "0f0002000000050000000600034142",
}
MESSAGES = {"beat": Lateral(True), "repair": Lateral(False, (5, 6), 3, b"AB")}


def test_golden_bytes():
    assert lateral.encode_siblings(Siblings(7, (ONE,))).hex() == GOLDEN["siblings"]
    assert lateral.decode_siblings_untrusted(bytes.fromhex(GOLDEN["siblings"])) == Siblings(7, (ONE,))
    for name, message in MESSAGES.items():
        assert lateral.encode_lateral(message).hex() == GOLDEN[name]
        assert lateral.decode_lateral_untrusted(bytes.fromhex(GOLDEN[name])) == message


@pytest.mark.parametrize("name", GOLDEN)
def test_every_prefix_and_mutation_is_read_or_refused(name):
    decode = lateral.decode_siblings_untrusted if name == "siblings" else lateral.decode_lateral_untrusted
    data, rng = bytes.fromhex(GOLDEN[name]), random.Random(1)
    for _ in range(3_000):
        mutated = bytearray(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)
        for _ in range(rng.randrange(3) if mutated else 0):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        try:
            decode(bytes(mutated))
        except MalformedDatagram:
            continue


@pytest.mark.parametrize(
    "siblings",
    [
        (Sibling("239.1.1.1", 5, KEY),),
        (Sibling("0.0.0.0", 5, KEY),),
        (Sibling("192.0.2.1", 0, KEY),),
        (ONE,) * (lateral.MAX_SIBLINGS + 1),
    ],
    ids=["multicast", "nowhere", "no port", "too many"],
)
def test_lists_of_siblings_that_are_refused(siblings):
    with pytest.raises(MalformedDatagram):
        lateral.decode_siblings_untrusted(lateral.encode_siblings(Siblings(7, siblings)))


# --- in a group -------------------------------------------------------------------------------------------------------


def only_multicast_is_lossy(lan: Lan, victim: str, share: float) -> None:
    """Losses of a member's own receiver, such as a full buffer: the same group's datagrams reach the others."""
    dice, deliver = random.Random(5), lan.net._deliver

    def lossy(source, to, data):
        if is_group(source) and to == (victim, 1) and dice.random() < share:
            return
        deliver(source, to, data)

    lan.net._deliver = lossy


def test_a_member_that_loses_is_mended_by_its_siblings():
    lan = Lan(5).publish(2.5)
    only_multicast_is_lossy(lan, LAN[1], 0.03)
    lan.publish(10.0).run(0.5)
    counters = lan.hubs[LAN[1]].memberships.counters
    assert len(lan.hubs[LAN[1]].memberships) == 1
    assert counters["rebuilt"] >= 8
    lan.check()


def test_without_loss_siblings_send_nothing_but_beats():
    lan = Lan(5).publish(6.0).run(0.5)
    members = [m for name in lan.names for m in lan.hubs[name].memberships._groups.values()]
    assert len(members) == 5
    assert sum(member.repairer.counters["repairs sent"] for member in members) == 0
    assert all(len(member.repairer._siblings) == 4 for member in members)


def test_repairs_are_no_more_than_the_share_of_what_was_heard():
    lan = Lan(5).publish(2.5)
    only_multicast_is_lossy(lan, LAN[1], 0.03)
    lan.publish(6.0)
    assert lan.hubs[LAN[1]].memberships.counters["rebuilt"]
    for name in lan.names[1:]:
        (member,) = lan.hubs[name].memberships._groups.values()
        most = member.highest * CONFIG.lateral_siblings / CONFIG.lateral_every
        assert member.repairer.counters["repairs sent"] <= most


def test_r_and_c_are_each_member_s_own():
    """Eight datagrams for each repair and one sibling for each: members with other settings still read them."""
    lan = Lan(5, config=replace(CONFIG, lateral_every=8, lateral_siblings=1)).publish(2.5)
    only_multicast_is_lossy(lan, LAN[1], 0.03)
    lan.publish(8.0).run(0.5)
    assert lan.hubs[LAN[1]].memberships.counters["rebuilt"]
    for name in lan.names[1:]:
        (member,) = lan.hubs[name].memberships._groups.values()
        assert member.repairer.counters["repairs sent"] <= member.highest / 8
    lan.check()


@pytest.mark.parametrize("wrong", [{"lateral_every": 0}, {"lateral_every": 17}, {"lateral_siblings": 5}])
def test_r_and_c_are_bounded(wrong):
    with pytest.raises(ValueError, match=r"lateral_every must be in 1\.\.16, lateral_siblings in 0\.\.4"):
        Config(**wrong)


def test_large_packets_are_left_to_the_parent():
    lan = Lan(5).publish(2.5)
    only_multicast_is_lossy(lan, LAN[1], 0.05)
    lan.publish(3.0, hz=20.0, size=5_000).run(0.5)
    lan.check()


# --- liars ------------------------------------------------------------------------------------------------------------


class Pair:
    """A repairer, and a sibling that has the right key."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, tuple]] = []
        self.repairer = Repairer(7, lambda data, address: self.sent.append((data, address)), CONFIG)
        self.repairer.set_siblings((ONE,))

    def say(self, message: Lateral | bytes, address=("192.0.2.1", 4_000), key: bytes = KEY):
        body = message if isinstance(message, bytes) else lateral.encode_lateral(message)
        data = wire.encode_bound(lateral._seal(key), 0, wire.CONTROL, 0, 0, 7, body)
        return self.repairer.receive(data, address, 1.0)


def test_a_parent_that_names_a_victim_makes_nobody_send_it_repairs():
    pair = Pair()
    for number in range(100):
        pair.repairer.keep(number, bytes(1_000), 1.0)
    pair.repairer.beat(1.0)
    pair.repairer.beat(1.5)
    assert [len(data) for data, _ in pair.sent] == [wire.BODY_AT + 3], "one small beat per second"


def test_only_the_named_address_with_the_pairs_key_is_listened_to():
    pair = Pair()
    pair.say(Lateral(True))
    for address, key in ((("192.0.2.9", 4_000), KEY), (("192.0.2.1", 4_001), KEY), (("192.0.2.1", 4_000), bytes(16))):
        with pytest.raises(MalformedDatagram):
            pair.say(Lateral(True), address, key)
    with pytest.raises(MalformedDatagram):
        pair.say(Lateral(True), ("192.0.2.1", 4_000, "tcp"))


def test_wrong_lengths_never_come_out():
    pair = Pair()
    for number in range(3):
        pair.repairer.keep(number, bytes(100), 1.0)
    for length in (0, 1, 22, 101, 5_000, 65_535):
        with pytest.raises(MalformedDatagram):
            pair.say(Lateral(False, (0, 1, 2, 3), length ^ 100, bytes(100)))


def test_a_sibling_that_lies_is_no_longer_listened_to_and_costs_no_packet():
    """It has the key, the numbers and the address; what it makes up was not signed by the parent."""
    lan = Lan(4).publish(4.5)
    hub, receiver = lan.hubs[LAN[1]], lan.receivers[LAN[1]]
    (member,) = hub.memberships._groups.values()
    (host, port), known = next(iter(member.repairer._siblings.items()))
    before, rng = receiver.position, random.Random(3)
    for _ in range(50):
        numbers = (member.highest + 1, *list(member.repairer._kept)[-3:])
        lie = lateral.encode_lateral(Lateral(True, numbers, 200, rng.randbytes(600)))
        data = wire.encode_bound(known.seal, 0, wire.CONTROL, 0, 0, member.group.id, lie)
        hub.receive_datagram(data, (host, port), now=lan.net.now)
    assert receiver.position == before
    assert known.lies == lateral.MAX_LIES
    assert hub.memberships.counters["rebuilt"] == 0
    lan.publish(1.0).run(0.5)
    lan.check()


def test_a_true_datagram_under_a_wrong_number_is_a_lie():
    """Otherwise a sibling could mark datagrams as seen that never came."""
    lan = Lan(4).publish(4.5)
    hub = lan.hubs[LAN[1]]
    (member,) = hub.memberships._groups.values()
    (host, port), known = next(iter(member.repairer._siblings.items()))
    kept = member.repairer._kept
    old = kept[next(iter(kept))]
    lie = lateral.encode_lateral(Lateral(True, (member.highest + 5,), len(old), old))
    data = wire.encode_bound(known.seal, 0, wire.CONTROL, 0, 0, member.group.id, lie)
    assert not hub.receive_datagram(data, (host, port), now=lan.net.now)
    assert known.lies == 1
    assert member.highest + 5 not in member.seen | member.rebuilt


def test_siblings_of_another_parents_group_are_not_taken():
    lan = Lan(4).publish(4.5)
    hub = lan.hubs[LAN[1]]
    (member,) = hub.memberships._groups.values()
    before = dict(member.repairer._siblings)
    other = object()
    hub.memberships.siblings_named(other, Siblings(member.group.id, (OTHER,)))
    hub.memberships.siblings_named(member.link, Siblings(member.group.id ^ 1, (OTHER,)))
    assert member.repairer._siblings == before


def test_what_is_kept_is_bounded():
    pair = Pair()
    for number in range(10_000):
        pair.repairer.keep(number, bytes(lateral.MAX_COVERED_BYTES), 1.0)
    assert len(pair.repairer._kept) == lateral.MAX_KEPT
    pair.repairer.keep(10_000, bytes(lateral.MAX_COVERED_BYTES + 1), 1.0)
    assert 10_000 not in pair.repairer._kept


def test_nobody_mends_over_the_root():
    """Repairs go from member to member: the root sends no more than without them."""
    lan = Lan(4, conditions=Conditions(delay=0.001)).publish(4.5)
    assert all(
        (ROOT, 1) not in member.repairer._siblings
        for name in lan.names
        for member in lan.hubs[name].memberships._groups.values()
    )
