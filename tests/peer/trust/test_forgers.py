"""Meshes with peers that forge: nothing forged is delivered, forgers are left and avoided, nobody else is blamed."""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio

import peer
from dcp import Gap, Packet
from dcp.testing import LateStreamCheck, StreamBroken
from dht.identity import Identity
from peer.mesh.candidates import AVOID_CONVICTED, CandidateCache, CandidateRecord
from peer.mesh.events import Disputed
from peer.mesh.messages import PeerId
from peer.queries import token_of
from peer.role import Role
from peer.testing.liars import FORGERIES, Forges, LyingCore
from peer.testing.peersim import STREAM, PeerSimulation
from peer.trust.batches import BatchSigner
from peer.trust.check import Trust
from tests.peer.cli.command import PATIENCE

LOCAL = {"listen": ("127.0.0.1", 0), "beacon": False}


def identity_of(name):
    return Identity.from_seed(name.encode().ljust(32, b"\0"))


class SignedSimulation(PeerSimulation):
    """Every root signs; everybody knows the roots' keys, but for those in `late`, who learn them 0.3 s after asking."""

    late = ()
    is_signed = True

    def _new_check(self, peer):
        """A packet that a forger has made unreadable matches nothing there: it is left out, and may come late."""
        return LateStreamCheck(peer.name, self.truth, token_of(peer.config.query), token=token_of)

    def _new_core(self, name, config, placement, make=peer.core.PeerCore):
        trust = Trust(STREAM)
        signer = None
        if config.role is Role.ROOT:
            key = identity_of(name)
            salts = random.Random(name)
            signer = BatchSigner(STREAM, key.public_key, sign=key.sign, salt=lambda: salts.randbytes(8))

        def learn():
            for root in ("root0", "root1"):
                trust.add_key(identity_of(root).public_key, expires_at=1_000)

        if name in self.late:
            trust.key_wanted = lambda: self.network.after(0.3, learn)
        else:
            learn()
        return super()._new_core(
            name, config, placement, partial(make, trust=trust, signer=signer) if self.is_signed else make
        )


def mesh_with(how, *, seed=3, simulation=SignedSimulation):
    sim = simulation(seed)
    blamed = []
    sim.listeners.append(lambda name, event: blamed.append((name, event)) if isinstance(event, Disputed) else None)
    for number in range(2):
        sim.add_root(f"root{number}", capacity=2)
    sim.run_until(0.5)
    for number in range(3):
        make = partial(LyingCore, lie=Forges(how)) if how is not None and number == 0 else peer.core.PeerCore
        sim.add_router(f"router{number}", make=make, capacity=6)
    sim.run_until(1.5)
    for number in range(3):
        sim.add_leaf(f"leaf{number}", query="/p[@n > 20]" if number == 0 else None)
    sim.run_until(2.5)
    sim.feed(rate=30, until=5.0, make=lambda an: b'<p n="%d">flight</p>' % an)
    sim.run_until(6.5)
    return sim, blamed


def check_forger(how, seed):
    """One parent of two may forge: each peer has an honest one. The accused, and how many forged copies were seen."""
    sim, blamed = mesh_with(how, seed=seed)  # the simulation compares what clients are handed with what was published
    liars = {bytes(p.core.mesh.peer_id) for p in sim.peers.values() if not p.is_honest}
    honest = [p for p in sim.peers.values() if p.is_honest and p.check is not None]
    accused = {bytes(event.peer_id) for _, event in blamed if event.reason.startswith("convicted")}
    assert accused <= liars
    for one in honest:
        assert one.core.receiver.position == sim.truth.last, one.name
        assert not one.check.owed, one.name
        if one.core.mesh.counters["convicted_forged"]:
            assert not liars & {bytes(parent.peer_id) for parent in one.core.mesh.parents.links.values()}
    return accused, sum(p.core.trust.forged for p in honest)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("how", sorted(FORGERIES))
def test_forgers_with_many_seeds(how, seed):
    check_forger(how, seed)


@pytest.mark.parametrize("how", sorted(FORGERIES))
def test_nothing_forged_is_delivered_and_only_the_forger_is_blamed(how):
    accused, forged = check_forger(how, 3)
    assert accused
    assert forged > 0


def test_the_same_forgers_succeed_where_nothing_is_signed():
    class Unsigned(SignedSimulation):
        is_signed = False

    with pytest.raises(StreamBroken):
        mesh_with("altered", simulation=Unsigned)


def test_without_forgers_nobody_is_blamed_and_keys_that_come_late_cost_no_packet():
    class Late(SignedSimulation):
        late = ("leaf1", "router2")

    sim, blamed = mesh_with(None, simulation=Late)
    assert blamed == []
    for one in sim.peers.values():
        if one.check is not None:
            assert one.core.receiver.position == sim.truth.last
            assert one.core.receiver.statistics(sim.network.now).gaps == 0, one.name
            assert one.core.trust.forged == 0
    assert sim.peers["leaf1"].core.trust.unknown > 0


def test_a_convicted_candidate_is_avoided_for_minutes_doubling_whatever_its_newer_records_say():
    cache = CandidateCache(PeerId(b"own"), limit=8, lifetime=1e6)
    liar = PeerId(b"liar")

    def is_eligible(now):
        record = CandidateRecord(liar, ("192.0.2.1", 1), 0, 0, 0.0, 1, 1, 1, version=int(now * 10))
        cache.add_records([record], now)
        return bool(cache.eligible(now, below=9, exclude=()) or cache.last_resort(now, below=9, exclude=()))

    assert is_eligible(1.0)
    cache.convicted(liar, now=1.0)
    assert not is_eligible(1.0 + AVOID_CONVICTED - 1)
    cache.clear()
    assert not is_eligible(1.0 + AVOID_CONVICTED - 0.5)
    assert is_eligible(1.0 + AVOID_CONVICTED)
    cache.convicted(liar, now=1_000.0)
    assert not is_eligible(1_000.0 + 2 * AVOID_CONVICTED - 1)
    assert is_eligible(1_000.0 + 2 * AVOID_CONVICTED)


@pytest.mark.net
async def test_real_peers_take_nothing_from_one_that_forges(tmp_path):
    key = tmp_path / "owner.key"
    async with peer.root("s", owner=key, keep_numbers=False, **LOCAL) as forger:
        reach = {"bootstrap": [forger.address]} | LOCAL
        async with (
            peer.root("s", owner=key, keep_numbers=False, **reach) as honest,
            peer.join("s", parents=2, capacity=0, **reach) as stream,
        ):
            Forges("altered").begin(forger.core, random.Random(1))
            told = stream.events()
            with trio.fail_after(PATIENCE):
                await stream.wait_parents(2)
                for an in range(1, 41):
                    for root in (forger, honest):
                        await root.send(b"<p>%d</p>" % an, an=an)
                        await trio.sleep(0.005)
                got = []
                while len(got) < 40:
                    item = await anext(stream)
                    assert not isinstance(item, Gap)
                    if isinstance(item, Packet):
                        got.append((item.an, item.payload))
                assert got == [(an, b"<p>%d</p>" % an) for an in range(1, 41)]
                async for event in told:
                    if isinstance(event, peer.Disputed):
                        assert (event.address, event.reason) == (forger.address, "convicted: forged")
                        break
            assert stream.statistics().forged > 0
            assert stream.parents == 1


@pytest.mark.net
@pytest.mark.parametrize("options", [{"unsigned": True}, {"owner": None}])
async def test_roots_without_an_owner_key_or_with_unsigned_do_not_sign(tmp_path, options):
    given = {"owner": tmp_path / "owner.key"} | options
    async with (
        peer.root("s", keep_numbers=False, **given, **LOCAL) as root,
        peer.join("s", parents=1, capacity=0, bootstrap=[root.address], **LOCAL) as stream,
    ):
        with trio.fail_after(PATIENCE):
            await stream.wait_parents(1)
            await root.send(b"<p/>")
            while not isinstance(item := await anext(stream), Packet):
                pass
        assert item.payload == b"<p/>"
        assert not stream.trust.is_signed
