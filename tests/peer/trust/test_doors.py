"""The door of a peer's links, without a mesh behind it."""

from __future__ import annotations

import random

from dcp import Config, Hub
from dcp.events import OpeningReceived
from dht.identity import Identity
from peer.link_map import LinkMap
from peer.trust.doors import MAX_WAITING, Doors
from peer.trust.gate import Gate, Shown

KEY = Identity.from_seed(bytes(32))


def make_doors(**gate):
    hub = Hub(Config(), rng=random.Random(1))
    sender = hub.serve("asdi")
    return Doors("asdi", hub, LinkMap(None, sender), Gate("asdi", wall=lambda: 0.0, **gate), lambda event: None)


def opening(ticket):
    return OpeningReceived("asdi", ticket, ("10.0.0.1", 1), b"", b"", b"", b"")


def test_joins_that_the_mesh_never_answers_do_not_pile_up():
    doors = make_doors()
    for ticket in range(10_000):
        assert doors.admits(opening(ticket), None, 0.0)
    assert len(doors._waiting) == MAX_WAITING


def test_a_child_whose_join_was_forgotten_has_proved_nothing():
    doors = make_doors(owner=KEY.peer_id, is_root=True, withholds=True)
    assert doors.restricts(7)
    doors.answered(7, 1)
    assert doors._children == {1: Shown(None)}
