"""Frames and seats alone."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from dcp.carriers import seats
from dcp.carriers.frames import MAX_FRAME_BYTES, Unframer, frame
from dcp.carriers.pool import Pool, is_question
from dcp.carriers.seats import IDLE_SECONDS, UNPROVED_SECONDS, Seats
from dcp.carriers.tcp import Tcp
from dcp.errors import MalformedDatagram
from dcp.links.address import SocketAddress, accepted_over
from tests.dcp import packets


def test_golden_bytes():
    assert frame([b"a", b"bcd"]) == bytes.fromhex("0001610003626364")


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(seed):
    rng = random.Random(seed)
    datagrams = [rng.randbytes(rng.choice([1, 2, 255, 256, 1_400, MAX_FRAME_BYTES])) for _ in range(12)]
    data, unframer, found = frame(datagrams), Unframer(), []
    while data:
        cut = rng.choice([1, 2, 3, 1_000, 64 << 10])
        found += unframer.feed(data[:cut])
        data = data[cut:]
    assert found == datagrams
    assert not unframer.is_partial


def test_every_prefix_is_partial_and_yields_only_whole_frames():
    data = frame([b"abc", b"de"])
    for end in range(len(data)):
        unframer = Unframer()
        assert unframer.feed(data[:end]) == [b"abc"][: end // 5]
        assert unframer.is_partial == (end not in (0, 5))


@pytest.mark.parametrize("data", [b"\0\0", b"\xff\xff", b"\xff\xe4x", b"\0\1a\0\0"])
def test_empty_and_oversized_frames_are_refused_before_their_bytes_come(data):
    with pytest.raises(MalformedDatagram):
        Unframer().feed(data)


def test_only_openings_and_inquiries_open_connections():
    kinds = {sample.name for sample in packets.samples() if is_question(sample.data)}
    assert kinds == {"request", "inquire"}
    assert not is_question(b"")
    assert not is_question(b"\x10\x08")


# --- seats ------------------------------------------------------------------------------------------------------------


def from_host(host: str, port: int) -> SocketAddress:
    return accepted_over("tcp", (host, port))


def test_a_newcomer_takes_the_place_of_its_own_hosts_oldest_connection_without_a_link():
    table = Seats(most=100, most_per_host=3)
    ours = [from_host("192.0.2.1", port) for port in range(5)]
    for now, address in enumerate(ours[:3]):
        assert table.take(address, float(now)) == (True, None)
    table.overdue({ours[0]}, 3.0)
    assert table.take(ours[3], 4.0) == (True, ours[1]), "the oldest one carries a link"
    table.overdue(set(ours), 5.0)
    assert table.take(ours[4], 6.0) == (False, None)
    assert table.take(from_host("192.0.2.2", 1), 6.0) == (True, None), "another host has room"
    assert (table.cut, table.refused) == (1, 1)


def test_when_all_seats_are_taken_the_host_with_the_most_gives_way():
    table = Seats(most=4, most_per_host=3)
    many = [from_host("192.0.2.1", port) for port in range(3)]
    for address in many:
        table.take(address, 0.0)
    table.take(from_host("192.0.2.2", 1), 0.0)
    assert table.take(from_host("192.0.2.3", 1), 1.0) == (True, many[0])
    table.overdue({*many, from_host("192.0.2.2", 1), from_host("192.0.2.3", 1)}, 2.0)
    assert table.take(from_host("192.0.2.4", 1), 3.0) == (False, None), "nobody with a link is cut"


def test_an_ipv6_network_is_one_host():
    table = Seats(most=100, most_per_host=2)
    for number in range(3):
        table.take(from_host(f"2001:db8::{number}", 1), float(number))
    assert (len(table), table.cut) == (2, 1)


def test_connections_without_a_link_expire_and_those_that_were_of_use_a_little_later():
    table = Seats()
    silent, linked, asked = (from_host("192.0.2.1", port) for port in range(3))
    for address in (silent, linked, asked):
        table.take(address, 0.0)
    table.was_of_use(asked, 1.0)
    assert table.overdue({linked}, UNPROVED_SECONDS) == []
    assert table.overdue({linked}, UNPROVED_SECONDS + 0.1) == [silent]
    table.leave(silent)
    assert table.overdue({linked}, 1.0 + IDLE_SECONDS + 0.1) == [asked]
    table.leave(asked)
    ended = 1.0 + IDLE_SECONDS + 0.1
    assert table.overdue(set(), ended + IDLE_SECONDS) == []
    assert table.overdue(set(), ended + IDLE_SECONDS + 0.1) == [linked]


def test_a_port_that_is_used_again_replaces_its_dead_connection():
    table = Seats(most=1, most_per_host=1)
    address = from_host("192.0.2.1", 1)
    table.take(address, 0.0)
    assert table.take(address, 1.0) == (True, address)
    assert len(table) == 1


@pytest.mark.parametrize("seed", range(10))
def test_seats_stay_within_their_limits(seed):
    rng = random.Random(seed)
    table = Seats(most=12, most_per_host=4)
    held: set[SocketAddress] = set()
    linked: set[SocketAddress] = set()
    for step in range(2_000):
        address = from_host(f"192.0.2.{rng.randrange(6)}", rng.randrange(50))
        stays, goes = table.take(address, step * 0.1)
        assert goes is None or goes == address or goes not in linked
        held -= {goes}
        held |= {address} if stays else set()
        linked = {a for a in held if rng.random() < 0.3}
        for gone in table.overdue(linked, step * 0.1):
            table.leave(gone)
            held.discard(gone)
        assert len(table) == len(held) <= 12
        hosts = [a[0] for a in held]
        assert all(hosts.count(host) <= 4 for host in hosts)
    assert seats.MAX_ACCEPTED_PER_HOST < seats.MAX_ACCEPTED


async def test_what_is_sent_while_a_pool_ends_is_dropped_and_dials_nobody():
    pool = Pool({"tcp": Tcp()})
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await pool.run(deliver=lambda datagrams, address: True, lost=lambda address: None, used=set)

        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        for port in range(1, 9):  # at each step of its end
            pool.send(b"\x00question", ("127.0.0.1", port, "tcp"), asks=True)
            await trio.lowlevel.checkpoint()
    assert pool.statistics().dropped["no connection"] > 0
