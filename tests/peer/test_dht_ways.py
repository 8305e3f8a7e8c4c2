"""Which way the directory's datagrams take, and what is handed to it."""

from __future__ import annotations

from types import SimpleNamespace

from dcp.links.address import accepted_over
from dcp.links.ways import PATIENCE, Ways
from peer.dht_ways import ANSWER, REQUEST, DirectoryWays

NODE = ("192.0.2.1", 4_000)
TCP = ("192.0.2.1", 4_000, "tcp")


class Bench:
    def __init__(self, *, knows_nobody: bool = True) -> None:
        self.now = 0.0
        self.sent: list[tuple] = []
        self.received: list[tuple] = []
        self.of_use: list[tuple] = []
        self.ways = Ways(("udp", "tcp"))
        self.dht = DirectoryWays(self.ways, lambda: self.now)
        self.dht.driver = SimpleNamespace(
            send_other=lambda data, address, is_question=False: self.sent.append((address, is_question)),
            carriers=SimpleNamespace(was_of_use=self.of_use.append),
        )
        self.dht.directory = SimpleNamespace(
            knows_nobody=knows_nobody,
            datagram_received=lambda data, address, **more: self.received.append((address, more)),
        )


def test_the_nodes_that_the_user_named_are_dialled_when_they_do_not_answer():
    bench = Bench()
    bench.dht.send(REQUEST, NODE)
    bench.now = PATIENCE
    bench.dht.send(REQUEST, NODE)
    assert bench.sent == [(NODE, True), (NODE, True), (TCP, True)]
    bench.dht.receive(ANSWER, TCP)
    assert bench.received == [(NODE, {"is_port_ours": False})]
    bench.sent.clear()
    bench.dht.send(REQUEST, NODE)
    assert bench.sent == [(TCP, True)]


def test_nodes_that_others_name_are_not_dialled_where_udp_works():
    bench = Bench(knows_nobody=False)
    for bench.now in (0.0, 1.0, 5.0):
        bench.dht.send(REQUEST, NODE)
    assert {address for address, _ in bench.sent} == {NODE}


def test_answers_dial_nobody():
    """A request with a forged source must not make us open a connection to a victim."""
    bench = Bench()
    for bench.now in (0.0, 1.0, 5.0):
        bench.dht.send(ANSWER, NODE)
    assert set(bench.sent) == {(NODE, False)}


def test_a_request_over_a_connection_is_answered_over_it():
    bench = Bench()
    near = accepted_over("tcp", ("192.0.2.9", 50_000))
    bench.dht.receive(REQUEST, near)
    ((address, more),) = bench.received
    assert address == ("192.0.2.9", 50_000)
    more["reply"](b"\1answer")
    assert bench.sent == [(near, False)]
    assert bench.of_use == [near]


def test_answers_on_connections_of_others_and_requests_on_ours_are_dropped():
    bench = Bench()
    bench.dht.receive(ANSWER, accepted_over("tcp", NODE))
    bench.dht.receive(REQUEST, TCP)
    bench.dht.receive(b"", TCP)
    bench.dht.receive(b"garbage", accepted_over("tcp", NODE))
    assert bench.received == []


def test_before_the_directory_is_there_nothing_happens():
    dht = DirectoryWays(Ways(), lambda: 0.0)
    dht.receive(REQUEST, NODE)
    dht.send(REQUEST, NODE)
