"""Profiles of a subscription: deadlines, the newest only, packets as they arrive; and wishes that contradict."""

from __future__ import annotations

import random

import pytest

from dcp import events
from dcp.arrival import ArrivalHandover
from dcp.handover import Handover
from dcp.profile import PLAIN, Profile, profile_of
from dcp.testing import Conditions
from tests.dcp.world import World

# --- wishes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"name": "fast"}, "profile must be one of reliable, latency, bandwidth, newest, got 'fast'"),
        ({"order": "random"}, "order must be one of sequence, arrival, got 'random'"),
        ({"deadline": 0}, "deadline must be in 0.001..60 seconds, got 0"),
        ({"deadline": float("nan")}, "deadline must be in 0.001..60 seconds, got nan"),
        ({"deadline": float("inf")}, "deadline must be in 0.001..60 seconds, got inf"),
        ({"deadline": True}, "deadline must be in 0.001..60 seconds, got True"),
        ({"name": "newest", "deadline": 1.0}, "newest gives up every lost packet at once: leave out the deadline"),
        ({"name": "reliable", "deadline": 1.0}, "reliable never gives up a packet that somebody has"),
        ({"loss_budget": 0.01}, "a loss budget is what a deadline may cost: give a deadline too"),
        ({"deadline": 1.0, "loss_budget": 1.0}, r"loss_budget must be a share in 0..1, got 1.0"),
        ({"name": "newest", "order": "arrival"}, "newest never waits for a packet: leave out order=arrival"),
        ({"deadline": 1.0, "is_client": False}, r"a deadline is for clients without children: join as a leaf"),
        ({"name": "newest", "is_client": False}, r"profile newest is for clients without children"),
        ({"order": "arrival", "is_client": False}, r"order=arrival is for clients without children"),
    ],
)
def test_wishes_that_contradict_are_one_sentence(wishes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        profile_of(**wishes)  # type: ignore[arg-type]


def test_what_wishes_add_up_to() -> None:
    assert profile_of() == Profile("reliable", 0.4, adapts=True)
    assert profile_of("bandwidth").byte_budget == 0
    assert profile_of("latency", is_client=False).byte_budget == 1.0
    assert profile_of(deadline=0.2, loss_budget=0.01) == Profile("latency", 1.0, 0.2, 0.01, adapts=True)
    assert profile_of("newest").deadline == 0
    assert not profile_of("newest").asks_again
    assert profile_of(order="arrival").order == "arrival"


def test_a_byte_stream_and_a_router_refuse_what_they_cannot_do() -> None:
    world = World(stream_mode=True)
    with pytest.raises(ValueError, match="a byte stream has no profile"):
        world.client("client", profile=profile_of("latency"))
    hub = World().hub("router")
    with pytest.raises(ValueError, match="a router's children get packets in order"):
        hub.relay("test", profile=profile_of(order="arrival"))


# --- deadlines --------------------------------------------------------------------------------------------------------

LOSSY = Conditions(delay=0.04, loss=0.2)


def timed(profile: Profile, *, seed: int, packets: int = 1_000, parents: int = 1, gap: float = 0.01) -> World:
    """A client that notes when each packet came in (`seen`) and when it was handed over (`at`)."""
    world = World(seed, conditions=Conditions(delay=0.04))
    roots = [f"root{i}" for i in range(parents)]
    for name in roots:
        world.root(name)
    receiver = world.client("client", roots, profile=profile)
    world.run(1.0)
    seen: dict[int, float] = {}
    at: dict[int, float] = {}
    hear = receiver._intake.hear

    def spy(claim: object, now: float) -> None:
        for an, _ in claim.packets:  # type: ignore[attr-defined]
            seen.setdefault(an, now)
        hear(claim, now)  # type: ignore[arg-type]

    receiver._intake.hear = spy  # type: ignore[method-assign, assignment]

    def on_turn(address: object) -> None:
        while address == ("client", 1) and (event := receiver.next_event()) is not None:
            world.got["client"].append(event)
            if isinstance(event, events.Packet):
                at[event.an] = world.net.now

    world.net._on_turn = on_turn
    world.net.set_conditions(LOSSY)
    for number in range(packets):

        def publish(number: int = number) -> None:
            for name in roots:
                world.publish(name, b"%d" % number)

        world.net.at(world.net.now + number * gap, publish)
    world.run(packets * gap)
    world.net.set_conditions(Conditions(delay=0.04))
    world.run(20.0)
    world.seen, world.at = seen, at  # type: ignore[attr-defined]
    return world


def covered(world: World, last: int) -> None:
    """Every AN up to `last` once: as a packet, or inside exactly one gap."""
    found: dict[int, str] = {}
    for event in world.got["client"]:
        if isinstance(event, events.Packet):
            ans, what = [event.an], "packet"
        elif isinstance(event, events.Gap):
            ans, what = list(range(event.after + 1, event.until + 1)), "gap"
        else:
            continue
        for an in ans:
            assert an not in found, f"{an} is a {what}, and was a {found[an]}"
            found[an] = what
    assert sorted(found) == list(range(1, last + 1))


@pytest.mark.parametrize("parents", [1, 2])
def test_nothing_waits_longer_than_the_deadline(parents: int) -> None:
    world = timed(profile_of(deadline=0.1), seed=3, parents=parents)
    late = [world.at[an] - world.seen[an] for an in world.at]  # type: ignore[attr-defined]
    assert max(late) <= 0.1 + 0.015
    covered(world, 1_000)
    assert world.gaps("client") or parents == 2
    assert world.receivers["client"].statistics(world.net.now).expired == len(world.gaps("client"))


def test_without_a_deadline_the_same_packets_wait_longer_and_none_is_lost() -> None:
    world = timed(PLAIN, seed=3)
    late = [world.at[an] - world.seen[an] for an in world.at]  # type: ignore[attr-defined]
    assert max(late) > 0.2
    assert not world.gaps("client")


def test_a_deadline_leaves_time_for_a_repair() -> None:
    world = timed(profile_of(deadline=0.5), seed=4)
    assert len(world.packets("client")) > 990
    covered(world, 1_000)


def test_a_parent_that_claims_far_ahead_does_not_make_the_deadline_skip_what_is_not_published_yet() -> None:
    world = World(5)
    for name in ("honest", "liar"):
        world.root(name)
    world.client("client", ["honest", "liar"], profile=profile_of(deadline=0.05))
    world.run(0.5)
    world.publish("liar", b"ahead", an=900, contiguous=False)
    world.run(0.5)
    assert not world.gaps("client")
    for number in range(1, 20):
        world.publish("honest", b"%d" % number)
        world.run(0.1)
    assert [an for an, _ in world.packets("client")] == list(range(1, 20))


def test_a_deadline_that_a_silent_parent_would_hold_up_ends_soon_after() -> None:
    world = World(6, conditions=Conditions(delay=0.01))
    for name in ("lives", "dies"):
        world.root(name)
    world.client("client", ["lives", "dies"], profile=profile_of(deadline=0.1))
    world.run(0.5)
    world.net.crash(world.address("dies"))
    world.run(0.05)
    world.publish("lives", b"hole", an=5, contiguous=False)
    world.publish("lives", b"next", an=6)
    world.run(0.7)
    assert world.gaps("client") == [events.Gap(0, 4)]


# --- the newest -------------------------------------------------------------------------------------------------------


def test_newest_never_asks_and_never_waits() -> None:
    world = timed(profile_of("newest"), seed=7)
    stats = world.receivers["client"].statistics(world.net.now)
    assert stats.nacks == 0
    late = [world.at[an] - world.seen[an] for an in world.at]  # type: ignore[attr-defined]
    assert max(late) <= 0.002
    assert 700 < len(world.packets("client")) < 900
    covered(world, 1_000)


def test_an_application_that_falls_behind_gets_the_newest_and_a_gap() -> None:
    handover = Handover(8, deliver=True, log=None, keeps_newest=True)
    handover.start(0)
    for an in range(1, 21):
        assert handover.has_room(an - 1)
        handover.put([(an, b"x")], 1, b"")
    taken = handover.take(100, 20)
    assert taken[0] == events.Started(0)
    assert isinstance(taken[1], events.Gap)
    assert taken[1].after == 0
    assert taken[1].until >= 10
    assert [item[0] for item in taken[2:]] == list(range(taken[1].until + 1, 21))
    assert handover.skipped == taken[1].until
    assert handover.bytes == 0


def test_switches_of_the_query_survive_in_their_places() -> None:
    handover = Handover(8, deliver=True, log=None, keeps_newest=True)
    for an in range(1, 31):
        assert handover.has_room(an - 1)
        handover.put([(an, b"x")], 1, b"")
        if an == 3:
            handover.put_switch(3, b"q")
    taken = handover.take(100, 30)
    assert taken[:2] == [events.Gap(0, 3), events.QuerySwitched(3, b"q")]
    assert isinstance(taken[2], events.Gap)


def test_what_may_not_be_skipped_closes_the_window_in_the_end() -> None:
    handover = Handover(4, deliver=True, log=None, keeps_newest=True)
    for an in range(1, 5):
        handover.put_late(an, b"x", in_order=False)
    assert not handover.has_room(9)
    assert handover.turned_away


# --- as they arrive ---------------------------------------------------------------------------------------------------


def test_packets_come_as_they_arrive_each_once_and_none_is_missing() -> None:
    world = timed(profile_of(order="arrival"), seed=8)
    late = [world.at[an] - world.seen[an] for an in world.at]  # type: ignore[attr-defined]
    assert max(late) <= 0.002
    ans = [an for an, _ in world.packets("client")]
    assert ans != sorted(ans)
    assert not world.gaps("client")
    covered(world, 1_000)


def test_in_arrival_order_a_gap_leaves_out_what_was_handed_over_early() -> None:
    world = timed(profile_of(deadline=0.06, order="arrival"), seed=9)
    assert world.gaps("client")
    covered(world, 1_000)


def test_arrival_against_a_model() -> None:
    """Claims in any order, gaps over anything: each AN is a packet or in a gap, exactly once."""
    for seed in range(300):
        rng = random.Random(seed)
        handover = ArrivalHandover(1_000, max_bytes=1 << 20, max_early=rng.choice([2, 5, 100]))
        handover.start(0)
        position, waiting = 0, set()
        while position < 40:
            what = rng.random()
            ahead = rng.randint(position + 1, position + 12)
            if what < 0.5 and ahead > position + 1:
                handover.put_early([(ahead, b"%d" % ahead)])
                waiting.add(ahead)
            elif what < 0.9:
                position += 1
                handover.put([(position, b"%d" % position)], 2, b"")
                handover.advance(position, b"")
            else:
                until = min((an for an in waiting if an > position), default=ahead + 1) - 1
                until = until if rng.random() < 0.5 else ahead  # a gap over what waits, too
                if until > position:
                    handover.put_gap(position, until)
                    position = until
        seen: list[int] = []
        for item in handover.take(10_000, position):
            if isinstance(item, events.Packet):
                seen.append(item.an)
            elif isinstance(item, events.Gap):
                assert item.until > item.after
                seen += range(item.after + 1, item.until + 1)
        assert sorted(an for an in seen if an <= position) == list(range(1, position + 1)), seed
        assert len(seen) == len(set(seen)), seed
        assert handover.bytes == 0


def test_a_packet_handed_over_early_and_then_denied_is_not_repeated_as_omitted() -> None:
    handover = ArrivalHandover(100, max_bytes=1 << 20, max_early=10)
    handover.start(0)
    handover.put_early([(5, b"five")])
    handover.put([(9, b"nine")], 4, b"")  # a claim (0, 9] with 9 alone, by a parent that lies
    handover.advance(9, b"")
    handover.put_late(5, b"five", in_order=False)
    handover.put_late(6, b"six", in_order=False)
    assert handover.take(10, 9)[1:] == [events.Packet(5, b"five"), events.Packet(9, b"nine"), events.Omitted(6, b"six")]


# --- routers ----------------------------------------------------------------------------------------------------------


def test_a_router_gives_up_only_what_all_its_children_would() -> None:
    world = World(30, conditions=Conditions(delay=0.02))
    world.root("root")
    router = world.relay("router", ["root"])
    world.client("hasty", ["router"], profile=profile_of(deadline=0.1))
    world.run(2.0)
    assert router._deadline is not None
    assert router._deadline.seconds == 0.1
    world.client("slower", ["router"], profile=profile_of(deadline=0.4))
    world.run(2.0)
    assert router._deadline.seconds == 0.4
    world.client("patient", ["router"])
    world.run(2.0)
    assert router._deadline is None
    for link in list(world.receivers["patient"].links):
        world.receivers["patient"].remove_sender(link)
    world.net.pump(("patient", 1))
    world.run(2.0)
    assert router._deadline is not None
    assert router._deadline.seconds == 0.4


def test_a_router_with_an_application_of_its_own_waits() -> None:
    world = World(31)
    hub = world.hub("router")
    receiver, _ = hub.relay("test", deliver=True)
    assert receiver._children_deadline is None
    receiver, _ = hub.relay("other", deliver=False)
    assert receiver._children_deadline is not None
