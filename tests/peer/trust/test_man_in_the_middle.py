"""A proxy between two real peers: it reads nothing, and whatever it changes ends in a refused link."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
import trio

import peer.lookups
from dcp import handshake, wire
from dcp.links.secrecy import is_encrypted
from peer.role import Role
from tests.dcp.test_keying import (
    Mallory,
    move_start,
    opened,
    other_hello,
    strip_challenge,
    strip_keys,
    strip_mode,
    weaken,
)
from tests.peer.trust.test_encrypted_links import mesh, next_packet

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]


def strip_everything(message, source):
    return strip_challenge(strip_mode(message, source), source)


class Proxy:
    """Carries datagrams between a child and its parent, changes openings, and sends the rest twice, the copies late."""

    def __init__(self, change=lambda message, source: message):
        self.change = change
        self.changed = 0
        self.replayed = 0
        self.seen = []
        self.front, self.back = (trio.socket.socket(type=trio.socket.SOCK_DGRAM) for _ in range(2))
        self.child = self.parent = None

    async def run(self, *, task_status):
        for sock in (self.front, self.back):
            await sock.bind(("127.0.0.1", 0))
        with self.front, self.back:
            async with trio.open_nursery() as nursery:
                task_status.started(self.front.getsockname())
                nursery.start_soon(self.carry, self.front, self.back, "client")
                nursery.start_soon(self.carry, self.back, self.front, "root")

    async def carry(self, source, to, name):
        before = b""
        while True:
            data, address = await source.recvfrom(65_536)
            if name == "client":
                self.child = address
            target = self.parent if name == "client" else self.child
            self.seen.append(data)
            message = opened(data)
            if message is not None:
                wanted = self.change(message, name)
                self.changed += wanted != message
                data = wire.encode_open(*handshake.encode_opening(wanted))
            await to.sendto(data, target)
            if before and is_encrypted(before):
                self.replayed += 1
                await to.sendto(before, target)
            before = data


@pytest.fixture
async def nursery_of_proxies():
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def between(nursery, monkeypatch, proxy):
    """Whatever the directory says, the parent is reached through the proxy."""
    address = await nursery.start(proxy.run)
    original = peer.lookups.candidate_of

    def through_the_proxy(record, **options):
        found = original(record, **options)
        proxy.parent = found.address
        return replace(found, address=address)

    monkeypatch.setattr(peer.lookups, "candidate_of", through_the_proxy)


async def test_a_proxy_that_replays_everything_reads_and_changes_nothing(nursery_of_proxies, monkeypatch):
    proxy = Proxy()
    await between(nursery_of_proxies, monkeypatch, proxy)
    marker = secrets.token_hex(16).encode()
    async with mesh() as start:
        root = await start(Role.ROOT)
        root.core.sender.publish_hole(0)
        leaf = await start(Role.LEAF)
        await leaf.wait_parents(1)
        for number in range(50):
            await root.send(b"<p>%s%d</p>" % (marker, number))
            assert await next_packet(leaf) == b"<p>%s%d</p>" % (marker, number)
        assert leaf.internals().dropped["replayed"] > 0
    assert proxy.replayed > 20
    assert len(proxy.seen) > 50
    assert not any(marker in data for data in proxy.seen)


@pytest.mark.parametrize(
    ("change", "encryption"),
    [
        (strip_challenge, "prefer"),
        (strip_keys, "prefer"),
        (strip_everything, "require"),
        (weaken, "prefer"),
        (move_start, "prefer"),
        (other_hello, "prefer"),
        (Mallory(), "prefer"),
    ],
    ids=lambda c: getattr(c, "__name__", c if isinstance(c, str) else "mallory"),
)
async def test_a_proxy_that_changes_openings_achieves_a_refused_link(
    nursery_of_proxies, monkeypatch, change, encryption
):
    proxy = Proxy(change)
    await between(nursery_of_proxies, monkeypatch, proxy)
    async with mesh() as start:
        root = await start(Role.ROOT, encryption=encryption)
        root.core.sender.publish_hole(0)
        await root.send(b"<p>secret</p>")
        leaf = await start(Role.LEAF, start="oldest", encryption=encryption)
        while not proxy.changed or leaf.core.receiver.links:  # until the link is given up
            await leaf.wait_turn()
        assert leaf.parents == 0
        assert leaf.core.next_content() is None
    assert not any(b"secret" in data for data in proxy.seen)
