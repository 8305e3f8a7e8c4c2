"""ReLate and ReLate2, and what statistics and metrics say about protection."""

from __future__ import annotations

import time

import pytest
import trio

import peer
from dcp import Gap, Packet, Started
from peer.feeds.stamp import stamp
from peer.observe.metrics import samples
from peer.observe.relate import Relate
from peer.observe.status import describe, live_line


def test_the_two_scores():
    meter = Relate(lambda: 100.0)
    assert (meter.latency, meter.relate, meter.relate2, meter.received) == (None,) * 4
    meter.note(Started(0))
    for an in range(1, 10):
        meter.note(Packet(an, stamp(b"<a/>", 99.8)))
    assert meter.relate == meter.relate2 == pytest.approx(0.2)
    meter.note(Gap(9, 10))
    assert meter.received == 0.9
    assert meter.relate == pytest.approx(0.2 / 0.9)
    assert meter.relate2 == pytest.approx(0.2 * 11)


def test_packets_without_a_stamp_and_clocks_that_disagree():
    meter = Relate(lambda: 100.0)
    meter.note(Packet(1, b"<a/>"))
    meter.note(Packet(2, b"<a/><?other?>"))
    assert meter.latency is None
    assert meter.received == 1
    meter.note(Packet(3, stamp(b"<a/>", 101.0)))
    assert meter.latency == 0


@pytest.mark.net
async def test_a_subscription_shows_its_profile_protection_and_scores():
    local = {"listen": ("127.0.0.1", 0), "beacon": False}
    with trio.fail_after(60):
        async with peer.root("feed", keep_numbers=False, **local) as root:
            options = {"bootstrap": [root.address], "capacity": 0, "profile": "latency", "parents": 1}
            async with peer.join("feed", **options, **local) as leaf:
                await leaf.wait_parents(1)
                for number in range(20):
                    await root.send(stamp(b"<n>%d</n>" % number, time.time()))
                count = 0
                while count < 20:
                    count += sum(isinstance(item, Packet) for item in await leaf.receive_many())
                now = leaf.statistics()
                assert (now.profile, now.protection) == ("latency", "plain")
                assert now.protection_why
                assert now.relate == now.relate2 == now.latency
                assert now.latency is not None
                found = {name: (labels, value) for name, labels, value in samples(leaf)}
                assert found["protection_info"] == ({"protection": "plain", "profile": "latency"}, 1)
                assert found["relate2_seconds"][1] == pytest.approx(now.relate2, abs=1.0)
                state = describe(leaf)
                state["parents"][0]["protection"] = "1 per 4"
                assert "1 per 4" in live_line(state, state, 1.0)
