"""One suite for both directories: what a peer may rely on, whichever it holds."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from dht.directory import CandidateQuery
from dht.errors import RecordRejected, SeveralOwners, StreamOwnerChanged
from dht.identity import id_text
from dht.memory import MemoryDirectory, MemoryHub
from dht.record import PeerRecord, QuerySummary, Role
from dht.shell.kademlia_directory import KademliaDirectory
from dht.streams import Grant
from dht.testing import Swarm, VirtualLoop, run_virtual

if TYPE_CHECKING:
    from dht.directory import Directory, Snapshot

PEERS = 8


class World:
    """Eight peers that share a directory, and a clock that the test moves."""

    def __init__(self, loop: VirtualLoop):
        self.loop = loop
        self.directories: list[Directory] = []
        self.identities = []
        self.addresses = []

    def record(self, number: int, **fields) -> PeerRecord:
        defaults = {
            "stream": "asdi",
            "peer_id": self.identities[number].peer_id,
            "addresses": (self.addresses[number],),
            "role": Role.ROUTER,
            "level": 600 + number,
            "capacity": 4,
            "free_slots": 2,
        }
        return PeerRecord(**{**defaults, **fields})

    async def publish(self, number: int, **fields):
        return await self.directories[number].publish(self.record(number, **fields))

    def ids(self, *numbers: int):
        return {self.identities[number].peer_id for number in numbers}

    def crash(self, number: int):
        raise NotImplementedError


class MemoryWorld(World):
    async def build(self):
        hub = MemoryHub(self.loop.wall_time)
        swarm = Swarm(self.loop, seed=5)  # for identities and addresses alone
        for number in range(PEERS):
            address = swarm.add()
            self.addresses.append(address)
            self.identities.append(swarm.identities[address])
            peer_id = self.identities[-1].peer_id
            self.directories.append(MemoryDirectory(hub, peer_id, rng=random.Random(number)))
            await swarm.kill(address)
        self.alive = set(range(PEERS))
        self.loop.create_task(self._renew())

    async def _renew(self):
        while True:
            await asyncio.sleep(60.0)
            for number in sorted(self.alive):
                self.directories[number].renew()

    def crash(self, number):
        self.alive.discard(number)


class KademliaWorld(World):
    async def build(self):
        self.swarm = Swarm(self.loop, seed=5, loss=0.02)
        for _ in range(PEERS):
            address = self.swarm.add()
            self.addresses.append(address)
            self.identities.append(self.swarm.identities[address])
            await asyncio.sleep(0.5)
        await asyncio.sleep(10.0)
        for address, identity in zip(self.addresses, self.identities, strict=True):
            self.directories.append(KademliaDirectory(self.swarm.nodes[address], identity))

    def crash(self, number):
        self.swarm.network.detach(self.addresses[number])


@pytest.fixture(params=[MemoryWorld, KademliaWorld], ids=["memory", "kademlia"])
def in_world(request):
    """Run an async test in a world of its own, in virtual time."""

    def run(scenario):
        async def main(loop):
            world = request.param(loop)
            await world.build()
            return await scenario(world)

        return run_virtual(main)

    return run


def peer_ids(records):
    return {record.peer_id for record in records}


def test_what_is_published_is_found_by_all_others_and_not_by_oneself(in_world):
    async def scenario(world):
        await world.publish(0, role=Role.ROOT, level=0)
        for number in (1, 2, 3):
            await world.publish(number)
        for directory in world.directories[4:]:
            assert peer_ids(await directory.roots("asdi")) == world.ids(0)
            assert peer_ids(await directory.candidates("asdi")) == world.ids(0, 1, 2, 3)
        assert peer_ids(await world.directories[1].candidates("asdi")) == world.ids(0, 2, 3)
        assert await world.directories[0].roots("asdi") == []

    in_world(scenario)


def test_a_record_comes_back_as_it_was_said(in_world):
    async def scenario(world):
        said = world.record(
            1,
            hops=3,
            children=2,
            free_repair_slots=1,
            wanted_parents=3,
            held_parents=2,
            send_rate=12345,
            query=QuerySummary.of("//flight"),
        )
        await world.directories[1].publish(said)
        (found,) = await world.directories[5].candidates("asdi")
        for name in ("stream", "peer_id", "addresses", "role", "level", "hops", "children", "capacity", "free_slots"):
            assert getattr(found, name) == getattr(said, name)
        for name in ("free_repair_slots", "wanted_parents", "held_parents", "send_rate", "query"):
            assert getattr(found, name) == getattr(said, name)
        assert world.loop.wall_time() < found.expires_at <= world.loop.wall_time() + 180

    in_world(scenario)


def test_candidates_are_filtered_and_bounded(in_world):
    async def scenario(world):
        wide = QuerySummary.of("//flight")
        for number in range(1, 7):
            await world.publish(
                number,
                level=500 * number,
                query=wide if number % 2 else None,
                free_slots=0 if number == 6 else 1,
                free_repair_slots=1,
            )
        reader = world.directories[7]
        for ask in (reader.candidates, _as_async(reader.cached_candidates)):
            assert peer_ids(await ask("asdi")) == world.ids(1, 2, 3, 4, 5)
            assert peer_ids(await ask("asdi", CandidateQuery(repair=True))) == world.ids(1, 2, 3, 4, 5, 6)
            assert peer_ids(await ask("asdi", CandidateQuery(below_level=1500))) == world.ids(1, 2)
            assert peer_ids(await ask("asdi", CandidateQuery(below_level=0))) == set()
            assert peer_ids(await ask("asdi", CandidateQuery(exclude=world.ids(1, 5)))) == world.ids(2, 3, 4)
            assert peer_ids(
                await ask("asdi", CandidateQuery(covering=lambda record: record.query == wide))
            ) == world.ids(1, 3, 5)
            assert len(await ask("asdi", CandidateQuery(limit=2))) == 2
            assert await ask("other") == []

    in_world(scenario)


def _as_async(function):
    async def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def test_a_limited_answer_is_a_fair_sample(in_world):
    async def scenario(world):
        for number in range(1, 7):
            await world.publish(number)
        reader = world.directories[7]
        await reader.candidates("asdi")
        seen = [
            record.peer_id for _ in range(300) for record in reader.cached_candidates("asdi", CandidateQuery(limit=1))
        ]
        counts = [seen.count(peer_id) for peer_id in world.ids(1, 2, 3, 4, 5, 6)]
        assert min(counts) > 20  # 50 expected

    in_world(scenario)


def test_the_latest_word_counts(in_world):
    async def scenario(world):
        await world.publish(1, level=600, free_slots=3)
        await world.publish(1, level=5000, free_slots=1, children=3)
        (found,) = await world.directories[5].candidates("asdi")
        assert (found.level, found.free_slots, found.children) == (5000, 1, 3)

    in_world(scenario)


def test_a_peer_without_room_is_no_candidate_until_it_has_room_again(in_world):
    async def scenario(world):
        await world.publish(1)
        await world.publish(1, free_slots=0)
        assert await world.directories[5].candidates("asdi", CandidateQuery(repair=True)) == []
        await world.publish(1, free_slots=0, free_repair_slots=1)
        assert await world.directories[5].candidates("asdi") == []
        assert peer_ids(await world.directories[5].candidates("asdi", CandidateQuery(repair=True))) == world.ids(1)

    in_world(scenario)


def test_withdrawn_is_gone_at_once(in_world):
    async def scenario(world):
        await world.publish(0, role=Role.ROOT, level=0)
        await world.publish(1)
        assert len(await world.directories[5].candidates("asdi")) == 2
        await world.directories[0].withdraw("asdi")
        await world.directories[1].withdraw()
        for reader in world.directories[4:6]:
            assert await reader.roots("asdi") == []
            assert await reader.candidates("asdi") == []
        await world.directories[1].withdraw()  # once more does no harm

    in_world(scenario)


def test_a_living_peer_stays_and_a_crashed_one_expires(in_world):
    async def scenario(world):
        await world.publish(1)
        await world.publish(2)
        await asyncio.sleep(20.0)
        world.crash(1)
        await asyncio.sleep(400.0)
        assert peer_ids(await world.directories[5].candidates("asdi")) == world.ids(2)

    in_world(scenario)


def test_streams_are_apart(in_world):
    async def scenario(world):
        await world.publish(1, stream="asdi")
        await world.publish(1, stream="news", level=900)
        assert [record.level for record in await world.directories[5].candidates("news")] == [900]
        await world.directories[1].withdraw("asdi")
        assert await world.directories[5].candidates("asdi") == []
        assert len(await world.directories[5].candidates("news")) == 1

    in_world(scenario)


def test_watching_tells_what_changed_and_keeps_the_cache_warm(in_world):
    async def scenario(world):
        told: list[Snapshot] = []
        reader = world.directories[5]
        watch = reader.watch("asdi", told.append)
        await asyncio.sleep(30.0)
        assert peer_ids(told[-1].candidates) == set()
        await world.publish(0, role=Role.ROOT, level=0)
        await world.publish(1)
        await asyncio.sleep(60.0)
        assert peer_ids(told[-1].roots) == world.ids(0)
        assert peer_ids(told[-1].candidates) == world.ids(0, 1)
        assert peer_ids(reader.cached_candidates("asdi", CandidateQuery(below_level=700))) == world.ids(0, 1)
        assert peer_ids(reader.cached_roots("asdi")) == world.ids(0)
        before = len(told)
        await asyncio.sleep(300.0)
        assert len(told) == before  # renewals are no news
        watch.close()
        await world.directories[1].withdraw()
        await asyncio.sleep(60.0)
        assert len(told) == before

    in_world(scenario)


def test_a_peer_found_dead_is_not_offered_before_it_publishes_again(in_world):
    async def scenario(world):
        await world.publish(1)
        await world.publish(2)
        reader = world.directories[5]
        await reader.candidates("asdi")
        reader.forget("asdi", world.identities[1].peer_id)
        reader.forget("asdi", world.identities[7].peer_id)  # never heard of: nothing happens
        assert peer_ids(reader.cached_candidates("asdi")) == world.ids(2)
        assert peer_ids(await reader.candidates("asdi")) == world.ids(2)
        assert peer_ids(await world.directories[6].candidates("asdi")) == world.ids(1, 2)
        await world.publish(1, free_slots=1)
        assert peer_ids(await reader.candidates("asdi")) == world.ids(1, 2)

    in_world(scenario)


def test_withdrawing_beats_a_publication_that_is_still_waiting(in_world):
    async def scenario(world):
        await world.publish(1)
        await asyncio.gather(world.publish(1, level=700), world.publish(1, level=800), world.directories[1].withdraw())
        await asyncio.sleep(70.0)
        assert await world.directories[5].candidates("asdi") == []

    in_world(scenario)


def test_many_changes_at_once_end_with_the_last(in_world):
    async def scenario(world):
        await asyncio.gather(*(world.publish(1, free_slots=number) for number in range(1, 9)))
        (found,) = await world.directories[5].candidates("asdi")
        assert found.free_slots == 8

    in_world(scenario)


def test_a_self_certifying_stream_has_the_owners_roots_alone(in_world):
    async def scenario(world):
        owner = world.identities[7]
        stream = f"asdi.{owner.fingerprint}"
        expires_at = int(world.loop.wall_time()) + 1000
        grant = Grant.issue(owner, stream=stream, peer_id=world.identities[0].peer_id, expires_at=expires_at)
        await world.publish(0, stream=stream, role=Role.ROOT, level=0, grant=grant)
        with pytest.raises(RecordRejected):
            await world.publish(1, stream=stream, role=Role.ROOT, level=0)
        with pytest.raises(RecordRejected):
            await world.publish(1, stream=stream, role=Role.ROOT, level=0, grant=grant)
        assert peer_ids(await world.directories[5].roots(stream)) == world.ids(0)

    in_world(scenario)


def test_another_owner_of_an_open_stream_is_loud(in_world):
    async def scenario(world):
        reader = world.directories[5]
        await world.publish(0, role=Role.ROOT, level=0)
        assert peer_ids(await reader.roots("asdi")) == world.ids(0)
        await world.publish(1, role=Role.ROOT, level=0)
        assert peer_ids(await reader.roots("asdi")) == world.ids(0)
        assert peer_ids(await reader.candidates("asdi")) == world.ids(0)
        await world.directories[0].withdraw()
        with pytest.raises(StreamOwnerChanged, match=id_text(world.identities[1].peer_id)):
            await reader.roots("asdi")

    in_world(scenario)


def test_several_owners_at_first_sight_are_loud_and_nobodys_root_is_offered(in_world):
    async def scenario(world):
        reader = world.directories[5]
        await world.publish(0, role=Role.ROOT, level=0)
        await world.publish(1, role=Role.ROOT, level=0)
        await world.publish(2)
        with pytest.raises(SeveralOwners) as caught:
            await reader.roots("asdi")
        assert set(caught.value.owners) == world.ids(0, 1)
        assert peer_ids(await reader.candidates("asdi")) == world.ids(2)
        assert peer_ids(await reader.claimed_roots("asdi")) == world.ids(0, 1)
        seen: list[Snapshot] = []
        watch = world.directories[6].watch("asdi", seen.append)
        await asyncio.sleep(5.0)
        watch.close()
        assert isinstance(seen[-1].problem, SeveralOwners)
        await world.directories[1].withdraw()
        assert peer_ids(await reader.roots("asdi")) == world.ids(0)

    in_world(scenario)


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3])
def test_a_cancelled_publication_that_is_withdrawn_leaves_no_record(in_world, after):
    async def scenario(world):
        publishing = asyncio.ensure_future(world.publish(1, role=Role.ROOT, level=0))
        await asyncio.sleep(after)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await world.directories[1].withdraw("asdi")
        for pause in (0.0, 2.0, 70.0):
            await asyncio.sleep(pause)
            assert await world.directories[5].claimed_roots("asdi") == []
            assert await world.directories[6].candidates("asdi") == []

    in_world(scenario)


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_a_cancelled_withdrawal_can_be_repeated(in_world, after):
    async def scenario(world):
        await world.publish(1, role=Role.ROOT, level=0)
        withdrawing = asyncio.ensure_future(world.directories[1].withdraw())
        await asyncio.sleep(after)
        withdrawing.cancel()
        await asyncio.gather(withdrawing, return_exceptions=True)
        await world.directories[1].withdraw()
        assert await world.directories[5].claimed_roots("asdi") == []
        assert await world.directories[6].candidates("asdi") == []

    in_world(scenario)


def test_a_withdrawal_does_not_wait_for_a_publication_under_way(in_world):
    async def scenario(world):
        for number in (0, 2, 3, 4):
            world.crash(number)  # a publication now waits for the timeouts of the dead
        publishing = asyncio.ensure_future(world.publish(1, role=Role.ROOT, level=0))
        await asyncio.sleep(0.2)
        await world.directories[1].withdraw()
        assert publishing.done()
        await asyncio.sleep(3.0)
        assert await world.directories[5].claimed_roots("asdi") == []

    in_world(scenario)


def test_what_is_published_after_a_withdrawal_is_seen(in_world):
    async def scenario(world):
        await world.publish(1)
        await asyncio.gather(world.directories[1].withdraw(), world.publish(1, level=800))
        assert [record.level for record in await world.directories[5].candidates("asdi")] == [800]

    in_world(scenario)


def test_nobody_publishes_another(in_world):
    async def scenario(world):
        with pytest.raises(ValueError, match="peer"):
            await world.directories[0].publish(world.record(1))

    in_world(scenario)


@pytest.mark.parametrize("stream", ["", "ASDI", "a b", "asdi.x", "x" * 80])
def test_a_wrong_stream_name_is_the_callers_mistake(in_world, stream):
    async def scenario(world):
        reader = world.directories[5]
        for ask in (
            reader.roots,
            reader.candidates,
            _as_async(reader.cached_candidates),
            _as_async(reader.cached_roots),
        ):
            with pytest.raises(ValueError, match="stream name"):
                await ask(stream)
        with pytest.raises(ValueError, match="stream name"):
            await world.publish(0, stream=stream)

    in_world(scenario)
