"""One parent lies about how far the stream goes; the honest ones beside it must not be shut out (rules L2, L3, L4)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import control, events, wire
from dcp.config import Config
from dcp.handshake import Start
from dcp.kinds import PACKETS
from dcp.links.link import Link
from dcp.parent import Parent
from dcp.queries import PredicatePolicy
from dcp.reach import Reach
from dcp.serial import MAX_POSITION, QUARTER
from dcp.testing import Conditions
from tests.dcp.world import World

FAR = 1 << 62
PARENTS = ("honest1", "liar", "honest2")


def keep_alive(link, now, previous, highest, *, claim=True):
    body = control.KeepAlive(link.times(now), link.child.epoch, claim, previous, highest)
    return link.encode(wire.KEEP_ALIVE, highest & 0xFFFFFFFF, previous & 0xFFFFFFFF, control.encode_keep_alive(body))


def lies_of(kind, link, now, head):
    hole = control.encode_hole(control.Hole(link.child.epoch, link.child.acked, FAR))
    edges = range(link.child.acked, link.child.acked + 8 * QUARTER, QUARTER)
    return {
        "far": [keep_alive(link, now, 0, FAR)],
        "far and narrow": [keep_alive(link, now, edge, edge + QUARTER) for edge in edges],
        "head": [keep_alive(link, now, 0, FAR, claim=False)],
        "hole": [keep_alive(link, now, 0, FAR, claim=False), link.encode(wire.CONTROL, 0, 0, hole)],
        "sent": [keep_alive(link, now, FAR - 1, FAR)],
        "leap": [link.encode(0, (head + (1 << 28)) & 0xFFFFFFFF, link.child.acked & 0xFFFFFFFF, b"forged")],
    }[kind]


def lie(world, kind):
    """The liar says it to every child, and again every 0.3 s."""
    sender = world.senders["liar"]
    for link in sender.links.values():
        if link.child.floor is not None:
            link.outbox.extend(lies_of(kind, link, world.net.now, sender.log.head))
            sender._busy[link.id] = link
    world.net.pump(world.address("liar"))
    world.net.after(0.3, lambda: lie(world, kind))


def publish_everywhere(world, names, ans, *, every=0.02, lag=0.005):
    for an in ans:
        for number, name in enumerate(names):
            world.net.after(number * lag, lambda n=name, an=an: world.publish(n, b"%d" % an, an=an))
        world.run(every)


@pytest.mark.parametrize("kind", ["far", "far and narrow", "head", "hole", "sent", "leap"])
@pytest.mark.parametrize("below_a_router", [False, True])
@pytest.mark.parametrize("pause", [0.0, 6.0])
def test_one_parent_that_claims_everything_up_to_2_62_does_not_mute_the_child(kind, below_a_router, pause):
    """Found: one keep-alive, and the child got 0 or 1 of the next 100 packets; what it passed on muted those below."""
    world = World(3)
    for name in PARENTS:
        world.root(name)
    if below_a_router:
        world.relay("router", PARENTS)
        world.client("client", ["router"])
    else:
        world.client("client", PARENTS)
    world.run(0.5)
    publish_everywhere(world, PARENTS, range(1, 11))
    lie(world, kind)
    publish_everywhere(world, ("honest1", "honest2"), range(11, 61))
    world.run(pause)
    publish_everywhere(world, ("honest1", "honest2"), range(61, 111))
    world.run(1.0)
    assert [an for an, _ in world.packets("client")] == list(range(1, 111))
    assert world.gaps("client") == []
    judge = world.receivers["router" if below_a_router else "client"].statistics(world.net.now)
    assert judge.beyond_reach + judge.too_wide > 5


def test_the_smallest_of_the_proposed_starts_is_taken():
    """Found: the first proposal won, and a start at 2^62 muted the child from the beginning."""
    world = World(3)
    world.net.set_conditions(Conditions(delay=0.03), ("honest1", 1), ("client", 1))
    world.root("honest1")
    world.root("liar", start=FAR)
    receiver = world.client("client", ["liar", "honest1"])
    world.run(0.5)
    assert receiver.position == 0
    publish_everywhere(world, ["honest1"], range(1, 20))
    world.run(0.5)
    assert [an for an, _ in world.packets("client")] == list(range(1, 20))


def test_a_parent_that_does_not_answer_holds_up_the_start_by_no_more_than_the_window():
    world = World(3)
    world.root("root")
    receiver = world.client("client", ["nobody", "root"])
    world.run(0.05 + world.config.oldest_window)
    assert receiver.position == 0


def test_a_single_parent_starts_without_a_wait():
    world = World(3)
    world.root("root")
    receiver = world.client("client", ["root"])
    world.run(0.06)
    assert receiver.position == 0


@pytest.mark.parametrize("jump", [5_000, 10_000_000, 1 << 29, (1 << 32) - 1])
@pytest.mark.parametrize("roots", [1, 2, 3])
def test_a_jump_that_every_root_makes_passes_as_soon_as_the_last_has_made_it(jump, roots):
    world = World(3, conditions=Conditions(delay=0.01))
    names = [f"root{number}" for number in range(roots)]
    for name in names:
        world.root(name)
    receiver = world.client("client", names)
    world.run(0.5)
    publish_everywhere(world, names, range(1, 6))
    after = range(5 + jump, 5 + jump + 20)
    publish_everywhere(world, names, after[:1], every=0.1, lag=0.02)
    if jump < QUARTER:
        assert receiver.position == after[0]
    publish_everywhere(world, names, after[1:])
    world.run(1.5)
    assert [an for an, _ in world.packets("client")] == [*range(1, 6), *after]
    assert world.gaps("client") == []


def test_a_jump_passes_while_another_parent_stands_still_for_long():
    """It can't be told from a forged packet, except by the others' silence: bounded, not for good."""
    world = World(3)
    for name in ("live", "still"):
        world.root(name)
    world.client("client", ["live", "still"])
    world.run(0.5)
    publish_everywhere(world, ["live", "still"], range(1, 6))
    world.publish("live", b"after the outage", an=9_000, contiguous=False)
    world.run(5.0)
    assert len(world.packets("client")) == 5
    world.run(world.config.reach_patience + world.config.mute_after)
    assert world.packets("client")[5:] == [(9_000, b"after the outage")]
    assert world.gaps("client") == [events.Gap(5, 8_999)]


def test_a_mute_parent_does_not_slow_a_fast_stream_for_long():
    world = World(3, conditions=Conditions(delay=0.005))
    for name in ("fast", "mute"):
        world.root(name)
    receiver = world.client("client", ["fast", "mute"])
    world.run(0.5)
    for first in range(1, 40_001, 100):
        world.senders["fast"].publish_many([b"x"] * 100)
        world.net.pump(("fast", 1))
        world.run(0.01)  # 10,000 a second
        if first == 30_001:
            assert receiver.position > 29_000
    world.run(1.0)
    assert len(world.packets("client")) == 40_000


def test_a_claim_wider_than_2_30_is_refused_even_from_an_only_parent():
    world = World(3)
    world.root("liar")
    receiver = world.client("client", ["liar"])
    world.run(0.5)
    lie(world, "far")
    world.run(0.1)
    world.publish("liar", b"x")
    world.run(0.5)
    assert [an for an, _ in world.packets("client")] == [1]
    assert receiver.statistics(world.net.now).too_wide > 0


def after_a_pause_the_near_root_lost_a_packet():
    world = World(3)
    for name in ("near", "far"):
        world.root(name)
    world.client("client", ["near", "far"])
    world.run(0.5)
    publish_everywhere(world, ["near", "far"], [1])
    world.run(6.0)
    world.publish("near", b"3", an=3, contiguous=False)
    world.run(0.1)
    return world


def test_a_packet_that_one_root_lost_after_a_pause_is_waited_for_from_the_farther_root():
    """Found: after 5 s idle a gap was declared at once, although the farther root had the packet 0.1 s later."""
    world = after_a_pause_the_near_root_lost_a_packet()
    world.publish("far", b"2", an=2)
    world.publish("far", b"3", an=3)
    world.run(1.0)
    assert [an for an, _ in world.packets("client")] == [1, 2, 3]
    assert world.gaps("client") == []


def test_a_packet_that_all_roots_lost_after_a_pause_is_a_gap():
    world = after_a_pause_the_near_root_lost_a_packet()
    world.publish("far", b"3", an=3, contiguous=False)
    world.run(0.2)
    assert world.gaps("client") == [events.Gap(1, 2)]
    assert [an for an, _ in world.packets("client")] == [1, 3]


def test_a_packet_that_the_only_advancing_root_lost_is_a_gap_in_bounded_time():
    world = World(3)
    for name in ("near", "still"):
        world.root(name)
    world.client("client", ["near", "still"])
    world.run(0.5)
    publish_everywhere(world, ["near", "still"], [1])
    world.publish("near", b"3", an=3, contiguous=False)
    world.run(world.config.mute_after + 1.0)
    assert world.gaps("client") == [events.Gap(1, 2)]
    assert [an for an, _ in world.packets("client")] == [1, 3]


def test_byte_streams_have_a_slack_in_bytes():
    world = World(3, stream_mode=True)
    for name in ("near", "far"):
        world.root(name)
    world.client("client", ["near", "far"])
    world.run(0.5)
    for name in ("near", "far"):
        world.publish(name, b"x" * 100_000)
        world.run(0.1)
        assert sum(len(data) for _, data in world.packets("client")) == 100_000


# --- the rule alone ---------------------------------------------------------------------------------------------------

CONFIG = Config()


def links_of(heads, now):
    links = {}
    for number, head in enumerate(heads):
        link = links[number] = Parent(Link(number, ("parent", number + 1), CONFIG, now=now), now=now)
        link.up = link.begun = True
        link.confirmed_epoch = 0
        link.link.heard_at = now
        link.report_head(head, now)
    return links


steps = st.lists(
    st.tuples(st.sampled_from(["liar says", "liar brings", "honest"]), st.integers(0, MAX_POSITION), st.floats(0, 1)),
    max_size=40,
)


@given(steps, st.integers(0, 1 << 40))
def test_a_liar_never_gets_beyond_the_honest_head_and_the_slack(steps, base):
    """Whatever it says, as long as the honest parent advances now and then and keeps up with what is believed."""
    links = links_of([base, base], 0.0)
    liar, honest = links.values()
    reach = Reach(CONFIG, links, slack=PACKETS.reach_slack)
    reach.begin(base)
    now = 0.0
    for what, an, wait in steps:
        now += wait
        for link in links.values():
            link.link.heard_at = now
        if what == "honest":
            honest.report_head(max(honest.head, reach.seen) + 1, now)
            continue
        believed = reach.allows(liar, an, 0, now)
        rate = honest.head_rate
        assert believed == (an <= liar.reach)
        if honest.head >= reach._seen_before and now - max(honest.progress_at, 0.0) <= CONFIG.reach_patience:
            assert liar.reach <= honest.head + max(PACKETS.reach_slack, 4 * rate)
        if not believed:
            reach.refused(liar, an, now, is_packet=what == "liar brings")
        elif what == "liar brings":
            reach.seen = max(reach.seen, an)


@given(st.lists(st.integers(0, MAX_POSITION), min_size=1, max_size=6))
def test_the_reach_of_each_is_the_smallest_head_of_the_others(heads):
    links = links_of(heads, 0.0)
    reach = Reach(CONFIG, links, slack=PACKETS.reach_slack)
    for number, link in links.items():
        others = [head for other, head in enumerate(heads) if other != number]
        expected = min(others) + PACKETS.reach_slack if others else MAX_POSITION
        assert reach.limit(link, 0, 0.0) == min(expected, MAX_POSITION)


@pytest.mark.parametrize("why", ["not up", "silent", "other epoch", "not begun", "mute"])
def test_who_does_not_count_limits_nobody(why):
    links = links_of([100, 5_000_000], 10.0)
    low, high = links.values()
    reach = Reach(CONFIG, links, slack=PACKETS.reach_slack)
    assert not reach.allows(high, 5_000_001, 0, 10.0)
    now = 10.0
    if why == "not up":
        low.up = False
    elif why == "silent":
        low.link.heard_at = 10.0 - 4 * CONFIG.keep_alive_interval
    elif why == "other epoch":
        low.confirmed_epoch = 1
    elif why == "not begun":
        low.begun = False
    else:
        reach.begin(101)
        assert not reach.allows(high, 5_000_001, 0, now), "it may still come: who answered first may have run ahead"
        now += CONFIG.mute_after
        low.link.heard_at = high.link.heard_at = now
    assert reach.allows(high, 5_000_001, 0, now)


def test_a_jump_is_not_taken_for_a_rate():
    links = links_of([0, 0], 0.0)
    liar, honest = links.values()
    reach = Reach(CONFIG, links, slack=PACKETS.reach_slack)
    reach.allows(liar, 0, 0, 0.0)
    honest.report_head(10_000_000, 0.6)
    reach.allows(liar, 0, 0, 0.6)
    assert liar.reach <= 10_000_000 + 4 * PACKETS.reach_slack


@pytest.mark.parametrize("start", [Start.NEW, Start.OLDEST])
def test_a_parent_whose_stream_has_not_begun_does_not_hold_up_the_others(start):
    world = World(3)
    world.root("root", start=5_000_000)
    world.root("later", start=None)
    world.client("client", ["root", "later"], start=start)
    world.run(0.5)
    publish_everywhere(world, ["root"], range(5_000_001, 5_000_010))
    world.run(0.5)
    assert len(world.packets("client")) == 9


def test_a_narrow_query_gets_its_packets_although_one_parent_runs_ahead():
    rng = random.Random(1)
    world = World(3, conditions=Conditions(delay=0.01, jitter=0.005, loss=0.05))
    for name in ("near", "far"):
        world.root(name, policy=PredicatePolicy(matches=lambda query, payload: payload == query))
    world.client("client", ["near", "far"], query=b"y")
    world.run(0.5)
    wanted = []
    for an in range(1, 300):
        payload = b"y" if rng.random() < 0.05 else b"n"
        if payload == b"y":
            wanted.append(an)
        world.publish("near", payload, an=an)
        world.net.after(0.4, lambda an=an, payload=payload: world.publish("far", payload, an=an))
        world.run(0.01)
    world.run(2.0)
    assert [an for an, _ in world.packets("client")] == wanted
