"""A parent that leaves packets out, seen by programs: late packets, disputes, and where both are told."""

from __future__ import annotations

import json
import random

import pytest
import trio

import peer
from dcp import Config, Gap, Omitted, Packet, Started
from peer import disputes
from peer.blocking import calls_of
from peer.cli.output import Printer
from peer.content import Subscription
from peer.mesh.events import Disputed, LinkId, Starved
from peer.mesh.messages import PeerId
from peer.queries import XPathPolicy
from peer.testing.liars import Omits
from peer.testing.peersim import PeerSimulation
from tests.peer.cli.command import PATIENCE
from xmlswitch import Query

DISPUTED = Disputed(LinkId(3), PeerId(b"p"), ("192.0.2.7", 4600), 4, 5, "omitted")
STARVED = Starved(99, 2.25)
LOCAL = {"listen": ("127.0.0.1", 0), "beacon": False}


@pytest.mark.net
async def test_what_one_root_leaves_out_comes_from_the_other_and_the_liar_is_named(tmp_path):
    key = tmp_path / "owner.key"
    async with peer.root("s", owner=key, keep_numbers=False, **LOCAL) as liar:
        reach = {"bootstrap": [liar.address]} | LOCAL
        async with (
            peer.root("s", owner=key, keep_numbers=False, **reach) as honest,
            peer.join("s", parents=2, capacity=0, **reach) as stream,
        ):
            Omits(share=0.5).begin(liar.core, random.Random(1))
            told = stream.events()
            with trio.fail_after(PATIENCE):
                await stream.wait_parents(2)
                got = {}
                for an in range(1, 61):
                    for root in (liar, honest):
                        await root.send(b"<p>%d</p>" % an, an=an)
                    await trio.sleep(0.02)
                while len(got) < 60:
                    item = await anext(stream)
                    assert not isinstance(item, Gap)
                    if isinstance(item, Packet | Omitted):
                        assert item.an not in got
                        got[item.an] = item.payload
                assert got == {an: b"<p>%d</p>" % an for an in range(1, 61)}
                async for event in told:
                    if isinstance(event, peer.Disputed) and event.address == liar.address:
                        break
            now = stream.statistics()
            assert now.disputed > 0
            named = {parent.address: parent for parent in now.parents}
            assert named[disputes.endpoint_text(liar.address)].dispute is not None


def test_a_late_packet_is_a_line_that_says_so(capfd):
    lines = Printer("jsonl", "s").render([Packet(7, b"<a/>"), Omitted(5, b"<b/>")], 1.0).splitlines()
    assert [json.loads(line).get("omitted") for line in lines] == [None, True]
    assert json.loads(lines[1])["an"] == 5
    printer = Printer("xml", "s")
    assert printer.render([Omitted(5, b"<b/>")], 1.0, most=1) == b"<b/>\n"
    assert printer.packets == 1
    assert "packet 5 is late" in capfd.readouterr().err


def test_disputes_as_json_and_in_words():
    assert disputes.as_json(DISPUTED) == {
        "disputed": {"parent": "192.0.2.7:4600", "after": 4, "until": 5, "reason": "omitted"}
    }
    assert disputes.as_json(STARVED) == {"starved": {"head": 99, "seconds": 2.25}}
    assert "192.0.2.7:4600" in disputes.in_words(DISPUTED)
    assert "up to 99" in disputes.in_words(STARVED)


def test_callbacks_are_given_late_packets_as_events(caplog):
    packets, events = [], []
    call = calls_of("s", packets.append, events.append)
    for item in (Packet(1, b"a"), Omitted(0, b"b"), DISPUTED, STARVED):
        call(item)
    assert packets == [Packet(1, b"a")]
    assert events == [Omitted(0, b"b"), DISPUTED, STARVED]
    calls_of("s", packets.append, None)(Omitted(0, b"b"))
    assert len(packets) == 1
    assert "packet 0 came late" in caplog.text


class Canned:
    """A receiver with a given content, whose parents send everything."""

    query = b""

    def __init__(self, *content):
        self.content = list(content)

    @property
    def has_events(self):
        return bool(self.content)

    @property
    def is_drained(self):
        return not self.content

    def next_event(self):
        return self.content.pop(0) if self.content else None


def test_a_late_packet_is_matched_by_the_query_that_held_in_its_place():
    policy = XPathPolicy()
    pack = policy.envelope.pack
    receiver = Canned(Started(0), Packet(1, pack(b"<a>1</a>")), Packet(4, pack(b"<a>4</a>")))
    client = Subscription(receiver, policy, Query.parse("/a < 3"), is_router=True)
    seen = [client.next(), client.next(), client.next()]
    assert seen == [Started(0), Packet(1, b"<a>1</a>"), None]
    client.want(Query.parse("/a > 3"))
    assert isinstance(client.next(), peer.QuerySwitched)
    receiver.content = [Omitted(2, pack(b"<a>2</a>")), Omitted(3, pack(b"<a>9</a>")), Packet(9, pack(b"<a>9</a>"))]
    assert client.next() == Omitted(2, b"<a>2</a>")
    assert client.next() == Packet(9, b"<a>9</a>")
    receiver.content = [Omitted(8, b"not an envelope")]
    assert client.next() is None
    assert client.unreadable == 1


def test_the_first_packet_of_a_stream_and_a_client_that_takes_nothing_accuse_nobody():
    """Found: at a stream's first packet every peer of an honest mesh called itself starved, and replaced a parent."""
    sim = PeerSimulation(14)
    for name in ("R0", "R1"):
        sim.add_root(name)
    sim.run_until(0.5)
    idle = sim.add_leaf("C0", dcp=Config(max_ready_packets=16))
    sim.add_leaf("C1")
    sim.run_until(10.0)
    idle.takes = False
    sim.feed(rate=50, until=14.0, make=lambda an: b"<p>%d</p>" % an)
    sim.run_until(18.0)
    idle.takes = True
    sim.run_until(20.0)
    assert sim.accusations == []
    assert all(peer.core.mesh.counters["starved"] == 0 for peer in sim.peers.values())
