"""The fault layer on real sockets: what it loses, holds back and lets through."""

from __future__ import annotations

import pytest
import trio

from dcp.testing import Conditions
from dcp.testing.faulty import FaultySocket

pytestmark = pytest.mark.net


@pytest.fixture
async def pair():
    sockets = [await FaultySocket.bind(("127.0.0.1", 0)) for _ in range(2)]
    yield sockets
    for sock in sockets:
        sock.close()


async def receive(sock, seconds):
    """What comes within so many seconds, or the first batch."""
    with trio.move_on_after(seconds):
        while True:
            await sock.wait_readable()
            if batch := sock.receive_now(64):
                return [data for data, _ in batch]
    return []


async def test_without_conditions_nothing_changes(pair):
    a, b = pair
    a.send_now([(b"one", b.address)])
    assert await receive(b, 10.0) == [b"one"]
    assert not b.lost
    assert not b.passed


async def test_a_cut_loses_everything_from_that_sender_alone(pair):
    a, b = pair
    c = await FaultySocket.bind(("127.0.0.1", 0))
    b.set_conditions(None, cut=frozenset([a.address[:2]]))
    a.send_now([(b"from a", b.address)])
    c.send_now([(b"from c", b.address)])
    assert await receive(b, 10.0) == [b"from c"]
    assert b.lost == {a.address[:2]: 1}
    assert b.passed == {c.address[:2]: 1}
    c.close()


async def test_a_delay_holds_back_and_keeps_what_was_on_its_way_when_it_ends(pair):
    a, b = pair
    b.set_conditions(None, {a.address[:2]: Conditions(delay=0.5)})
    a.send_now([(b"late", b.address)])
    await b.wait_readable()
    began = trio.current_time()
    assert b.receive_now(64) == []
    b.set_conditions(None)
    assert await receive(b, 30.0) == [b"late"]
    assert trio.current_time() - began >= 0.45


async def test_loss_loses_about_its_share(pair):
    a, b = pair
    b.set_conditions(Conditions(delay=0.0, loss=0.5))
    for _ in range(10):
        a.send_now([(b"x", b.address)] * 50)
        await receive(b, 10.0)
    # 500 throws of a fair coin: outside these limits once in 10**20 runs.
    assert 140 < b.lost[a.address[:2]] < 360
    assert b.lost[a.address[:2]] + b.passed[a.address[:2]] == 500
