"""Children that are slow, silent or late, and applications that take nothing: who notices. Virtual time."""

from __future__ import annotations

from dcp import events
from dcp.config import Config
from dcp.control import Reason
from dcp.handshake import Start
from dcp.testing import Conditions
from tests.dcp.test_links import LOSSLESS, ans, publish_every
from tests.dcp.world import Wire, World

# --- slow, silent and late children -----------------------------------------------------------------------------------


def test_a_slow_child_is_disconnected_as_behind_and_its_sibling_never_notices():
    config = Config(max_log_packets=1_000, behind_after=2.0)
    world = World(14, conditions=LOSSLESS, config=config)
    world.root("root")
    world.client("slow", ["root"])
    world.client("quick", ["root"])
    world.run(0.5)
    world.net.set_conditions(Conditions(delay=0.01, rate=4_000, queue_bytes=4_000), ("root", 1), ("slow", 1))
    late = 0.0
    for an in range(1, 3_001):
        world.publish("root", bytes(100))
        start = world.net.now
        while world.receivers["quick"].position < an:
            world.net.run_until(world.net.now + 0.001)
        late = max(late, world.net.now - start)
        if an % 10 == 0:
            for name in ("slow", "quick"):
                world.drain(name)
    assert late < 0.0125
    assert [e.reason for e in world.told("root", events.ChildLost)] == [Reason.BEHIND]
    world.run(10.0)
    assert [e.reason for e in world.told("slow", events.LinkLost)] == [Reason.BEHIND]
    assert world.senders["root"].statistics(world.net.now).disconnected_behind == 1
    assert ans(world, "quick") == list(range(1, 3_001))


def test_a_child_that_never_catches_up_is_disconnected_too():
    """Found by reading: who joined at the oldest counted as catching up forever, however hopeless."""
    config = Config(max_log_packets=2_000, behind_after=2.0, catch_up_lag=100)
    world = World(15, conditions=LOSSLESS, config=config)
    world.root("root")
    for _ in range(2_500):
        world.publish("root", bytes(200))
    world.client("slow", ["root"], start=Start.OLDEST)
    world.net.set_conditions(Conditions(delay=0.01, rate=10_000, queue_bytes=8_000), ("root", 1), ("slow", 1))
    world.run(0.5)
    publish_every(world, ["root"], 0.005, 4_000, size=200)
    world.run(20.0)
    assert Reason.BEHIND in [e.reason for e in world.told("root", events.ChildLost)]


def test_a_child_that_catches_up_slowly_is_left_in_peace():
    config = Config(max_log_packets=4_000, behind_after=1.0, catch_up_lag=100)
    world = World(16, conditions=LOSSLESS, config=config)
    world.root("root")
    for _ in range(4_500):
        world.publish("root", bytes(200))
    world.client("late", ["root"], start=Start.OLDEST)
    world.net.set_conditions(Conditions(delay=0.01, rate=150_000, queue_bytes=64_000), ("root", 1), ("late", 1))
    publish_every(world, ["root"], 0.05, 200, size=200)
    world.run(14.0)
    assert world.told("root", events.ChildLost) == []
    assert ans(world, "late")[-1] == 4_700


def test_a_silent_child_is_disconnected_as_silent():
    world = World(17, conditions=LOSSLESS)
    world.root("root")
    world.client("client", ["root"])
    world.client("other", ["root"])
    world.run(0.5)
    world.net.freeze(("client", 1))
    world.run(world.config.dead_after + 1.0)
    assert [(e.address[0], e.reason) for e in world.told("root", events.ChildLost)] == [("client", Reason.SILENT)]
    assert world.senders["root"].statistics(world.net.now).disconnected_silent == 1
    world.net.thaw(("client", 1))
    world.run(2.0)
    assert world.told("client", events.LinkLost)  # by the reason on the wire, or by its own clock


def test_history_is_paced_and_a_live_sibling_is_not_delayed():
    config = Config(catch_up_lag=64)
    world = World(18, conditions=Conditions(delay=0.02), config=config)
    world.root("root")
    for _ in range(20_000):
        world.publish("root", bytes(300))
    world.client("live", ["root"])
    world.run(0.5)
    tap = Wire(world)
    world.client("late", ["root"], start=Start.OLDEST)
    late = 0.0
    for an in range(20_001, 20_101):
        world.publish("root", bytes(300))
        start = world.net.now
        while world.receivers["live"].position < an:
            world.net.run_until(world.net.now + 0.001)
        late = max(late, world.net.now - start)
        world.drain("late")
        world.drain("live")
    assert late < 0.0225
    world.run(20.0)
    assert ans(world, "late") == list(range(1, 20_101))
    history = [(when, len(data)) for when, source, to, data in tap.seen if (source, to) == ("root", "late")]
    begin = history[0][0]
    first = sum(size for when, size in history if when < begin + 0.2)
    # In its first round trips it gets a window a round trip at the most, not all 6 MB of history at once.
    assert first < 12 * config.initial_window
    burst = max(sum(size for when, size in history if at <= when < at + 0.001) for at, _ in history[::50])
    assert burst < config.max_window


# --- backpressure -----------------------------------------------------------------------------------------------------


def test_an_application_that_takes_nothing_stops_the_stream_without_a_gap():
    config = Config(max_ready_packets=100, max_buffer_packets=50, behind_after=600.0)
    world = World(19, conditions=LOSSLESS, config=config)
    for name in ("a", "b"):
        world.root(name)
    receiver = world.client("client", ["a", "b"])
    world.run(0.5)
    world.paused.add("client")
    publish_every(world, ["a", "b"], 0.005, 2_000)
    for _ in range(30):
        world.run(1.0)
        state = receiver.statistics(world.net.now)
        assert state.ready <= 100 + 64
        assert state.buffered <= 50
    assert state.gaps == 0
    world.paused.clear()
    world.run(15.0)
    assert ans(world, "client") == list(range(1, 2_001))
    assert not world.gaps("client")


def test_an_application_that_takes_again_is_served_within_a_round_trip():
    """The sender was told that there is no room; it must not learn of the new room from the next slow timer only."""
    config = Config(max_ready_packets=100, ack_interval=5.0)
    world = World(20, conditions=LOSSLESS, config=config)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    world.paused.add("client")
    for _ in range(300):
        world.publish("root", bytes(10))
    world.run(2.0)
    world.paused.clear()
    world.run(0.2)
    assert ans(world, "client") == list(range(1, 301))
