"""`confirm="all"`: the application gets what all parents agree about, in order, whoever leaves packets out."""

from __future__ import annotations

import random

import pytest

from dcp import events
from dcp.config import Config
from dcp.confirming import ConfirmedHandover
from dcp.log import Log
from dcp.profile import profile_of
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.world import World

ALL = profile_of(confirm="all")


def two_parents(*, seed=3, loss=0.0, **options):
    world = World(seed, conditions=Conditions(delay=0.005, loss=loss), **options)
    for name in ("honest", "liar"):
        world.root(name)
    world.client("client", ["honest", "liar"], profile=ALL)
    world.run(0.5)
    return world


def publish(world, last, *, leaves_out=lambda an: False, lag=0.05):
    """The honest parent is the slower one: what the liar leaves out comes behind what it brings."""
    for an in range(1, last + 1):
        if not leaves_out(an):
            world.publish("liar", b"%d" % an, an=an)
        world.net.after(lag, lambda an=an: world.publish("honest", b"%d" % an, an=an))
        world.run(0.02)
    world.run(3.0)


def handed(world):
    return [event for event in world.got["client"] if not isinstance(event, events.Started)]


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_what_a_parent_leaves_out_comes_in_order(loss):
    world = two_parents(loss=loss)
    publish(world, 200, leaves_out=lambda an: an % 7 == 0)
    assert handed(world) == [events.Packet(an, b"%d" % an) for an in range(1, 201)]


def test_the_first_copy_alone_comes_out_of_order():
    """What the rule is for: without it the same run hands packets over late."""
    world = World(3, conditions=Conditions(delay=0.005))
    for name in ("honest", "liar"):
        world.root(name)
    world.client("client", ["honest", "liar"])
    world.run(0.5)
    publish(world, 100, leaves_out=lambda an: an % 7 == 0)
    assert any(isinstance(event, events.Omitted) for event in handed(world))


def test_nothing_is_handed_over_that_one_parent_has_not_spoken_about():
    world = two_parents()
    world.publish("liar", b"1", an=1)
    world.run(1.0)
    assert handed(world) == []
    assert not world.receivers["client"].has_events
    assert not world.receivers["client"].is_drained
    world.publish("honest", b"1", an=1)
    world.run(1.0)
    assert handed(world) == [events.Packet(1, b"1")]


def test_a_parent_that_dies_holds_up_the_application_for_seconds_and_no_longer():
    world = two_parents()
    publish(world, 20)
    world.net.crash(world.address("liar"))
    for an in range(21, 41):
        world.publish("honest", b"%d" % an, an=an)
        world.run(0.02)
    world.run(12.0)
    assert handed(world) == [events.Packet(an, b"%d" % an) for an in range(1, 41)]


def test_gaps_keep_their_place():
    world = two_parents()
    publish(world, 10)
    for name in ("honest", "liar"):
        world.senders[name].publish_hole(20)
        world.publish(name, b"21", an=21)
    world.run(4.0)
    assert handed(world)[10:] == [events.Gap(10, 20), events.Packet(21, b"21")]


def test_a_queue_that_is_full_of_what_waits_goes_on_when_parents_agree():
    world = two_parents(config=Config(max_ready_packets=16))
    publish(world, 200)
    world.run(20.0)
    assert handed(world) == [events.Packet(an, b"%d" % an) for an in range(1, 201)]


def test_a_router_passes_on_at_once_what_its_own_application_waits_for():
    world = World(4, conditions=Conditions(delay=0.005))
    for name in ("one", "two"):
        world.root(name)
    hub = world.hub("router")
    world.receivers["router"], world.senders["router"] = hub.relay("test", profile=ALL, deliver=True)
    world.net.add(world.address("router"), hub)
    for name in ("one", "two"):
        world.join("router", name)
    world.run(0.5)
    world.client("leaf", ["router"])
    world.run(0.5)
    world.publish("one", b"1", an=1)
    world.run(0.5)
    assert [an for an, _ in world.packets("leaf")] == [1]
    assert world.packets("router") == []
    world.publish("two", b"1", an=1)
    world.run(1.0)
    assert [an for an, _ in world.packets("router")] == [1]


def test_an_application_that_fell_behind_is_served_from_the_log_and_waits_all_the_same():
    log = Log(PredicatePolicy(), max_packets=100, max_bytes=1 << 20, max_segments=8)
    handover = ConfirmedHandover(4, deliver=True, log=log)
    handover.start(0)
    for an in (1, 2, 4, 5, 6, 7, 8, 9, 10):
        assert handover.has_room(an - 1)
        handover.put([(an, b"x")], 1, b"")
    handover.settle(2)
    assert log.settled == 2
    assert [item[0] for item in handover.take(99, 10)] == [0, 1, 2]
    assert not handover.has_events
    handover.put_late(3, b"late", in_order=False)  # one that was passed over, and is not settled yet
    handover.settle(10)
    got = []
    while (taken := handover.take(99, 10)) != []:
        got += taken
    assert [item[0] for item in got] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert handover.is_drained


def test_numbers_that_begin_again_release_what_waited():
    handover = ConfirmedHandover(100, deliver=True, log=None)
    handover.start(1_000)
    handover.put([(1_001, b"x")], 1, b"")
    handover.start(0, again=True)
    handover.put([(1, b"y")], 1, b"")
    assert [item[0] for item in handover.take(9, 1)] == [1_000, 1_001, 0]
    handover.settle(1)
    assert [item[0] for item in handover.take(9, 1)] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_late_packets_in_any_order_come_out_in_order(seed):
    rng = random.Random(seed)
    handover = ConfirmedHandover(10_000, deliver=True, log=None)
    handover.start(0)
    ans = list(range(1, 101))
    late = set(rng.sample(ans, 20))
    handover.put([(an, b"x") for an in ans if an not in late], 80, b"")
    got = []
    settled = 0
    for an in rng.sample(sorted(late), 20):
        if an > settled:
            handover.put_late(an, b"x", in_order=False)
            late.discard(an)
            settled = rng.randint(settled, min(late, default=101) - 1)
            handover.settle(settled)
            got += handover.take(rng.randint(1, 40), 100)
    handover.settle(100)
    got += handover.take(1_000, 100)
    assert [item[0] for item in got] == [0, *ans]
    assert handover.bytes == 0


@pytest.mark.parametrize("wish", [{"deadline": 0.1}, {"name": "newest"}, {"order": "arrival"}])
def test_wishes_that_contradict_it_are_refused(wish):
    with pytest.raises(ValueError, match="confirm=all waits until all parents agree"):
        profile_of(confirm="all", **wish)
