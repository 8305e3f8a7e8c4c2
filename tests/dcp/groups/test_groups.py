"""Multicast groups in virtual time: formed, heard, left, and never a packet lost or repeated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dcp import control, events, group_messages, groups, memberships, wire
from dcp.config import Config
from dcp.errors import MalformedDatagram
from dcp.group_messages import Group, Heard
from dcp.groups import lan_of
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.links.address import is_group, to_group
from dcp.testing import Conditions
from tests.dcp.world import STREAM, World

CONFIG = Config(multicast=True)
LAN = [f"192.168.7.{number}" for number in range(1, 9)]
ROOT = LAN[0]


class Lan(World):
    """A root and its children on one LAN; counts what goes over it."""

    def __init__(self, children: int = 4, *, conditions: Conditions | None = None, config: Config = CONFIG, **more):
        super().__init__(config=config, conditions=conditions or Conditions(delay=0.001), **more)
        self.sent_to_groups = 0
        self.unicast = 0
        send = self.net.send

        def count(source, to, data):
            if source == (ROOT, 1) and len(data) > 300:
                self.sent_to_groups += is_group(to)
                self.unicast += not is_group(to)
            send(source, to, data)

        self.net.send = count
        self.sender = self.root(ROOT)
        self.names = LAN[1 : 1 + children]
        for name in self.names:
            self.client(name, [ROOT], start=Start.NEW)
        self.number = 0

    def publish(self, seconds: float, *, hz: float = 50.0, size: int = 400) -> Lan:
        end = self.net.now + seconds
        while self.net.now < end:
            self.number += 1
            self.sender.publish(b"%d " % self.number * (size // len(b"%d " % self.number)))
            self.net.pump((ROOT, 1))
            self.run(1 / hz)
        return self

    def numbers(self, name: str) -> list[int]:
        found = []
        for item in self.got[name]:
            assert not isinstance(item, events.Gap)
            if isinstance(item, events.Packet):
                found.append(int(item.payload.split()[0]))
        return found

    def check(self) -> None:
        """Everybody has everything since its start, once each, in order."""
        for name in self.names:
            if name in self.receivers:
                numbers = self.numbers(name)
                assert numbers == list(range(numbers[0], self.number + 1)), name

    def hub_of(self, name: str) -> Hub:
        return self.hubs[name]


def test_children_with_one_query_on_one_lan_get_one_datagram():
    lan = Lan(6).publish(2.0)
    assert lan.sender.groups.listening == 6
    lan.sent_to_groups = lan.unicast = 0
    lan.publish(2.0).run(0.5)
    assert lan.unicast == 0
    assert 90 <= lan.sent_to_groups <= 110
    lan.check()


@pytest.mark.parametrize("seed", range(20))
def test_every_group_of_ipv6_has_an_address(seed):
    """Found by real namespaces: a number of 16 bits made five hexadecimal digits."""
    lan = World(seed=seed, config=CONFIG, conditions=Conditions(delay=0.001))
    sender = lan.root("fd78::1")
    sender.publish(b"first")
    for number in (2, 3, 4):
        lan.client(f"fd78::{number}", ["fd78::1"])
    lan.run(2.0)
    assert sender.groups.listening == 3


def test_two_children_are_not_worth_a_group():
    lan = Lan(2).publish(3.0)
    assert len(lan.sender.groups) == 0
    assert lan.sent_to_groups == 0
    lan.check()


def test_children_that_do_not_know_groups_are_not_offered_one():
    lan = Lan(0)
    for name in LAN[1:5]:
        hub = lan.hub(name, replace(CONFIG, multicast=False))
        lan.receivers[name] = hub.subscribe(STREAM)
        lan.net.add((name, 1), hub)
        lan.join(name, ROOT)
    lan.names = LAN[1:5]
    lan.publish(2.0).run(0.5)
    assert len(lan.sender.groups) == 0
    assert all(hub.statistics().dropped == {} for hub in lan.hubs.values())
    lan.check()


def test_what_a_group_loses_comes_over_the_links():
    lan = Lan(5, conditions=Conditions(delay=0.001, loss=0.04)).publish(6.0)
    lan.net.set_conditions(Conditions(delay=0.001))
    lan.run(1.0)
    assert lan.sent_to_groups > 100
    lan.check()


def test_a_child_that_hears_no_multicast_stays_on_its_link():
    lan = Lan(5)
    lan.net.deaf.add((LAN[1], 1))
    lan.publish(6.0).run(0.5)
    assert lan.sender.groups.listening == 4
    assert lan.hub_of(LAN[1]).memberships.counters["not heard"] >= 1
    lan.check()


def test_where_nobody_hears_it_a_group_is_given_up():
    lan = Lan(4)
    lan.net.deaf |= {(name, 1) for name in LAN}
    lan.publish(6.0).run(0.5)
    assert len(lan.sender.groups) == 0
    assert lan.sent_to_groups == 0
    assert lan.sender.groups.counters["dissolved"] == 1, "and not offered again at once"
    lan.check()


def test_a_group_that_falls_silent_is_left_within_its_second():
    lan = Lan(4).publish(2.0)
    assert lan.sender.groups.listening == 4
    lan.net.deaf |= {(name, 1) for name in LAN}
    lan.publish(memberships.MAX_SILENCE + groups.LEASE + 0.5)
    assert lan.sender.groups.listening == 0
    assert all(len(lan.hub_of(name).memberships) == 0 for name in lan.names)
    lan.run(0.5)
    lan.check()


def test_a_member_with_much_loss_leaves_and_the_others_stay():
    lan = Lan(5).publish(2.0)
    lan.net.set_conditions(Conditions(delay=0.001, loss=0.3), (ROOT, 1), (LAN[1], 1))
    lan.publish(5.0)
    assert lan.hub_of(LAN[1]).memberships.counters["loss"] == 1
    assert lan.sender.groups.listening == 4
    lan.net.set_conditions(Conditions(delay=0.001), (ROOT, 1), (LAN[1], 1))
    lan.run(1.0)
    lan.check()


def test_a_fast_stream_goes_back_to_links(monkeypatch):
    lan = Lan(4).publish(2.0)
    assert lan.sender.groups.listening == 4
    lan.publish(1.5, hz=900.0)
    assert lan.sender.groups.counters["too fast"] == 1
    assert lan.sender.groups.listening == 0
    lan.run(1.0)
    lan.check()


def test_a_member_leaves_on_prepare_and_the_others_stay():
    lan = Lan(
        5,
    ).publish(2.0)
    lan.receivers[LAN[1]].change_query(b"other", now=lan.net.now)
    lan.net.pump((LAN[1], 1))
    lan.publish(1.0)
    assert lan.sender.groups.listening == 4
    assert len(lan.hub_of(LAN[1]).memberships) == 0
    lan.run(0.5)
    for name in lan.names[1:]:
        assert lan.numbers(name)[-1] == lan.number


def test_members_that_die_end_the_group_when_two_are_left():
    lan = Lan(4).publish(2.0)
    for name in LAN[1:3]:
        lan.net.crash((name, 1))
        del lan.receivers[name]
    lan.publish(8.0).run(0.5)
    assert lan.sender.groups.listening == 0
    lan.check()


def test_a_child_that_comes_later_joins_the_group():
    lan = Lan(3).publish(2.0)
    assert lan.sender.groups.listening == 3
    lan.client(LAN[6], [ROOT])
    lan.names = [*lan.names, LAN[6]]
    lan.publish(2.0).run(0.5)
    assert lan.sender.groups.listening == 4
    lan.check()


def test_large_packets_go_to_the_group_in_pieces():
    lan = Lan(4).publish(2.0)
    lan.sent_to_groups = lan.unicast = 0
    lan.publish(1.0, hz=20.0, size=5_000).run(0.5)
    assert lan.sent_to_groups >= 20 * 4
    assert lan.unicast == 0
    lan.check()


def test_an_idle_stream_keeps_its_group():
    lan = Lan(4).publish(2.0)
    lan.run(5.0)
    assert lan.sender.groups.listening == 4
    lan.publish(0.5).run(0.5)
    lan.check()


def test_a_parent_whose_link_ends_takes_its_group_along():
    lan = Lan(4).publish(2.0)
    for name in lan.names:
        for link in list(lan.receivers[name].links):
            lan.receivers[name].remove_sender(link)
        lan.net.pump((name, 1))
    lan.run(1.0)
    assert all(len(lan.hub_of(name).memberships) == 0 for name in lan.names)
    assert len(lan.sender.groups) == 0


@pytest.mark.parametrize(
    ("host", "lan"),
    [
        ("192.168.7.1", "4/c0a807"),
        ("127.0.0.1", ""),
        ("8.8.8.8", ""),
        ("fe80::1", "6/fe80000000000000"),
        ("2a00::1", ""),
        ("fd00::5", "6/fd00000000000000"),
        ("no address", ""),
    ],
)
def test_only_neighbours_are_asked(host, lan):
    assert lan_of((host, 1), CONFIG) == lan
    assert lan_of((host, 1, "tcp"), CONFIG) == ""


# --- bytes and liars --------------------------------------------------------------------------------------------------

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
GROUP = Group(0x01020304, 3, KEY.public_key().public_bytes_raw(), 24_001, "239.255.1.2")
GOLDEN = {
    "group": "0c010203040000000303a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b85dc1efff0102",
    "heard": "0d010203040000000000000009",
}


def test_golden_bytes():
    assert group_messages.encode_group(GROUP).hex() == GOLDEN["group"]
    assert group_messages.encode_heard(Heard(0x01020304, 9)).hex() == GOLDEN["heard"]
    assert group_messages.decode_group_untrusted(bytes.fromhex(GOLDEN["group"])) == GROUP
    v6 = GROUP._replace(host="ff12::5abc:1")
    assert group_messages.decode_group_untrusted(group_messages.encode_group(v6)) == v6


@pytest.mark.parametrize("name", GOLDEN)
def test_every_prefix_and_mutation_is_read_or_refused(name):
    decode = {"group": group_messages.decode_group_untrusted, "heard": group_messages.decode_heard_untrusted}[name]
    data = bytes.fromhex(GOLDEN[name])
    rng = random.Random(1)
    for end in range(1, len(data)):
        with pytest.raises(MalformedDatagram):
            decode(data[:end])
    for _ in range(2_000):
        mutated = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(1, len(mutated))] = rng.randrange(256)
        try:
            decode(bytes(mutated))
        except MalformedDatagram:
            continue


@pytest.mark.parametrize("host", ["224.0.0.1", "8.8.8.8", "240.1.1.1", "ff0e::1", "ff05::1", "::1"])
def test_a_parent_can_make_nobody_listen_to_other_groups(host):
    with pytest.raises(MalformedDatagram):
        group_messages.decode_group_untrusted(group_messages.encode_group(GROUP._replace(host=host)))


@pytest.mark.parametrize("change", [{"port": 53}, {"id": 0}])
def test_ports_of_the_system_and_no_id_are_refused(change):
    with pytest.raises(MalformedDatagram):
        group_messages.decode_group_untrusted(group_messages.encode_group(GROUP._replace(**change)))


def spied(lan: Lan) -> list[bytes]:
    """What goes to the group, as a member or a stranger on the LAN sees it."""
    seen: list[bytes] = []
    send = lan.net.send

    def spy(source, to, data):
        if is_group(to):
            seen.append(data)
        send(source, to, data)

    lan.net.send = spy
    return seen


SOURCE = to_group(LAN[7], 9, "")


def test_nobody_but_the_parent_speaks_for_the_group():
    """A member, who has the address, the id and the public key, forges a packet; it was never signed by the parent."""
    lan = Lan(4).publish(2.0)
    seen = spied(lan)
    lan.publish(0.2)
    hub, receiver = lan.hub_of(LAN[1]), lan.receivers[LAN[1]]
    forged = wire.encode_bound(None, 0, 0, lan.number + 1, lan.number, int.from_bytes(seen[-1][12:16], "big"), b"lie")
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    before = receiver.position
    assert not hub.receive_datagram(group_messages.sign(forged, 10_000, other), SOURCE, now=lan.net.now)
    data = bytearray(seen[-1])
    for at in range(len(data)):
        data[at] ^= 1
        hub.receive_datagram(bytes(data), SOURCE, now=lan.net.now)
        data[at] ^= 1
    assert receiver.position == before
    assert hub.statistics().dropped["signature"] > 100
    lan.publish(0.5).run(0.5)
    lan.check()


def test_a_replayed_datagram_neither_counts_as_heard_nor_costs_a_packet():
    lan = Lan(4).publish(2.0)
    seen = spied(lan)
    lan.publish(0.5)
    hub = lan.hub_of(LAN[1])
    for data in seen[:20]:
        assert not hub.receive_datagram(data, SOURCE, now=lan.net.now)
    assert hub.statistics().dropped["repeated"] == 20


def test_a_flood_costs_no_more_signatures_than_the_limit():
    lan = Lan(4).publish(2.0)
    seen = spied(lan)
    lan.publish(0.1)
    hub = lan.hub_of(LAN[1])
    flood = seen[-1][:-1] + bytes([seen[-1][-1] ^ 1])
    for _ in range(3_000):
        hub.receive_datagram(flood, SOURCE, now=lan.net.now)
    dropped = hub.statistics().dropped
    assert dropped["signature"] <= memberships.MAX_CHECKS_PER_HOST
    assert dropped["group rate"] >= 2_000
    lan.publish(0.5).run(0.5)
    lan.check()


def test_openings_and_garbage_from_a_group_are_dropped():
    hub = Lan(1).hub_of(LAN[1])
    rng = random.Random(1)
    for size in (0, 1, 12, 13, 22, 89, 90, 91, 1_400):
        assert not hub.receive_datagram(bytes([0x10, 0x08]) + rng.randbytes(size), SOURCE, now=1.0)
        assert not hub.receive_datagram(rng.randbytes(size), SOURCE, now=1.0)
    assert [to for _, to in hub.datagrams_to_send(now=1.0) if is_group(to)] == []


def test_a_parent_that_offers_many_groups_fills_no_table():
    lan = Lan(1).publish(0.5)
    hub, receiver = lan.hub_of(LAN[1]), lan.receivers[LAN[1]]
    (link,) = receiver.links.values()
    for number in range(1, 200):
        hub.memberships.offered(receiver, link, GROUP._replace(id=number, epoch=0), lan.net.now)
        assert len(hub.memberships) == 1, "one for each parent, the last one offered"
    lan.run(memberships.JOIN_SECONDS + 0.5)
    assert len(hub.memberships) == 0


def test_heard_from_children_that_were_not_offered_it_is_ignored():
    lan = Lan(4).publish(2.0)
    stranger = lan.client(LAN[7], [ROOT])
    lan.publish(0.02)
    group_id = next(iter(lan.sender.groups._groups))
    (link,) = stranger.links.values()
    for body in (Heard(group_id, 5), Heard(group_id ^ 1, 5), Heard(7, group_messages.LEFT)):
        stranger.send_control(link, group_messages.encode_heard(body))
    lan.names = [*lan.names, LAN[7]]
    lan.publish(3.0).run(0.5)
    lan.check()


def test_a_child_that_says_heard_and_listens_to_nothing_hurts_only_itself():
    lan = Lan(4).publish(2.0)
    lan.net.deaf.add((LAN[1], 1))
    hub = lan.hub_of(LAN[1])
    (member,) = hub.memberships._groups.values()
    for _ in range(60):
        member.heard_at = lan.net.now  # the lie
        lan.publish(0.05)
    lan.run(1.0)
    lan.check()


def test_acknowledgment_requests_and_goodbyes_do_not_come_from_groups():
    lan = Lan(4).publish(2.0)
    hub = lan.hub_of(LAN[1])
    (group,) = lan.sender.groups._groups.values()
    for flags in (wire.CLOSE, wire.ACK, wire.NACK, wire.ACK_REQUEST):
        body = control.encode_close(0, b"")
        assert not hub.receive_datagram(group.encode(flags, 0, 0, body), SOURCE, now=lan.net.now)
    assert lan.receivers[LAN[1]].links


# --- members that sleep through new packets ---------------------------------------------------------------------------


def test_a_new_packet_moves_one_cursor_and_the_others_follow():
    lan = Lan(6).publish(2.0)
    lan.sender.publish(b"x" * 400)
    before = {link.id: link.child.cursor.position for link in lan.sender.links.values()}
    lan.hub_of(ROOT).datagrams_to_send(now=lan.net.now)
    moved = [link for link in lan.sender.links.values() if link.child.cursor.position > before[link.id]]
    assert len(moved) == 1
    lan.run(0.6)
    assert {link.child.cursor.position for link in lan.sender.links.values()} == {lan.sender.log.head}


def test_a_member_that_takes_nothing_does_not_hold_up_the_group():
    lan = Lan(5).publish(2.0)
    for link in list(lan.sender.links.values())[:2]:
        link.window.room = 0
    lan.sent_to_groups = 0
    lan.sender.publish(b"x" * 400)
    lan.net.pump((ROOT, 1))
    assert lan.sent_to_groups == 1


def test_a_late_packet_reaches_members_that_slept():
    lan = Lan(5).publish(2.0)
    lan.sender.publish(b"first " * 60, an=lan.sender.log.head + 2)
    lan.net.pump((ROOT, 1))
    lan.sender.insert_late(lan.sender.log.head - 1, b"late " * 60, lan.net.now)
    lan.net.pump((ROOT, 1))
    lan.run(1.0)
    for name in lan.names:
        payloads = [item.payload for item in lan.got[name] if isinstance(item, events.Packet | events.Omitted)]
        assert sum(payload.startswith(b"late") for payload in payloads) == 1, name
