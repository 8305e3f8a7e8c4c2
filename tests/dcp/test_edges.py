"""Nothing is lost at the edges: oldest packets behind holes, numberings that begin again, timers that must fire."""

from __future__ import annotations

import random

import pytest

from dcp import events
from dcp.config import Config
from dcp.events import Gap, Packet, Started
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.world import STREAM, World

# --- the oldest packet ------------------------------------------------------------------------------------------------


def publish_with_holes(world, name, ans):
    for an in ans:
        world.publish(name, b"%d" % an, an=an, contiguous=False)


def test_the_oldest_packet_may_lie_before_a_hole():
    """Found: 1 of 66 real lines came, since each line before had a hole after it; exit 0."""
    world = World(1)
    world.root("root", start=None)
    publish_with_holes(world, "root", range(10, 200, 3))
    world.client("client", ["root"], start=Start.OLDEST)
    world.run(2.0)
    assert [an for an, _ in world.packets("client")] == list(range(10, 200, 3))
    assert world.gaps("client") == [Gap(an, an + 2) for an in range(10, 197, 3)]


def test_the_oldest_packet_is_the_oldest_of_any_parent():
    world = World(1)
    for name in ("short", "long"):
        world.root(name, start=None)
    publish_with_holes(world, "long", [3, 7, 10])
    publish_with_holes(world, "short", [7, 8, 10])
    world.client("client", ["short", "long"], start=Start.OLDEST)
    world.run(2.0)
    assert [an for an, _ in world.packets("client")] == [3, 7, 8, 10]
    assert world.gaps("client") == [Gap(3, 6), Gap(8, 9)]


def test_what_a_router_received_under_a_narrower_query_is_a_gap_for_a_wider_one():
    def policy():
        return PredicatePolicy(
            matches=lambda query, payload: payload[0] in query, covers=lambda outer, inner: set(inner) <= set(outer)
        )

    world = World(1)
    world.root("root", policy=policy())
    receiver = world.relay("router", ["root"], policy=policy(), query=b"a")
    world.run(0.5)
    for kind in b"abab":
        world.publish("root", bytes((kind,)))
    world.run(0.5)
    receiver.change_query(b"ab", now=world.net.now)
    world.net.pump(("router", 1))
    world.run(0.5)
    for kind in b"abab":
        world.publish("root", bytes((kind,)))
    world.run(0.5)
    world.client("narrow", ["router"], query=b"a", start=Start.OLDEST)
    world.client("wide", ["router"], query=b"ab", start=Start.OLDEST)
    world.run(1.0)
    assert [an for an, _ in world.packets("narrow")] == [1, 3, 5, 7]
    assert world.gaps("narrow") == []
    assert [an for an, _ in world.packets("wide")] == [5, 6, 7, 8]


# --- a numbering that begins again ------------------------------------------------------------------------------------


def restart(world, name):
    """The root forgets everything, as one without its state does."""
    world.root(name, start=None)


def rejoin(world, child, parents):
    """What an owner does with links that were lost."""
    for parent in parents:
        if not any(link.address == (parent, 1) for link in world.receivers[child].links.values()):
            world.join(child, parent)


def run_and_rejoin(world, seconds, parents, *, every=0.1):
    for _ in range(round(seconds / every)):
        world.run(every)
        rejoin(world, "client", parents)


def test_the_owner_hears_that_all_parents_are_below_our_position():
    """Found: a root restarted without its state, and its packets were dropped as old, in silence."""
    world = World(1)
    world.root("root")
    receiver = world.client("client", ["root"])
    world.run(0.5)
    for _ in range(400):
        world.publish("root", b"old")
    world.run(0.5)
    restart(world, "root")
    for _ in range(100):
        world.publish("root", b"new")
        run_and_rejoin(world, 0.2, ["root"])
    (stranded,) = world.told("client", events.Stranded)
    assert stranded.position == 400
    assert 0 < stranded.head <= 100
    receiver.begin_again()
    run_and_rejoin(world, 1.0, ["root"])
    world.publish("root", b"newest")
    world.run(0.5)
    assert [event for event in world.got["client"] if isinstance(event, Started)] == [Started(0), Started(0)]
    assert world.packets("client")[400:] == [*((an, b"new") for an in range(1, 101)), (101, b"newest")]
    assert receiver.statistics(world.net.now).restarts == 1


def test_another_run_of_all_parents_begins_the_stream_again_at_once():
    world = World(1)
    for name in ("a", "b"):
        world.root(name)
    receiver = world.client("client", ["a", "b"])
    world.run(0.5)
    for link in list(receiver.links):
        receiver.set_run(link, b"first", now=world.net.now)
    for an in range(1, 101):
        for name in ("a", "b"):
            world.publish(name, b"old", an=an)
    world.run(0.5)
    for name in ("a", "b"):
        restart(world, name)
        for an in range(1, 6):
            world.publish(name, b"new", an=an)

    def tell():
        for link_id, link in list(receiver.links.items()):
            if link.up:
                receiver.set_run(link_id, b"second", now=world.net.now)

    for _ in range(60):
        run_and_rejoin(world, 0.1, ["a", "b"])
        tell()
    assert receiver.statistics(world.net.now).restarts == 1
    assert [payload for _, payload in world.packets("client")] == [b"old"] * 100 + [b"new"] * 5


def test_one_parent_of_another_run_restarts_nothing_while_one_of_ours_is_heard():
    world = World(1)
    for name in ("honest", "liar"):
        world.root(name)
    receiver = world.client("client", ["honest", "liar"])
    world.run(0.5)
    for link_id, link in receiver.links.items():
        receiver.set_run(link_id, b"liar's" if link.address == ("liar", 1) else b"ours", now=world.net.now)
    for an in range(1, 51):
        world.publish("honest", b"x", an=an)
        world.run(0.1)
        for link_id, link in list(receiver.links.items()):
            if link.address == ("liar", 1):
                receiver.set_run(link_id, b"run %d" % an, now=world.net.now)
    assert len(world.packets("client")) == 50
    assert receiver.statistics(world.net.now).restarts == 0


@pytest.mark.parametrize("lag", [1.0, 3.0])
def test_parents_that_are_only_late_are_not_stranded(lag):
    """The one that was ahead dies; the other comes to our position after a while."""
    world = World(1, conditions=Conditions(delay=0.01))
    for name in ("ahead", "late"):
        world.root(name)
    world.client("client", ["ahead", "late"])
    world.run(0.5)
    for an in range(1, 301):
        if an <= 150:
            world.publish("ahead", b"x", an=an)
        world.net.after(lag, lambda an=an: world.publish("late", b"x", an=an))
        if an == 150:
            world.net.crash(("ahead", 1))
        world.run(0.1)
    world.run(lag + 1)
    assert [an for an, _ in world.packets("client")] == list(range(1, 301))
    assert world.told("client", events.Stranded) == []


def test_a_stream_that_is_at_rest_is_not_stranded():
    world = World(1)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    world.publish("root", b"x")
    world.run(60.0)
    assert world.told("client", events.Stranded) == []


def test_a_router_begins_again_with_its_children():
    world = World(1)
    world.root("root")
    router = world.relay("router", ["root"])
    client = world.client("client", ["router"])
    world.run(0.5)
    for _ in range(50):
        world.publish("root", b"old")
    world.run(0.5)
    restart(world, "root")
    for _ in range(3):
        world.publish("root", b"new")
    router.begin_again()
    world.run(0.1)
    world.join("router", "root")
    world.run(1.0)
    assert router.position == 3
    client.begin_again()
    world.run(0.1)
    world.join("client", "router")
    world.run(1.0)
    world.publish("root", b"newest")
    world.run(0.5)
    assert [payload for _, payload in world.packets("client")] == [b"old"] * 50 + [b"new"] * 3 + [b"newest"]


# --- timers -----------------------------------------------------------------------------------------------------------


def test_a_timer_is_not_moved_on_by_reading_it():
    """Found: each look at an overdue timer put it off by another millisecond, so a flood kept it from firing."""
    hub = Hub(Config(), rng=random.Random(1))
    hub.subscribe(STREAM)
    hub.add_sender(STREAM, ("nobody", 1), now=0.0)
    due = hub.next_timeout(now=0.0)
    assert due is not None
    for step in range(2_000):
        assert hub.next_timeout(now=step * 5e-4) == due
    hub.handle_timeout(now=1.0)
    assert hub.next_timeout(now=1.0) > 1.0


def test_a_gap_is_looked_at_although_datagrams_come_all_the_time():
    world = World(1)
    root = world.root("root")
    receiver = world.client("client", ["root"])
    world.run(0.5)
    world.publish("root", b"x")
    world.publish("root", b"y", an=4, contiguous=False)
    receiver._losses.watch(True, world.net.now)
    first = world.hubs["client"].next_timeout(now=world.net.now)
    assert world.hubs["client"].next_timeout(now=world.net.now + 0.0999) == first
    world.run(0.5)
    assert [type(event) for event in world.got["client"]] == [Started, Packet, Gap, Packet]
    assert root.log.head == 4


def test_a_wide_hole_of_one_parent_does_not_cover_what_another_has_brought():
    world = World(12)
    world.root("has", start=0)
    world.root("lost", start=0)
    world.client("client", ["has", "lost"])
    world.run(0.5)
    world.net.set_conditions(Conditions(loss=1.0), world.address("has"), world.address("client"))
    for number in range(1, 10):
        world.publish("has", b"%d" % number)
    world.net.set_conditions(Conditions(), world.address("has"), world.address("client"))
    world.publish("has", b"10")
    world.net.set_conditions(Conditions(loss=1.0), world.address("has"), world.address("client"))
    world.run(0.05)
    world.net.crash(world.address("has"))
    world.senders["lost"].publish_hole(20)
    world.net.pump(world.address("lost"))
    world.run(20.0)
    assert world.packets("client") == [(10, b"10")]
    assert world.gaps("client") == [(0, 9), (10, 20)]
