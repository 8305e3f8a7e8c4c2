"""The walk over a mesh, against peers that answer as real ones do: 16 children at most, chosen at random."""

from __future__ import annotations

import json
import random
from itertools import islice
from types import SimpleNamespace

import pytest

from dht import Role as DhtRole
from peer.cli.mesh_table import WIDTH, as_table
from peer.cli.status import as_dict, as_dot
from peer.mesh.messages import (
    MAX_PEERS_IN_ANSWER,
    About,
    AboutRequest,
    ChildrenRequest,
    ParentsRequest,
    PeerAt,
    PeerId,
    Peers,
    State,
    StatusRequest,
    Wanted,
    WantsRequest,
)
from peer.observe.crawl import MAX_AT_ONCE, MAX_SILENT, Crawler, MeshView, PeerView
from peer.queries import token_of
from xmlswitch import Query

CHILDREN = 64


def peer_id(number: int) -> PeerId:
    return PeerId(number.to_bytes(20, "big"))


def address(number: int) -> tuple[str, int]:
    return f"192.0.2.{number % 250 + 1}", 4_000 + number


class Answering(Crawler):
    """Peer 0 is a root, with all the others as its children; 1 is a router, 2 lacks a parent, 3 is silent."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.asked: list[object] = []
        record = SimpleNamespace(
            peer_id=peer_id(0), addresses=[address(0)], role=DhtRole.ROOT, level=0, hops=0, children=CHILDREN,
            capacity=99, query=None, expires_at=0.0,
        )  # fmt: skip

        async def roots(stream):
            return [record]

        async def candidates(stream, query):
            return []

        self.directory = SimpleNamespace(roots=roots, candidates=candidates)

    async def _ask(self, at, request):
        self.asked.append(request)
        number = at[1] - 4_000
        if number == 3:
            return None
        match request:
            case StatusRequest():
                wanted = 0 if number == 0 else 2 if number == 2 else 1
                children, capacity = (CHILDREN, 99) if number == 0 else (0, 3 if number == 1 else 0)
                return State(
                    peer_id(number), number, min(number, 1), 1, True, int(number > 0), wanted, children, capacity
                )
            case ParentsRequest():
                return Peers((PeerAt(peer_id(0), address(0), 0),) if number else ())
            case ChildrenRequest():
                named = self._dice.sample(range(1, CHILDREN + 1), MAX_PEERS_IN_ANSWER) if number == 0 else []
                return Peers(tuple(PeerAt(peer_id(n), address(n), n) for n in named))
            case AboutRequest():
                return About("s", name=f"peer {number}" if number % 2 else "", packets_per_second=number, loss=0.125)
            case WantsRequest():
                known = {1: None, 4: token_of(Query.parse("/p/n > 5")), 5: b"\xffnonsense"}
                return Wanted(known.get(number, b""))


@pytest.mark.parametrize("seed", range(5))
async def test_every_child_is_seen_with_its_query(seed):
    view = await Answering(seed).look("s")
    shown = as_dict(view)
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["stream"], shown["whole"], shown["roots"], shown["lacking"]) == ("s", True, 1, 1)
    assert len(shown["peers"]) == CHILDREN + 1, "more than the 16 that one answer names"
    by_address = {peer["address"]: peer for peer in shown["peers"]}

    def of(number):
        host, port = address(number)
        return by_address[f"{host}:{port}"]

    assert len(of(0)["children"]) == of(0)["children_held"] == CHILDREN
    assert (of(0)["role"], of(0)["query"], of(0)["resilience"], of(0)["load"]) == ("root", None, None, 0.646)
    assert (of(1)["role"], of(1)["query"]) == ("router", None)
    assert (of(4)["role"], of(4)["query"], of(4)["rooted"], of(4)["resilience"]) == ("leaf", "/p/n > 5", True, 1)
    assert of(5)["query"] is None, "what is no query is not shown as one"
    assert of(6)["query"] == "", "everything"
    assert not of(3)["answered"]
    text, graph = as_table(view, wide=True), as_dot(view)
    assert "1 with fewer parents than wanted" in text
    assert "/p/n > 5" in text
    assert len(text.splitlines()) == CHILDREN + 3
    lines = as_table(view).splitlines()
    assert max(map(len, lines)) <= WIDTH, "100 peers are readable in a terminal of usual width"
    assert any(line.startswith("├ peer 5 ") and "12.5%" in line and " 5.0 " in line for line in lines)
    assert of(5)["name"] == "peer 5"
    assert of(5)["packets_per_second"] == 5.0
    assert graph.count("->") == CHILDREN - 1


async def test_a_peer_that_hides_children_is_not_asked_for_ever():
    class Hiding(Answering):
        async def _ask(self, at, request):
            if isinstance(request, ChildrenRequest):
                self.asked.append(request)
                return Peers(())
            return await super()._ask(at, request)

    crawler = Hiding(1)
    view = await crawler.look("s")
    assert len(view.peers) == 1
    assert sum(isinstance(request, ChildrenRequest) for request in crawler.asked) < 20


def test_a_root_that_does_not_answer_is_named_in_the_first_line():
    """A dead root's record displaced the real one for minutes, and status called everything fine."""
    roots = [PeerView(peer_id(n), address(n), role="root", level=0, answered=n == 0) for n in range(3)]
    view = MeshView("s", {root.peer_id: root for root in roots})
    assert as_table(view).startswith("s: 1 peer, 1 root; 2 dead roots still listed\n")
    assert as_table(view).count("dead root ") == 2
    assert as_dict(view)["silent_roots"] == 2
    assert view.has_root
    roots[0].answered = False
    assert not view.has_root
    assert as_table(view).startswith("s: 0 peers, 0 roots; no root answers, 3 dead roots still listed\n")


def test_the_table_says_which_parent_is_contradicted_and_why():
    peers = [PeerView(peer_id(0), address(0), role="root", level=0, answered=True)]
    peers.append(PeerView(peer_id(1), address(1), role="leaf", level=9, answered=True))
    peers[1].name, peers[1].disputes = "tower", "192.0.2.7:4600: omitted\x1b[2J"
    view = MeshView("s", {peer.peer_id: peer for peer in peers})
    last = as_table(view).splitlines()[-1]
    assert last.startswith("tower contradicts 192.0.2.7:4600: omitted")
    assert "\x1b" not in last


def test_a_strangers_query_does_not_steer_the_terminal():
    peer = PeerView(peer_id(1), address(1), role="router", query="/a = '\x1b[2J\x9b2J\u202e'", answered=True)
    text = as_table(MeshView("s", {peer.peer_id: peer}), wide=True)
    assert r"/a = '\x1b[2J\x9b2J\u202e'" in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


async def test_a_peer_that_invents_children_does_not_keep_the_crawl_for_minutes():
    crawler = Answering(1)
    invented = iter(range(1_000, 1_000_000))

    async def ask(at, request):
        crawler.asked.append(request)
        if at != address(0):
            return None
        if isinstance(request, StatusRequest):
            return State(peer_id(0), 0, 0, 255, True, 0, 0, 60_000, 60_000)
        if isinstance(request, ChildrenRequest):
            return Peers(tuple(PeerAt(peer_id(n), address(n % 50_000), 5) for n in islice(invented, 16)))
        return Peers(())

    crawler._ask = ask
    view = await crawler.look("s")
    assert not view.is_whole
    visited = sum(isinstance(request, StatusRequest) for request in crawler.asked)
    assert visited <= MAX_SILENT + 2 * MAX_AT_ONCE
