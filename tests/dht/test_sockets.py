"""Real sockets on loopback: fifty nodes, half of them killed, IPv6, the shared port under trio, the beacon."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import replace

import pytest
import trio

import dht
from dht.directory import CandidateQuery
from dht.errors import DhtError
from dht.keys import roots_key
from dht.record import PeerRecord, Role
from dht.shell.beacon import GROUP, Beacon, decode_beacon_untrusted, encode_beacon
from dht.shell.service import DirectoryOptions, DirectoryService
from tests.dht.build import identity

pytestmark = pytest.mark.net

QUIET = DirectoryOptions(beacon=False)


def run(main):
    """A plain asyncio loop, whatever policy trio-asyncio has installed."""
    loop = asyncio.SelectorEventLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextlib.asynccontextmanager
async def services(loop, count: int, host: str = "127.0.0.1", options: DirectoryOptions = QUIET):
    opened: list[DirectoryService] = []
    try:
        for number in range(count):
            known = tuple(service.address for service in opened[:3])
            settings = DirectoryOptions(bootstrap=known, beacon=options.beacon)
            opened.append(await DirectoryService.open(identity(number + 1), settings, loop=loop, listen=(host, 0)))
        yield opened
    finally:
        await asyncio.gather(*(service.close() for service in opened))


async def until(condition, seconds: float = 20.0):
    """Wait for what must become true, not for a time that should be enough."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


def record(number: int, service: DirectoryService, **fields) -> PeerRecord:
    defaults = {"role": Role.ROUTER, "level": 600 + number, "capacity": 4, "free_slots": 2}
    return PeerRecord("asdi", identity(number + 1).peer_id, (service.address,), **{**defaults, **fields})


@pytest.mark.slow
def test_fifty_nodes_publish_and_read_and_half_of_them_die():
    owner = identity(1000)
    stream = f"asdi.{owner.fingerprint}"

    async def main(loop):
        async with services(loop, 50) as opened:
            await until(lambda: all(len(service.node.contacts) >= 10 for service in opened))

            async def publish(number):
                peer_id = identity(number + 1).peer_id
                fields = {"stream": stream}
                if number % 10 == 0:
                    grant = dht.Grant.issue(owner, stream=stream, peer_id=peer_id, expires_at=2**32 - 1)
                    fields |= {"role": Role.ROOT, "level": 0, "grant": grant}
                mine = replace(record(number, opened[number]), **fields)
                return await opened[number].directory.publish(mine)

            for start in range(0, 50, 10):
                published = await asyncio.gather(*(publish(number) for number in range(start, start + 10)))
                assert all(one.replicas >= 8 for one in published)
            roots = {identity(number + 1).peer_id for number in range(0, 50, 10)}
            sampled: set[bytes] = set()
            for number, service in enumerate(opened):
                found = await service.directory.roots(stream)
                assert {one.peer_id for one in found} == roots - {identity(number + 1).peer_id}
                candidates = await service.directory.candidates(stream, CandidateQuery(limit=16, below_level=1000))
                assert len(candidates) == 16
                sampled |= {one.peer_id for one in candidates}
            assert len(sampled) > 40

            dying, living = opened[25:], opened[:25]
            for service in dying:
                service.crash()
            roots_left = {identity(number + 1).peer_id for number in range(0, 25, 10)}

            async def read_on(number, service):
                found = await service.directory.roots(stream)
                assert roots_left - {identity(number + 1).peer_id} <= {one.peer_id for one in found}
                # And an instant repair finds parents without asking anybody.
                assert service.directory.cached_candidates(stream, CandidateQuery(limit=8, repair=True))

            await asyncio.gather(*(read_on(number, service) for number, service in enumerate(living)))

    run(main)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_and_a_socket_for_both():
    async def main(loop):
        try:
            await_open = await DirectoryService.open(identity(1), QUIET, loop=loop, listen=("::", 0))
        except DhtError as exc:
            pytest.skip(f"no IPv6 here: {exc}")
        both = await_open
        port = both.address[1]
        six = await DirectoryService.open(
            identity(2), DirectoryOptions(bootstrap=(("::1", port),), beacon=False), loop=loop, listen=("::1", 0)
        )
        four = await DirectoryService.open(
            identity(3),
            DirectoryOptions(bootstrap=(("127.0.0.1", port),), beacon=False),
            loop=loop,
            listen=("127.0.0.1", 0),
        )
        try:
            await until(lambda: len(both.node.contacts) == 2)
            await six.directory.publish(record(1, six, role=Role.ROOT))
            assert [one.addresses for one in await four.directory.roots("asdi")] == [(six.address,)]
            assert six.address[0] == "::1"
        finally:
            for service in (both, six, four):
                await service.close()

    run(main)


def test_an_address_in_use_is_one_clear_error():
    async def main(loop):
        first = await DirectoryService.open(identity(1), QUIET, loop=loop, listen=("127.0.0.1", 0))
        with pytest.raises(DhtError, match=r"cannot listen on 127\.0\.0\.1:"):
            await DirectoryService.open(identity(2), QUIET, loop=loop, listen=first.address)
        with pytest.raises(DhtError, match="cannot listen on"):
            await DirectoryService.open(identity(2), QUIET, loop=loop, listen=("host.invalid", 1))
        await first.close()

    run(main)


def test_contacts_are_remembered_over_a_restart(tmp_path):
    path = tmp_path / "contacts.json"

    async def main(loop):
        async with services(loop, 4) as others:
            options = DirectoryOptions(bootstrap=(others[0].address,), beacon=False, contacts_file=path)
            first = await DirectoryService.open(identity(50), options, loop=loop, listen=("127.0.0.1", 0))
            await until(lambda: len(first.node.contacts) == 4)
            await first.close()
            options = DirectoryOptions(beacon=False, contacts_file=path)
            again = await DirectoryService.open(identity(50), options, loop=loop, listen=("127.0.0.1", 0))
            await until(lambda: len(again.node.contacts) == 4)
            await again.close()

    run(main)


def test_dead_ports_and_sends_to_nowhere_raise_nothing():
    async def main(loop):
        service = await DirectoryService.open(
            identity(1),
            DirectoryOptions(bootstrap=(("127.0.0.1", 9), ("host.invalid", 9), ("::1", 9)), beacon=False),
            loop=loop,
            listen=("127.0.0.1", 0),
        )
        assert not await service.node.join()
        with pytest.raises(dht.DirectoryUnavailable):
            await service.directory.roots("asdi")
        with pytest.raises(dht.DirectoryUnavailable):
            await service.directory.publish(record(0, service, role=Role.ROOT))
        await service.close()

    run(main)


# --- under trio, on the program's own socket


class Program:
    """What a peer does: one socket, DCP and DHT told apart by the first byte."""

    def __init__(self, number: int):
        self.identity = identity(number)
        self.socket = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.dcp_datagrams: list[bytes] = []

    def send(self, data: bytes, addr) -> None:
        with contextlib.suppress(OSError):
            self.plain.sendto(data, addr)

    async def run(self, bootstrap, task_status) -> None:
        with self.socket:
            await self.socket.bind(("127.0.0.1", 0))
            self.address = self.socket.getsockname()
            self.plain = socket.socket(fileno=socket.dup(self.socket.fileno()))
            with self.plain:
                options = DirectoryOptions(bootstrap=tuple(bootstrap), beacon=False)
                async with (
                    dht.open_directory(self.identity, options, send=self.send, address=self.address) as directory,
                    trio.open_nursery() as nursery,
                ):
                    self.directory = directory
                    nursery.start_soon(self.receive)
                    task_status.started(self)
                    await trio.sleep_forever()

    async def receive(self) -> None:
        while True:
            data, addr = await self.socket.recvfrom(65536)
            if data[:1] in (b"\x00", b"\x01"):
                self.directory.datagram_received(data, addr)
            else:
                self.dcp_datagrams.append(data)


async def trio_until(condition, seconds: float = 20.0) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await trio.sleep(0.02)


async def test_the_directory_under_trio_shares_the_programs_socket():
    async with trio.open_nursery() as nursery:
        programs: list[Program] = []
        for number in range(1, 6):
            bootstrap = [programs[0].address] if programs else []
            programs.append(await nursery.start(Program(number).run, bootstrap))
        await trio_until(lambda: all(one.directory.stats().contacts >= 3 for one in programs))
        for number, one in enumerate(programs):
            role = Role.ROOT if number == 0 else Role.ROUTER
            said = PeerRecord(
                "asdi", one.identity.peer_id, (one.address,), role, 600 * number, capacity=4, free_slots=2
            )
            assert (await one.directory.publish(said)).replicas >= 3
        reader = programs[4].directory
        assert [one.peer_id for one in await reader.roots("asdi")] == [identity(1).peer_id]
        assert len(await reader.candidates("asdi", CandidateQuery(below_level=2000))) == 4
        told: list[dht.Snapshot] = []
        watch = reader.watch("asdi", told.append)
        await trio_until(lambda: bool(told))
        watch.close()
        assert len(reader.cached_candidates("asdi", CandidateQuery(repair=True))) == 4
        assert reader.observed_addresses() == [programs[4].address]
        reader.forget("asdi", identity(2).peer_id)
        assert len(reader.cached_candidates("asdi")) == 3

        # Garbage of every kind on the shared port: the DHT counts it, DCP's datagrams pass it by.
        rng = random.Random(1)
        target = programs[4]
        for number in range(1, 501):
            target.send(bytes([rng.randrange(2)]) + rng.randbytes(rng.randrange(100)), target.address)
            if number % 25 == 0:  # or the socket's buffer overflows, and the kernel drops what we want to see
                target.send(b"\x10dcp", target.address)
                await trio_until(lambda count=number // 25: target.dcp_datagrams == [b"\x10dcp"] * count)
        assert [one.peer_id for one in await reader.roots("asdi")] == [identity(1).peer_id]
        assert sum(reader.stats().counters.get(name, 0) for name in ("short", "undecodable", "unsolicited")) > 100

        with trio.move_on_after(0) as scope:  # a call that is cancelled leaves nothing broken
            await reader.candidates("asdi")
        assert scope.cancelled_caught
        await programs[0].directory.withdraw()
        assert await reader.roots("asdi") == []
        nursery.cancel_scope.cancel()


# --- the beacon


def test_beacons_are_decoded_strictly():
    for v6 in (False, True):
        beacon = encode_beacon(bytes(20), 4700, on_v6_loopback=v6)
        assert decode_beacon_untrusted(beacon) == (bytes(20), 4700, v6)
    for data in (b"", encode_beacon(bytes(20), 0), encode_beacon(bytes(20), 1)[:-1], b"x" * 39):
        assert decode_beacon_untrusted(data) is None


@pytest.mark.parametrize(
    ("host", "source", "on_v6_loopback", "heard"),
    [
        ("127.0.0.1", "192.0.2.1", False, [("192.0.2.1", 4700)]),
        ("::", "192.0.2.1", False, [("192.0.2.1", 4700)]),
        ("::1", "127.0.0.1", True, [("::1", 4700)]),
        ("::", "127.0.0.1", True, [("::1", 4700)]),
        ("::1", "127.0.0.1", False, []),  # an IPv4 peer can't be reached from there
        ("127.0.0.1", "127.0.0.1", True, []),
        ("::1", "192.0.2.1", True, []),  # somebody else's loopback
    ],
)
def test_a_beacon_is_a_hint_only_to_who_can_reach_its_sender(host, source, on_v6_loopback, heard):
    async def main(loop):
        told = []
        beacon = Beacon(
            identity(1).node_id, 5000, interval=30.0, rng=random.Random(1), on_peer=told.append, host=host
        )  # fmt: skip
        beacon._loop = loop
        data = encode_beacon(identity(2).node_id, 4700, on_v6_loopback=on_v6_loopback)
        beacon.datagram_received(data, (source, 47109))
        assert told == heard
        assert beacon.counters["out_of_reach"] == (not heard)

    run(main)


def test_peers_on_one_host_find_each_other_without_configuration():
    async def main(loop):
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        probe.bind(("127.0.0.1", 0))
        group_port = probe.getsockname()[1]  # a group of this test's own
        probe.close()
        heard: list[list] = [[], []]
        beacons = []
        for number in (0, 1):
            beacon = Beacon(
                identity(number + 1).node_id,
                5000 + number,
                interval=30.0,
                rng=random.Random(number),
                on_peer=heard[number].append,
            )
            if not await beacon.open(loop, group_port=group_port):
                pytest.skip("this host has no multicast")
            beacons.append(beacon)
        try:
            await until(lambda: heard[0] and heard[1], 10.0)
            assert {port for _, port in heard[0]} == {5001}
            assert {port for _, port in heard[1]} == {5000}
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            for _ in range(100):
                sender.sendto(b"garbage", (GROUP, group_port))
                sender.sendto(encode_beacon(bytes(20), 53), (GROUP, group_port))
            sender.close()
            await until(lambda: beacons[0].counters["rate_limited"] > 0, 10.0)
            assert beacons[0].counters["malformed"] > 0
            assert len(heard[0]) <= 30
        finally:
            for beacon in beacons:
                await beacon.close()

    run(main)


def test_a_beacon_is_believed_only_when_its_sender_answers():
    async def main(loop):
        async with services(loop, 2) as opened:
            first, _second = opened
            await until(lambda: len(first.node.contacts) == 1)
            first.node.hint(("127.0.0.1", 9))
            third = await DirectoryService.open(identity(9), QUIET, loop=loop, listen=("127.0.0.1", 0))
            first.node.hint(third.address)
            await until(lambda: len(first.node.contacts) == 2 and len(third.node.contacts) == 2)
            result = await third.node.read(roots_key("asdi"))
            assert result.answers == 2
            await third.close()

    run(main)
