"""Real peers on loopback: a capture shows nothing of the stream, and old and new peers live in one mesh."""

from __future__ import annotations

import secrets
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from dcp import Packet
from dht.identity import Identity, id_text
from peer.mesh import events as meshevents
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]

PATIENCE = 60.0


@asynccontextmanager
async def mesh():
    """A way to open peers that know each other; all that come after the first one start from it."""
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            first = []

            async def start(role, **options):
                options = {"parents": 1, "beacon": False, "multicast": False, **options}
                options["bootstrap"] = [peer.address for peer in first]
                peer = await stack.enter_async_context(open_peer(PeerOptions(stream="s", role=role, **options)))
                first[:] = first or [peer]
                return peer

            yield start


async def next_packet(peer):
    while True:
        item = await anext(peer)
        if isinstance(item, Packet):
            return item.payload


def is_encrypted(peer):
    links = list(peer.core.receiver.links.values()) if peer.core.receiver is not None else []
    return [link.is_encrypted for link in links]


@pytest.mark.parametrize("cleartext", [True, False], ids=["cleartext", "encrypted"])
async def test_a_capture_on_loopback_shows_nothing_of_the_stream(cleartext):
    try:
        capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    except (PermissionError, AttributeError):
        pytest.skip("captures need CAP_NET_RAW")
    with capture:
        capture.bind(("lo", 0))
        capture.setblocking(False)
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        marker = secrets.token_hex(16).encode()
        frames: list[bytes] = []

        def take():
            while True:
                try:
                    frames.append(capture.recv(65_536))
                except BlockingIOError:
                    return

        async with mesh() as start:
            root = await start(Role.ROOT, cleartext=cleartext)
            root.core.sender.publish_hole(0)
            router = await start(Role.ROUTER, cleartext=cleartext)
            await router.wait_parents(1)
            leaf = await start(Role.LEAF, cleartext=cleartext)
            await leaf.wait_parents(1)
            for number in range(50):
                await root.send(b"<p>%s%d</p>" % (marker, number))
                assert await next_packet(leaf) == b"<p>%s%d</p>" % (marker, number)
                take()
        take()
    assert any(marker in frame for frame in frames) == cleartext


async def test_a_mesh_is_upgraded_one_peer_after_the_other():
    """In the order of docs/security.md. A peer without encryption sends what one of the earlier version does."""
    async with mesh() as start:
        root = await start(Role.ROOT, cleartext=True)
        root.core.sender.publish_hole(0)
        old = await start(Role.LEAF, cleartext=True)
        new = await start(Role.LEAF)
        await old.wait_parents(1)
        await new.wait_parents(1)
        await root.send(b"<p>1</p>")
        assert [await next_packet(peer) for peer in (old, new)] == [b"<p>1</p>"] * 2
        assert is_encrypted(new) == [False]
    async with mesh() as start:  # the root is new too
        root = await start(Role.ROOT)
        root.core.sender.publish_hole(0)
        old = await start(Role.LEAF, cleartext=True)
        new = await start(Role.LEAF)
        await old.wait_parents(1)
        await new.wait_parents(1)
        await root.send(b"<p>1</p>")
        assert [await next_packet(peer) for peer in (old, new)] == [b"<p>1</p>"] * 2
        assert (is_encrypted(old), is_encrypted(new)) == ([False], [True])
        assert [peer.statistics().parents[0].encrypted for peer in (old, new)] == [False, True]
        assert sorted(child.encrypted for child in root.statistics().children) == [False, True]


async def test_a_root_that_requires_encryption_says_so_to_a_peer_without():
    async with mesh() as start:
        await start(Role.ROOT, encryption="require")
        old = await start(Role.LEAF, cleartext=True)
        async for event in old.events():
            if isinstance(event, meshevents.LinkDenied):
                break
        assert event.why == "this peer requires encrypted links: upgrade, and leave out --cleartext"


def test_cleartext_and_require_contradict_each_other():
    with pytest.raises(ValueError, match="mutually exclusive"):
        PeerOptions(stream="s", encryption="require", cleartext=True)


async def test_a_child_learns_the_keys_of_roots_from_its_parent(tmp_path):
    """Also where the directory does not answer: what it would say is the owner's word, and so is this."""
    Identity.load_or_create(tmp_path / "owner.key")
    async with mesh() as start:
        root = await start(Role.ROOT, owner=tmp_path / "owner.key")
        root.core.sender.publish_hole(0)
        router = await start(Role.ROUTER, owner_id=id_text(root.owner))
        await router.wait_parents(1)
        gate = router.core.doors.gate
        assert gate is not None
        while not gate.root_keys:
            await router.wait_turn()
        assert router.trust.is_signed
        await root.send(b"<p>1</p>")
        assert await next_packet(router) == b"<p>1</p>"
