"""Which carrier a peer is asked over, and links over connections in virtual time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dcp import events, handshake
from dcp.config import Config
from dcp.control import Reason
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.links.address import accepted_over, carrier_of, is_accepted, is_same, over
from dcp.links.cookies import CookieJar
from dcp.links.ways import MAX_PEERS, PATIENCE, Ways
from dcp.testing import Conditions
from tests.dcp.carried_campaign import CarriedCampaign
from tests.dcp.world import STREAM, World

PEER = ("192.0.2.1", 4_000)
TCP = ("192.0.2.1", 4_000, "tcp")
BOTH = Config(transports=("udp", "tcp"))


def test_a_peer_is_asked_over_tcp_too_when_udp_brings_no_answer():
    ways = Ways(("udp", "tcp"))
    assert ways.ask(PEER, 0.0) == (PEER,)
    assert ways.ask(PEER, PATIENCE / 2) == (PEER,)
    assert ways.ask(PEER, PATIENCE) == (PEER, TCP)


def test_what_worked_is_asked_first_next_time():
    ways = Ways(("udp", "tcp"))
    ways.ask(PEER, 0.0)
    ways.answered(TCP, 1.0)
    assert ways.ask(PEER, 60.0) == (TCP,)
    assert ways.ask(PEER, 60.1 + PATIENCE) == (PEER, TCP), "it may be reachable by UDP now"
    ways.answered(PEER, 61.0)
    assert ways.ask(PEER, 62.0) == (PEER,)


def test_after_an_answer_over_tcp_alone_others_are_asked_both_ways_at_once():
    ways = Ways(("udp", "tcp"))
    other, third = ("192.0.2.2", 1), ("192.0.2.3", 1)
    ways.ask(PEER, 0.0)
    ways.answered(TCP, 1.0)
    assert ways.ask(other, 1.0) == (other, over("tcp", other))
    ways.answered(other, 1.1)
    assert ways.ask(third, 1.2) == (third,), "UDP works after all"


def test_strangers_are_dialled_only_where_udp_seems_blocked():
    """A node's word that another one exists must not make everybody open connections to it."""
    ways = Ways(("udp", "tcp"))
    for now in (0.0, 1.0, 100.0):
        assert ways.ask(PEER, now, is_stranger=True) == (PEER,)
    ways.ask(("192.0.2.2", 1), 0.0)
    ways.answered(("192.0.2.2", 1, "tcp"), 1.0)
    assert ways.ask(PEER, 101.0, is_stranger=True) == (PEER, TCP)


def test_over_udp_alone_nothing_is_remembered():
    ways = Ways()
    for number in range(10):
        assert ways.ask(("192.0.2.1", number + 1), float(number)) == (("192.0.2.1", number + 1),)
    assert len(ways) == 0


def test_the_table_of_peers_is_bounded():
    ways = Ways(("udp", "tcp"))
    for number in range(MAX_PEERS + 100):
        ways.ask((f"10.{number >> 8}.{number & 255}.1", 1), 0.0)
    assert len(ways) == MAX_PEERS


def test_connections_that_others_opened_are_neither_dialled_nor_mistaken():
    near = accepted_over("tcp", PEER)
    assert is_accepted(near)
    assert carrier_of(near) == "tcp"
    assert not is_accepted(TCP)
    assert not is_same(near, TCP)
    assert not is_same(near, PEER)
    assert not is_same(PEER, TCP)
    assert is_same(("::1", 5, 0, 0), ("::1", 5, 7, 0))


def test_what_a_connection_echoed_proves_nothing_about_the_udp_port():
    jar = CookieJar(random.Random(1))
    near = accepted_over("tcp", PEER)
    cookie = jar.bake(near, 0.0)
    assert jar.is_ours(cookie, near, 0.0)
    assert not jar.is_ours(cookie, PEER, 0.0)
    assert not jar.is_ours(cookie, TCP, 0.0)


# --- links ------------------------------------------------------------------------------------------------------------


def world(**more) -> World:
    return World(config=BOTH, conditions=Conditions(delay=0.005), **more)


def test_where_udp_works_links_are_udp():
    here = world()
    here.root("R").publish(b"a")
    client = here.client("C", ["R"], start=Start.OLDEST)
    here.run(2.0)
    assert {link.address for link in client.links.values()} == {("R", 1)}
    assert here.net.tubes.open == []


def test_where_udp_is_cut_the_link_is_a_connection_and_says_so():
    here = world()
    root = here.root("R")
    here.net.cut(("R", 1), ("C", 1))
    client = here.client("C", ["R"], start=Start.OLDEST)
    for _ in range(50):
        root.publish(b"x")
    here.run(2.0)
    (link,) = client.links.values()
    assert link.up
    assert link.address == ("R", 1, "tcp")
    opened = next(event for event in here.events["C"] if isinstance(event, events.LinkOpened))
    assert opened.address == ("R", 1), "the owner knows it by the address that it gave"
    assert client.position == root.log.head


def test_over_a_connection_a_link_opens_within_the_time_that_the_mesh_gives_it():
    """Found by reading: the requests at 0.3 and 0.7 s left 0.1 s for TCP."""
    here = world()
    here.root("R")
    here.net.cut(("R", 1), ("C", 1))
    client = here.client("C", ["R"])
    here.run(PATIENCE + 0.1)
    assert [link.up for link in client.links.values()] == [True]


def test_a_reset_ends_the_link_at_once_and_a_new_one_goes_on_without_a_gap():
    here = world()
    root = here.root("R")
    here.net.cut(("R", 1), ("C", 1))
    client = here.client("C", ["R"], start=Start.OLDEST)
    here.run(1.0)
    for number in range(200):
        root.publish(b"%d" % number)
        here.net.pump(("R", 1))
    (tube,) = here.net.tubes.open
    here.net.tubes.reset(tube)
    assert not client.links
    lost = next(event for event in here.events["C"] if isinstance(event, events.LinkLost))
    assert lost.reason == Reason.RESET
    assert not root.links, "the parent's end too"
    here.join("C", "R")
    here.run(3.0)
    packets = [item.payload for item in here.got["C"] if isinstance(item, events.Packet)]
    assert packets == [b"%d" % number for number in range(200)]


def test_a_connection_that_ends_before_the_accept_is_dialled_again():
    here = world()
    root = here.root("R")
    here.net.cut(("R", 1), ("C", 1))
    client = here.client("C", ["R"])
    while not (tubes := here.net.tubes.open):
        here.net.run_until(here.net.now + 0.01)
    here.net.run_until(here.net.now + 0.012)
    here.net.tubes.reset(tubes[0])
    here.run(3.0)
    assert [link.up for link in client.links.values()] == [True]
    assert root.links


def test_inquiries_go_over_connections_too():
    here = world()
    here.root("R")
    here.net.cut(("R", 1), ("C", 1))
    here.client("C")
    hub = here.hubs["C"]
    number = hub.inquire(("R", 1), b"level?", timeout=2.0, now=0.0)
    here.net.pump(("C", 1))
    while not (asked := [e for e in here.events["R"] if isinstance(e, events.InquiryReceived)]):
        here.net.run_until(here.net.now + 0.01)
    here.hubs["R"].answer(asked[0].ticket, b"7")
    here.net.pump(("R", 1))
    here.run(3.0)
    answers = [e for e in here.events["C"] if isinstance(e, events.InquiryAnswered)]
    assert [(answer.inquiry, answer.body) for answer in answers] == [(number, b"7")]


def test_a_late_answer_over_another_carrier_changes_nothing():
    """Both carriers were asked; what the slower one says comes when the faster one has decided."""
    hub = Hub(replace(BOTH), rng=random.Random(1))
    hub.subscribe(STREAM)
    link_id = hub.add_sender(STREAM, PEER, now=0.0)
    hub.datagrams_to_send(now=0.0)
    hub.handle_timeout(now=PATIENCE + 0.01)
    assert {to for _, to in hub.datagrams_to_send(now=PATIENCE + 0.01)} == {PEER, TCP}
    link = hub.receivers[STREAM].links[link_id]
    hub.receivers[STREAM].receive_opening(handshake.Challenge(link.nonce, b"c" * 16), TCP, 0.5)
    assert link.address == TCP
    hub.receivers[STREAM].receive_opening(handshake.Challenge(link.nonce, b"d" * 16), PEER, 0.5)
    assert (link.address, link.cookie) == (TCP, b"c" * 16)
    hub.receivers[STREAM].receive_opening(handshake.Refuse(link.nonce, Reason.FULL, b""), PEER, 0.5)
    assert link_id in hub.receivers[STREAM].links


# --- campaigns --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_meshes_hand_over_the_stream_while_carriers_come_and_go(first):
    seen = resets = 0
    for seed in range(first, first + 4):
        campaign = CarriedCampaign(seed)
        campaign.run()
        seen += campaign.over_connections
        resets += campaign.net.tubes.resets
    assert seen
    assert resets, "the campaign must not prove less than it says"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 4_000, 25))
def test_carriers_soak(first):
    for seed in range(first, first + 25):
        CarriedCampaign(seed).run()
