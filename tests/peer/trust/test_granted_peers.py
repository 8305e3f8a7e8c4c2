"""Real peers on loopback in a stream whose owner grants who may take part."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from dcp import Packet
from dht.identity import Identity
from peer.errors import PeerError
from peer.mesh import events as meshevents
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from peer.trust import files
from peer.trust.grants import ROLES, WITHHELD, JoinGrant, Policy

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]

PATIENCE = 60.0


class Granting:
    """The owner's desk: keys, grants and the policy in files."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setattr(files, "WATCH_INTERVAL", 0.05)
        self.folder = folder
        self.owner = Identity.load_or_create(folder / "owner.key")
        self.policy = folder / "asdi.policy"
        self.version = 0
        self.first = []
        self.stack = None

    def key(self, name):
        return Identity.load_or_create(self.folder / f"{name}.key")

    def write(self, rules, *revoked):
        self.version += 1
        ids = tuple(self.key(name).peer_id for name in revoked)
        policy = Policy.issue(self.owner, stream="asdi", version=self.version, rules=rules, revoked=ids)
        self.policy.write_text(policy.to_text() + "\n")

    def grant(self, name, role="subscriber", *, seconds=1_000.0, withheld=False):
        path = self.folder / f"{name}.grant"
        granted = JoinGrant.issue(
            self.owner,
            stream="asdi",
            peer_id=self.key(name).peer_id,
            roles=ROLES[role] | (WITHHELD if withheld else 0),
            expires_at=int(time.time() + seconds),
        )
        path.write_text(granted.to_text())
        return path

    async def start(self, name, role, **options):
        self.key(name)
        options = {
            "parents": 1,
            "beacon": False,
            "multicast": False,
            "identity": self.folder / f"{name}.key",
            **options,
        }
        options["bootstrap"] = [peer.address for peer in self.first]
        peer = await self.stack.enter_async_context(open_peer(PeerOptions(stream="asdi", role=role, **options)))
        self.first = self.first or [peer]
        return peer

    async def root(self, **options):
        owner = self.folder / "owner.key"
        root = await self.start("root", Role.ROOT, owner=owner, policy=self.policy, **options)
        root.core.sender.publish_hole(0)
        return root


@asynccontextmanager
async def granting(folder, monkeypatch):
    desk = Granting(folder, monkeypatch)
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as desk.stack:
            yield desk


async def denied(peer):
    async for event in peer.events():
        if isinstance(event, meshevents.LinkDenied):
            return event.why
    return None


async def next_packet(peer):
    while True:
        item = await anext(peer)
        if isinstance(item, Packet):
            return item.payload


async def test_who_has_no_grant_is_refused_and_told_how_to_get_one(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        await desk.root()
        stranger = await desk.start("stranger", Role.LEAF)
        why = await denied(stranger)
        assert f"--peer {desk.key('stranger').fingerprint} --role subscriber`" in why
        assert stranger.parents == 0


async def test_grants_are_enforced_at_every_hop(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(3)
        root = await desk.root(capacity=2)  # one of them is kept for repairs
        router = await desk.start("router", Role.ROUTER, grant=desk.grant("router", "router"))
        await router.wait_parents(1)
        granted = await desk.start("alice", Role.LEAF, grant=desk.grant("alice"))
        await granted.wait_parents(1)
        await root.send(b"<p>1</p>")
        assert await next_packet(granted) == b"<p>1</p>"
        assert [child.peer_id for child in router.core.mesh.children.links.values()] == [desk.key("alice").peer_id]
        stranger = await desk.start("stranger", Role.LEAF)
        assert "no grant lets" in await denied(stranger)
        assert router.core.doors.gate.policy.version == 1


async def test_a_router_without_a_router_s_grant_gets_no_children(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(3)
        await desk.root()
        router = await desk.start("router", Role.ROUTER, grant=desk.grant("router", "subscriber"))
        await router.wait_parents(1)
        desk.first = [router]
        child = await desk.start("child", Role.LEAF, grant=desk.grant("child"))
        await child.wait_parents(1)
        with trio.move_on_after(0.5):
            await denied(child)
        assert router.core.mesh.children.links == {}


async def test_a_revoked_peer_loses_its_link_within_seconds_at_every_hop(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        await desk.root()
        router = await desk.start("router", Role.ROUTER, grant=desk.grant("router", "router"))
        await router.wait_parents(1)
        alice = await desk.start("alice", Role.LEAF, parents=2, grant=desk.grant("alice"))
        await alice.wait_parents(2)
        desk.write(1, "alice")
        assert "has revoked the grants of" in await denied(alice)
        while alice.parents:
            await alice.wait_turn()


async def test_a_grant_that_runs_out_ends_the_link(tmp_path, monkeypatch):
    monkeypatch.setattr("peer.trust.doors.LOOK_INTERVAL", 0.1)
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        await desk.root()
        alice = await desk.start("alice", Role.LEAF, grant=desk.grant("alice", seconds=3.0))
        await alice.wait_parents(1)
        assert "has expired" in await denied(alice)


async def test_a_damaged_policy_leaves_the_one_in_force(tmp_path, monkeypatch, caplog):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        root = await desk.root()
        desk.policy.write_text("skymesh-policy-v1:AAAA")
        while not any("the policy stays as it is" in record.message for record in caplog.records):
            await trio.lowlevel.checkpoint()
        assert root.core.doors.gate.policy.version == 1


async def test_files_that_do_not_fit_are_one_sentence(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        alice = desk.grant("alice")
        with pytest.raises(PeerError, match="another peer's key"):
            await desk.start("bob", Role.LEAF, grant=alice)
        with pytest.raises(PeerError, match="needs --identity"):
            await desk.start("bob", Role.LEAF, grant=alice, identity=None)
        with pytest.raises(PeerError, match="not a grant for a subscriber or router"):
            await desk.start("bob", Role.LEAF, grant=desk.policy)
        with pytest.raises(PeerError, match="who does not own asdi"):
            await desk.start("bob", Role.ROOT, policy=desk.policy)


async def test_withheld_packets_reach_only_those_with_the_grant_at_every_hop(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(0)
        root = await desk.root(capacity=2, withhold=["/p[@tail='N1']"])
        router = await desk.start("router", Role.ROUTER, grant=desk.grant("router", "router", withheld=True))
        await router.wait_parents(1)
        alice = await desk.start("alice", Role.LEAF, grant=desk.grant("alice", withheld=True))
        bob = await desk.start("bob", Role.LEAF)
        await alice.wait_parents(1)
        await bob.wait_parents(1)
        await root.send(b"<p tail='N1'/>")
        await root.send(b"<p tail='N2'/>")
        assert await next_packet(alice) == b"<p tail='N1'/>"
        assert await next_packet(bob) == b"<p tail='N2'/>"
        assert bob.statistics().forged == 0


async def test_a_peer_that_was_revoked_stays_revoked_after_a_restart_that_reaches_nobody(tmp_path, monkeypatch):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(0, "alice")
        root = await desk.root()
        router = await desk.start("router", Role.ROUTER, state=tmp_path / "state")
        await router.wait_parents(1)
        while router.core.doors.gate.policy is None:
            await router.wait_turn()
        await root.leave()
    assert (tmp_path / "state" / "asdi.policy").exists()
    async with granting(tmp_path, monkeypatch) as desk:
        router = await desk.start("router", Role.ROUTER, state=tmp_path / "state")
        gate = router.core.doors.gate
        shown, _ = gate.look_untrusted(desk.key("alice").public_key, b"")
        assert "has revoked the grants of" in gate.why_not_child(shown)


async def test_a_root_does_not_go_back_to_an_older_policy(tmp_path, monkeypatch, caplog):
    async with granting(tmp_path, monkeypatch) as desk:
        desk.write(1)
        older = desk.policy.read_text()
        desk.write(1, "alice")
        await desk.root(state=tmp_path / "state")
        assert (tmp_path / "state" / "asdi.policy").read_text() == desk.policy.read_text()
    desk.policy.write_text(older)
    async with granting(tmp_path, monkeypatch) as desk:
        root = await desk.root(state=tmp_path / "state")
        assert root.core.doors.gate.policy.version == 2
        assert "older than the policy in force" in caplog.text
